from itertools import pairwise

import pytest
from support.traces import a_job

from linkwise.replay.arrivals import WINDOW, arriving, filling, stretch_for, stretch_until
from linkwise.replay.job import FOREVER

JOBS = [a_job(f"j{i}", 10.0 * i, gpus=1 + i % 4) for i in range(50)]


def test_the_first_seed_is_the_trace():
    assert list(arriving(JOBS, 0)) == JOBS


def test_a_seed_exchanges_jobs_and_keeps_arrivals():
    jobs = list(arriving(JOBS, 3))

    assert [job.submit for job in jobs] == [job.submit for job in JOBS]
    assert sorted(job.name for job in jobs) == sorted(job.name for job in JOBS)
    assert [job.name for job in jobs] != [job.name for job in JOBS]
    assert jobs == list(arriving(JOBS, 3)) != list(arriving(JOBS, 4))


def test_a_job_stays_within_its_window():
    many = [a_job(f"{i}", float(i)) for i in range(WINDOW + 10)]

    last = [int(job.name) for job in arriving(many, 1)][WINDOW:]
    assert sorted(last) == list(range(WINDOW, WINDOW + 10))


def test_a_long_trace_is_read_as_it_is_replayed():
    read = []
    jobs = (read.append(i) or a_job(f"{i}", float(i)) for i in range(10 * WINDOW))

    next(arriving(jobs, 1))
    assert len(read) == WINDOW


def test_arrivals_are_stretched_and_end():
    jobs = list(arriving(JOBS, 0, stretch=2, until=100))

    assert [job.submit for job in jobs] == [20.0 * i for i in range(6)]


def test_the_times_of_a_trace_begin_at_its_first_job():
    late = [a_job("a", 1000.0), a_job("b", 1010.0), a_job("c", 1030.0)]

    assert [job.submit for job in arriving(late, 0, stretch=2, until=40)] == [1000.0, 1020.0]


@pytest.mark.parametrize("load", [0.2, 0.5])
def test_a_load_is_offered_until_the_last_arrival(load):
    # The second half of the trace asks for more than the first one.
    jobs = [a_job(f"j{i}", 7.0 + i, 10 if i < 500 else 60) for i in range(1000)]
    until, gpus = 400.0, 20

    stretch = stretch_until(jobs, load * until * gpus, until)
    arrived = list(arriving(jobs, 0, stretch, until * (1 + 1e-9)))
    assert arrived[-1].submit - 7.0 == pytest.approx(until)
    offered = sum(job.gpu_seconds for job in arrived) / (until * gpus)
    assert offered == pytest.approx(load, rel=0.02)


def test_filling_ends_when_all_gpus_are_asked_for():
    jobs = list(filling(JOBS, 1, gpus=40))

    total = [job.shape.total for job in jobs]
    assert sum(total) >= 40 > sum(total[:-1])
    assert all(job.duration == FOREVER for job in jobs)
    assert all(one.submit < other.submit for one, other in pairwise(jobs))
    assert len({job.name for job in jobs}) == len(jobs)
    assert jobs == list(filling(JOBS, 1, gpus=40)) != list(filling(JOBS, 2, gpus=40))


def test_of_no_jobs_none_is_drawn():
    assert list(filling([], 1, gpus=40)) == []


def test_a_load_is_the_offered_gpu_time():
    # 100 GPU seconds in 10 s on 20 GPUs is load 0.5; for load 1 arrivals come twice as fast.
    assert stretch_for(1.0, gpu_seconds=100, span=10, gpus=20) == 0.5
    assert stretch_for(0.5, gpu_seconds=100, span=10, gpus=20) == 1.0
    assert stretch_for(0.5, gpu_seconds=100, span=0, gpus=20) == 1.0
