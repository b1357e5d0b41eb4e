from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.audit.audit import MISMATCH, RESOLVED, Auditor, AuditReport, Expected
from agent.audit.processes import ContainerId, Process
from linkwise.cluster.allocations.gpus import GPUShare

UUIDS = ("GPU-a", "GPU-b", "GPU-c", "GPU-d")


@dataclass(frozen=True)
class Held:
    namespace: str
    pod: str
    uid: str
    gpus: tuple[GPUShare, ...]


def held(pod, *gpus):
    return Held("team", pod, f"uid-{pod}", tuple(GPUShare(i, UUIDS[i]) for i in gpus))


def of_pod(pod, gpu, pid=100, started=1):
    return Process(gpu, pid, started, "train", ContainerId(f"uid-{pod}", "ab" * 32))


def of_host(gpu, pid=100, name="train"):
    return Process(gpu, pid, 1, name, None)


NOTHING = Expected()


def audit(*readings, bindings=(), expected=NOTHING):
    """Return the reports of one auditor for these readings."""
    auditor = Auditor()
    return [auditor.audit(reading, bindings, UUIDS, expected) for reading in readings]


@pytest.mark.parametrize(
    ("process", "expected"),
    [
        pytest.param(of_pod("a", 0), Expected(), id="the-gpu-of-its-pod"),
        pytest.param(of_pod("a", 1), Expected(), id="the-gpu-of-another-container-of-its-pod"),
        pytest.param(of_host(2, name="nvidia-cuda-mps"), Expected(mps=True), id="mps-server"),
        pytest.param(of_host(2, pid=41), Expected(pids={41}), id="listed-by-the-mps-daemon"),
        pytest.param(of_pod("agent", 2), Expected(pod_uid="uid-agent"), id="the-agent-itself"),
    ],
)
def test_expected_process_is_no_mismatch(process, expected):
    bindings = [held("a", 0), held("a", 1), held("b", 2)]

    *_, last = audit([process], [process], bindings=bindings, expected=expected)

    assert last.text is None


@pytest.mark.parametrize(
    ("process", "text"),
    [
        (
            of_pod("a", 2),
            "process 100 (train) of pod team/a uses GPU 2, and the pod has: 0, 1",
        ),
        (of_host(3), "process 100 (train) of the host, of no pod, uses GPU 3"),
        (
            of_host(3, name="nvidia-cuda-mps"),
            "process 100 (nvidia-cuda-mps) of the host, of no pod, uses GPU 3",
        ),
        (
            replace(of_pod("z", 3), name="nvidia-cuda-mps"),
            "process 100 (nvidia-cuda-mps) uses GPU 3, and no GPU is recorded for its pod"
            " (uid uid-z)",
        ),
    ],
    ids=["other-gpu", "host", "mps-server-in-another-mode", "pod-without-gpus"],
)
def test_mismatch_describes_the_problem(process, text):
    expected = Expected(mps=process.container is not None)

    first, second = audit([process], [process], bindings=[held("a", 0, 1)], expected=expected)

    assert first.text is None
    assert second.text == text


def test_process_of_a_pod_that_is_gone_is_named_until_it_ends():
    auditor, left = Auditor(), [of_pod("a", 0)]
    auditor.audit(left, [held("a", 0)], UUIDS, Expected())

    assert auditor.audit(left, [], UUIDS, Expected()).text is None
    for _ in range(2):
        report = auditor.audit(left, [], UUIDS, Expected())
        assert report.text == "process 100 (train) of pod team/a, which is gone, still uses GPU 0"
    assert auditor.audit([], [], UUIDS, Expected()).text is None


def test_another_process_with_the_same_pid_is_seen_for_the_first_time():
    _, second, third = audit([of_pod("a", 0)], [of_pod("a", 0, started=2)], [])

    assert second.text is third.text is None


def test_mismatch_that_pauses_is_seen_for_the_first_time_again():
    reports = audit([of_host(0)], [], [of_host(0)], [of_host(0)])

    assert [report.text is not None for report in reports] == [False, False, False, True]


def test_gpu_is_recognised_by_its_uuid_when_indices_change():
    moved = Held("team", "a", "uid-a", (GPUShare(0, "GPU-d"),))

    *_, right = audit([of_pod("a", 3)], [of_pod("a", 3)], bindings=[moved])
    *_, wrong = audit([of_pod("a", 0)], [of_pod("a", 0)], bindings=[moved])

    assert right.text is None
    assert wrong.text == "process 100 (train) of pod team/a uses GPU 0, and the pod has: 3"


def test_five_mismatches_are_named_and_the_rest_counted():
    readings = [[of_host(0, pid) for pid in range(1, 9)]] * 2

    *_, report = audit(*readings)

    assert report.text.count("process ") == 5
    assert report.text.endswith("process 5 (train) of the host, of no pod, uses GPU 0; and 3 more")
    assert report.counts(2) == (8, 0)


def test_events_report_a_mismatch_and_its_end_once():
    host = of_host(1)
    reports = [AuditReport(), *audit([host], [host], [host], [], [])]

    events = [after.event(before, "n1") for before, after in pairwise(reports)]

    first, second = filter(None, events)
    assert (first.reason, first.is_warning, first.about.kind) == (MISMATCH, True, "Node")
    assert first.message == (
        "1 of the processes on GPU 1 contradict the records of pods. New pods are not placed on "
        "this node: end these processes, which `linkwise inspect n1` names"
    )
    assert (second.reason, second.is_warning) == (RESOLVED, False)
    assert [event is None for event in events] == [True, False, True, False, True]


def test_a_mismatch_that_returns_has_an_event_of_its_own():
    one, other = of_host(1), replace(of_host(1), started=2)
    reports = [AuditReport(), *audit([one], [one], [], [other], [other])]

    events = [after.event(before, "n1") for before, after in pairwise(reports)]

    assert len({event.name for event in events if event and event.is_warning}) == 2


def test_only_on_a_claims_node_gpus_are_closed_one_by_one():
    processes = [of_host(1), of_host(1, 101), of_pod("z", 3)]
    auditor = Auditor()
    for _ in range(2):
        report = auditor.audit(processes, (), UUIDS, NOTHING, by_claims=True)

    assert report.busy == {
        1: "process 100 of the host",
        3: "process 100 of the pod with the uid uid-z",
    }
    assert replace(report, by_claims=False).busy == {}


OWNERS = {1: "a", 2: "a", 3: "b", 4: "b", 5: None}
PROCESSES = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(list(OWNERS))).map(
        lambda at: of_pod(OWNERS[at[1]], *at) if OWNERS[at[1]] else of_host(*at)
    )
)


def test_process_cannot_hide_by_changing_its_name():
    *_, report = audit([of_host(0, name="a")], [of_host(0, name="b")])

    assert report.text == "process 100 (b) of the host, of no pod, uses GPU 0"


@given(PROCESSES, PROCESSES, st.sets(st.integers(0, 3)))
def test_report_has_exactly_the_strangers_of_two_readings(before, after, gpus):
    *_, report = audit(before, after, bindings=[held("a", *gpus)])

    strangers = {
        process
        for process in set(before) & set(after)
        if not (process.container and process.container.pod_uid == "uid-a" and process.gpu in gpus)
    }
    assert {mismatch.process for mismatch in report.mismatches} == strangers
