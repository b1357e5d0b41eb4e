"""The scorer as a process on a real API server, under its own account: leadership and reports."""

import re
import signal

import pytest
from controlplane.pods import a_pod
from controlplane.process import wait_until
from controlplane.scorer import QUICK, holder, run_scorer, start_scorer, wait_for_leader

from linkwise.cluster import keys
from linkwise.planning.gang.crd import gangs_of

pytestmark = pytest.mark.usefixtures("shipped")

LINE = {"name": "gpu", "count": 2, "machine": "dgx1-v100", "mode": "topology"}
GANG = {keys.GANG: "bert", keys.GANG_SIZE: "4"}


@pytest.fixture(scope="module")
def running(plane, tmp_path_factory):
    with run_scorer(plane, tmp_path_factory.mktemp("scorer")) as scorer:
        yield scorer


@pytest.fixture
def replica(plane, tmp_path):
    """Starts one of several; the test's end ends it."""
    started = []

    def start(name, **environment):
        started.append(start_scorer(plane, tmp_path, f"{name}.log", **environment))
        return started[-1]

    yield start
    for one in started:
        if one.process in plane.processes.running:
            plane.processes.stop(one.process)


@pytest.fixture
def pods(namespace):
    return f"/api/v1/namespaces/{namespace}/pods"


def worker(index, gpus=1, **annotations):
    gate = [{"name": keys.GANG}]
    limits = {keys.GPU_WHOLE: str(gpus)}
    return a_pod(f"bert-{index}", limits, annotations={**GANG, **annotations}, schedulingGates=gate)


def the_gang(plane, namespace):
    found = plane.api.get(gangs_of(namespace))["items"]
    return found[0] if found else {"status": {}}


def phase(plane, namespace):
    return the_gang(plane, namespace).get("status", {}).get("phase")


# ---- Leadership, before the scorer of the other tests leads.


def test_of_two_one_leads_and_the_other_follows_at_once_when_it_ends(plane, replica):
    # A replica that had to wait for the duration would wait for longer than the test does.
    timing = {"LINKWISE_LEASE_SECONDS": "600", "LINKWISE_RENEW_SECONDS": "400"}
    first = replica("first", **timing)
    wait_for_leader(first)
    second = replica("second", **timing)
    assert (second.leads, second.metrics["linkwise_leader"]) == (False, 0)
    assert holder(plane) == "first"

    plane.processes.stop(first.process)
    wait_for_leader(second)

    assert first.process.child.returncode == 0
    assert '"msg":"Released Lease"' in first.process.log.read_text()
    assert holder(plane) == "second"
    assert terms(second) == [terms(first)[0] + 1]


def terms(scorer):
    text = scorer.process.log.read_text()
    return [int(term) for term in re.findall(r'"term":(\d+)[^\n]*"msg":"Leading"', text)]


def test_a_leader_that_is_killed_is_followed(plane, replica):
    first = replica("first", **QUICK)
    wait_for_leader(first)
    second = replica("second", **QUICK)

    first.process.signal(signal.SIGKILL)

    wait_for_leader(second)
    wait_until(lambda: holder(plane) == "second", "the Lease says so")


# ---- What one scorer does.


@pytest.mark.usefixtures("running")
def test_a_gang_is_placed_on_the_best_set_and_reported(plane, nodes, pods, namespace):
    nodes(LINE)
    for index in range(4):
        plane.api.create(pods, worker(index))
    wait_until(lambda: phase(plane, namespace) == "Placed", "it is placed", 60)

    gang = the_gang(plane, namespace)
    placed = [pod["spec"]["nodeName"] for pod in plane.api.get(pods)["items"]]
    assert len(set(placed)) == 1
    assert gang["status"]["members"] == "4/4"
    assert gang["status"]["observedGeneration"] == gang["metadata"]["generation"]
    assert gang["status"]["nodes"] == placed[0]
    assert gang["status"]["bandwidth"] == gang["spec"]["plan"]["bestPossible"] == 55.2
    wait_until(lambda: "GangPlaced" in reasons(plane, namespace), "an event says so", 60)
    shown = plane.kubectl("get", "gangs", "-n", namespace).stdout.splitlines()
    assert shown[1].split()[1:5] == ["4/4", "Placed", placed[0], "55.2"]


def reasons(plane, namespace):
    """Return why the scorer made events, once for each event."""
    path, chosen = f"/api/v1/namespaces/{namespace}/events", "reportingComponent=linkwise-scorer"
    return [one["reason"] for one in plane.api.get(path, fieldSelector=chosen)["items"]]


def test_inspection_shows_the_holder_of_each_gpu_and_why_pods_wait(
    plane, running, nodes, pods, namespace
):
    nodes(LINE)
    for index in range(4):
        plane.api.create(pods, worker(index))
    big = worker("big", 9, **{keys.GANG: "big", keys.GANG_SIZE: "1"})
    plane.api.create(pods, big)

    def waiting():
        return report(running, "/v1/gangs", namespace)["waiting"]

    wait_until(lambda: len(held(running)) == 4, "four have theirs", 60)
    wait_until(lambda: [one["reason"][:5] for one in waiting()] == ["needs"], "one waits", 60)

    (waits,) = waiting()
    assert (waits["name"], waits["gang"], waits["pods"]) == ("big", True, ["bert-big"])
    assert waits["reason"].startswith("needs 9 GPUs on one node")

    def described():
        return plane.kubectl("describe", "pod", "bert-big", "-n", namespace).stdout

    wait_until(lambda: "needs 9 GPUs on one node" in described(), "its pod says why", 60)
    holders = held(running)
    assert {pod for _, _, pod in holders} == {f"{namespace}/bert-{i}" for i in range(4)}
    assert len({(node, gpu) for node, gpu, _ in holders}) == 4
    assert report(running, "/v1/gangs", "none")["waiting"] == []


def report(running, path, namespace):
    return running.look(f"{path}?namespace={namespace}")


def held(running):
    return [
        (node["name"], gpu["i"], holder["pod"])
        for node in running.look("/v1/nodes")["nodes"]
        for gpu in node["gpus"]
        for holder in gpu["holders"]
    ]


def test_metrics_tell_of_gangs_and_of_how_long_they_took(plane, running, nodes, pods):
    nodes(LINE)
    for index in range(4):
        plane.api.create(pods, worker(index))
    placed = 'linkwise_gangs{phase="Placed"}'
    # Gangs of tests before may be there still, so that of the phase alone nothing follows.
    commits = "linkwise_commit_duration_seconds_count"
    wait_until(lambda: running.metrics[commits] >= 1, "one is committed", 60)
    wait_until(lambda: running.metrics.get(placed, 0) >= 1, "one is counted", 60)
    wait_until(lambda: running.metrics["linkwise_leader"] == 1, "it leads still")

    found = running.metrics
    assert found["linkwise_unaccounted_nodes"] == 0
    assert found["linkwise_placement_duration_seconds_count"] >= 1
    assert found["linkwise_placement_conflicts_total"] == 0
    assert 'linkwise_watch_age_seconds{resource="pods"}' in found


def test_nothing_is_refused_to_its_account(plane, running, nodes, pods, namespace):
    nodes(LINE)
    for index in range(4):
        plane.api.create(pods, worker(index))
    wait_until(lambda: phase(plane, namespace) == "Placed", "it is placed", 60)

    # What is left of another test's namespace takes nothing any more, which is also forbidden.
    lines = running.process.log.read_text().lower().splitlines()
    assert not [line for line in lines if "forbidden" in line and "being terminated" not in line]
