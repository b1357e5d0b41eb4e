import msgspec
import pytest
from support.builders import a_counted_node, a_machine, a_node, a_pod, placed_pod

from linkwise.cluster import keys
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.gang import GangKey
from linkwise.cluster.objects.pod import Pod
from linkwise.planning.gang.pod_info import pod_info
from linkwise.planning.state.cluster_state import ClusterState
from linkwise.planning.state.reserved_gpus import Purpose
from linkwise.planning.state.scheduler_nominations import PODS_MAX

UNIT = GangKey("team", "gang", "")
RESOURCE = {"exact": keys.GPU_WHOLE, "counted": keys.NVIDIA_GPU}


def put(state, raw, **metadata):
    raw["metadata"] |= {"uid": raw["metadata"]["name"], **metadata}
    info = pod_info(msgspec.convert(raw, Pod))
    state.update_pod(info.key, info)
    return info.key


def nominate(state, node, limits, name="next", priority=100, **spec):
    raw = a_pod(limits, name=name, priority=priority, **spec)
    return put(state, raw | {"status": {"nominatedNodeName": node}})


def gpus_for(state, priority, node="n"):
    """Return how many GPUs of a node a unit of this priority may have."""
    return state.snapshot_for(UNIT, priority).ledger.nodes[node].gpus_free


@pytest.fixture(params=RESOURCE)
def resource(request):
    return RESOURCE[request.param]


@pytest.fixture
def state(resource):
    """A node with eight GPUs, which Linkwise chooses or NVIDIA's plugin."""
    made, make = ClusterState(), a_node if resource == keys.GPU_WHOLE else a_counted_node
    made.update_node("n", make("n", machine=a_machine(8), cpu=64_000))
    return made


def test_gpus_that_kube_scheduler_gives_to_a_pod_are_kept_from_units_of_no_higher_priority(
    state, resource
):
    key = nominate(state, "n", {resource: 6})

    assert [gpus_for(state, priority) for priority in (0, 100, 101)] == [2, 2, 8]
    # kube-scheduler itself keeps them from the pods about which it asks.
    assert state.ledger_for("n", 0).gpus_free == 8

    version = state.capacity_version
    state.update_pod(key, None)
    assert gpus_for(state, 0) == 8
    assert state.capacity_version > version


def test_cpu_and_memory_are_kept_as_well(state):
    nominate(state, "n", {"cpu": 60, "memory": "1Gi"})

    node = state.snapshot_for(UNIT, 100).ledger.nodes["n"]
    assert node.cpu_free == 4_000
    assert node.memory_free_bytes == state.node("n").memory - (1 << 30)
    assert node.gpus_free == 8
    assert state.snapshot_for(UNIT, 101).ledger.nodes["n"].cpu_free == 64_000


def test_a_pod_that_is_bound_has_what_it_has_alone(state, resource):
    nominate(state, "n", {resource: 6})
    assert gpus_for(state, 0) == 2

    bound = {
        keys.GPU_WHOLE: lambda: placed_pod("next", {resource: 6}, "n", *map(GPUShare, range(6)))
    }
    put(state, bound.get(resource, lambda: a_pod({resource: 6}, name="next", nodeName="n"))())

    assert gpus_for(state, 0) == 2
    assert state.reserved.by_scheduler == []


def test_gpus_of_victims_are_reserved_as_they_become_free():
    state = ClusterState()
    state.update_node("n", a_node("n", a_machine(8)))
    victims = [
        put(
            state,
            placed_pod(f"low-{i}", {keys.GPU_WHOLE: 1}, "n", GPUShare(i)),
            deletionTimestamp="2026-01-01T00:00:00Z",
        )
        for i in range(8)
    ]
    nominate(state, "n", {keys.GPU_WHOLE: 4})

    free = []
    for key in victims:
        state.update_pod(key, None)
        free.append((gpus_for(state, 0), gpus_for(state, 101)))

    assert free[-1] == (4, 8)
    assert all(lower <= max(0, count - 4) for count, (lower, _) in enumerate(free, start=1)), free


def test_a_pod_behind_our_gate_reserves_nothing_by_its_node(state, resource):
    gate = [{"name": keys.GANG}]
    nominate(state, "n", {resource: 6}, schedulingGates=gate)

    assert gpus_for(state, 0) == 8


def test_a_node_that_does_not_exist_is_nobodys(state, resource):
    nominate(state, "gone", {resource: 6})

    assert gpus_for(state, 0) == 8


def test_a_limited_number_of_pods_has_a_reservation(state):
    for number in range(3 * PODS_MAX):
        nominate(state, "n", {"cpu": "1m"}, name=f"low-{number}", priority=number % 3)

    state.snapshot()

    found = state.reserved.by_scheduler
    assert [priority for _, priority, _ in found] == [2] * PODS_MAX
    assert len({key for key, _, _ in found}) == PODS_MAX
    assert not list(state.reserved.gangs)
    assert Purpose.SCHEDULER.value == "scheduler"
