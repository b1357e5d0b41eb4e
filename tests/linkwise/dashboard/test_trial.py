from itertools import count

import pytest
from support.dashboard import JOB, WRONG, placed_pod

from linkwise.dashboard.trial import PODS, Trial

OBJECT = "---\n{apiVersion: v1, kind: Secret, metadata: {name: a}}\n"


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
        (OBJECT * (PODS + 1) + "---\nkind: [", f"more than {PODS} objects"),
    ],
    ids=["empty", "no-yaml", "no-object", "nul", "no-job", "too-many", "too-many-objects"],
)
def test_a_text_that_cannot_be_tried_says_where_and_why(moment, text, problem):
    report = tried(moment(), text)

    assert problem in report.problems[0]
    assert not report.taken


def test_a_trial_ends_at_each_step_that_comes_too_late(moment):
    here, calls = moment(), count()
    tried(here, job(), is_over=lambda: next(calls) < 0)
    steps = next(calls)
    # An object, its template, two pods and their gang; the rest are nodes.
    assert steps > 5 + len(here.rows)

    for last in range(steps):
        calls = count()
        report = tried(here, job(), is_over=lambda calls=calls, last=last: next(calls) >= last)
        assert "too long" in report.problems[0]
        assert not report.taken


def test_a_text_is_read_only_while_there_is_time(moment):
    calls = count()
    report = tried(moment(), OBJECT * 2 + "---\nkind: [", is_over=lambda: next(calls) >= 1)

    assert "too long" in report.problems[0]


def test_the_placement_of_many_pods_is_known(moment):
    text = job().replace("s: 2\n", "s: 300\n").replace("m: 2", "m: 300")
    report = tried(moment(), text.replace('gang-size: "2"', 'gang-size: "300"'))

    assert len(report.pods) == 300
    assert not [text for text in report.warnings if "placement is not known" in text]


def test_nothing_of_the_moment_changes(moment):
    here = moment()
    before = here.current.cluster.ledger

    tried(here, job())

    assert here.current.cluster.ledger is before
    assert here.rows["dgx-0"].free == 8
