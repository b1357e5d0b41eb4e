"""A waiting pod is kept in compact form, with all that planning reads."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_held_pod, a_node

from linkwise.cluster import container_variables, keys
from linkwise.cluster.gang import gang_mark, is_member, link_strictness
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.nodes.isolation import isolation_of
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.objects.selector import node_matches, tolerates
from linkwise.cluster.requests import mps
from linkwise.cluster.requests.demand import OTHERS_MAX
from linkwise.cluster.requests.neighbors.rules import NO_RULES
from linkwise.cluster.requests.request_reader import read_request
from linkwise.cluster.volumes.pod_claims import claims_of
from linkwise.planning.gang.compact_pod import compact
from linkwise.planning.gang.patches import allocation_patch
from linkwise.planning.gang.pod_info import pod_info
from linkwise.planning.placement.explain import delegated_constraints
from linkwise.planning.placement.pods.member import new_member
from linkwise.workloads import operator_keys
from linkwise.workloads.rank import rank_order

NAMES = sorted(
    {
        text
        for module in (keys, container_variables, operator_keys)
        for text in vars(module).values()
        if isinstance(text, str)
    }
)
"""All wire names."""
TEXTS = st.dictionaries(
    st.sampled_from(NAMES) | st.just("other"), st.sampled_from(["1", "2", "a", "launcher"])
)
VALUES = st.lists(st.sampled_from(["a", "b", "1"]), max_size=2)
REQUIREMENTS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["zone", keys.NODE_NAME_FIELD]),
            "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt"]),
            "values": VALUES,
        }
    ),
    max_size=2,
)
TERMS = st.lists(
    st.fixed_dictionaries(
        {}, optional={"matchExpressions": REQUIREMENTS, "matchFields": REQUIREMENTS}
    ),
    max_size=2,
)
SOME = st.sampled_from([None, {}, {"a": [1]}])
AFFINITIES = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "nodeAffinity": st.fixed_dictionaries(
            {},
            optional={
                "requiredDuringSchedulingIgnoredDuringExecution": st.fixed_dictionaries(
                    {"nodeSelectorTerms": TERMS}
                )
            },
        ),
        "podAffinity": SOME,
        "podAntiAffinity": SOME,
    },
)
AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "storage", *keys.RESOURCES]), st.sampled_from(["1", 2, "5"])
)
REFERENCES = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from([keys.POD_CLAIM, "other"])},
        optional={"request": st.sampled_from(["container-0", "container-1"])},
    ),
    max_size=2,
)
CLAIMS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from([keys.POD_CLAIM, "other"]),
            "resourceClaimName": st.sampled_from([f"{keys.CLAIM_PREFIX}{'0' * 32}", "mine"]),
        }
    ),
    max_size=2,
)
TEXTS_OF_CLAIMS = st.sampled_from(['{"container-0":1}', '{"container-0":2,"container-1":1}', "x"])
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.just("c")},
        optional={
            "resources": st.fixed_dictionaries(
                {}, optional={"limits": AMOUNTS, "requests": AMOUNTS, "claims": REFERENCES}
            ),
            "env": st.lists(
                st.fixed_dictionaries(
                    {"name": st.sampled_from(NAMES), "value": st.sampled_from(["", "true", "$(a)"])}
                ),
                max_size=3,
            ),
            "envFrom": st.sampled_from([[], [{}]]),
            "ports": st.lists(
                st.fixed_dictionaries(
                    {"containerPort": st.just(80), "hostPort": st.integers(0, 1)}
                ),
                max_size=2,
            ),
            "restartPolicy": st.sampled_from([None, "Always"]),
            "volumeMounts": st.just([{"name": "pipes", "mountPath": mps.PIPES}]),
        },
    ),
    min_size=1,
    max_size=2,
)
VOLUMES = st.lists(
    st.sampled_from(
        [
            {"name": "pipes", "hostPath": {"path": "/a"}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "a"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "empty"},
        ]
    ),
    max_size=2,
)
SPECS = st.fixed_dictionaries(
    {"containers": CONTAINERS},
    optional={
        "initContainers": CONTAINERS,
        "affinity": AFFINITIES,
        "nodeSelector": st.just({"zone": "a"}),
        "tolerations": st.just([{"key": "a", "operator": "Exists"}]),
        "volumes": VOLUMES,
        "topologySpreadConstraints": st.sampled_from([[], [{"maxSkew": 1}]]),
        "overhead": AMOUNTS,
        "hostNetwork": st.booleans(),
        "priority": st.integers(0, 1),
        "resourceClaims": CLAIMS,
    },
)


@st.composite
def pods(draw):
    annotations = draw(TEXTS | st.none())
    if draw(st.booleans()):
        annotations = {**(annotations or {}), keys.CLAIMED_GPUS: draw(TEXTS_OF_CLAIMS)}
    metadata = {"labels": draw(TEXTS | st.none()), "annotations": annotations}
    owner = {"kind": draw(st.sampled_from(["DaemonSet", "Job"])), "uid": "u"}
    raw = a_held_pod(1, owner=owner)
    return msgspec.convert(
        {
            **raw,
            "metadata": {**raw["metadata"], **metadata},
            "spec": {**raw["spec"], **draw(SPECS)},
        },
        Pod,
    )


def planned(pod):
    """Return all that planning makes of a pod."""
    request, findings = read_request(pod)
    mark, _ = gang_mark(pod)
    member, spec = new_member(pod, "team"), pod.spec
    taint = a_node("a").taints
    return (
        request,
        [finding.message for finding in findings],
        (mark, is_member(pod, request, mark), link_strictness(pod)[0], rank_order(pod)),
        (member.name, member.demand, member.violation and member.violation.message, spec.priority),
        [
            isolation_of(pod, request, a_node("a", mode=mode))
            for mode in (NodeMode.CGPU, NodeMode.MPS)
        ],
        [node_matches(spec, "a", {"zone": zone}) for zone in ("a", "b", "1")],
        [tolerates(spec.tolerations, one) for one in taint],
        # The rules about other pods are read from the whole pod.
        delegated_constraints(replace(member, rules=NO_RULES)),
        claims_of(spec, "worker-0"),
        allocation_patch(pod, "a", {keys.TERM: "1"}),
    )


@given(pods())
def test_planning_gives_the_same_result_for_a_compact_pod(pod):
    assert planned(compact(pod)) == planned(pod)
    assert compact(compact(pod)) == compact(pod)


def test_pods_with_equal_specs_share_one():
    first, second = (
        compact(msgspec.convert(a_held_pod(1, name), Pod)) for name in ("worker-0", "worker-1")
    )

    assert first.spec is second.spec


def grown(**spec):
    return a_held_pod(1, **spec)


LONG = "x" * 500_000
TERM = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}


def node_affinity(**required):
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        pytest.param(
            grown(affinity=node_affinity(nodeSelectorTerms=[TERM] * 101)),
            "101 terms for its node, and at most 100 are planned",
            id="terms",
        ),
        pytest.param(
            grown(tolerations=[{"key": "a", "operator": "Exists"}] * 20_000),
            "more than 256 tolerations",
            id="tolerations",
        ),
        pytest.param(
            grown(
                volumes=[
                    {"name": f"v{i}", "persistentVolumeClaim": {"claimName": f"c{i}"}}
                    for i in range(65)
                ]
            ),
            "more than 64 PersistentVolumeClaims",
            id="claims",
        ),
        pytest.param(
            a_held_pod(1, annotations={keys.GANG: LONG, keys.GANG_SIZE: "2"}),
            "at most 131072 are kept",
            id="a-gangs-name",
        ),
        pytest.param(
            a_held_pod(1, overhead={f"vendor.com/{i}": 1 for i in range(OTHERS_MAX + 1)}),
            "it requests more than 32 different resources",
            id="resources",
        ),
        pytest.param(
            grown(overhead={f"vendor.com/{i}/{LONG[:250]}": 0 for i in range(1000)}),
            "at most 131072 are kept",
            id="resources of which it requests none",
        ),
        pytest.param(
            grown(
                containers=[
                    {
                        "name": "c",
                        "env": [{"name": container_variables.ENV_MPS_MEMORY, "value": LONG}],
                        "resources": {"limits": {keys.GPU_WHOLE: 1}},
                    }
                ]
            ),
            "at most 131072 are kept",
            id="variables",
        ),
    ],
)
def test_of_a_pod_that_is_too_large_no_more_than_its_name_is_kept(pod, reason):
    found = pod_info(msgspec.convert(pod, Pod))

    assert found.unplannable.startswith("it is too large to plan: ")
    assert reason in found.unplannable
    assert len(msgspec.msgpack.encode(found.waiting)) < 1000


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(a_held_pod(1, annotations={"note": LONG}, labels={"a": "b"}), id="annotation"),
        pytest.param(grown(affinity={"podAffinity": {"a": LONG}}), id="pod-affinity"),
        pytest.param(
            grown(
                containers=[
                    {
                        "name": "c",
                        "env": [{"name": "A", "value": LONG}],
                        "resources": {"limits": {keys.GPU_WHOLE: 1}},
                    }
                ]
            ),
            id="variable",
        ),
        pytest.param(a_held_pod(1, owner={"kind": "Job", "name": "a", "uid": LONG}), id="owner"),
    ],
)
def test_what_planning_does_not_read_is_not_kept(pod):
    found = pod_info(msgspec.convert(pod, Pod))

    assert found.unplannable is None
    assert len(msgspec.msgpack.encode((found.waiting, found.controller, found.gang))) < 2000
