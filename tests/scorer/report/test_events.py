import re
from dataclasses import replace

import pytest

from scorer.gang.crd import GangPlan, PlannedPod
from scorer.report.events import ObjectReference, event_of, evicted, placed, unaccounted, waiting

JOB = ObjectReference("kubeflow.org/v1", "MPIJob", "bert", "7f3c", "team")
NODE = ObjectReference("v1", "Node", "gpu-0", "n1")
VALID = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def a_plan(*nodes, **given):
    members = tuple(PlannedPod(f"p{i}", f"u{i}", node, (i,)) for i, node in enumerate(nodes))
    return GangPlan("p1", True, members, **given)


def an_event(news=None, about=JOB, change="p1", instance="a"):
    news = news or waiting("bert", "too big")
    return event_of(news, about, change=change, now="2026-01-02T03:04:05Z", instance=instance)


def name(event):
    return event["metadata"]["name"]


@pytest.mark.parametrize(
    ("news", "reason", "kind", "message"),
    [
        pytest.param(
            waiting("bert", "needs 64 GPUs as 64 × 1 GPU; 16 of 64 workers fit now"),
            "GangWaiting",
            "Warning",
            "Gang bert waits: needs 64 GPUs as 64 × 1 GPU; 16 of 64 workers fit now",
            id="waiting",
        ),
        pytest.param(
            placed("bert", a_plan("a", "a", bandwidth=55.2, best_possible=55.2, index_order=46)),
            "GangPlaced",
            "Normal",
            "All 2 members of gang bert are on a: 55.2 GB/s of 55.2 possible, 46 in index order",
            id="placed",
        ),
        pytest.param(
            placed("bert", a_plan("a")),
            "GangPlaced",
            "Normal",
            "The only member of gang bert is on a",
            id="placed, without a bandwidth",
        ),
        pytest.param(
            placed("bert", a_plan(*"abcd", bandwidth=4), alike=False),
            "GangPlaced",
            "Normal",
            "All 4 members of gang bert are on 4 nodes: 4 GB/s; they do not all ask for the same",
            id="placed on many nodes",
        ),
        pytest.param(
            evicted("bert", 2, "bert-worker-1 could not be bound to a in 60 s"),
            "GangEvicted",
            "Warning",
            "All 2 members of gang bert were evicted, to be placed again together: "
            "bert-worker-1 could not be bound to a in 60 s",
            id="evicted",
        ),
        pytest.param(
            unaccounted("team/x: it has GPUs of this node"),
            "NodeUnaccounted",
            "Warning",
            "No pod gets GPUs here until it is known which ones are in use: "
            "team/x: it has GPUs of this node",
            id="unaccounted",
        ),
    ],
)
def test_what_happened_is_told_in_one_sentence(news, reason, kind, message):
    event = an_event(news)
    assert (event["reason"], event["type"], event["message"]) == (reason, kind, message)


def test_an_event_is_at_the_job_and_in_its_namespace():
    event = an_event()

    about = event["involvedObject"]
    assert event["metadata"]["namespace"] == about["namespace"] == "team"
    assert (about["kind"], about["name"], about["uid"]) == ("MPIJob", "bert", "7f3c")


def test_an_event_at_a_node_is_in_the_namespace_that_the_api_server_wants():
    event = an_event(unaccounted("x"), NODE)
    assert (event["metadata"]["namespace"], event["involvedObject"]["namespace"]) == ("default", "")


def test_one_change_of_state_gives_one_event_whoever_tells_it():
    assert name(an_event(instance="a")) == name(an_event(instance="b"))
    # The reason may name other numbers by now.
    assert name(an_event(waiting("bert", "still too big"))) == name(an_event())


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(an_event(change="p2"), id="another plan"),
        pytest.param(an_event(evicted("bert", 2, "x")), id="another state"),
        pytest.param(an_event(about=replace(JOB, uid="7f3d")), id="another job of the same name"),
    ],
)
def test_another_change_of_state_gives_another_event(other):
    assert name(other) != name(an_event())


@pytest.mark.parametrize("long", ["x" * 253, "x" * 235 + "." + "y" * 17, "a"])
def test_the_name_of_an_event_is_one_that_the_api_server_takes(long):
    found = name(an_event(about=replace(JOB, name=long)))
    assert len(found) <= 253
    assert VALID.fullmatch(found)


def test_a_message_that_the_api_server_would_refuse_is_cut():
    assert len(an_event(waiting("bert", "x" * 2000))["message"]) == 1024


def test_a_name_that_cannot_be_printed_does_not_change_a_terminal():
    assert an_event(waiting("a\x1b[2Jb", "x"))["message"] == "Gang a?[2Jb waits: x"
