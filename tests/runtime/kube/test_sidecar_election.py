import asyncio
from contextlib import suppress

import pytest
import virtual_time
from lease_api import Client, LeaseAPI, in_no_time, now

from runtime.kube.lease import LeaseTimings
from runtime.kube.sidecar_election import SidecarElection

HOLDER = "pod-1_0f3c"


class Scheduler:
    """A process that holds the Lease, and renews it while it is told to."""

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
async def test_it_leads_under_the_term_of_the_process_beside_it_and_writes_nothing(api):
    scheduler = Scheduler(api)
    neighbour = Neighbour(api)

    await scheduler.keep(60)

    assert (neighbour.terms, neighbour.leads, neighbour.election.term) == ([3], True, 3)
    assert api.calls == []
    await neighbour.stop()
    assert not neighbour.leads


@in_no_time
async def test_what_is_found_at_first_may_be_old_so_that_a_renewal_is_waited_for(api):
    scheduler = Scheduler(api)
    neighbour = Neighbour(api)
    await asyncio.sleep(30)
    assert (neighbour.terms, neighbour.election.missing()) == ([], None)

    scheduler.renew()
    await asyncio.sleep(0.1)

    assert neighbour.terms == [3]
    await neighbour.stop()


@pytest.mark.parametrize("holder", ["pod-2_0f3c", "pod-1", "", "pod-11_0f3c", "_pod-1"])
def test_it_does_not_lead_beside_another_process(holder):
    async def test(api):
        scheduler = Scheduler(api, holder)
        neighbour = Neighbour(api)
        await scheduler.keep(10)
        assert neighbour.terms == []
        await neighbour.stop()

    virtual_time.run(test(LeaseAPI()))


@in_no_time
async def test_it_stops_when_the_lease_is_given_up_or_taken(api):
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
async def test_a_scheduler_that_was_started_again_begins_another_term(api):
    neighbour = Neighbour(api)
    await Scheduler(api).keep(10)

    await Scheduler(api, "pod-1_another", 4).keep(10)

    assert (neighbour.terms, neighbour.leads) == ([3, 4], True)
    await neighbour.stop()


@in_no_time
async def test_it_stops_before_another_may_lead_when_no_renewal_is_seen(api):
    neighbour = Neighbour(api)
    await Scheduler(api).keep(10)
    last = now() - 2

    await asyncio.sleep(20)

    assert neighbour.ended_at - last == pytest.approx(10, abs=0.5)
    await neighbour.stop()


@in_no_time
async def test_it_stops_when_the_lease_is_deleted(api):
    neighbour = Neighbour(api)
    await Scheduler(api).keep(10)

    api.remove()
    await asyncio.sleep(0.1)

    assert not neighbour.leads
    await neighbour.stop()


@in_no_time
async def test_what_is_led_may_end_by_itself(api):
    election = SidecarElection(Client(api), "ns", "leader", "pod-1", clock=now)
    led = []

    async def lead(term):
        led.append(term)

    running = asyncio.create_task(election.run(lead))
    await Scheduler(api).keep(4)

    await asyncio.wait_for(running, 1)
    assert led == [3]


@in_no_time
async def test_a_failure_of_what_is_led_is_raised(api):
    election = SidecarElection(Client(api), "ns", "leader", "pod-1", clock=now)

    async def lead(_term):
        raise ValueError("broken")

    running = asyncio.create_task(election.run(lead))
    await Scheduler(api).keep(4)

    with pytest.raises(ValueError, match="broken"):
        await running
