"""Pods for `nvidia.com/gpu` that get their GPUs by a ResourceClaim."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.admission import (
    ARENA,
    GATE,
    NO_CAPACITY,
    TIME_SLICING,
    a_snapshot,
    admitted,
    codes,
    env_of,
    outcome_of,
    patched,
    requirements_of,
)
from support.builders import (
    TIED,
    a_claimed_pod,
    a_container,
    a_counted_node,
    a_node,
    a_pod,
    an_exact_node,
)

from linkwise.admission.decide.admit import admit
from linkwise.admission.decide.outcome import Verdict
from linkwise.admission.read.claims import NO_CLAIM
from linkwise.cluster import container_variables, keys
from linkwise.cluster.finding import Code, Severity
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.cluster.nodes.node import DevicePool, Node
from linkwise.cluster.nodes.node_capacity import capacity_of
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.request import Request
from linkwise.cluster.requests.request_reader import read_request

GPU = {keys.NVIDIA_GPU: 1}
AUTO, ALWAYS, OFF = "", "placement: {claims: always}", "placement: {claims: off}"
SETS = a_snapshot(ALWAYS)


def a_claims_node(name: str = "claims-0", **labels: str) -> Node:
    labels = {keys.NODE_MODE: "topology", "kind": "claims", **labels}
    node = a_node(name, labels=labels, resources={})
    return replace(node, pool=DevicePool(name, tuple(f"gpu-{i}" for i in range(8))))


def request_of(pod: dict[str, Any]) -> Request:
    request, findings = read_request(msgspec.convert(pod, Pod))
    assert not [each for each in findings if each.severity is Severity.ERROR], findings
    return request


def claims_of(pod: dict[str, Any], kind: str = "containers") -> list[Any]:
    """Return the references of each container to requests of its claim."""
    return [container.get("resources", {}).get("claims") for container in pod["spec"][kind]]


def references(request: str) -> list[dict[str, str]]:
    return [{"name": "linkwise", "request": request}]


def test_a_single_pod_refers_to_its_claim():
    pod = a_pod({"cpu": 2, keys.NVIDIA_GPU: 4})
    pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": 2, keys.NVIDIA_GPU: 4}

    after = admitted(pod, SETS)

    assert after == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "pod",
            "namespace": "default",
            "annotations": {"linkwise.dev/claimed-gpus": '{"container-0":4}'},
        },
        "spec": {
            "containers": [
                {
                    "name": "c0",
                    "resources": {
                        "limits": {"cpu": 2},
                        "requests": {"cpu": 2},
                        "claims": [{"name": "linkwise", "request": "container-0"}],
                    },
                    "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],
                }
            ],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {
                                        "key": "ack.node.gpu.schedule",
                                        "operator": "In",
                                        "values": ["topology"],
                                    }
                                ]
                            }
                        ]
                    }
                }
            },
            "schedulingGates": [{"name": "linkwise.dev/gang"}],
            "resourceClaims": [{"name": "linkwise", "resourceClaimName": NO_CLAIM}],
        },
    }


def test_the_name_of_the_claim_is_the_given_one():
    outcome = admit(
        msgspec.convert(a_pod(GPU), Pod),
        namespace="default",
        namespace_labels={},
        policy=SETS,
        capacity=NO_CAPACITY,
        new_claim="lw-0123",
    )

    after = patched(a_pod(GPU), outcome)
    assert after["spec"]["resourceClaims"] == [{"name": "linkwise", "resourceClaimName": "lw-0123"}]


def test_each_app_container_has_a_request_of_its_own():
    after = admitted(a_pod({keys.NVIDIA_GPU: 2}, {"cpu": 1}, {keys.NVIDIA_GPU: "1"}), SETS)

    assert claims_of(after) == [references("container-0"), None, references("container-2")]
    assert after["metadata"]["annotations"] == {
        keys.CLAIMED_GPUS: '{"container-0":2,"container-2":1}'
    }
    assert [env_of(after, i)[container_variables.ENV_VISIBLE_DEVICES] for i in range(3)] == [
        "void"
    ] * 3


@pytest.mark.parametrize(
    ("asked", "request_"),
    [
        pytest.param(1, "container-1", id="fewest that are enough"),
        pytest.param(2, "container-0", id="as many"),
    ],
)
def test_an_init_container_uses_the_gpus_of_an_app_container(asked: int, request_: str):
    init = a_container({keys.NVIDIA_GPU: asked}, name="i")
    pod = a_pod({keys.NVIDIA_GPU: 2}, {keys.NVIDIA_GPU: 1}, initContainers=[init])

    after = admitted(pod, SETS)

    assert claims_of(after, "initContainers") == [references(request_)]
    assert after["spec"]["initContainers"][0]["resources"]["limits"] == {}
    assert request_of(after).gpus == 3


def test_annotations_and_claims_of_the_user_stay():
    claims = [{"name": "channel", "resourceClaimTemplateName": "channels"}]
    pod = a_pod(GPU, annotations={"a": "b"}, resourceClaims=claims)
    pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "channel"}]

    outcome = outcome_of(pod, SETS)
    after = patched(pod, outcome)

    assert after["metadata"]["annotations"] == {"a": "b", keys.CLAIMED_GPUS: '{"container-0":1}'}
    assert after["spec"]["resourceClaims"] == [
        *claims,
        {"name": "linkwise", "resourceClaimName": NO_CLAIM},
    ]
    assert claims_of(after) == [[{"name": "channel"}, *references("container-0")]]
    assert codes(outcome) == [Code.CLAIMS]


def test_a_member_of_a_gang_waits_with_its_gang():
    after = admitted(a_pod(GPU, labels=ARENA), SETS)

    assert after["spec"]["schedulingGates"] == [GATE]
    assert requirements_of(after) == {keys.NODE_MODE: ["topology"]}
    assert not request_of(after).by_count


def test_a_profile_can_demand_claims():
    profile = {
        "name": "dra",
        "objectSelector": {"matchLabels": {"team": "a"}},
        "effect": {"labels": {keys.CLAIMS: "true"}},
    }
    policy = a_snapshot("", [profile])

    assert request_of(admitted(a_pod(GPU, labels={"team": "a"}), policy)).by_claim
    assert not request_of(admitted(a_pod(GPU, labels={"team": "b"}), policy)).by_claim


CLAIMS, EXACT, COUNTED = a_claims_node(), an_exact_node(labels={"kind": "exact"}), a_counted_node()
SELECTS_CLAIMS = {"nodeSelector": {"kind": "claims"}}


@pytest.mark.parametrize(
    ("policy", "nodes", "label", "pod", "expected"),
    [
        pytest.param(AUTO, [], None, {}, False, id="auto, no node"),
        pytest.param(AUTO, [CLAIMS], None, {}, True, id="auto, claims"),
        pytest.param(AUTO, [EXACT], None, {}, False, id="auto, exact"),
        pytest.param(AUTO, [COUNTED], None, {}, False, id="auto, counted"),
        pytest.param(AUTO, [CLAIMS, EXACT], None, {}, False, id="auto, claims and exact"),
        pytest.param(AUTO, [CLAIMS, COUNTED], None, {}, False, id="auto, claims and counted"),
        pytest.param(
            AUTO, [CLAIMS, EXACT, COUNTED], None, SELECTS_CLAIMS, True, id="auto, selects claims"
        ),
        pytest.param(AUTO, [CLAIMS, COUNTED], None, TIED, True, id="auto, selects the mode"),
        pytest.param(
            AUTO, [CLAIMS], None, {"nodeSelector": {"kind": "x"}}, False, id="auto, matches none"
        ),
        pytest.param(AUTO, [CLAIMS], "false", {}, False, id="auto, claims, label false"),
        pytest.param(AUTO, [COUNTED], "true", {}, True, id="auto, counted, label true"),
        pytest.param(ALWAYS, [], None, {}, True, id="always, no node"),
        pytest.param(ALWAYS, [EXACT, COUNTED], None, {}, True, id="always, others"),
        pytest.param(ALWAYS, [CLAIMS], "false", {}, False, id="always, label false"),
        pytest.param(OFF, [CLAIMS], None, {}, False, id="off, claims"),
        pytest.param(OFF, [CLAIMS], "true", {}, True, id="off, label true"),
        pytest.param(
            "placement: {claims: always, nvidia: off}", [], "true", {}, False, id="nvidia off"
        ),
        pytest.param(ALWAYS, [], None, {"schedulerName": "volcano"}, False, id="other scheduler"),
        pytest.param(ALWAYS, [], None, {"nodeName": "n"}, False, id="node name"),
        pytest.param(
            ALWAYS, [], "true", {"nodeSelector": {keys.NODE_MODE: "default"}}, False, id="mode"
        ),
    ],
)
def test_policy_label_and_nodes_decide(
    policy: str, nodes: list[Node], label: str | None, pod: dict[str, Any], expected: bool
):
    labels = None if label is None else {keys.CLAIMS: label}
    capacity = capacity_of(nodes)

    after = admitted(a_pod(GPU, labels=labels, **pod), a_snapshot(policy), capacity=capacity)

    assert request_of(after).by_claim is expected
    assert ("resourceClaims" in after["spec"]) is expected


@pytest.mark.parametrize(
    ("gpus", "expected"), [(8, True), (9, False)], ids=["fits", "more than a claims node has"]
)
def test_auto_demands_a_claims_node_with_as_many_gpus(gpus: int, expected: bool):
    pod = a_pod({keys.NVIDIA_GPU: gpus})

    after = admitted(pod, capacity=capacity_of([CLAIMS]))

    assert request_of(after).by_claim is expected


@pytest.mark.parametrize(
    ("labels", "resources", "expected"),
    [
        pytest.param({}, {}, True, id="no resource"),
        pytest.param({}, {keys.NVIDIA_GPU: 0}, True, id="of a plugin that is gone"),
        pytest.param({}, {keys.NVIDIA_GPU: 8}, False, id="a device plugin"),
        pytest.param({}, {keys.GPU_WHOLE: 8}, False, id="the agent"),
        pytest.param({keys.RESOURCE_NAME: "nvidia.com-gpu"}, {}, False, id="an agent that starts"),
        pytest.param({keys.RESOURCE_NAME: "gpu.nvidia.com"}, {}, True, id="an agent that watches"),
    ],
)
def test_without_slices_a_claims_node_is_one_that_offers_nothing(
    labels: dict[str, str], resources: dict[str, int], expected: bool
):
    node = a_node(machine=None, labels=labels, resources=resources)

    capacity = capacity_of([node], claims_gpus=4)

    assert [each.gpus for each in capacity.claims] == [4] * expected
    assert capacity_of([node]).claims == ()


def test_a_pod_above_the_largest_claims_node_is_a_finding():
    pod = a_pod({keys.NVIDIA_GPU: 9}, labels={keys.CLAIMS: "true"})

    def message(*nodes: Node) -> str:
        (finding,) = outcome_of(pod, capacity=capacity_of(nodes)).findings
        return finding.message

    assert message(CLAIMS) == "9 nvidia.com/gpu is more than any node has: at most 8 on one node"
    assert message(COUNTED).endswith("no node with GPUs of NVIDIA's DRA driver is known")


@pytest.mark.parametrize(
    ("pod", "field", "problem"),
    [
        pytest.param(
            a_pod(GPU, initContainers=[a_container({keys.NVIDIA_GPU: 2}, name="i")]),
            "spec.initContainers[0].resources.limits[nvidia.com/gpu]",
            "init container 'i' asks for 2 GPUs",
            id="init container with more",
        ),
        pytest.param(
            a_pod({}, initContainers=[a_container(GPU, name="i")]),
            "spec.initContainers[0].resources.limits[nvidia.com/gpu]",
            "none asks for more than 0",
            id="init container alone",
        ),
        pytest.param(
            a_pod(GPU, initContainers=[a_container(GPU, name="s", restartPolicy="Always")]),
            "spec.initContainers[0].resources.limits[nvidia.com/gpu]",
            "sidecar 's' asks for GPUs",
            id="sidecar",
        ),
        pytest.param(
            a_pod(GPU, resourceClaims=[{"name": "linkwise", "resourceClaimName": "mine"}]),
            "spec.resourceClaims[0].name",
            "is the name of the claim",
            id="name of the reference is taken",
        ),
    ],
)
def test_a_pod_that_cannot_be_turned_is_refused(pod: dict[str, Any], field: str, problem: str):
    outcome = outcome_of(pod, SETS)

    (finding,) = (each for each in outcome.findings if each.severity is Severity.ERROR)
    assert (finding.code, finding.field) == (Code.NO_CLAIM, field)
    assert problem in finding.message
    assert outcome.patch == ()
    assert Code.NO_CLAIM not in codes(outcome_of(pod, a_snapshot(OFF)))


@pytest.mark.parametrize("value", ["", "yes", "True", "x" * 300])
def test_a_label_of_another_value_is_refused(value: str):
    outcome = outcome_of(a_pod(GPU, labels={keys.CLAIMS: value}))

    assert codes(outcome, Severity.ERROR) == [Code.CLAIMS_LABEL]


@pytest.mark.parametrize(
    "policy",
    [
        "containers: {gpuInjection: runtimeClass}",
        "containers: {gpuInjection: nri}",
        "placement: {mode: scheduler}",
    ],
)
def test_settings_for_other_nodes_change_nothing(policy: str):
    pod = a_pod(containers=[a_container(GPU, name="c" * 63)], labels={keys.CLAIMS: "true"})
    pod["spec"]["containers"][0]["name"] = "c" * 63

    assert admitted(pod, a_snapshot(policy)) == admitted(pod)


def test_variables_of_the_user_give_no_gpus():
    env = [{"name": container_variables.ENV_VISIBLE_DEVICES, "value": "all"}]
    pod = a_pod(
        containers=[a_container(GPU, env=env), a_container(name="b", env=env)],
    )

    outcome = outcome_of(pod, SETS)
    after = patched(pod, outcome)

    assert env_of(after) == env_of(after, 1) == {container_variables.ENV_VISIBLE_DEVICES: "void"}
    assert set(codes(outcome)) == {Code.VISIBLE_DEVICES}


def test_a_pod_is_turned_after_its_resource_is_renamed():
    policy = TIME_SLICING.replace("renameByDefault: true", "renameByDefault: false")
    pod = a_pod({keys.NVIDIA_GPU_SHARED: 1})

    after = admitted(pod, a_snapshot(policy + "  rename: true\nplacement: {claims: always}"))

    assert after["spec"]["containers"][0]["resources"]["limits"] == {}
    assert claims_of(after) == [references("container-0")]


def test_amounts_that_a_user_writes_are_replaced():
    pod = a_pod(GPU, annotations={keys.CLAIMED_GPUS: '{"container-0":8}'})

    outcome = outcome_of(pod, SETS)

    after = patched(pod, outcome)
    assert after["metadata"]["annotations"] == {keys.CLAIMED_GPUS: '{"container-0":1}'}
    assert codes(outcome, Severity.WARNING) == [Code.RECORD_REMOVED]


@pytest.mark.parametrize("limits", [GPU, {keys.GPU_WHOLE: 1}], ids=["counted", "exact"])
def test_amounts_of_a_pod_without_a_claim_are_removed(limits: dict[str, int]):
    pod = a_pod(limits, annotations={keys.CLAIMED_GPUS: '{"container-0":8}'})

    assert keys.CLAIMED_GPUS not in admitted(pod)["metadata"]["annotations"]


HOSTILE = {
    "claim of another pod": a_pod(resourceClaims=[{"name": "a", "resourceClaimName": NO_CLAIM}]),
    "under our reference": a_pod(
        resourceClaims=[{"name": "linkwise", "resourceClaimName": NO_CLAIM}]
    ),
    "beside GPUs of its own": a_pod(
        GPU, resourceClaims=[{"name": "linkwise", "resourceClaimName": NO_CLAIM}]
    ),
    "amounts of nothing": a_claimed_pod(0),
    "limits beside the claim": {
        **a_claimed_pod(1),
        "spec": {**a_claimed_pod(1)["spec"], "initContainers": [a_container(GPU, name="i")]},
    },
    "node name": a_claimed_pod(1, nodeName="n"),
    "two claims": {
        **a_claimed_pod(1),
        "spec": {
            **a_claimed_pod(1)["spec"],
            "resourceClaims": [
                {"name": "linkwise", "resourceClaimName": NO_CLAIM},
                {"name": "b", "resourceClaimName": f"{keys.CLAIM_PREFIX}{'1' * 32}"},
            ],
        },
    },
}


@pytest.mark.parametrize("pod", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_pod_that_names_a_claim_of_linkwise_in_another_form_is_refused(pod: dict[str, Any]):
    outcome = outcome_of(pod)

    assert outcome.verdict is Verdict.DENIED
    assert {Code.CLAIM_REFERENCE, Code.NODE_NAME} & set(codes(outcome, Severity.ERROR))


def test_the_form_of_admission_by_hand_waits_at_the_gate():
    after = admitted(a_claimed_pod(2))

    assert after["spec"]["schedulingGates"] == [GATE]
    assert requirements_of(after) == {keys.NODE_MODE: ["topology"]}
    assert request_of(after).gpus == 2


AMOUNT = st.integers(0, 3)


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    apps = draw(st.lists(AMOUNT, min_size=1, max_size=4).filter(any))
    inits = draw(st.lists(st.integers(0, max(apps)), max_size=2))

    def container(gpus: int, name: str) -> dict[str, Any]:
        made = a_container({keys.NVIDIA_GPU: gpus} if gpus else None, name=name)
        if gpus and draw(st.booleans()):
            made["resources"]["requests"] = {keys.NVIDIA_GPU: gpus}
        if gpus and draw(st.booleans()):
            made["resources"]["claims"] = [{"name": "own"}]
        return made

    pod = a_pod(
        containers=[container(gpus, f"c{i}") for i, gpus in enumerate(apps)],
        initContainers=[container(gpus, f"i{i}") for i, gpus in enumerate(inits)],
        labels=draw(st.sampled_from([None, ARENA])),
        annotations=draw(st.sampled_from([None, {}, {keys.CLAIMED_GPUS: "x"}])),
    )
    if draw(st.booleans()):
        pod["spec"]["resourceClaims"] = [{"name": "own", "resourceClaimName": "mine"}]
    return pod


@given(pod=pods(), policy=st.sampled_from([SETS, a_snapshot(f"{ALWAYS}\nenvironment: refuse")]))
def test_the_number_of_gpus_stays_and_a_second_admission_adds_nothing(
    pod: dict[str, Any], policy: Any
):
    before, after = request_of(pod), admitted(pod, policy)

    found = request_of(after)
    assert found.by_claim
    assert found.gpus == before.gpus
    apps = [(each.index, each.gpus) for each in before.containers if not each.init]
    assert [(each.index, each.gpus) for each in found.containers if not each.init] == apps
    assert keys.NVIDIA_GPU not in json.dumps(after)
    again = outcome_of(after, policy)
    assert again.verdict is Verdict.ALLOWED
    assert again.patch == ()


def test_capacity_of_a_claims_node_is_neither_exact_nor_counted():
    capacity = capacity_of([CLAIMS])

    assert (capacity.exact, capacity.counted, capacity.whole) == ((), (), 0)
    assert capacity.claims_gpus == 8
    assert Capacity().claims == ()
