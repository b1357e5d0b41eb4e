import pytest
from support.dashboard import JOB, WRONG, placed_pod

from cli.dashboard.trial import PODS, Trial


def job(gpus: int = 2) -> str:
    return JOB.replace("GPUS", str(gpus))


def tried(moment, text: str, *, is_over=lambda: False):
    return Trial(text, is_over).on(moment)


def test_a_manifest_is_checked_and_placed(moment):
    report = tried(moment(), job())

    assert not report.problems
    assert [item.verdict for item in report.items] == ["allowed"]
    assert {pod.node for pod in report.pods} == {report.taken[0].node}
    assert report.gangs[0].placed
    assert [node.name for node in report.nodes] == [report.taken[0].node]


def test_only_free_gpus_of_the_moment_are_taken(moment):
    held = [placed_pod(f"p{i}", i, f"g{i}", "dgx-0") for i in range(8)]
    report = tried(moment(*held), job())

    (taken,) = report.taken
    assert (taken.node, len(taken.gpus)) == ("dgx-1", 4)


def test_a_gang_that_does_not_fit_says_why(moment):
    report = tried(moment(), job(99))

    assert not report.taken
    assert report.gangs[0].reason
    assert report.gangs[0].never


def test_findings_have_the_lines_of_the_text(moment):
    (item,) = tried(moment(), WRONG).items

    assert item.verdict == "denied"
    assert item.findings[0].source == "manifest:10"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "manifest:1: there is nothing in it"),
        ("kind: [", "manifest:2: not YAML"),
        ("- 1", "manifest:1: "),
        ("\0", "manifest:1: "),
        (job().replace("parallelism: 2", "parallelism: x"), "manifest:"),
        (
            job().replace("s: 2\n", f"s: {PODS + 1}\n").replace("m: 2", f"m: {PODS + 1}"),
            f"more than {PODS} pods",
        ),
    ],
    ids=["empty", "no-yaml", "no-object", "nul", "no-job", "too-many"],
)
def test_a_text_that_cannot_be_tried_says_where_and_why(moment, text, problem):
    report = tried(moment(), text)

    assert problem in report.problems[0]
    assert not report.taken


def test_a_trial_that_takes_too_long_ends(moment):
    report = tried(moment(), job(), is_over=lambda: True)

    assert "too long" in report.problems[0]


def test_nothing_of_the_moment_changes(moment):
    here = moment()
    before = here.current.cluster.ledger

    tried(here, job())

    assert here.current.cluster.ledger is before
    assert here.rows["dgx-0"].free == 8
