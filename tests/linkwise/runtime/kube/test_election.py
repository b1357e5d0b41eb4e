import asyncio
import re
from contextlib import suppress
from itertools import chain, repeat

import pytest
from support.servers.lease_api import Client, Fate, in_no_time, now

from linkwise.runtime.kube.client import ApiError
from linkwise.runtime.kube.election import Election

HOUR = 3600
OTHER = {
    "holderIdentity": "other",
    "leaseDurationSeconds": 15,
    "leaseTransitions": 6,
    "acquireTime": "2020-01-01T00:00:00.000000Z",
    "renewTime": "2020-01-01T00:00:00.000000Z",
}
SILENT = Fate(lost="there")


class Candidate:
    """A process that leads and does nothing else."""

    def __init__(self, api, name="we", *, fates=None, news=None, drain=0.0):
        self.client = Client(api, fates, news)
        self.election = Election(self.client, "ns", "leader", name, clock=now)
        self.terms = []
        self.began = asyncio.Event()
        self.ended_at = None
        self.term_at_end = None
        self._drain = drain

    async def lead(self, term):
        self.terms.append(term)
        self.ended_at = None
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.began.clear()
            await asyncio.sleep(self._drain)
            self.ended_at, self.term_at_end = now(), self.election.term

    def start(self):
        self.task = asyncio.create_task(self.election.run(self.lead))
        return self

    async def stop(self):
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


def fates(*first, then=None):
    return chain(first, repeat(then or Fate()))


@in_no_time
async def test_missing_lease_is_created_with_term_0(api):
    we = Candidate(api).start()
    await we.began.wait()

    assert we.election.term == 0
    assert now() < 1
    moment = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"
    assert re.fullmatch(moment, api.spec["renewTime"])
    assert api.spec == {
        "holderIdentity": "we",
        "leaseDurationSeconds": 15,
        "leaseTransitions": 0,
        "acquireTime": api.spec["renewTime"],
        "renewTime": api.spec["renewTime"],
    }


@pytest.mark.parametrize(
    ("found", "term"),
    [
        ({}, 1),
        ({"leaseTransitions": 7}, 8),
        ({"leaseTransitions": 7, "holderIdentity": "", "leaseDurationSeconds": 1}, 8),
        ({"leaseTransitions": 7, "holderIdentity": None}, 8),
        ({"leaseTransitions": 7, "holderIdentity": "we", "leaseDurationSeconds": 15}, 8),
    ],
    ids=["new", "no holder", "released", "released, null", "ours, of a tenure that is over"],
)
def test_lease_without_a_holder_is_acquired_immediately_with_the_next_term(found, term):
    @in_no_time
    async def test(api):
        api.put(**found)
        we = Candidate(api).start()
        await we.began.wait()

        assert now() < 1
        assert we.terms == [term]
        assert (api.spec["leaseTransitions"], api.spec["holderIdentity"]) == (term, "we")

    test()


@in_no_time
async def test_candidate_measures_from_its_own_observation(api):
    api.put(**OTHER)
    we = Candidate(api).start()
    await asyncio.sleep(14)
    # Only a renewal counts, not another change of the object.
    api.put(**OTHER)
    await asyncio.sleep(0.5)
    assert we.terms == []

    await we.began.wait()

    assert 15 <= now() < 15.5
    assert we.terms == [7]


@in_no_time
async def test_candidate_restarts_its_wait_at_each_renewal(api):
    we = Candidate(api).start()
    for second in range(30):
        api.put(**{**OTHER, "renewTime": f"2020-01-01T00:00:{second:02}.000000Z"})
        await asyncio.sleep(2)
    assert we.terms == []

    await we.began.wait()

    assert 58 + 15 <= now() < 58 + 15.5


@in_no_time
async def test_candidate_waits_for_the_duration_in_the_lease(api):
    api.put(**{**OTHER, "leaseDurationSeconds": 60})
    we = Candidate(api).start()
    await we.began.wait()

    assert 60 <= now() < 60.5


@in_no_time
async def test_holder_renews_and_writes_the_time_only(api):
    api.put(holderIdentity="", strategy="kept")
    we = Candidate(api).start()
    await we.began.wait()
    acquired = dict(api.spec)
    calls = len(api.calls)
    await asyncio.sleep(HOUR)

    assert we.terms == [1]
    assert len(api.calls) - calls == pytest.approx(HOUR / 2, rel=0.01)
    renewed = {**acquired, "renewTime": api.spec["renewTime"]}
    assert api.spec == renewed
    assert api.spec["strategy"] == "kept"


@in_no_time
async def test_ending_holder_releases_the_lease_to_the_next(api):
    first = Candidate(api, "first").start()
    await first.began.wait()
    second = Candidate(api, "second").start()
    await asyncio.sleep(60)
    assert second.terms == []

    await first.stop()

    assert api.spec["holderIdentity"] == ""
    assert (api.spec["leaseDurationSeconds"], api.spec["leaseTransitions"]) == (1, 0)
    assert first.election.term is None
    await second.began.wait()
    assert 60 <= now() < 60.1
    assert (second.terms, api.spec["holderIdentity"]) == ([1], "second")
    assert api.spec["leaseDurationSeconds"] == 15


@in_no_time
async def test_lease_is_renewed_while_lead_ends(api):
    we, other = Candidate(api, drain=40).start(), Candidate(api, "other")
    await we.began.wait()
    other.start()

    await we.stop()

    assert (we.ended_at, we.term_at_end, other.terms) == (40, 0, [])
    await other.began.wait()
    assert now() < 40.1


@in_no_time
async def test_holder_that_ends_during_a_renewal_releases_the_lease(api):
    # The renewal is carried out, but its answer comes after the end.
    list_, create = Fate(), Fate()
    we = Candidate(api, fates=fates(list_, create, Fate(there=0.1, back=3))).start()
    await asyncio.sleep(2.05)

    await we.stop()
    await asyncio.sleep(0.1)

    assert api.spec["holderIdentity"] == ""


@in_no_time
async def test_ending_candidate_does_not_write(api):
    api.put(**OTHER)
    we = Candidate(api).start()
    await asyncio.sleep(10)

    await we.stop()

    assert (api.spec, we.client.api.calls) == (OTHER, [])


@in_no_time
async def test_holder_without_renewal_stops_before_the_lease_expires(api):
    we = Candidate(api, fates=fates(Fate(), Fate(), Fate(), then=SILENT)).start()
    await we.began.wait()
    other = Candidate(api, "other").start()
    await asyncio.sleep(11.9)
    assert we.election.term == 0

    await other.began.wait()

    # Its only renewal was sent after 2 s.
    assert (we.ended_at, we.term_at_end, now()) == (12, None, 17)
    assert (we.terms, other.terms) == ([0], [1])


@in_no_time
async def test_holder_with_refused_renewals_stops_at_its_deadline(api):
    renewed_late = Fate(back=0.5)
    we = Candidate(api, fates=fates(Fate(), Fate(), renewed_late)).start()
    await asyncio.sleep(3)
    api.merge = lambda _body: fail(ApiError(500, "InternalError", "etcd is gone"))

    await asyncio.sleep(10)

    assert (we.ended_at, we.term_at_end) == (12, None)


@in_no_time
async def test_slow_renewal_counts_from_its_start(api):
    we = Candidate(api, fates=fates(Fate(), Fate(), Fate(back=4.9), then=SILENT)).start()
    await we.began.wait()
    await asyncio.sleep(11.9)
    assert we.election.term == 0

    await asyncio.sleep(0.2)

    assert (we.ended_at, we.election.term) == (12, None)


@in_no_time
async def test_term_ends_by_the_clock_on_a_blocked_loop(api):
    skipped = 0.0
    election = Election(Client(api), "ns", "leader", "we", clock=lambda: now() + skipped)
    terms = []

    async def lead(term):
        nonlocal skipped
        terms.append(election.term)
        if len(terms) == 1:
            # As after a SIGSTOP and a SIGCONT: time went by between two steps of one function.
            skipped = 20
            terms.append(election.term)
            await asyncio.Event().wait()
        assert term == 1

    await election.run(lead)

    assert terms == [0, None, 1]


@in_no_time
async def test_renewal_without_an_answer_is_read_back(api):
    lost = Fate(lost="back")
    works = Fate()
    # After the one without an answer: a conflict, a look, and a renewal.
    renewals = (lost, works, works, works, works, lost)
    we = Candidate(api, fates=fates(works, works, *renewals)).start()

    await asyncio.sleep(100)

    assert (we.terms, we.election.term) == ([0], 0)


@in_no_time
async def test_acquisition_without_an_answer_is_repeated_with_another_term(api):
    lost = Fate(lost="back")
    we = Candidate(api, fates=fates(Fate(), lost)).start()

    await we.began.wait()

    assert (we.terms, api.spec["leaseTransitions"], now() < 6) == ([1], 1, True)


@in_no_time
async def test_lease_of_another_holder_is_not_written(api):
    we = Candidate(api).start()
    await asyncio.sleep(5)

    api.put(**OTHER)
    await asyncio.sleep(5)

    assert (we.ended_at, we.term_at_end, we.election.term) == (6, None, None)
    assert api.spec == OTHER
    await we.began.wait()
    assert 5 + 15 <= now() < 6 + 15.1
    assert we.terms == [0, 7]


@in_no_time
async def test_changed_term_ends_leadership(api):
    we = Candidate(api).start()
    await asyncio.sleep(5)

    api.put(**{**api.spec, "leaseTransitions": 5})
    await asyncio.sleep(5)

    assert (we.terms, api.spec["leaseTransitions"]) == ([0, 6], 6)


@in_no_time
async def test_candidate_sees_a_release_after_its_watch_broke(api):
    api.put(**{**OTHER, "leaseDurationSeconds": 600})
    we = Candidate(api, news=repeat(SILENT)).start()
    await asyncio.sleep(60)
    api.put(**{**OTHER, "holderIdentity": ""})

    await we.began.wait()

    assert 60 < now() < 70


@in_no_time
async def test_terms_grow_after_the_lease_was_deleted(api):
    api.put(**{**OTHER, "holderIdentity": ""})
    we = Candidate(api).start()
    await asyncio.sleep(5)
    api.remove()

    await asyncio.sleep(5)

    assert (we.terms, api.spec["leaseTransitions"]) == ([7, 8], 8)


@in_no_time
async def test_candidate_creates_a_deleted_lease_with_a_new_term(api):
    api.put(**OTHER)
    we = Candidate(api).start()
    await asyncio.sleep(5)

    api.remove()
    await we.began.wait()

    assert (we.terms, now()) == ([7], 5)


@in_no_time
async def test_lease_changed_by_others_keeps_its_holder(api):
    we = Candidate(api).start()
    await we.began.wait()
    for _ in range(50):
        api.put(**api.spec)
        await asyncio.sleep(0.7)

    assert we.terms == [0]


@in_no_time
async def test_lease_is_released_when_lead_returns(api):
    election = Election(Client(api), "ns", "leader", "we", clock=now)

    async def lead(term):
        assert election.term == term

    await election.run(lead)

    assert (api.spec["holderIdentity"], election.term) == ("", None)


@in_no_time
async def test_exception_of_lead_is_raised_after_the_release(api):
    election = Election(Client(api), "ns", "leader", "we", clock=now)

    async def lead(_term):
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await election.run(lead)

    assert api.spec["holderIdentity"] == ""


@in_no_time
async def test_exception_of_lead_after_a_lost_lease_is_raised(api):
    election = Election(Client(api), "ns", "leader", "we", clock=now)

    async def lead(_term):
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("broken")

    running = asyncio.create_task(election.run(lead))
    await asyncio.sleep(1)
    api.put(**OTHER)

    with pytest.raises(ValueError, match="broken"):
        await running


@in_no_time
async def test_refused_creation_is_retried(api):
    refusals = [ApiError(403, "Forbidden", "may not")] * 3
    made = api.create
    api.create = lambda body: made(body) if not refusals else fail(refusals.pop())
    we = Candidate(api).start()

    await we.began.wait()

    assert now() == pytest.approx(3 * 2, abs=0.5)


@in_no_time
async def test_process_ends_if_the_release_fails(api):
    we = Candidate(api, fates=fates(Fate(), Fate(), then=SILENT)).start()
    await we.began.wait()

    await we.stop()

    assert now() <= 2
    assert api.spec["holderIdentity"] == "we"


@in_no_time
async def test_second_cancellation_ends_immediately(api):
    we = Candidate(api, drain=HOUR).start()
    await we.began.wait()
    we.task.cancel()
    await asyncio.sleep(1)

    await we.stop()

    assert now() == 1


def fail(error):
    raise error
