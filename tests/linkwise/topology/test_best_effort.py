from pathlib import Path

import pytest
from support.best_effort import GPUS, Comparison, best_effort, comparisons, page

from linkwise.topology.catalogue import NAMES, entry

PAGE = Path(__file__).parents[3] / "docs" / "fast-against-best-effort.md"


@pytest.fixture(scope="module")
def compared() -> list[Comparison]:
    return comparisons()


def test_fast_is_never_below_best_effort_on_any_machine_of_the_catalogue(compared):
    assert {one.name for one in compared} == {
        name for name in NAMES if entry(name).machine.n == GPUS
    }
    for one in compared:
        assert one.worse == 0, one.name
        assert one.cases == 522
        assert all(gain > 1 for gain in one.gains)


def test_fast_is_better_on_the_meshes_of_a_dgx1_as_often_as_was_counted(compared):
    better = {one.name: len(one.gains) for one in compared if one.gains}

    assert better["dgx1-v100"] == 52
    assert better["dgx1-p100"] == 66


def test_the_documentation_shows_what_is_computed(compared):
    assert PAGE.read_text(encoding="utf-8") == page(compared), (
        "PYTHONPATH=tests python -m support.best_effort > docs/fast-against-best-effort.md"
    )


def test_best_effort_is_restated_with_its_padded_sets():
    # Five GPUs in two groups of three and two: the pair of leftovers scores highest.
    weight = [[0] * 5 for _ in range(5)]
    weight[3][4] = weight[4][3] = 400

    assert best_effort(weight, range(5), 3) == (3, 4)
    assert best_effort(weight, range(5), 3, required=(0,)) == (0, 1, 2)
    assert best_effort(weight, range(2), 3) == ()
