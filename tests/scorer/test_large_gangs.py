"""Gangs with more members than calls may be in flight."""

import asyncio

import pytest
import pytest_asyncio
from support.servers.fake_cluster import FENCED
from support.servers.leader_harness import Clock, Cluster, leading
from support.waiting import until

from linkwise.planning.gang.crd import GANGS

MEMBERS = 100
IN_FLIGHT = 16


class SlowCluster(Cluster):
    """A cluster whose API server holds patches of pods until a test lets them go on."""

    def __init__(self):
        super().__init__()
        self.in_flight, self.most, self.answered = 0, 0, 0
        self.room = asyncio.Semaphore(0)
        """Patches that may be answered."""

    def let_through(self, number):
        for _ in range(number):
            self.room.release()

    @property
    def written(self):
        return sum(self.allocated(f"bert-{i}") for i in range(MEMBERS))

    async def _answer(self, request):
        if request.method != "PATCH" or "/pods/" not in request.path or request.query.get("dryRun"):
            return await super()._answer(request)
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            await self.room.acquire()
        finally:
            self.in_flight -= 1
        self.answered += 1
        return await super()._answer(request)


@pytest_asyncio.fixture
async def cluster():
    async with SlowCluster() as running:
        for i in range(MEMBERS // 8 + 1):
            running.node(f"gpu-{i}")
        yield running
        running.let_through(10 * MEMBERS)


@pytest.fixture
def clock():
    return Clock()


async def test_few_patches_of_a_gang_are_in_flight_at_a_time(cluster):
    async with leading(cluster):
        cluster.gang(workers=MEMBERS, gpus=1)
        await until(lambda: cluster.in_flight == IN_FLIGHT)
        cluster.let_through(MEMBERS)
        await until(lambda: cluster.written == MEMBERS)
    assert cluster.most == IN_FLIGHT


async def test_a_gang_is_not_given_up_while_it_is_written(cluster, clock):
    async with leading(cluster, clock=clock) as leader:
        cluster.gang(workers=MEMBERS, gpus=1)
        await until(lambda: cluster.in_flight == IN_FLIGHT)
        cluster.let_through(MEMBERS // 2)
        await until(lambda: cluster.written == MEMBERS // 2)
        # A scheduler has tried some members, while others are not written yet.
        cluster.mark_unschedulable("bert-0", "bert-1")
        await rounds(leader)
        for _ in range(3):
            clock.now += 100
            await rounds(leader)
        assert evictions(cluster) == 0
        cluster.let_through(MEMBERS)
        await until(lambda: cluster.written == MEMBERS)
        # From now on the deadline counts.
        clock.now += 59
        await rounds(leader)
        assert evictions(cluster) == 0
        cluster.mark_unschedulable("bert-0")
        await rounds(leader)
        clock.now += 100
        leader.context.informers.changed.set()
        await until(lambda: evictions(cluster))


async def test_a_gang_that_waits_for_the_writes_of_another_is_not_given_up(cluster, clock):
    async with leading(cluster, clock=clock) as leader:
        cluster.gang(workers=MEMBERS, gpus=1)
        await until(lambda: cluster.in_flight == IN_FLIGHT)
        cluster.gang("late", 2, 1)
        await until(lambda: len(cluster.all(GANGS)) == 2)
        await until(lambda: all(gang["spec"].get("plan") for gang in cluster.all(GANGS)))
        clock.now += 100
        await rounds(leader)
        cluster.let_through(2 * MEMBERS)
        await until(lambda: cluster.allocated("late-0", "late-1"))
    assert evictions(cluster) == 0


async def test_nothing_more_of_a_gang_is_written_after_the_loss_of_leadership(cluster):
    async with leading(cluster) as leader:
        cluster.gang(workers=MEMBERS, gpus=1)
        await until(lambda: cluster.in_flight == IN_FLIGHT)
        cluster.refuse = lambda *_: FENCED
        cluster.let_through(MEMBERS)
        await asyncio.wait((leader.task,))
        await until(lambda: cluster.in_flight == 0)
    assert cluster.answered < MEMBERS


def evictions(cluster):
    return sum(path.endswith("/eviction") for _, path, _ in cluster.writes)


async def rounds(leader, number=5):
    """Let the planner run some rounds."""
    changed = leader.context.informers.changed
    for _ in range(number):
        changed.set()
        await until(lambda: not changed.is_set())
