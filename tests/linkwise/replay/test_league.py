from types import SimpleNamespace

from linkwise.replay.league import Column, league
from linkwise.replay.measures import Waits


def runs(*waits, **other):
    figures = {"at_first_refusal": 0.5, "mean_allocated": 0.5, "allocated_at_end": 0.5}
    figures |= {"best_share": None, "mean_bandwidth": None, "mean_lost": None}
    figures |= {"mean_free_sets": 1.0, "split": 0, "unplaced": 0}
    figures |= {"split_over_domains": None}
    figures |= {"urgent_waits": Waits(), "evictions": 0, "lost_gpu_seconds": 0.0} | other
    return {seed: SimpleNamespace(wait=wait, **figures) for seed, wait in enumerate(waits)}


def test_medians_spread_and_ratios():
    table = league({"a": runs(10, 30, 20), "b": runs(40, 40, 100)})

    best, other = table["a"][Column.WAIT], table["b"][Column.WAIT]
    assert (best.median, best.least, best.most, best.ratio) == (20, 10, 30, 1.0)
    assert (other.median, other.ratio) == (40, 2.0)


def test_a_difference_is_clear_if_each_seed_shows_it():
    same_sign = league({"a": runs(*range(6)), "b": runs(*range(1, 7))})
    assert same_sign["b"][Column.WAIT].clear is True
    assert same_sign["a"][Column.WAIT].clear is False

    one_differs = league({"a": runs(*range(6)), "b": runs(*range(1, 6), 4)})
    assert one_differs["b"][Column.WAIT].clear is False


def test_few_seeds_tell_nothing():
    assert league({"a": runs(1), "b": runs(2)})["b"][Column.WAIT].clear is None


def test_a_figure_that_a_run_lacks_is_left_out():
    table = league({"a": runs(1), "b": runs(2, at_first_refusal=None)})

    assert Column.BANDWIDTH not in table["a"]
    assert Column.FIRST_REFUSAL in table["a"]
    assert Column.FIRST_REFUSAL not in table["b"]


def test_evictions_are_compared_where_jobs_have_priorities():
    one = Waits()
    one.add(30)
    table = league({"a": runs(1, urgent_waits=one, evictions=2), "b": runs(1)})

    assert table["a"][Column.EVICTIONS].median == 2
    assert table["a"][Column.URGENT_WAIT].median == 30
    assert Column.EVICTIONS not in table["b"]
