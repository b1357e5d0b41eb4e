import asyncio
from contextlib import suppress

import pytest
from support import virtual_time
from support.servers.lease_api import Client, LeaseAPI, in_no_time, now

from linkwise.runtime.kube.lease import LeaseTimings
from linkwise.runtime.kube.sidecar_election import SidecarElection

HOLDER = "pod-1_0f3c"


class Scheduler:
    """A process that holds the Lease, and renews it on request."""

    def __init__(self, api, holder=HOLDER, term=3):
        self.api, self.term, self.renewals = api, term, 0
        self.holder = holder
        self.renew()

    def renew(self):
        self.renewals += 1
        self.api.put(
            holderIdentity=self.holder,
            leaseDurationSeconds=15,
            leaseTransitions=self.term,
            renewTime=f"{self.renewals}",
        )

    async def keep(self, seconds):
        for _ in range(int(seconds / 2)):
            self.renew()
            await asyncio.sleep(2)


class Neighbour:
    """A process that leads where the scheduler does."""

    def __init__(self, api, *, news=None):
        self.election = SidecarElection(
            Client(api, None, news), "ns", "leader", "pod-1", LeaseTimings(15, 10, 2), clock=now
        )
        self.terms, self.leads, self.ended_at = [], False, None
        self.task = asyncio.create_task(self.election.run(self.lead))

    async def lead(self, term):
        self.terms.append(term)
        self.leads = True
        try:
            await asyncio.Event().wait()
        finally:
            self.leads, self.ended_at = False, now()

    async def stop(self):
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


@in_no_time
async def test_follower_leads_with_the_term_of_the_scheduler_and_writes_nothing(api):
    scheduler = Scheduler(api)
    neighbour = Neighbour(api)

    await scheduler.keep(60)

    assert (neighbour.terms, neighbour.leads, neighbour.election.term) == ([3], True, 3)
    assert api.calls == []
    await neighbour.stop()
    assert not neighbour.leads


@in_no_time
async def test_follower_waits_for_a_renewal_of_the_first_record(api):
    scheduler = Scheduler(api)
    neighbour = Neighbour(api)
    await asyncio.sleep(30)
    assert (neighbour.terms, neighbour.election.missing()) == ([], None)

    scheduler.renew()
    await asyncio.sleep(0.1)

    assert neighbour.terms == [3]
    await neighbour.stop()


@pytest.mark.parametrize("holder", ["pod-2_0f3c", "pod-1", "", "pod-11_0f3c", "_pod-1"])
def test_follower_does_not_lead_for_a_scheduler_of_another_pod(holder):
    async def test(api):
        scheduler = Scheduler(api, holder)
        neighbour = Neighbour(api)
        await scheduler.keep(10)
        assert neighbour.terms == []
        await neighbour.stop()

    virtual_time.run(test(LeaseAPI()))


@in_no_time
async def test_follower_stops_when_the_lease_is_released_or_acquired(api):
    scheduler = Scheduler(api)
    neighbour = Neighbour(api)
    await scheduler.keep(10)

    Scheduler(api, "", 3)
    await asyncio.sleep(0.1)
    assert (neighbour.leads, neighbour.election.term) == (False, None)
    Scheduler(api, "pod-2_77", 4)
    await asyncio.sleep(1)
    assert neighbour.terms == [3]
    await Scheduler(api, HOLDER, 5).keep(10)
    assert (neighbour.terms, neighbour.leads) == ([3, 5], True)
    await neighbour.stop()


@in_no_time
async def test_restarted_scheduler_begins_another_term(api):
    neighbour = Neighbour(api)
    await Scheduler(api).keep(10)

    await Scheduler(api, "pod-1_another", 4).keep(10)

    assert (neighbour.terms, neighbour.leads) == ([3, 4], True)
    await neighbour.stop()


@in_no_time
async def test_follower_stops_at_the_renew_deadline(api):
    neighbour = Neighbour(api)
    await Scheduler(api).keep(10)
    last = now() - 2

    await asyncio.sleep(20)

    assert neighbour.ended_at - last == pytest.approx(10, abs=0.5)
    await neighbour.stop()


@in_no_time
async def test_follower_stops_when_the_lease_is_deleted(api):
    neighbour = Neighbour(api)
    await Scheduler(api).keep(10)

    api.remove()
    await asyncio.sleep(0.1)

    assert not neighbour.leads
    await neighbour.stop()


@in_no_time
async def test_run_returns_when_lead_returns(api):
    election = SidecarElection(Client(api), "ns", "leader", "pod-1", clock=now)
    led = []

    async def lead(term):
        led.append(term)

    running = asyncio.create_task(election.run(lead))
    await Scheduler(api).keep(4)

    await asyncio.wait_for(running, 1)
    assert led == [3]


@in_no_time
async def test_exception_of_lead_is_raised(api):
    election = SidecarElection(Client(api), "ns", "leader", "pod-1", clock=now)

    async def lead(_term):
        raise ValueError("broken")

    running = asyncio.create_task(election.run(lead))
    await Scheduler(api).keep(4)

    with pytest.raises(ValueError, match="broken"):
        await running
