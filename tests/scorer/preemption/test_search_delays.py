"""The delays between two searches of victims for a unit."""

import pytest

from linkwise.cluster.gang import GangKey
from scorer.preemption.nomination import Failure
from scorer.preemption.search_delays import SearchDelays

KEY = GangKey("team", "high", "job")


async def test_other_victims_are_searched_at_once_a_few_times():
    delays = SearchDelays(lambda: None)
    for _ in range(8):
        delays.failed(KEY, "refused", Failure.VOID)
        assert KEY not in delays
    delays.failed(KEY, "refused", Failure.VOID)
    assert KEY in delays
    assert delays.reason(KEY) == "refused"
    delays.reset(KEY)
    assert KEY not in delays


async def test_after_two_sets_in_vain_nothing_is_evicted_for_a_unit_any_more():
    delays = SearchDelays(lambda: None)
    for _ in range(2):
        delays.failed(KEY, "not free in time", Failure.OVERDUE)
    assert "no others are evicted" in delays.reason(KEY)
    delays.reset(KEY)
    assert delays.reason(KEY) is None


@pytest.mark.parametrize("failure", [Failure.UNRECORDED, Failure.UNTOUCHED])
async def test_a_nomination_that_evicted_nobody_is_tried_again(failure):
    delays = SearchDelays(lambda: None)
    for _ in range(9):
        delays.failed(KEY, "no answer", failure)
    assert delays.reason(KEY) == "no answer"
