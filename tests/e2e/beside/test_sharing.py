"""GPUs that pods share: replicas of time-sliced ones, and shares that something keeps apart."""

import pytest
from controlplane.cards import wait_for_reason, where
from controlplane.nodes import NODES
from controlplane.pods import Pods, container
from controlplane.process import wait_until

from linkwise.cluster import container_variables, keys

POLICY = f"""
sharing:
  rename: true
  computeByMps: true
  groups:
    - nodeLabels: {{pool: strict}}
      config:
        sharing:
          timeSlicing:
            renameByDefault: true
            failRequestsGreaterThanOne: true
            resources: [{{name: {keys.NVIDIA_GPU}, replicas: 4}}]
    - nodeLabels: {{pool: loose}}
      config:
        sharing:
          timeSlicing:
            renameByDefault: true
            resources: [{{name: {keys.NVIDIA_GPU}, replicas: 2}}]
"""
SLICED = {"name": "sliced", "machine": "t4x4", "mode": "timeslice"}
STRICT = {**SLICED, "replicas": 4, "labels": {"pool": "strict"}}
LOOSE = {**SLICED, "replicas": 2, "labels": {"pool": "loose"}}
SHARING = {"name": "share", "machine": "t4x4", "gpuMemory": 15}
ONE, TWO = ({keys.NVIDIA_GPU_SHARED: number} for number in (1, 2))
IN_STRICT = {"nodeSelector": {"pool": "strict"}}


@pytest.fixture(scope="module", autouse=True)
def groups(policy_with, webhook):
    """Lets the policy say how GPUs are shared."""
    probe = Pods(webhook.plane.api, "default")
    with policy_with(POLICY):
        # The webhook's policy: the scorer's says nothing of how GPUs are shared.
        wait_until(
            lambda: "LW301" in probe.refusal(TWO, spec=IN_STRICT, dryRun="All"),
            "the policy is taken",
        )
        yield


@pytest.fixture
def sliced(nodes, pods):
    """Adds a node of one of the groups, and waits until the webhook knows it."""

    def add(line):
        there = {"nodeSelector": line["labels"]}

        def is_placed():
            made = pods.create(ONE, spec=there, dryRun="All")
            return made["spec"]["schedulerName"] == keys.SCHEDULER

        wait_until(lambda: not is_placed(), "the webhook knows no node of the test before")
        nodes(line)
        wait_until(is_placed, "the webhook knows the node")

    return add


def limits(pods, spec, **options):
    """Create a pod that asks for a GPU by NVIDIA's name; return what it asks for then."""
    made = pods.create({keys.NVIDIA_GPU: 1}, spec=spec, **options)
    found = made["spec"]["containers"][0]["resources"]["limits"]
    return {name: int(amount) for name, amount in found.items()}


def container_env(pods, name):
    """Return the variables of a pod's container as a kubelet would set them."""
    pod = pods.all()[name]
    annotations = pod["metadata"]["annotations"]

    def value(one):
        if "valueFrom" not in one:
            return one.get("value", "")
        path = one["valueFrom"]["fieldRef"]["fieldPath"]
        return annotations.get(path.removeprefix("metadata.annotations['").removesuffix("']"), "")

    return {one["name"]: value(one) for one in pod["spec"]["containers"][0]["env"]}


def isolation(pods, name):
    return pods.all()[name]["metadata"]["annotations"][keys.ISOLATION]


# ---- Replicas of time-sliced GPUs.


def test_replicas_lie_on_different_gpus_of_one_pod_and_of_several(pods, sliced):
    sliced(LOOSE)

    found = {}
    for name, asked in {"a": ONE, "b": ONE, "pair": TWO}.items():
        pods.create(asked, name=name)
        found[name] = where(pods, name)[1]

    assert found == {"a": (0,), "b": (1,), "pair": (2, 3)}
    assert container_env(pods, "pair")[container_variables.ENV_VISIBLE_DEVICES] == "2,3"
    assert isolation(pods, "pair") == "none"


def test_replicas_of_a_gang_lie_on_different_gpus(pods, sliced):
    sliced(LOOSE)
    gang = {keys.GANG: "training", keys.GANG_SIZE: "3"}

    for i in range(3):
        pods.create(ONE, name=f"worker-{i}", annotations=gang)

    cards = [where(pods, f"worker-{i}")[1] for i in range(3)]
    assert sorted(cards) == [(0,), (1,), (2,)]


def test_more_than_one_is_refused_where_the_plugins_file_says_that_it_fails(pods, sliced):
    sliced(STRICT)

    why = pods.refusal(TWO, spec=IN_STRICT)

    assert "LW301" in why
    assert "shared by 4" in why


def test_request_by_the_other_name_gets_a_replica_and_its_memory(pods, sliced):
    sliced(STRICT)

    assert limits(pods, IN_STRICT) == ONE
    assert where(pods, "pod") == ("sliced", (0,))
    variables = container_env(pods, "pod")
    assert variables[container_variables.ENV_VISIBLE_DEVICES] == "0"
    assert variables[container_variables.ENV_REPLICAS] == "4"
    assert variables[container_variables.ENV_MEMORY_FRACTION] == "0.225"


def test_a_pod_without_a_free_replica_waits_with_the_reason(pods, sliced, sidecar):
    sliced(LOOSE)
    pods.api.patch(f"{NODES}/sliced", {"metadata": {"annotations": {keys.CORDON: "0,1,2"}}})

    def given_out():
        return [gpu["i"] for gpu in sidecar.node("sliced")["gpus"] if not gpu["cordoned"]]

    wait_until(lambda: given_out() == [3], "the scorer knows")
    for name in ("first", "second"):
        pods.create(ONE, name=name)
        assert where(pods, name) == ("sliced", (3,))

    # Of the eight that the scheduler counts.
    pods.create(ONE, name="third")
    wait_for_reason(pods, "third", "not enough without the GPUs that are cordoned or unhealthy")


def test_a_pod_for_a_replica_that_names_another_scheduler_is_refused_with_a_suggestion(
    pods, sliced
):
    sliced(LOOSE)

    message = pods.refusal(ONE, spec={"schedulerName": "another"})

    assert "leave schedulerName out, or write linkwise [LW116]" in message


# ---- What keeps shares apart.


def test_a_share_on_an_mps_node_has_its_limits_and_says_whether_the_daemon_is_reached(pods, nodes):
    nodes({**SHARING, "mode": "mps"})
    asked = container({keys.GPU_MEM: 4, keys.GPU_CORE: 20})
    pipes = "/run/mps"
    env = {container_variables.ENV_MPS_THREADS: "10", container_variables.ENV_MPS_PIPES: pipes}
    client = {
        **asked,
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "volumeMounts": [{"name": "mps", "mountPath": pipes}],
    }
    volume = {"name": "mps", "hostPath": {"path": pipes}}
    pods.create(name="client", spec={"containers": [client], "volumes": [volume]})
    pods.create(name="without", spec={"containers": [asked]})

    assert [where(pods, name) for name in ("client", "without")] == [("share", (0,))] * 2
    assert container_env(pods, "client") == {
        **env,
        container_variables.ENV_MPS_MEMORY: "0=4096M",
        container_variables.ENV_VISIBLE_DEVICES: "0",
        keys.MEM_IDX: "0",
        keys.MEM_POD: "4",
        keys.MEM_DEV: "15",
        keys.MEM_CONTAINER: "4",
    }
    assert container_env(pods, "without")[container_variables.ENV_MPS_THREADS] == "20"
    assert isolation(pods, "client") == "mps"
    assert isolation(pods, "without") == "none"


@pytest.mark.parametrize(("mode", "kept"), [("share", "none"), ("cgpu", "cgpu")])
def test_share_reports_the_limits_that_its_node_enforces(pods, nodes, mode, kept):
    nodes({**SHARING, "mode": mode})

    pods.create({keys.GPU_MEM: 4})

    assert where(pods, "pod") == ("share", (0,))
    assert isolation(pods, "pod") == kept
