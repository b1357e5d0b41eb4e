import asyncio
from itertools import cycle

from hypothesis import given, settings
from hypothesis import strategies as st
from support import virtual_time
from support.servers.lease_api import Client, Fate, LeaseAPI

from linkwise.runtime.kube.election import Election

ADVERSITY = 60
"""The network does what it likes for so long [s], and works from then on."""
CALM = 90

delays = st.floats(0, 20) | st.just(0.0)
fates = st.builds(Fate, delays, delays, st.sampled_from(["", "", "", "there", "back"]))
networks = st.lists(fates, min_size=1, max_size=12)
rates = st.floats(0.9, 1.1)
"""How fast a process's clock goes; duration and deadline leave room for a ratio of 1.5."""
restarts = st.lists(
    st.tuples(st.integers(0, ADVERSITY), st.integers(0, 2), st.booleans()), max_size=8
)
"""When, which process, and whether it is killed or ends in peace."""


class Process:
    """A candidate that can restart with another identity and another clock."""

    def __init__(self, world, number, network, rate):
        self.world, self.number, self.network, self.rate = world, number, network, rate
        self.lives = 0
        self.start()

    def start(self):
        loop = asyncio.get_running_loop()
        self.lives += 1
        offset = 1000 * self.lives
        identity = f"{self.number}-{self.lives}"
        client = Client(self.world.api, self.fates(), self.fates())
        self.election = Election(
            client, "ns", "leader", identity, clock=lambda: loop.time() * self.rate + offset
        )
        self.world.elections[identity] = self.election
        self.task = asyncio.create_task(self.election.run(self.lead))

    def fates(self):
        def chosen():
            for fate in cycle(self.network):
                yield fate if asyncio.get_running_loop().time() < ADVERSITY else Fate()

        return chosen()

    async def lead(self, term):
        self.world.terms.append(term)
        self.world.leading += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.world.leading -= 1

    async def end(self, kill):
        if kill:
            # What it has sent is on its way; nothing else happens in it any more.
            self.election._release = asyncio.Event().wait
        self.task.cancel()
        await asyncio.wait((self.task,), timeout=0 if kill else 5)
        self.task.cancel()
        self.start()


class World:
    def __init__(self):
        self.api = LeaseAPI()
        self.elections = {}
        self.terms = []
        self.leading = 0

    def look(self):
        """See what must hold at every moment."""
        holders = {name: election.term for name, election in self.elections.items()}
        believing = {name: term for name, term in holders.items() if term is not None}
        assert len(believing) <= 1, believing
        for name, term in believing.items():
            spec = self.api.spec
            assert (spec["holderIdentity"], spec["leaseTransitions"]) == (name, term)
        assert self.leading <= 1
        assert self.terms == sorted(set(self.terms))


@settings(max_examples=60)
@given(
    networks=st.tuples(networks, networks, networks),
    rates=st.tuples(rates, rates, rates),
    restarts=restarts,
)
def test_two_processes_never_lead_together_and_terms_are_unique(networks, rates, restarts):
    world = World()

    async def main():
        processes = [Process(world, *each) for each in zip(range(3), networks, rates, strict=True)]
        loop = asyncio.get_running_loop()
        for moment, number, kill in sorted(restarts):
            await asyncio.sleep(max(0, moment - loop.time()))
            await processes[number].end(kill)
        await asyncio.sleep(max(0, ADVERSITY - loop.time()) + CALM)
        assert any(election.term is not None for election in world.elections.values())

    virtual_time.run(main(), world.look)
