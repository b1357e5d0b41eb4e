"""`simulate` and `replay` place the same sequence of pods on the same nodes and GPUs."""

import random
from dataclasses import replace

import msgspec
import pytest
from support.builders import a_pod
from support.traces import a_job, a_policy, shared_fleet, whole_fleet

from linkwise.cluster import keys
from linkwise.cluster.objects.pod import Pod
from linkwise.planning.whatif.simulate import Intended, simulate
from linkwise.replay.engine import EventKind, Rules, Run
from linkwise.replay.job import FOREVER


def pods_of(job, *, shared):
    """Return the pods that admission would let pass for a job."""
    shape = job.shape
    limits = {keys.GPU_WHOLE: shape.gpus}
    labels = {}
    if shared:
        limits = {keys.GPU_MEM: shape.gpus * shape.milli}
        labels = {keys.GPU_COUNT: str(shape.gpus)}
    marks = {keys.GANG: job.name, keys.GANG_SIZE: str(shape.pods)} if shape.pods > 1 else {}
    names = [job.name] if shape.pods == 1 else [f"{job.name}-{i}" for i in range(shape.pods)]
    gate = {"schedulingGates": [{"name": keys.GANG}]}
    raw = (a_pod(limits, name=name, labels=labels, annotations=marks, **gate) for name in names)
    return [Intended(msgspec.convert(pod, Pod), "replay") for pod in raw]


def replayed(fleet, jobs, *, shared):
    run = Run(fleet, a_policy("linkwise"), Rules(shared=shared, waits=False))
    return placed(
        each
        for event in run.events(jobs)
        if event.kind is EventKind.STARTS
        for each in event.placements
    )


def simulated(fleet, jobs, *, shared):
    pods = [pod for job in jobs for pod in pods_of(job, shared=shared)]
    results, _ = simulate(fleet, pods, ())
    return placed(each for result in results if result.plan for each in result.plan.placements)


def placed(placements):
    return {each.member.pod.metadata.name: (each.node, each.gpus.indices) for each in placements}


def a_sequence(seed, count, shapes):
    draw = random.Random(seed)  # noqa: S311 (the same sequence each time)
    return [a_job(f"job-{i:02}", float(i), FOREVER, **draw.choice(shapes)) for i in range(count)]


WHOLE = [{"gpus": 1}, {"gpus": 2}, {"gpus": 4}, {"gpus": 1, "pods": 3}, {"gpus": 8, "pods": 2}]
SHARES = [{"milli": 200}, {"milli": 550}, {"gpus": 1}, {"gpus": 2}]


@pytest.mark.parametrize("seed", range(5))
def test_whole_gpus_and_gangs(seed):
    jobs = a_sequence(seed, 16, WHOLE)

    found = replayed(whole_fleet(6), jobs, shared=False)
    assert found == simulated(whole_fleet(6), jobs, shared=False)
    assert len(found) > 10


@pytest.mark.parametrize("seed", range(5))
def test_shares(seed):
    jobs = a_sequence(seed, 30, SHARES)

    found = replayed(shared_fleet(4, 4, 2), jobs, shared=True)
    assert found == simulated(shared_fleet(4, 4, 2), jobs, shared=True)
    assert 5 < len(found) < len(jobs)


@pytest.mark.parametrize(
    ("fleet", "shapes", "shared"),
    [(whole_fleet(3), WHOLE, False), (shared_fleet(4, 2), SHARES, True)],
    ids=["whole GPUs", "shares"],
)
def test_after_departures_each_job_starts_where_simulate_places_it(fleet, shapes, shared):
    jobs = [
        replace(job, duration=2.0 + 5 * (i % 4)) for i, job in enumerate(a_sequence(7, 20, shapes))
    ]
    run = Run(fleet, a_policy("linkwise"), Rules(shared=shared))
    kinds = []

    for event in run.events(jobs):
        kinds.append(event.kind)
        if event.kind is EventKind.STARTS:
            found = simulated(event.before, [event.job], shared=shared)
            assert placed(event.placements) == found
    assert kinds.count(EventKind.STARTS) == kinds.count(EventKind.LEAVES) == len(jobs)
    assert EventKind.REFUSED in kinds
