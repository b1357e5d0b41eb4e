import msgspec
import pytest
from support.builders import a_member, a_node, a_snapshot, exact

from linkwise.cluster import keys
from linkwise.cluster.gang import GangKey, Link
from linkwise.planning.gang.crd import read_gang
from linkwise.planning.gang.crd_patch import new_gang
from linkwise.planning.gang.crd_plan import GangPlan, PlannedPod
from linkwise.planning.gang.plan_record import (
    placement_of,
    plan_of,
    recorded_bandwidths,
    with_baselines,
)
from linkwise.planning.placement.bandwidth import UNDEFINED, Bandwidth
from linkwise.planning.placement.result import Placement, Plan
from linkwise.planning.placement.schedule import plan


@pytest.mark.parametrize(
    ("node", "member"),
    [
        pytest.param(a_node(uuids=True), a_member(2), id="whole"),
        pytest.param(
            a_node(mode="core_mem", card_memory=16, uuids=True),
            a_member(0, limits={keys.GPU_MEM: 4, keys.GPU_CORE: 20}),
            id="memory and compute",
        ),
        pytest.param(
            a_node(mode="share", card_memory=16), a_member(0, limits={keys.GPU_MEM: 4}), id="share"
        ),
        pytest.param(
            a_node(mode="timeslice"),
            a_member(0, limits={keys.NVIDIA_GPU_SHARED: 9}),
            id="replicas, more than GPUs",
        ),
    ],
)
def test_read_plan_gives_each_pod_its_placement(node, member):
    planned = plan(a_snapshot(node), [member])
    assert isinstance(planned, Plan)
    key, kept = GangKey("team", "bert", ""), plan_of(planned, "p1")
    gang = new_gang(key, (), size=1, link=Link.BEST, plan=kept)

    (again,) = read_gang(msgspec.json.encode(gang)).spec.plan.members

    assert placement_of(again, member, node) == planned.placements[0]


def test_plan_states_bandwidths_in_tenths():
    placement = Placement(a_member(), "gpu-0", exact(3, 0))
    plan = Plan((placement,), Bandwidth(40.04, 1), exact=False, domain="rack=a")
    written_plan = with_baselines(plan_of(plan, "p1"), Bandwidth(55.16, 1), UNDEFINED)

    (member,) = written_plan.members
    assert (member.pod, member.node, member.indices) == ("worker-0", "gpu-0", (0, 3))
    assert (written_plan.bandwidth, written_plan.best_possible) == (40, 55.2)
    assert (written_plan.index_order, written_plan.exact) == (None, False)
    assert written_plan.domain == "rack=a"
    assert written_plan.bandwidth_note is None


def test_note_of_a_plan_without_a_bandwidth_is_read_as_written():
    plan = Plan((Placement(a_member(), "gpu-0", exact(0)),), Bandwidth(sets_unknown=True))

    written_plan = plan_of(plan, "p1")

    assert (written_plan.bandwidth, written_plan.bandwidth_note) == (None, "GPUs unknown")
    assert recorded_bandwidths(written_plan).planned == plan.bandwidth


def a_plan_on(*nodes, **given):
    members = tuple(PlannedPod(f"p{i}", f"u{i}", node, (0, 1)) for i, node in enumerate(nodes))
    return GangPlan("p1", exact=True, members=members, **given)


def test_plan_over_nodes_records_what_its_bandwidths_count():
    placements = tuple(Placement(a_member(), node, exact(0, 1)) for node in "ab")
    plan = Plan(placements, Bandwidth(26.666667, 2, nic_unknown=True))
    best, order = Bandwidth(55.2, 1), Bandwidth(40, 3, nic_unknown=True)

    written_plan = with_baselines(plan_of(plan, "p1"), best, order)

    assert written_plan.bandwidth_note == "nic unknown"
    assert (written_plan.best_possible_nodes, written_plan.index_order_nodes) == (1, 3)
    planned = Bandwidth(26.7, 2, nic_unknown=True)
    assert recorded_bandwidths(written_plan) == (planned, best, order)


@pytest.mark.parametrize(
    ("recorded", "comparable"),
    [
        pytest.param(
            a_plan_on("a", bandwidth=3.4, index_order=3.0, index_order_nodes=1), True, id="one"
        ),
        pytest.param(
            a_plan_on("a", bandwidth=3.4, index_order=5.7, index_order_nodes=4),
            False,
            id="one and four",
        ),
        pytest.param(
            a_plan_on("a", "b", bandwidth=3.4, index_order=5.7, index_order_nodes=4),
            True,
            id="two and four, NICs counted",
        ),
    ],
)
def test_recorded_bandwidths_are_comparable_only_where_that_is_known(recorded, comparable):
    planned, best, order = recorded_bandwidths(recorded)

    assert best == UNDEFINED
    assert planned.is_comparable(order) is comparable
