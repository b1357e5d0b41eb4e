"""Gangs for `nvidia.com/gpu` on nodes of the agent and of NVIDIA's plugin, beside other pods.

`make soak` runs the same on 128 nodes.
"""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest
from controlplane.api import Api, ApiError, Object
from controlplane.gangs import delete_pods, gang_labels, make_gang, wait_for_phase
from controlplane.manifests import MUTATING
from controlplane.nodes import NODES as ALL_NODES
from controlplane.pods import Pods, container, gates, requirement, terms
from controlplane.process import wait_until
from controlplane.scorer import Scorer
from controlplane.soak import often

from linkwise.cluster import keys

NODES = often(16, 128)
SIZE = 8
"""Members of a gang, each with one GPU, and GPUs of a node."""
GANGS, SINGLES, OFFERED = NODES * 100 // 128, NODES * 200 // 128, NODES * 140 // 128
GPU = {keys.NVIDIA_GPU: 1}
ROOM = {"machine": "dgx1-v100", "cpu": 96, "memory": "768Gi"}
COUNTED = {"pool": "counted"}
ELSEWHERE = {
    "nodeSelector": COUNTED,
    **terms([requirement(keys.NODE_MODE, "NotIn", "topology")]),
}
"""Of pods that the API server takes without a review: they exclude the nodes of the agent."""
PATIENCE = 600
"""A node that others took is excluded for a gang for three minutes [s]."""


@pytest.fixture
def both(pods, nodes, placing) -> Iterator[Scorer]:
    """As many nodes of the agent as of NVIDIA's plugin, with 8 GPUs each."""
    exact = {keys.RESOURCE_NAME: "nvidia.com-gpu"}
    half = {**ROOM, "count": NODES // 2}
    nodes(
        {**half, "name": "exact", "mode": "topology", "labels": exact},
        {**half, "name": "counted", "labels": COUNTED},
    )
    wait_until(lambda: excludes_exact_nodes(pods), "admission knows the nodes")
    yield placing
    pods.clear()


def excludes_exact_nodes(pods: Pods) -> bool:
    """Return whether admission keeps pods of NVIDIA's plugin off the nodes of the agent."""
    with suppress(ApiError):
        made = pods.create(GPU, name="probe", spec={"nodeSelector": COUNTED}, dryRun="All")
        return "affinity" in made["spec"]
    return False


def replica_set(name: str) -> Object:
    """Return a ReplicaSet whose pods are a gang; they are made again when they are evicted."""
    mark = {keys.GANG: name, keys.GANG_SIZE: str(SIZE)}
    labels = {"job": name}
    template = {
        "metadata": {"labels": labels, "annotations": mark},
        "spec": {"containers": [container({**GPU, "cpu": 1})]},
    }
    spec = {"replicas": SIZE, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": spec}


def offer(pods: Pods, number: int) -> None:
    """Create gangs, several at once."""
    path = f"/apis/apps/v1/namespaces/{pods.namespace}/replicasets"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: pods.api.create(path, replica_set(f"g{i}")), range(number)))


def withdraw(pods: Pods) -> None:
    """Delete the ReplicaSets, so that their pods are not created again."""
    pods.api.delete(f"/apis/apps/v1/namespaces/{pods.namespace}/replicasets")


def bound_members(pods: Pods) -> Counter[str]:
    """Return the number of bound members of each gang."""
    return Counter(
        pod["metadata"]["labels"]["job"]
        for pod in pods.all().values()
        if pod["spec"].get("nodeName") and "job" in pod["metadata"].get("labels", {})
        if not pod["metadata"].get("deletionTimestamp")
    )


def requested(api: Api) -> dict[str, int]:
    """Return the GPUs that pods request on each node, by the API server."""
    by_node: dict[str, int] = dict.fromkeys(
        (node["metadata"]["name"] for node in api.get(ALL_NODES)["items"]), 0
    )
    for pod in api.get("/api/v1/pods")["items"]:
        node = pod["spec"].get("nodeName")
        if node in by_node and pod["status"].get("phase") not in {"Succeeded", "Failed"}:
            limits = [c["resources"].get("limits", {}) for c in pod["spec"]["containers"]]
            by_node[node] += sum(int(each.get(keys.NVIDIA_GPU, 0)) for each in limits)
    return by_node


def booked(scorer: Scorer) -> dict[str, int]:
    """Return the GPUs that are allocated on each node, by the books of the scorer."""
    return {
        node["name"]: sum(bool(gpu["holders"]) for gpu in node["gpus"])
        + sum(pod["gpus"] for pod in node["counted"])
        for node in scorer.look("/v1/nodes")["nodes"]
    }


def agree(pods: Pods, scorer: Scorer) -> bool:
    """Return whether the books equal the requests, and no node has more than its GPUs."""
    books, requests = booked(scorer), requested(pods.api)
    return books == requests and max(requests.values()) <= SIZE


@pytest.mark.timeout(900)
def test_gangs_are_whole_beside_pods_of_the_stock_scheduler(pods, both):
    with ThreadPoolExecutor(2) as pool:
        offered = pool.submit(offer, pods, GANGS)
        for i in range(SINGLES):
            single = pods.create(GPU, name=f"single-{i}", spec={"nodeSelector": COUNTED})
            assert gates(single) == []
        offered.result()

    def all_bound() -> bool:
        return sum(bool(pod["spec"].get("nodeName")) for pod in pods.all().values()) == (
            GANGS * SIZE + SINGLES
        )

    wait_until(all_bound, "all gangs and single pods are bound", PATIENCE)
    assert bound_members(pods) == {f"g{i}": SIZE for i in range(GANGS)}
    wait_until(lambda: agree(pods, both), "the books equal the requests of pods")
    assert both.metrics["linkwise_unaccounted_nodes"] == 0
    withdraw(pods)


@pytest.mark.timeout(900)
def test_gangs_that_exceed_the_cluster_wait_as_a_whole(pods, both):
    offer(pods, OFFERED)

    wait_until(lambda: sum(bound_members(pods).values()) == NODES * SIZE, "it is full", PATIENCE)

    bound = bound_members(pods)
    assert set(bound.values()) == {SIZE}
    assert len(bound) == NODES
    waiting = (OFFERED - NODES) * SIZE
    wait_until(lambda: sum(map(bool, map(gates, pods.all().values()))) == waiting, "others wait")
    wait_until(lambda: agree(pods, both), "the books equal the requests of pods")
    withdraw(pods)


@pytest.mark.usefixtures("both")
def test_gang_that_takes_a_whole_counted_node_shows_its_bandwidth(pods):
    spec = {"nodeSelector": COUNTED}
    make_gang(pods, "whole", 2, 4, resource=keys.NVIDIA_GPU, spec=spec)
    make_gang(pods, "part", 2, 2, resource=keys.NVIDIA_GPU, spec=spec)

    whole = wait_for_phase(pods, "whole", "Placed")
    part = wait_for_phase(pods, "part", "Placed")

    (here,) = whole["status"]["held"]
    assert (here["gpus"], here["count"]) == ([], 8)
    assert whole["status"]["bandwidth"] > 0
    assert part["status"]["gpus"] == 4
    assert "bandwidth" not in part["status"]
    assert part["spec"]["plan"]["bandwidthNote"] == "GPUs unknown"
    records = [pods.all()[f"part-{i}"]["metadata"]["annotations"] for i in range(2)]
    assert all('"gpus":null,"count":2' in record[keys.ALLOCATION] for record in records)
    assert all(keys.VISIBLE_DEVICES not in record for record in records)


def test_books_of_a_counted_node_are_those_of_the_scheduler(pods, both):
    here = {"nodeSelector": {keys.HOSTNAME: "counted-0"}}
    first = {**container({keys.NVIDIA_GPU: 5}), "name": "first"}
    pods.create({keys.NVIDIA_GPU: 2}, name="init", spec={**here, "initContainers": [first]})
    pods.create({keys.NVIDIA_GPU: 2}, name="named", spec={"nodeName": "counted-0"})
    wait_until(lambda: booked(both)["counted-0"] == 7, "the larger init container counts")
    make_gang(pods, "whole", 8, 1, resource=keys.NVIDIA_GPU, spec=here)
    wait_for_phase(pods, "whole", "Waiting", "1 of 8")

    for name, phase in (("init", "Succeeded"), ("named", "Failed")):
        pods.api.patch(f"{pods.path}/{name}/status", {"status": {"phase": phase}})

    placed = wait_for_phase(pods, "whole", "Placed")
    assert [held["count"] for held in placed["status"]["held"]] == [8]
    assert {"init", "named"} < pods.all().keys()
    assert booked(both)["counted-0"] == SIZE
    assert both.metrics["linkwise_unaccounted_nodes"] == 0


def test_restart_of_the_plugin_loses_no_pod(pods, both, plane):
    spec = {"nodeSelector": {keys.HOSTNAME: "counted-0"}}
    make_gang(pods, "before", 2, 2, resource=keys.NVIDIA_GPU, spec=spec)
    wait_for_phase(pods, "before", "Placed")
    offered(plane.api, "counted-0", 0)
    path = "/v1/nodes?name=counted-0"
    wait_until(lambda: both.look(path)["nodes"][0]["gpus_free"] == 0, "the scorer knows")
    make_gang(pods, "during", 2, 2, resource=keys.NVIDIA_GPU, spec=spec)
    wait_for_phase(pods, "during", "Waiting", reason="too few free GPUs")

    offered(plane.api, "counted-0", SIZE)
    wait_for_phase(pods, "during", "Placed")
    make_gang(pods, "after", 1, 8, resource=keys.NVIDIA_GPU, spec=spec)

    wait_for_phase(pods, "after", "Waiting")
    assert booked(both)["counted-0"] == SIZE
    assert both.metrics["linkwise_unaccounted_nodes"] == 0


def offered(api: Api, node: str, gpus: int) -> None:
    """Let a node offer so many GPUs, as its kubelet does when the plugin starts or ends."""
    api.patch(
        f"{ALL_NODES}/{node}/status", {"status": {"allocatable": {keys.NVIDIA_GPU: str(gpus)}}}
    )


@pytest.mark.usefixtures("both")
def test_a_member_that_was_bound_before_the_webhook_was_registered_counts(pods, plane):

    def create(member: int) -> None:
        make_gang(pods, "early", 2, 4, [member], resource=keys.NVIDIA_GPU, spec=ELSEWHERE)

    with unregistered(plane.api, pods):
        create(0)
    wait_until(lambda: pods.bound() == {"early-0"}, "kube-scheduler binds it")
    # The second one is its replacement.
    for _ in range(2):
        create(1)
        wait_until(lambda: len(pods.bound()) == 2, "it is placed beside the first member")
        assert len({pod["spec"]["nodeName"] for pod in pods.all().values()}) == 1
        assert keys.ALLOCATION in pods.all()["early-1"]["metadata"]["annotations"]
        wait_for_phase(pods, "early", "Placed", members="2/2")
        delete_pods(pods, "early-1")


@contextmanager
def unregistered(api: Api, pods: Pods) -> Iterator[None]:
    """Let the webhook review no pods in the block, as before an installation."""
    registration = api.get(MUTATING)
    api.delete(MUTATING)

    def is_reviewed() -> bool:
        mark = gang_labels("probe", 1)
        return bool(gates(pods.create(GPU, labels=mark, spec=ELSEWHERE, dryRun="All")))

    try:
        wait_until(lambda: not is_reviewed(), "no pod is reviewed")
        yield
    finally:
        for field in ("uid", "resourceVersion", "creationTimestamp"):
            del registration["metadata"][field]
        api.create(MUTATING.rpartition("/")[0], registration)
        wait_until(is_reviewed, "pods are reviewed again")
