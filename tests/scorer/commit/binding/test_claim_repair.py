"""Claims of pods that are not bound: others took the GPUs, or the claim is gone."""

from itertools import combinations

import msgspec
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_held_pod, a_node, a_seen, a_snapshot, exact
from support.dra import a_claim, a_device, a_slice
from support.servers.claims_cluster import (
    SLICE,
    allocate,
    claim_path,
    claims_cluster,
    pod,
    publish,
    selected,
)
from support.servers.leader_harness import JOB, Clock, leading
from support.waiting import until

from linkwise.cluster import keys
from linkwise.cluster.allocations.record import Allocation
from linkwise.cluster.objects.pod import Pod
from linkwise.planning.placement.pods.member import new_member
from linkwise.topology.choice import ChoiceMode
from linkwise.topology.machine import mask_of
from scorer.commit.binding.lost_gpus import other_gpus

FOREIGN = "/apis/resource.k8s.io/v1/namespaces/other/resourceclaims/foreign"


DGX_1 = f"""\
apiVersion: {keys.API_VERSION}
kind: Policy
machines:
- nodeLabels: {{{keys.NODE_MODE}: topology}}
  machine: dgx1-v100
"""


@pytest_asyncio.fixture
async def cluster():
    async with claims_cluster() as running:
        yield running


@given(lost=st.lists(st.sampled_from(range(2, 8)), min_size=1, max_size=4, unique=True))
def test_other_gpus_are_those_that_make_the_gang_fastest(lost):
    """The gang has GPUs 0 and 1 of a DGX-1 and others of it, of which some are lost."""
    node = a_node("gpu-0", cordoned=tuple(lost))
    member = a_member_of("bert-1")
    pods = [seen_with("bert-0", 0, 1), seen_with("bert-1", 2, 3)]
    snapshot = a_snapshot(node, mode=ChoiceMode.FAST).hold_all(
        ("gpu-0", pod.usage.holding(pod.allocation.gpus)) for pod in pods
    )

    found = other_gpus(snapshot, "gpu-0", [(pods[1], member)], pods[:1])
    (placement,) = found.placements

    table = snapshot.tables["gpu-0"]
    pairs = list(combinations(sorted({*range(2, 8)} - {*lost}), 2))
    best = max(table.bandwidth(mask_of((0, 1, *pair))) for pair in pairs)
    assert placement.gpus.indices in pairs
    assert table.bandwidth(mask_of((0, 1, *placement.gpus.indices))) == found.bandwidth == best


def test_no_other_gpus_are_chosen_where_too_few_are_free():
    pods = [seen_with("bert-0", 0, 1), seen_with("bert-1", 2, 3)]
    snapshot = a_snapshot(a_node("gpu-0", cordoned=(3, 4, 5, 6, 7))).hold_all(
        ("gpu-0", pod.usage.holding(pod.allocation.gpus)) for pod in pods
    )
    assert other_gpus(snapshot, "gpu-0", [(pods[1], a_member_of("bert-1"))], pods[:1]) is None


@given(
    lost=st.lists(st.sampled_from(range(2, 8)), min_size=1, max_size=2, unique=True),
    keeps=st.booleans(),
)
def test_members_that_lose_gpus_at_once_get_others_together(lost, keeps):
    """The gang has GPUs 0 to 5 of a DGX-1; the first member keeps its own, or is planned, too."""
    node = a_node("gpu-0", cordoned=tuple(lost))
    pods = [seen_with(f"bert-{i}", 2 * i, 2 * i + 1) for i in range(3)]
    snapshot = a_snapshot(node, mode=ChoiceMode.FAST).hold_all(
        ("gpu-0", pod.usage.holding(pod.allocation.gpus)) for pod in pods
    )
    moved = [(pod, a_member_of(pod.name)) for pod in pods[keeps:]]

    placements = other_gpus(snapshot, "gpu-0", moved, pods[:keeps]).placements

    table, free = snapshot.tables["gpu-0"], sorted({*range(8)} - {*lost})
    kept = (0, 1) if keeps else ()
    got = [*kept, *(i for one in placements for i in one.gpus.indices)]
    sets = (mask_of(each) for each in combinations(free, 6) if {*kept} <= {*each})
    assert len(got) == len({*got} - {*lost}) == 6
    assert table.bandwidth(mask_of(got)) == max(map(table.bandwidth, sets))


def test_members_keep_their_own_gpus_where_the_gang_does():
    pods = [seen_with("bert-0", 4, 5), seen_with("bert-1", 2, 3)]
    snapshot = a_snapshot(a_node("gpu-0", cordoned=(0, 1, 6, 7))).hold_all(
        ("gpu-0", pod.usage.holding(pod.allocation.gpus)) for pod in pods
    )
    moved = [(pod, a_member_of(pod.name)) for pod in pods]
    placements = other_gpus(snapshot, "gpu-0", moved, []).placements
    both = [one.gpus.indices for one in placements]
    own = [(4, 5), (2, 3)]
    assert both == own or not {*both} & {*own}


def a_member_of(name):
    return new_member(msgspec.convert(a_held_pod(2, name), Pod), "team")


def seen_with(name, *gpus):
    """Return a pod with a record of GPUs."""
    return a_seen(2, name).with_allocation(Allocation("gpu-0", exact(*gpus), plan="7-1"))


async def planned(cluster, gpus=2, owner=JOB):
    """Create a gang of two, and return the UUIDs of each record once the pods are released."""
    for i in range(2):
        pod(cluster, f"bert-{i}", gpus, gang="bert", owner=owner)
    await until(lambda: cluster.allocated("bert-0", "bert-1"))
    return recorded(cluster, "bert-0"), recorded(cluster, "bert-1")


def recorded(cluster, name):
    return [gpu["uuid"] for gpu in cluster.record(name)["gpus"]]


def device(uuid):
    """Return the name of the device of a GPU, where names have the order of bus ids."""
    return uuid.replace("GPU", "gpu")


def take(cluster, *uuids):
    """Allocate GPUs to a claim of others."""
    cluster.put(FOREIGN, a_claim(*map(device, uuids), node="gpu-0", name="foreign"))


async def seen(cluster):
    """Wait until the planner has seen all changes, and checked claims several times."""
    for name in ("seen", "again"):
        reads = len(cluster.reads)
        pod(cluster, name, 1)
        await until(lambda name=name: cluster.allocated(name))
        await until(lambda reads=reads: len(cluster.reads) > reads)


def evictions(cluster):
    return [path for _, path, _ in cluster.writes if path.endswith("/eviction")]


@pytest.mark.parametrize("owner", [JOB, None], ids=["job", "no owner"])
async def test_a_member_gets_other_gpus_of_its_node_for_those_that_others_took(cluster, owner):
    async with leading(cluster):
        first, second = await planned(cluster, owner=owner)
        allocate(cluster, "bert-0", *map(device, first))
        take(cluster, second[0])
        cluster.mark_unschedulable("bert-1")
        await until(lambda: recorded(cluster, "bert-1") != second)
        await until(lambda: selected(cluster, "bert-1") == recorded(cluster, "bert-1"))
        now = recorded(cluster, "bert-1")
        assert len(now) == 2
        assert not set(now) & {*first, second[0]}
        assert cluster.record("bert-1")["plan"] == cluster.record("bert-0")["plan"]
        assert (recorded(cluster, "bert-0"), selected(cluster, "bert-0")) == (first, first)
    assert evictions(cluster) == []


async def test_the_gang_has_the_gpus_of_a_repaired_member_in_its_plan(cluster):
    async with leading(cluster):
        first, second = await planned(cluster)
        take(cluster, second[0])
        cluster.mark_unschedulable("bert-1")
        await until(lambda: selected(cluster, "bert-1") == recorded(cluster, "bert-1") != second)
        await until(lambda: selected(cluster, "bert-0") == recorded(cluster, "bert-0"))
        first, now = recorded(cluster, "bert-0"), recorded(cluster, "bert-1")
        allocate(cluster, "bert-0", *map(device, first))
        allocate(cluster, "bert-1", *map(device, now))
        cluster.bind("bert-0", "bert-1")
        gpus = {"bert-0": indices(first), "bert-1": indices(now)}
        await until(lambda: {each["pod"]: each["gpus"] for each in members(cluster)} == gpus)
        await until(lambda: cluster.events("GangPlaced"))


def members(cluster):
    """Return the members of the recorded plan."""
    return cluster.the_gang()["spec"]["plan"]["members"]


def indices(uuids):
    return sorted(int(uuid.removeprefix("GPU-")) for uuid in uuids)


@pytest.mark.parametrize(
    ("gpus", "size", "bound"),
    [
        pytest.param(2, 2, 0, id="none is bound"),
        pytest.param(1, 4, 0, id="none of four is bound"),
        pytest.param(1, 4, 1, id="one is bound"),
        pytest.param(1, 4, 2, id="two are bound"),
    ],
)
async def test_members_that_lose_gpus_at_once_are_repaired_together(cluster, gpus, size, bound):
    names = [f"bert-{i}" for i in range(size)]
    cluster.policy(DGX_1)
    async with leading(cluster) as leader:
        for name in names:
            pod(cluster, name, gpus, gang="bert", size=size)
        await until(lambda: cluster.allocated(*names))
        before = {name: recorded(cluster, name) for name in names}
        for name in names[:bound]:
            allocate(cluster, name, *map(device, before[name]))
            cluster.bind(name)
        taken = [before[name][-1] for name in names[bound:][-2:]]
        if size == 4:
            taken.append("GPU-5")
        take(cluster, *taken)
        cluster.mark_unschedulable(*names[bound:])
        await until(lambda: not {*indices(taken)} & held(cluster, names))
        for name in names[bound:]:
            await until(lambda name=name: selected(cluster, name) == recorded(cluster, name))
        table = leader.context.informers.state.snapshot().tables["gpu-0"]

    kept = {i for name in names[:bound] for i in indices(before[name])}
    free = sorted({*range(8)} - {*indices(taken)})
    sets = (mask_of(each) for each in combinations(free, gpus * size) if kept <= {*each})
    assert {name: recorded(cluster, name) for name in names[:bound]} == {
        name: before[name] for name in names[:bound]
    }
    assert len(held(cluster, names)) == gpus * size
    assert table.bandwidth(mask_of(held(cluster, names))) == max(map(table.bandwidth, sets))
    assert evictions(cluster) == []


async def test_other_gpus_are_reserved_before_the_claim_is_deleted(cluster):
    """Else another unit could be planned on them meanwhile."""
    async with leading(cluster) as leader:
        first, second = await planned(cluster)
        allocate(cluster, "bert-0", *map(device, first))
        state, reserved = leader.context.informers.state, []

        def look(method, *_):
            if method == "DELETE":
                reserved.append(state.is_assumed(state.pod(("team", "bert-1"))))

        cluster.refuse = look
        take(cluster, second[0])
        cluster.mark_unschedulable("bert-1")
        await until(lambda: selected(cluster, "bert-1") == recorded(cluster, "bert-1") != second)
    assert reserved == [True]


async def test_a_claim_that_gets_its_devices_meanwhile_stays_and_the_others_follow(cluster):
    """kube-scheduler allocates the claim of a member while all are planned."""
    async with leading(cluster) as leader:
        first, second = await planned(cluster)

        def allocated_first(method, *_):
            if method == "DELETE" and not cluster.get(claim_path("bert-0")).get("status"):
                allocate(cluster, "bert-0", *map(device, first))

        cluster.refuse = allocated_first
        take(cluster, *second)
        cluster.mark_unschedulable("bert-0", "bert-1")
        await until(lambda: selected(cluster, "bert-1") == recorded(cluster, "bert-1") != second)
        assert recorded(cluster, "bert-0") == first
        assert leader.context.informers.state.conflicts == ()
    assert evictions(cluster) == []


def held(cluster, names):
    """Return the GPUs in the records of pods."""
    return {i for name in names for i in indices(recorded(cluster, name))}


async def test_without_gpus_for_all_members_that_lost_some_a_gang_is_evicted(cluster):
    async with leading(cluster, clock=Clock()):
        first, second = await planned(cluster, gpus=3)
        take(cluster, *first[:2], *second[:1])
        cluster.mark_unschedulable("bert-0", "bert-1")
        await until(lambda: len(evictions(cluster)) == 2)


async def test_a_claim_that_was_deleted_is_created_again(cluster):
    async with leading(cluster):
        _, second = await planned(cluster)
        cluster.remove(claim_path("bert-1"))
        await until(lambda: selected(cluster, "bert-1") == second)
        assert recorded(cluster, "bert-1") == second
    assert evictions(cluster) == []


async def test_a_claim_that_others_created_under_its_name_is_replaced(cluster):
    async with leading(cluster):
        _, second = await planned(cluster)
        raw = cluster.get(claim_path("bert-1"))
        cluster.remove(claim_path("bert-1"))
        cluster.put(
            claim_path("bert-1"), {**raw, "metadata": {"name": raw["metadata"]["name"]}, "spec": {}}
        )
        await until(lambda: selected(cluster, "bert-1") == second)


async def test_without_free_gpus_on_its_node_a_gang_is_evicted(cluster):
    async with leading(cluster, clock=Clock()):
        _, second = await planned(cluster, gpus=4)
        take(cluster, second[0])
        cluster.mark_unschedulable("bert-1")
        await until(lambda: len(evictions(cluster)) == 2 and cluster.events("GangEvicted"))
    (event,) = cluster.events("GangEvicted")
    why = "other pods have taken the GPUs of gpu-0 that were planned for pod bert-1"
    assert why in event["message"]


async def test_an_allocated_claim_is_left_alone(cluster):
    async with leading(cluster):
        _, second = await planned(cluster)
        allocate(cluster, "bert-1", *map(device, second))
        taint = "fault", "", "NoSchedule"
        lost = [f"GPU-{i}" == second[0] for i in range(8)]
        devices = (a_device(i, taints=[taint] * is_lost) for i, is_lost in enumerate(lost))
        cluster.put(SLICE, a_slice(*devices, node="gpu-0"))
        cluster.mark_unschedulable("bert-1")
        before = cluster.get(claim_path("bert-1"))["metadata"]["uid"]
        await seen(cluster)
        assert cluster.get(claim_path("bert-1"))["metadata"]["uid"] == before
        assert recorded(cluster, "bert-1") == second


async def test_while_slices_are_missing_a_gang_stays(cluster):
    async with leading(cluster, clock=Clock()) as leader:
        _, second = await planned(cluster, gpus=4)
        cluster.remove(SLICE)
        await until(lambda: leader.context.informers.state.node("gpu-0").awaits_slices)
        take(cluster, second[0])
        cluster.mark_unschedulable("bert-1")
        reads = len(cluster.reads)
        await until(lambda: len(cluster.reads) > reads + 4)
        assert recorded(cluster, "bert-1") == second
        assert evictions(cluster) == []
        publish(cluster)
        await until(lambda: not cluster["bert-0"] and not cluster["bert-1"])


async def test_the_next_leader_writes_the_claim_of_a_changed_record(cluster):
    name = claim_path("bert-1").rpartition("/")[2]
    async with leading(cluster):
        _, second = await planned(cluster)
        cluster.refuse = lambda method, _, body: (
            (500, "etcd is full") if method == "POST" and body["metadata"]["name"] == name else None
        )
        take(cluster, second[0])
        await until(lambda: recorded(cluster, "bert-1") != second)
    assert cluster.get(claim_path("bert-1")) is None
    cluster.refuse = lambda *_: None
    async with leading(cluster, term=8):
        await until(lambda: selected(cluster, "bert-1") == recorded(cluster, "bert-1") != second)


async def test_a_record_that_cannot_be_written_releases_the_other_gpus(cluster):
    async with leading(cluster) as leader:
        _, second = await planned(cluster)
        cluster.fail("PATCH", "bert-1", (422, "the object has been modified"))
        take(cluster, second[0])
        cluster.mark_unschedulable("bert-1")
        await until(lambda: selected(cluster, "bert-1") == recorded(cluster, "bert-1") != second)
        state = leader.context.informers.state
        await until(lambda: not state.is_assumed(state.pod(("team", "bert-1"))))
        holding = state.ledger("gpu-0").holdings["bert-1"]
        assert list(holding.gpus.indices) == indices(recorded(cluster, "bert-1"))


async def test_a_gang_is_placed_once_its_claims_hold_devices(cluster):
    async with leading(cluster):
        first, second = await planned(cluster)
        cluster.bind("bert-0", "bert-1")
        allocate(cluster, "bert-0", *map(device, first))
        await seen(cluster)
        assert cluster.events("GangPlaced") == []
        allocate(cluster, "bert-1", *map(device, second))
        await until(lambda: cluster.events("GangPlaced"))


async def test_a_claim_is_checked_only_after_a_delay(cluster):
    async with leading(cluster, claim_repair=3600):
        await planned(cluster)
        cluster.remove(claim_path("bert-1"))
        cluster.mark_unschedulable("bert-1")
        for name in ("seen", "again"):
            pod(cluster, name, 1)
            await until(lambda name=name: cluster.allocated(name))
        assert claim_path("bert-1") not in cluster.reads
        assert not cluster.get(claim_path("bert-1"))
