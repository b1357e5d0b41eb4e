"""The state of one unit that is being taken off its GPUs, and the units that are protected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_seen

from linkwise.cluster.gang import GangKey
from scorer.commit.removal import protected_units
from scorer.commit.removal.protected_units import FIRST, LONGEST, ProtectedUnits
from scorer.commit.removal.removal_state import AGAIN, Removal, Step

KEY = GangKey("team", "bert", "job")
STATUSES = [None, 0, 400, 403, 409, 422, 429, 500, 503, 504]
PODS = tuple(a_seen(name=f"bert-{i}", uid=f"bert-{i}") for i in range(3))
UIDS = [pod.uid for pod in PODS]


def answers(*statuses):
    return dict(zip(UIDS, statuses, strict=True))


@pytest.mark.parametrize("is_begun", [False, True])
@pytest.mark.parametrize("status", STATUSES)
def test_a_refused_dry_run_touches_nothing(status, is_begun):
    asked = Removal(KEY, PODS, is_begun=is_begun).asked(answers(None, status, None), 0)

    passes = {None, 0, 409, 500, 503, 504, 429 if is_begun else None}
    is_final = status not in passes
    given_up = Step.RETURNED if is_begun else Step.UNTOUCHED
    assert asked.step is (
        given_up if is_final else Step.EVICTING if status is None else Step.ASKING
    )
    assert not asked.accepted


@pytest.mark.parametrize(
    ("status", "seconds"),
    [(403, 0), (422, 0), (400, 0), (429, 5), (500, 5), (504, 5), (0, 30), (409, 30)],
)
def test_a_refusal_that_may_pass_is_tried_again_for_a_while(status, seconds):
    removal = Removal(KEY, PODS, step=Step.EVICTING)
    if seconds:
        removal = removal.answered(answers(None, status, status), 100)
        assert removal.step is Step.EVICTING
        removal = removal.answered({UIDS[1]: status}, 100 + seconds - 0.1)
        assert removal.step is Step.EVICTING
    removal = removal.answered({UIDS[0]: None, UIDS[1]: status}, 100 + seconds)
    assert removal.step is Step.RETURNED


def test_a_refusal_that_passed_does_not_count_for_the_next_one():
    removal = Removal(KEY, PODS, step=Step.EVICTING).answered(answers(None, None, 429), 0)
    removal = removal.answered({UIDS[2]: None}, 4)
    assert removal.answered({UIDS[2]: 429}, 9).step is Step.EVICTING


def test_a_pod_that_stays_although_it_was_evicted_is_evicted_again():
    removal = Removal(KEY, PODS, step=Step.EVICTING).answered(answers(None, None, 429), 0)
    assert removal.due(PODS, AGAIN - 0.1) == [[PODS[2]]]
    assert removal.due(PODS, AGAIN) == [[*PODS]]


@given(st.lists(st.lists(st.sampled_from(STATUSES), min_size=3, max_size=3), max_size=40))
def test_a_unit_is_decided_within_bounds(passes):
    """Whatever the API server answers each second, a unit ends whole, or no pod of it stays."""
    removal = Removal(KEY, PODS, step=Step.EVICTING)
    for second, statuses in enumerate(passes):
        left = [uid for uid in UIDS if uid not in removal.accepted]
        if removal.is_over or not left:
            break
        removal = removal.answered(dict(zip(left, statuses, strict=False)), second)
        assert second < 30 or removal.is_over or not removal.refused
    if removal.step is Step.UNTOUCHED:
        assert not removal.accepted
    if removal.step is Step.RETURNED:
        assert 0 < len(removal.accepted) < len(PODS)


def test_protection_lasts_longer_with_each_refusal_and_is_forgotten():
    now = 0.0
    units = ProtectedUnits(lambda: now)
    assert units.time_left() is None
    for seconds in (FIRST, 2 * FIRST, 4 * FIRST):
        units.protect(KEY, "why")
        assert units.reason(KEY) == units.refused_lately(KEY) == "why"
        assert units.time_left() == FIRST
        now += FIRST
        # It may leave broken GPUs, although it is no victim for longer.
        assert units.refused_lately(KEY) is None
        assert units.time_left() == (seconds - FIRST or None)
        now += seconds - FIRST
        assert units.reason(KEY) is None
    for _ in range(9):
        units.protect(KEY, "why")
    now += LONGEST - 1
    assert units.reason(KEY) == "why"
    now += LONGEST + 1
    units.protect(KEY, "why")
    now += FIRST
    assert units.reason(KEY) is None


def test_a_bounded_number_of_units_is_protected(monkeypatch):
    monkeypatch.setattr(protected_units, "KEPT", 3)
    units = ProtectedUnits(lambda: 0.0)
    keys = [GangKey("team", f"gang-{i}", "job") for i in range(9)]
    for key in keys:
        units.protect(key, "why")
    assert [key for key in keys if units.reason(key)] == keys[-3:]
