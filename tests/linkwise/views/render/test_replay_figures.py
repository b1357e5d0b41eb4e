"""The tables of `linkwise replay`, of runs with known figures."""

from types import SimpleNamespace

import pytest

from linkwise.replay.measures import Measures, Size
from linkwise.replay.run import Scenario, Task
from linkwise.views.analysis.replay_runs import ReplayResults, RunResult
from linkwise.views.render.replay_figures import ratio_rows, wait_rows


def a_run(policy, seed, wait, allocated):
    measures = Measures(8, arrived=1, started=1, mean_allocated=allocated)
    measures.waits[Size.ONE].add(wait)
    return RunResult(Task(policy, seed), measures, 1.0)


@pytest.fixture
def results():
    """Two policies with six seeds: `b` waits longer with every seed."""
    results = ReplayResults()
    for seed in range(6):
        results.add(a_run("a", seed, 10.0 + seed, 0.8))
        results.add(a_run("b", seed, 20.0 + seed, 0.6))
    return results


def test_waiting_times_have_their_spread_and_mark(results):
    assert wait_rows(results) == [
        ["MEAN WAIT OF", "1 GPU"],
        ["a", "12 s (10 s to 15 s)"],
        ["b", "22 s (20 s to 25 s)*"],
    ]


def test_ratios_are_those_of_the_medians(results):
    header, *rows = ratio_rows(SimpleNamespace(scenario=Scenario(shared=False)), results)
    ratios = {policy: dict(zip(header[1:], cells, strict=True)) for policy, *cells in rows}

    assert ratios["a"]["MEAN ALLOCATED"] == "1.00×"
    assert ratios["b"]["MEAN ALLOCATED"] == "0.75×"
    assert ratios["b"]["MEAN WAIT"] == "1.80×"
    # The best is 0, of which there is no ratio.
    assert ratios["b"]["UNPLACED"] == "–"
