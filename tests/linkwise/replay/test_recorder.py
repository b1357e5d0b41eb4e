import pytest
from support.traces import a_job, a_policy, shared_fleet, whole_fleet

from linkwise.replay.engine import Rules, Run
from linkwise.replay.measures import Size, size_of
from linkwise.replay.recorder import measured


def measure(fleet, jobs, name="linkwise", *, shared=True, waits=True):
    run = Run(fleet, a_policy(name), Rules(shared=shared, waits=waits))
    return measured(run, jobs, len(jobs))


def test_allocation_is_averaged_until_the_last_arrival():
    # Two GPUs: one is in use from 0 to 10, both from 5 to 10, one from 10 to 15; the last job
    # arrives at 10.
    jobs = [a_job("a", 0, 10), a_job("b", 5, 10), a_job("c", 10, 100)]
    figures = measure(shared_fleet(2), jobs)

    assert figures.mean_allocated == pytest.approx((5 * 1 + 5 * 2) / 10 / 2)
    assert figures.allocated_at_end == 1.0
    assert (figures.arrived, figures.started, figures.unplaced) == (3, 3, 0)


def test_the_first_refusal_is_recorded():
    jobs = [a_job("a", 0, 10, milli=600), a_job("b", 1, 10, milli=600), a_job("c", 2, 10, gpus=2)]
    figures = measure(shared_fleet(1), jobs)

    assert figures.at_first_refusal == pytest.approx(0.6)
    assert figures.unplaced == 1
    assert figures.waits[Size.SHARE].mean == pytest.approx(4.5)
    # The job of two GPUs waits until the run ends at 20, when the second one has left.
    assert figures.waits[Size.NODE].total == 18
    assert figures.wait == pytest.approx((0 + 9 + 18) / 3)
    assert figures.waits[Size.SHARE].longest == 9


def test_without_a_refusal_there_is_none():
    assert measure(shared_fleet(1), [a_job()]).at_first_refusal is None


def test_free_sets_are_averaged_over_time():
    # A node of 8 GPUs has two free sets of four; one after the first job, none after the second.
    jobs = [a_job("a", 0, 100, gpus=1), a_job("b", 10, 100, gpus=4), a_job("c", 20, 1)]

    assert measure(shared_fleet(8), jobs).mean_free_sets == pytest.approx((10 * 1 + 10 * 0) / 20)


def test_links_are_compared_with_the_empty_fleet():
    best = measure(whole_fleet(1), [a_job(gpus=4)], shared=False)
    assert (best.known, best.on_best, best.lost) == (1, 1, 0.0)
    assert best.mean_bandwidth == pytest.approx(55.2, abs=0.01)

    # GPUs 0 and 1 have one NVLink, GPUs 0 and 3 two.
    worse = measure(whole_fleet(1), [a_job(gpus=2)], "round-robin", shared=False)
    assert (worse.known, worse.on_best) == (1, 0)
    assert (worse.mean_bandwidth, worse.mean_lost) == (20.0, 20.0)


def test_split_jobs_are_counted():
    jobs = [a_job("a", 0, 9, gpus=1), a_job("gang", 1, 9, gpus=4, pods=2)]
    assert measure(whole_fleet(2), jobs, "best-fit", shared=False).split == 1
    assert measure(whole_fleet(2), jobs[1:], "best-fit", shared=False).split == 0


@pytest.mark.parametrize(
    ("zones", "split"),
    [("abab", 1), ("aabb", 0), ("", None)],
    ids=["two zones", "one zone", "no domains"],
)
def test_jobs_split_over_domains_are_counted(zones, split):
    # One zone would do for the first gang, which takes node-0 and node-1; the second needs two.
    jobs = [a_job("gang", 0, 5, gpus=8, pods=2), a_job("large", 9, 5, gpus=8, pods=3)]
    fleet = whole_fleet(4, zones=zones)

    assert measure(fleet, jobs, "round-robin", shared=False).split_over_domains == split


def test_curves_have_a_bounded_number_of_points():
    jobs = [a_job(f"{i}", float(i), 1) for i in range(1000)]
    points = measure(shared_fleet(4), jobs).points

    assert 100 <= len(points) <= 130
    assert [point.time for point in points] == sorted(point.time for point in points)


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ({"milli": 500}, Size.SHARE),
        ({"gpus": 1}, Size.ONE),
        ({"gpus": 8}, Size.NODE),
        ({"gpus": 1, "pods": 2}, Size.NODE),
        ({"gpus": 8, "pods": 2}, Size.MANY),
    ],
    ids=str,
)
def test_sizes_of_jobs(shape, size):
    assert size_of(a_job(**shape).shape) is size


def test_evictions_are_counted_with_the_time_that_they_lose():
    jobs = [
        a_job("spot", 0, 1000, gpus=8),
        a_job("high", 400, 50, gpus=8, priority=1),
        a_job("last", 410, 50, gpus=8, priority=1),
    ]
    figures = measure(whole_fleet(1), jobs, shared=False)

    assert (figures.evictions, figures.lost_gpu_seconds) == (1, 400 * 8)
    assert (figures.arrived, figures.started, figures.unplaced) == (3, 3, 0)
    assert (figures.urgent_waits.jobs, figures.urgent_waits.total) == (2, 40)
    # The wait of the evicted job is the one before its first start.
    assert figures.waits[Size.NODE].total == 40
    assert figures.allocated_at_end == 1.0


def test_without_preemption_the_job_of_high_priority_waits():
    jobs = [a_job("spot", 0, 1000, gpus=8), a_job("high", 400, 50, gpus=8, priority=1)]
    figures = measure(whole_fleet(1), jobs, "best-fit", shared=False)

    assert (figures.evictions, figures.urgent_waits.mean) == (0, 600)
