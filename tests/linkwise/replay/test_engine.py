from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.traces import a_job, a_policy, shared_fleet, whole_fleet

from linkwise.cluster.account.gpu_usage import LedgerError
from linkwise.planning.placement.placements import new_plan
from linkwise.replay.engine import MIN_RUN, EventKind, Rules, Run
from linkwise.replay.job import FOREVER, MILLI
from linkwise.replay.policies.registry import POLICIES

SHARED, WHOLE = Rules(shared=True), Rules(shared=False)


def a_run(fleet, name="linkwise", rules=SHARED, shapes=()):
    return Run(fleet, a_policy(name, shapes=shapes), rules)


def starts(run, jobs):
    return [
        (event.job.name, event.time) for event in run.events(jobs) if event.kind is EventKind.STARTS
    ]


def test_a_job_waits_until_another_leaves():
    jobs = [a_job("first", 0, 10), a_job("second", 1, 10), a_job("third", 2, 10)]

    assert starts(a_run(shared_fleet(1)), jobs) == [("first", 0), ("second", 10), ("third", 20)]


def test_a_smaller_job_passes_one_that_does_not_fit():
    jobs = [a_job("half", 0, 10, milli=500), a_job("whole", 1, 10), a_job("rest", 2, 10, milli=500)]

    # The whole GPU waits for both halves: nothing is reserved for it.
    assert starts(a_run(shared_fleet(1)), jobs) == [("half", 0), ("rest", 2), ("whole", 12)]


def test_a_job_of_the_same_size_does_not_pass_one_that_waits():
    jobs = [a_job("a", 0, 10, gpus=2), a_job("b", 1, 5, gpus=2), a_job("c", 1, 1, gpus=2)]

    assert starts(a_run(shared_fleet(2)), jobs) == [("a", 0), ("b", 10), ("c", 15)]


def test_a_gang_starts_whole_or_not_at_all():
    jobs = [a_job("one", 0, 10, gpus=8), a_job("gang", 1, 10, gpus=8, pods=2)]
    run = a_run(whole_fleet(2), rules=WHOLE)

    assert starts(run, jobs) == [("one", 0), ("gang", 10)]


def test_a_refused_job_is_gone_where_jobs_do_not_wait():
    jobs = [a_job("first", 0, FOREVER), a_job("second", 1, FOREVER)]
    run = a_run(shared_fleet(1), rules=Rules(shared=True, waits=False))

    assert starts(run, jobs) == [("first", 0)]
    assert run.waiting == 0


def test_a_job_that_never_fits_waits_at_the_end():
    run = a_run(shared_fleet(1, 1))

    assert starts(run, [a_job(gpus=2)]) == []
    assert run.waiting == 1


def test_no_policy_is_asked_about_a_job_larger_than_the_fleet():
    run = a_run(whole_fleet(1), rules=WHOLE)

    assert starts(run, [a_job("huge", gpus=8, pods=60_000), a_job("small")]) == [("small", 0)]
    assert (run.decisions, run.waiting) == (1, 1)


def test_a_policy_that_gives_out_a_taken_gpu_is_stopped():
    class Wrong:
        def place(self, _snapshot, shape, members):
            return a_policy("linkwise").place(shared_fleet(1), shape, members)

    run = Run(shared_fleet(1), Wrong(), SHARED)
    with pytest.raises(LedgerError):
        list(run.events([a_job("a"), a_job("b")]))


SHAPES = st.one_of(
    st.builds(dict, gpus=st.integers(1, 4), pods=st.integers(1, 3)),
    st.builds(dict, gpus=st.just(1), milli=st.integers(1, 999)),
)
JOBS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 30), SHAPES, st.integers(0, 3000)), max_size=25
)


def account_of(placements):
    """Return the part of each GPU that placements give out [1/1000]."""
    account = Counter()
    for each in placements:
        for share in each.gpus.shares:
            account[each.node, share.i] += MILLI if share.mem is None else share.mem
    return account


def ledger_of(snapshot, *, shared):
    """Return the part of each GPU that a snapshot says is taken [1/1000]."""
    return Counter(
        {
            (node.node.name, i): usage.memory if shared else MILLI * usage.holders
            for node in snapshot.nodes
            for i, usage in enumerate(node.taken)
            if usage.holders
        }
    )


@pytest.mark.parametrize("shared", [True, False], ids=["shares", "whole GPUs"])
@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=15, deadline=None)
@given(jobs=JOBS)
def test_gpus_are_held_once_and_all_released(name, shared, jobs):
    jobs = sorted(jobs, key=lambda job: job[0])
    sequence = [
        a_job(f"job-{i}", float(submit), float(duration), cpu=cpu, **shape)
        for i, (submit, duration, shape, cpu) in enumerate(jobs)
        if shared or "milli" not in shape
    ]
    shapes = {job.shape for job in sequence}
    fleet = shared_fleet(4, 2, 1, cpu=8000)
    if not shared:
        fleet = whole_fleet(2, "t4x4", zones="ab", cpu=8000)
    run = a_run(fleet, name, Rules(shared=shared), shapes)
    # The account is that of the events alone; the ledger must agree with it after each of them.
    held, running, started, last = Counter(), {}, set(), 0.0

    for event in run.events(sequence):
        assert event.time >= last
        last = event.time
        if event.kind is EventKind.STARTS:
            shape = event.job.shape
            assert [len(each.gpus) for each in event.placements] == [shape.gpus] * shape.pods
            assert event.job.name not in started
            started.add(event.job.name)
            running[event.job.name] = account_of(event.placements)
            held += running[event.job.name]
        if event.kind is EventKind.LEAVES:
            held -= running.pop(event.job.name)
        assert all(amount <= MILLI for amount in held.values())
        assert held == ledger_of(run.snapshot, shared=shared)

    assert not held
    assert not running
    assert [node.taken for node in run.snapshot.nodes] == [node.taken for node in fleet.nodes]
    assert len(started) + run.waiting == len(sequence)


@pytest.mark.parametrize("name", POLICIES)
def test_a_run_is_the_same_each_time(name):
    jobs = [a_job(f"j{i}", i, 7 + i % 5, gpus=1 + i % 3, pods=1 + i % 2) for i in range(30)]
    shapes = {job.shape for job in jobs}

    def placements():
        run = a_run(whole_fleet(2), name, WHOLE, shapes)
        return [
            (event.time, [(each.node, each.gpus) for each in event.placements])
            for event in run.events(jobs)
        ]

    assert placements() == placements()


def test_the_bandwidth_of_a_start_is_that_of_the_plan():
    run = a_run(whole_fleet(1), rules=WHOLE)
    (event, _) = run.events([a_job(gpus=4)])

    plan = new_plan(event.before, event.placements, exact=True)
    assert plan.bandwidth.value == pytest.approx(55.2, abs=0.01)


def happened(run, jobs):
    return [(event.kind.name, event.job.name, event.time) for event in run.events(jobs)]


def test_a_job_of_a_higher_priority_takes_the_place_of_another():
    jobs = [
        a_job("spot", 0, 1000, gpus=8),
        a_job("also", 1, 1000, gpus=8),
        a_job("high", 400, 50, gpus=8, priority=1),
    ]
    run = a_run(whole_fleet(1), rules=WHOLE)

    # The evicted job runs again from the beginning, before the one that came after it.
    assert happened(run, jobs) == [
        ("STARTS", "spot", 0),
        ("REFUSED", "also", 1),
        ("EVICTED", "spot", 400),
        ("STARTS", "high", 400),
        ("LEAVES", "high", 450),
        ("STARTS", "spot", 450),
        ("LEAVES", "spot", 1450),
        ("STARTS", "also", 1450),
        ("LEAVES", "also", 2450),
    ]


@pytest.mark.parametrize(
    ("name", "rules", "submit", "spot"),
    [
        ("linkwise", WHOLE, 100, {}),
        ("best-fit", WHOLE, 400, {}),
        ("linkwise", Rules(shared=False, waits=False), 400, {}),
        ("linkwise", WHOLE, 400, {"priority": 1}),
    ],
    ids=["it has just started", "no preemption", "jobs do not wait", "the same priority"],
)
def test_nothing_is_evicted(name, rules, submit, spot):
    jobs = [a_job("spot", 0, 1000, gpus=8, **spot), a_job("high", submit, 50, gpus=8, priority=1)]

    kinds = [kind for kind, *_ in happened(a_run(whole_fleet(1), name, rules), jobs)]
    assert "EVICTED" not in kinds


def test_jobs_of_a_higher_priority_start_first():
    jobs = [
        a_job("first", 0, 10, gpus=8),
        a_job("spot", 1, 10, gpus=4),
        a_job("high", 2, 10, gpus=8, priority=1),
    ]

    assert starts(a_run(whole_fleet(1), rules=WHOLE), jobs) == [
        ("first", 0),
        ("high", 10),
        ("spot", 20),
    ]


def test_jobs_to_evict_are_searched_for_once_a_minute(monkeypatch):
    searched = []
    policy = a_policy("linkwise")
    preempt = type(policy).preempt
    monkeypatch.setattr(
        type(policy), "preempt", lambda *args: searched.append(args[-1]) or preempt(*args)
    )
    # One GPU is never free, so that each search is in vain.
    jobs = [a_job("stays", 0, 2000, priority=1)]
    jobs += [a_job(f"spot-{i}", 0, 400 + 10 * i) for i in range(15)]
    high = a_job("high", 350, 1, gpus=8, pods=2, priority=1)
    list(Run(whole_fleet(2), policy, WHOLE).events([*jobs, high]))

    assert len(searched) > 1
    assert all(later - earlier >= 60 for earlier, later in pairwise(searched))


PRIORITIES = st.lists(
    st.tuples(st.integers(0, 2000), st.integers(1, 1500), SHAPES, st.integers(0, 2)), max_size=20
)


@settings(max_examples=60, deadline=None)
@given(jobs=PRIORITIES, shared=st.booleans())
def test_with_evictions_each_job_ends_once_and_all_gpus_are_released(jobs, shared):
    jobs = sorted(jobs, key=lambda job: job[0])
    sequence = [
        a_job(f"job-{i}", float(submit), float(duration), priority=priority, **shape)
        for i, (submit, duration, shape, priority) in enumerate(jobs)
        if shared or "milli" not in shape
    ]
    fleet = shared_fleet(4, 2, 1) if shared else whole_fleet(2, "t4x4")
    run = a_run(fleet, rules=Rules(shared=shared))
    running, ended = {}, []

    for event in run.events(sequence):
        match event.kind:
            case EventKind.STARTS:
                assert event.job.name not in running
                running[event.job.name] = event
            case EventKind.EVICTED:
                began = running.pop(event.job.name)
                assert event.ran == event.time - began.time >= MIN_RUN
            case EventKind.LEAVES:
                began = running.pop(event.job.name)
                assert event.time == began.time + event.job.duration
                ended.append(event.job.name)
        held = sum(len(node.holdings) for node in run.snapshot.nodes)
        assert held == sum(event.job.shape.pods for event in running.values())

    assert not running
    assert len(ended) == len(set(ended)) == len(sequence) - run.waiting
    assert [node.taken for node in run.snapshot.nodes] == [node.taken for node in fleet.nodes]
