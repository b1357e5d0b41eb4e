"""The judge finds each kind of pod that has more GPUs than it requests."""

import json

import pytest
from controlplane.bypass.judge import Judge, amount, total
from controlplane.history import History, Write

from linkwise.cluster import container_variables, keys

JUDGE = Judge(
    {"gpu-0": (1, 0, 0), "share": (0, 15, 100)}, {"gpu-0": "topology", "share": "core_mem"}
)
VISIBLE, OFF = container_variables.ENV_VISIBLE_DEVICES, container_variables.ENV_CGPU_OFF
RECORD = {"node": "gpu-0", "gpus": [{"i": 0}, {"i": 1}]}
SHARE = {"node": "share", "gpus": [{"i": 0, "mem": 4, "core": 50}]}
PLACED = {keys.ALLOCATION: json.dumps(RECORD), keys.VISIBLE_DEVICES: "0,1"}
SHARED = {
    keys.ALLOCATION: json.dumps(SHARE),
    keys.VISIBLE_DEVICES: "0",
    keys.MEM_IDX: "0",
    keys.MEM_POD: "4",
}
WHOLE = {keys.GPU_WHOLE: "2"}
PART = {keys.GPU_MEM: "4", keys.GPU_CORE: "50"}


def reference(annotation, name=VISIBLE):
    path = f"metadata.annotations['{annotation}']"
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


OURS = reference(keys.VISIBLE_DEVICES)


def variable(value, name=VISIBLE):
    return {"name": name, "value": value}


def container(limits=None, *env, name="main"):
    return {"name": name, "resources": {"limits": limits or {}}, "env": list(env)}


def pod(*containers, annotations=None, node="", name="pod", **spec):
    metadata = {"namespace": "team", "name": name, "uid": name, "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"containers": containers, "nodeName": node, **spec}}


def debugged(*env, annotations=None):
    debug = [container({}, *env, name="debug")]
    asks = container(WHOLE, OURS) if annotations else container()
    return pod(asks, annotations=annotations, ephemeralContainers=debug)


def excluding(mode):
    expression = {"key": keys.NODE_MODE, "operator": "NotIn", "values": [mode]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def mounting(path, *env):
    return {**container({}, *env), "volumeMounts": [{"name": "null", "mountPath": path}]}


NVIDIA = {keys.NVIDIA_GPU: "2"}
COUNTED = {keys.ALLOCATION: json.dumps({"node": "plain", "gpus": None, "count": 2})}


@pytest.mark.parametrize(
    "fine",
    [
        pytest.param(pod(container()), id="no GPU"),
        pytest.param(pod(container({}, variable("void"))), id="void"),
        pytest.param(pod(container(WHOLE, OURS)), id="waits"),
        pytest.param(pod(container(WHOLE, OURS), annotations=PLACED), id="placed"),
        pytest.param(pod(container(WHOLE, OURS), annotations=PLACED, node="gpu-0"), id="bound"),
        pytest.param(pod(container(PART, OURS), annotations=SHARED, node="share"), id="share"),
        pytest.param(debugged(), id="debugged"),
        pytest.param(
            pod(container(NVIDIA), node="gpu-0", affinity=excluding("topology")),
            id="rejected by the kubelet",
        ),
        pytest.param(pod(container(NVIDIA), node="share"), id="not offered by the node"),
        pytest.param(pod(container(NVIDIA), annotations=COUNTED, node="plain"), id="by count"),
        pytest.param(debugged(variable("void"), annotations=PLACED), id="debugged, with GPUs"),
        pytest.param(pod(mounting("/run/nvidia-container-devices/0")), id="another folder"),
        pytest.param(
            pod(container({}, variable("all", container_variables.ENV_MIG_MONITOR))),
            id="MIG is read without GPUs",
        ),
        pytest.param(
            pod(container({}, variable("", container_variables.ENV_IMEX_CHANNELS))), id="no channel"
        ),
    ],
)
def test_pod_with_what_it_requests_is_fine(fine):
    assert list(JUDGE.of_pod(fine)) == []


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (pod(container(WHOLE, OURS), node="gpu-0"), "without a record"),
        (pod(container(NVIDIA), node="gpu-0", affinity=excluding("share")), "without a record"),
        (pod(container({keys.GPU_WHOLE: "1"}, OURS), annotations=PLACED), "has 2 GPUs"),
        (pod(container({}, variable("void")), annotations=PLACED), "has 2 GPUs"),
        (pod(container(WHOLE, OURS), annotations=PLACED, node="share"), "its GPUs are of gpu-0"),
        (pod(container({**PART, keys.GPU_MEM: "3"}, OURS), annotations=SHARED), "has 4 GiB"),
        (pod(container({}, variable("all"))), "sees what"),
        (pod(container({}, variable("void"), variable("$(A)"))), "sees what"),
        (pod(container({}, reference("any"))), "sees what"),
        (pod(container({}, OURS)), "requests no GPU"),
        (pod(container(WHOLE)), "has no variable"),
        (
            pod(container(WHOLE, OURS), annotations={**PLACED, keys.VISIBLE_DEVICES: "0,7"}),
            "sees ['0', '7']",
        ),
        (
            pod(
                container({keys.GPU_WHOLE: "1"}, OURS),
                container({keys.GPU_WHOLE: "1"}, OURS),
                annotations=PLACED,
            ),
            "and requests 1",
        ),
        (pod(container(WHOLE, OURS), annotations={"cdi.k8s.io/any": ""}), "has the annotation cdi"),
        (pod(container(WHOLE, OURS), annotations={keys.MEM_IDX: "0"}), "before a record"),
        (
            pod(container(PART, OURS), annotations={**SHARED, keys.MEM_IDX: "3"}),
            "instead of",
        ),
        (pod(container(PART, OURS, variable("true", OFF)), annotations=SHARED), "limits off"),
        (
            pod(container(PART, OURS, variable("15", keys.MEM_CONTAINER)), annotations=SHARED),
            "another limit",
        ),
        (
            pod(container(PART, OURS, variable("3", keys.MEM_IDX)), annotations=SHARED),
            "says itself",
        ),
        (pod(container({}, variable("0", container_variables.ENV_IMEX_CHANNELS))), "gets what"),
        (pod(container({}, variable("all", container_variables.ENV_MIG_CONFIG))), "gets what"),
        (
            pod(container(WHOLE, OURS, variable("all", container_variables.ENV_MIG_MONITOR))),
            "gets what",
        ),
        (
            pod(container(), initContainers=[mounting(f"{container_variables.DEVICE_MOUNTS}/all")]),
            "is mounted at",
        ),
        (pod(mounting(f"//a/..{container_variables.DEVICE_MOUNTS}/./imex/0")), "is mounted at"),
        (pod(mounting(f"{container_variables.DEVICE_MOUNTS[1:]}/0")), "is mounted at"),
        (
            pod(container(), ephemeralContainers=[mounting(container_variables.DEVICE_MOUNTS)]),
            "is mounted at",
        ),
        (debugged(variable("0", container_variables.ENV_IMEX_CHANNELS)), "gets what"),
        (debugged(variable("all")), "ephemeral container debug"),
        (debugged(annotations=PLACED), "ephemeral container debug"),
    ],
)
def test_pod_with_more_than_it_requests_is_found(bad, problem):
    assert problem in " ".join(JUDGE.of_pod(bad))


def written(*pods):
    return History(None, [Write(float(at), one, gone=False) for at, one in enumerate(pods)])


def test_gpu_of_two_pods_is_found():
    first, second = (
        pod(container(WHOLE, OURS), annotations=PLACED, name=name) for name in ("a", "b")
    )

    assert JUDGE.problems(written(first, first)) == []
    assert JUDGE.problems(written(first, second)) == [
        "team/b: GPU 0 of gpu-0 is overbooked",
        "team/b: GPU 1 of gpu-0 is overbooked",
    ]


def test_shares_beyond_a_card_are_found():
    pods = [pod(container(PART, OURS), annotations=SHARED, name=name) for name in "abc"]

    assert JUDGE.problems(written(*pods[:2])) == []
    assert JUDGE.problems(written(*pods)) == ["team/c: GPU 0 of share is overbooked"]


@pytest.mark.parametrize(
    ("text", "value"), [("8", 8), ("8k", 8000), ("2Ki", 2048), ("1500m", 2), ("1u", 1), ("0", 0)]
)
def test_amounts_are_read_as_api_servers_write_them(text, value):
    assert amount(text) == value


def test_total_follows_the_rule_of_init_containers_and_sidecars():
    sidecar = {**container({keys.GPU_WHOLE: "1"}), "restartPolicy": "Always"}
    init = [sidecar, container({keys.GPU_WHOLE: "4"})]

    assert total({"containers": [container(WHOLE)]}, keys.GPU_WHOLE) == 2
    assert total({"containers": [container(WHOLE)], "initContainers": init}, keys.GPU_WHOLE) == 5
    assert (
        total({"containers": [container(WHOLE)] * 3, "initContainers": init}, keys.GPU_WHOLE) == 7
    )
