import msgspec
import pytest
from builders import a_member, a_node, a_snapshot

from cluster import keys
from cluster.gang import GangKey, Link
from cluster.record import GPUShare
from scorer.gang.crd import read_gang
from scorer.gang.crd_patch import new_gang
from scorer.gang.plan_record import placement_of, plan_of
from scorer.placement.result import Placement, Plan
from scorer.placement.schedule import plan


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
    placement = Placement(a_member(), "gpu-0", (GPUShare(3), GPUShare(0)))
    written_plan = plan_of(
        Plan((placement,), 40.04, exact=False, domain="rack=a"),
        "p1",
        best_possible=55.16,
        index_order=None,
    )

    (member,) = written_plan.members
    assert (member.pod, member.node, member.gpus) == ("worker-0", "gpu-0", (0, 3))
    assert (written_plan.bandwidth, written_plan.best_possible) == (40, 55.2)
    assert (written_plan.index_order, written_plan.exact) == (None, False)
    assert written_plan.domain == "rack=a"
