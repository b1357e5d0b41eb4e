"""The gangs that are moved off faults, and the time of it."""

from itertools import pairwise
from math import inf
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkwise.cluster.gang import GangKey
from linkwise.planning.gang.health import Fault
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


# ---- Faults that come and go, over some hours.


class Times(NamedTuple):
    """When a GPU under a gang has a fault [s]."""

    gang: int
    gpu: int
    start: int
    end: int

    @property
    def key(self):
        return GangKey("team", f"gang-{self.gang}", str(self.gang))


def joined(faults):
    """Return the same faults, of which no two of one GPU touch or overlap."""
    found = []
    for each in sorted(faults):
        last = found[-1] if found else None
        if last and last[:2] == each[:2] and each.start <= last.end:
            found[-1] = last._replace(end=max(last.end, each.end))
        else:
            found.append(each)
    return found


FAULTS = st.lists(
    st.builds(
        lambda gang, gpu, start, length: Times(gang, gpu, start, start + length),
        st.integers(0, 5),
        st.integers(0, 1),
        st.integers(0, 8000) | st.integers(0, 200),
        st.integers(1, 300) | st.integers(300, 9000),
    ),
    max_size=20,
).map(joined)


def moves_over_time(faults, *, most, takes):
    """Return each move, as time and gang, if `most` gangs move at once and each for a while [s]."""
    moved: dict[GangKey, float] = {}
    moves, now = [], 0.0
    changes = {float(at) for each in faults for at in (each.start, each.end)}
    while now < inf:
        moving = {key for key, at in moved.items() if now < at + takes}
        lasting: dict[GangKey, dict[Fault, float]] = {}
        for each in faults:
            if each.start <= now < each.end and each.key not in moving:
                lasting.setdefault(each.key, {})[Fault("gpu-0", each.gpu)] = each.start
        candidates = [
            Candidate(key, 0, since, moved.get(key, -inf)) for key, since in lasting.items()
        ]
        decision = run(*candidates, now=now, free=most - len(moving))
        assert len(moving) + len(decision.moves) <= most
        moves += [(now, key) for key in decision.moves]
        moved |= dict.fromkeys(decision.moves, now)
        ends = {at + takes for at in moved.values()}
        later = {at for at in (*changes, *ends, decision.next_at) if at > now}
        now = min(later, default=inf)
    return moves


@given(FAULTS, st.integers(1, 5), st.sampled_from([1, 60, 600]))
def test_over_time_only_faults_that_last_move_a_gang_and_that_once_an_hour(faults, most, takes):
    moves = moves_over_time(faults, most=most, takes=takes)
    for at, key in moves:
        assert any(each.start + SECONDS <= at < each.end for each in faults if each.key == key), (
            "the fault has not lasted"
        )
    for key in {key for _, key in moves}:
        times = [at for at, each in moves if each == key]
        assert all(b - a >= BETWEEN_MOVES for a, b in pairwise(times))


@given(FAULTS, st.sampled_from([1, 60, 600]))
def test_over_time_each_fault_that_lasts_moves_its_gang_unless_it_has_just_moved(faults, takes):
    moves = moves_over_time(faults, most=9, takes=takes)
    for each in faults:
        due = each.start + 2 * SECONDS
        if each.end > due:
            assert any(key == each.key and due - BETWEEN_MOVES < at <= due for at, key in moves), (
                f"{each} moved nobody"
            )


@given(st.lists(st.integers(0, 60), min_size=10, max_size=10))
def test_ten_gpus_that_fail_within_a_minute_are_one_decision(starts):
    faults = [Times(i, 0, start, 10_000) for i, start in enumerate(starts)]
    moves = moves_over_time(faults, most=10, takes=600)
    assert {key for _, key in moves[:10]} == {each.key for each in faults}
    assert {at for at, _ in moves[:10]} == {max(starts) + SECONDS}
