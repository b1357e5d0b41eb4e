import pytest

from linkwise.planning.gang.missing_members import assembling
from linkwise.workloads.members import ExpectedPods

WORKERS = ExpectedPods((("bert-worker", 4),))
PYTORCH = ExpectedPods((("bert-master", 1), ("bert-worker", 3)))


def names(*numbers, stem="bert-worker"):
    return [f"{stem}-{number}" for number in numbers]


@pytest.mark.parametrize(
    ("there", "needed", "makes", "who"),
    [
        pytest.param(names(0, 1, 3), 4, WORKERS, "bert-worker-2", id="one of a job's"),
        pytest.param(names(0, 1, 2), 4, WORKERS, "bert-worker-3", id="the last of a job's"),
        pytest.param([], 1, ExpectedPods((("bert", 1),)), "bert-0", id="all of one"),
        pytest.param(names(0, 1, 2), 4, PYTORCH, "bert-master-0", id="of several parts"),
        pytest.param(
            names(0), 4, WORKERS, "bert-worker-1, bert-worker-2, bert-worker-3", id="three"
        ),
        pytest.param(
            names(1),
            600,
            ExpectedPods((("bert-worker", 600),)),
            "bert-worker-0, bert-worker-2, bert-worker-3 and 596 more",
            id="many",
        ),
        pytest.param(names(0, 1), 3, WORKERS, None, id="fewer are needed than are made"),
        pytest.param(["bert-worker-0", "x-1"], 4, WORKERS, None, id="another's pod"),
        pytest.param(names(0, 7), 4, WORKERS, None, id="a number that is not made"),
        pytest.param(names(0, 2), 3, None, "bert-worker-1", id="left out in a row"),
        pytest.param(
            names(1, 3), 8, ExpectedPods(), "bert-worker-0, bert-worker-2 and 4 more", id="gaps"
        ),
        pytest.param(names(0, 1), 3, None, None, id="behind a row, whatever it is called"),
        pytest.param(["a-1", "b-0"], 4, None, None, id="two rows"),
        pytest.param(["a-1", "b-0-x7k2p"], 4, None, None, id="random suffixes"),
        pytest.param(names(0, 5), 3, None, "bert-worker-1", id="no more than are missing"),
    ],
)
def test_missing_members_are_named_where_their_names_are_known(there, needed, makes, who):
    reason = assembling(there, needed, makes)

    assert reason == f"{len(there)} of {needed} members" + (f"; missing: {who}" if who else "")


def test_a_number_beyond_all_reason_takes_no_time():
    reason = assembling(names(0), 10**9, ExpectedPods((("bert-worker", 10**9),)))

    assert reason.endswith("bert-worker-3 and 999999996 more")
