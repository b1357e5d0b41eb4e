"""Which gangs are moved off faults, and when."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.gang import GangKey
from scorer.gang.health import Fault
from scorer.queue.fault_moves import BETWEEN_MOVES, Candidate, decide

NOW, SECONDS = 100_000.0, 60.0
A, B = GangKey("team", "a", "1"), GangKey("team", "b", "2")


def a_candidate(key=A, *ages, priority=0, moved=inf):
    """Return a gang with faults of these ages [s]."""
    since = {Fault("gpu-0", i): NOW - age for i, age in enumerate(ages)}
    return Candidate(key, priority, since, NOW - moved)


def run(*candidates, now=NOW, free=2, blocked=()):
    blocker = dict.fromkeys(blocked, "it must not").get
    return decide(candidates, blocker, now=now, seconds=SECONDS, free=free)


@pytest.mark.parametrize(
    ("ages", "moves"),
    [
        pytest.param((59,), False, id="too short"),
        pytest.param((60,), True, id="long enough"),
        pytest.param((60, 59), False, id="another one was added"),
        pytest.param((119, 1), False, id="ten in a minute are one decision"),
        pytest.param((120, 1), True, id="others delay it no further"),
    ],
)
def test_a_fault_moves_a_gang_once_it_has_lasted(ages, moves):
    decision = run(a_candidate(A, *ages))
    assert decision.moves == ((A,) if moves else ())
    assert (decision.next_at == inf) is moves


def test_faults_of_others_delay_a_gang_so_that_all_move_by_one_decision():
    candidates = a_candidate(A, 100), a_candidate(B, 45)
    assert run(*candidates).moves == ()
    assert run(*candidates, now=NOW + 15).moves == (A, B)


def test_a_gang_that_must_not_be_evicted_stays_and_takes_no_turn():
    decision = run(a_candidate(A, 200), a_candidate(B, 200), free=1, blocked=[A])
    assert decision.moves == (B,)
    assert decision.waits == {A: "it must not"}


def test_the_highest_priority_moves_first():
    decision = run(a_candidate(A, 300), a_candidate(B, 200, priority=5), free=1)
    assert decision.moves == (B,)
    assert "fewer gangs" in decision.waits[A]


def test_a_gang_moves_once_an_hour():
    moved = a_candidate(A, 3000, moved=BETWEEN_MOVES - 1)
    assert run(moved).moves == ()
    assert "is not moved again before" in run(moved).waits[A]
    assert run(moved).next_at == NOW + 1
    assert run(moved, now=NOW + 1).moves == (A,)


KEYS = st.integers(0, 8).map(lambda i: GangKey("team", f"gang-{i}", str(i)))
CANDIDATES = st.lists(
    st.builds(
        lambda key, ages, priority, moved: a_candidate(key, *ages, priority=priority, moved=moved),
        KEYS,
        st.lists(st.floats(0, 300), min_size=1, max_size=4),
        st.integers(-2, 2),
        st.sampled_from([inf, 0.0, 10.0, 3599.0, 3600.0, 9000.0]),
    ),
    max_size=8,
    unique_by=lambda each: each.key,
)


@given(CANDIDATES, st.integers(-1, 4), st.sets(KEYS))
def test_no_move_breaks_a_limit_and_each_other_gang_has_a_reason(candidates, free, blocked):
    decision = run(*candidates, free=free, blocked=blocked)
    by_key = {each.key: each for each in candidates}
    assert len(decision.moves) <= max(free, 0)
    for key in decision.moves:
        each = by_key[key]
        assert key not in blocked
        assert NOW - each.first >= SECONDS
        assert NOW - each.moved_at >= BETWEEN_MOVES
    assert decision.waits.keys() | set(decision.moves) == by_key.keys()
    assert not decision.waits.keys() & set(decision.moves)


@given(CANDIDATES)
def test_each_fault_that_lasts_moves_its_gang_in_the_end(candidates):
    """At the latest after twice the time, and an hour after its last move."""
    late = NOW + max(2 * SECONDS, BETWEEN_MOVES)
    assert set(run(*candidates, now=late, free=9).moves) == {each.key for each in candidates}


@given(CANDIDATES.filter(bool))
def test_the_next_decision_comes_when_it_is_announced(candidates):
    decision = run(*candidates, free=9)
    if decision.next_at < inf:
        assert len(run(*candidates, now=decision.next_at, free=9).moves) > len(decision.moves)
