from dataclasses import replace

import msgspec
import pytest
from controlplane.pods import requirement, terms
from support.builders import a_machine, a_node, a_pod, an_exact_node

from linkwise.cluster.keys import NODE_MODE, NODE_NAME_FIELD, NVIDIA_GPU, NVIDIA_GPU_SHARED
from linkwise.cluster.nodes.capacity import Capacity, Excess
from linkwise.cluster.nodes.node_capacity import capacity_of
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.request import Family, Request
from linkwise.cluster.requests.request_reader import read_request

CLUSTER = [
    a_node("topology-0"),
    a_node("topology-1", machine=a_machine(4), unhealthy=(0, 1)),
    a_node("share-0", machine=a_machine(2), mode="share", card_memory=(24, 15)),
    a_node("core-0", machine=a_machine(4), mode="core_mem", card_memory=16),
    a_node("slice-0", machine=a_machine(2), mode="timeslice"),
    a_node("plain-0", machine=a_machine(3), mode="default"),
    a_node("plugin-0", machine=None, mode="default", resources={NVIDIA_GPU_SHARED: 4}),
    a_node("cpu-0", machine=None, mode="default", resources={}),
]


def test_the_most_of_each_kind_is_found():
    assert replace(capacity_of(CLUSTER), by_nvidias_names=(), counted=()) == Capacity(
        nodes=8,
        memory_cards=(24, 16, 16, 16),
        compute_cards=(16, 16, 16, 16),
        whole=8,
        nvidia=3,
        replicas=8,
        nvidia_replicas=4,
    )


def pinned(node):
    """Return a part of a spec, as the controller of a DaemonSet writes it."""
    spec = terms([])
    needed = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    fields = [requirement(NODE_NAME_FIELD, "In", node)]
    needed["nodeSelectorTerms"] = [{"matchFields": fields}]
    return spec


MANY = terms(*[[requirement("zone", "In", "b")]] * 51)
LONG = terms([requirement("zone", "In", *(f"b{i}" for i in range(100)))])
SOME = terms([requirement("zone", "In", *(f"b{i}" for i in range(98)))])


@pytest.mark.parametrize(
    ("spec", "gpus", "expected"),
    [
        ({}, 8, True),
        ({}, 9, False),
        ({"nodeSelector": {"zone": "a"}}, 1, True),
        ({"nodeSelector": {"zone": "b"}}, 1, False),
        (terms([requirement("zone", "In", "b")], [requirement("zone", "Exists")]), 1, True),
        (terms([requirement("zone", "DoesNotExist")]), 1, False),
        (pinned("exact-0"), 1, True),
        (pinned("plain-0"), 1, False),
        (MANY, 1, True),
        (terms(*[[]] * 101), 1, True),
        (LONG, 1, True),
        (SOME, 1, False),
    ],
    ids=str,
)
def test_an_exact_node_is_one_that_the_pod_may_be_bound_to(spec, gpus, expected):
    capacity = capacity_of([*CLUSTER, an_exact_node(labels={"zone": "a"})])
    pod = msgspec.convert(a_pod({NVIDIA_GPU: 1}, **spec), Pod)

    assert capacity.has_exact_node(pod.spec, gpus) is expected


def test_only_nodes_with_the_label_for_nvidia_gpus_are_exact():
    exact = an_exact_node()
    capacity = capacity_of([*CLUSTER, exact, an_exact_node("empty", machine=None)])

    assert [node.name for node in capacity.exact] == [exact.name]
    assert capacity_of(CLUSTER).exact == ()
    assert capacity_of([exact]).whole == 0


@pytest.mark.parametrize(("exact", "expected"), [(0, True), (499, True), (500, False)])
def test_claims_are_compared_with_a_bounded_number_of_nodes(exact, expected):
    pod = msgspec.convert(a_pod({NVIDIA_GPU: 1}, **SOME), Pod)
    label = {NODE_MODE: "topology", "zone": "b0"}
    claims = [a_node(f"c{i}", labels=label, resources={}, machine=None) for i in range(1)]
    others = [an_exact_node(labels={"zone": "x"})] * exact
    capacity = capacity_of([*claims, *others], claims_gpus=8)

    assert capacity.needs_claim(pod.spec, 1) is expected


def test_cards_of_unknown_memory_offer_none():
    nodes = [a_node(machine=a_machine(2), mode="share")]

    assert capacity_of(nodes).memory_cards == (0, 0)


@pytest.mark.parametrize(
    "request_",
    [
        Request(),
        Request(Family.WHOLE, 8),
        Request(Family.NVIDIA, 3),
        Request(Family.REPLICA, 8),
        Request(Family.SHARE, 1, memory=24),
        Request(Family.SHARE, 1, memory=16, core=100),
        Request(Family.SHARE, 4, memory=64),
    ],
    ids=str,
)
def test_what_some_node_could_take_is_no_excess(request_):
    assert capacity_of(CLUSTER).excess(request_) is None


@pytest.mark.parametrize(
    ("request_", "asked", "offered"),
    [
        (Request(Family.WHOLE, 9), "9 aliyun.com/gpu", "at most 8 on one node"),
        (Request(Family.NVIDIA, 4), "4 nvidia.com/gpu", "at most 3 on one node"),
        (Request(Family.REPLICA, 9), "9 nvidia.com/gpu.shared", "at most 8 on one node"),
        (Request(Family.SHARE, 1, 25), "25 GiB of one card", "at most 24 GiB of one card"),
        (Request(Family.SHARE, 1, 17, 5), "17 GiB of one card", "at most 16 GiB of one card"),
        (
            Request(Family.SHARE, 2, 34),
            "17 GiB of each of 2 cards",
            "at most 16 GiB of each of 2 cards of one node",
        ),
        (Request(Family.SHARE, 5, 5), "1 GiB of each of 5 cards", "at most 4 cards on one node"),
    ],
    ids=str,
)
def test_request_above_every_capacity_is_reported_with_both_numbers(request_, asked, offered):
    assert capacity_of(CLUSTER).excess(request_) == Excess(asked, offered)


@pytest.mark.parametrize(
    ("request_", "offered"),
    [
        (Request(Family.WHOLE, 1), "no node offers aliyun.com/gpu"),
        (Request(Family.SHARE, 1, 1), "no node offers aliyun.com/gpu-mem"),
        (
            Request(Family.SHARE, 1, 1, 5),
            "no node offers aliyun.com/gpu-mem with aliyun.com/gpu-core.percentage",
        ),
    ],
    ids=str,
)
def test_a_kind_that_no_node_offers_is_named(request_, offered):
    excess = capacity_of([a_node(mode="default", resources={NVIDIA_GPU: 8})]).excess(request_)

    assert excess is not None
    assert excess.offered == offered


def test_before_any_node_is_known_nothing_is_judged():
    assert capacity_of([]).excess(Request(Family.WHOLE, 1000)) is None


def test_requirements_are_compared_with_a_bounded_number_of_nodes():
    other = msgspec.convert(
        a_pod({NVIDIA_GPU: 1}, nodeSelector={f"a{i}": "" for i in range(50)}), Pod
    )

    assert not capacity_of([an_exact_node()] * 1000).has_exact_node(other.spec, 1)
    assert capacity_of([an_exact_node()] * 1001).has_exact_node(other.spec, 1)


@pytest.mark.parametrize(
    ("limits", "nodes", "change"),
    [
        pytest.param(
            {"aliyun.com/gpu": 2},
            [a_node("p", machine=None, mode="default", resources={NVIDIA_GPU: 8})],
            "ask for nvidia.com/gpu, which nodes offer",
            id="nodes of NVIDIA's plugin",
        ),
        pytest.param(
            {NVIDIA_GPU: 2},
            [a_node("t")],
            "ask for aliyun.com/gpu, which nodes offer",
            id="nodes of mode topology",
        ),
        pytest.param(
            {"aliyun.com/gpu-mem": 8},
            [a_node("t")],
            "ask for aliyun.com/gpu, which nodes offer",
            id="a share, and whole GPUs",
        ),
        pytest.param(
            {"aliyun.com/gpu": 2},
            [a_node("s", machine=a_machine(2), mode="share", card_memory=(24, 15))],
            "ask for aliyun.com/gpu-mem, which nodes offer",
            id="whole GPUs, and shares",
        ),
        pytest.param(
            {NVIDIA_GPU: 1},
            [a_node("t", machine=None, resources={})],
            'label the pod linkwise.dev/claims: "true" if NVIDIA\'s DRA driver is to give it GPUs',
            id="nodes that offer nothing yet",
        ),
        pytest.param({"aliyun.com/gpu": 9}, [a_node("t")], None, id="too many"),
    ],
)
def test_a_resource_that_nodes_offer_under_another_name_is_named(limits, nodes, change):
    request, _ = read_request(msgspec.convert(a_pod(limits), Pod))

    assert capacity_of(nodes).suggested_change(request) == change
