import asyncio
from contextlib import asynccontextmanager
from functools import partial

import msgspec
import pytest
import pytest_asyncio
from support.builders import EXACT_LABELS
from support.dra import PRODUCT, a_device, a_slice, read_slice
from support.servers.claims_cluster import SLICE, claims_cluster, publish
from support.servers.leader_harness import Cluster, leading
from support.waiting import until

from linkwise.cluster import keys
from linkwise.cluster.nodes.gpu_kinds import encode_kinds, kinds_of
from linkwise.cluster.scorer_lease import LEASE, ScorerLease
from linkwise.runtime.kube.client import Kube
from scorer.leader_context import LeaderContext
from scorer.report.claims_nodes import ClaimsNodes
from scorer.report.lease_annotations import (
    report_claims_nodes,
    report_nvidia_nodes,
)


@pytest_asyncio.fixture
async def cluster():
    async with Cluster() as running:
        hold(running)
        yield running


def hold(cluster, **annotations):
    metadata = {"name": keys.SCORER, "annotations": annotations}
    cluster.put(LEASE, {"metadata": metadata, "spec": {"leaseTransitions": 42}})


@asynccontextmanager
async def reporting(cluster):
    """Lead and report while the block runs."""
    async with leading(cluster, term=42) as leader, Kube(cluster.url) as kube:
        exists = partial(leader.when_synced, LeaderContext.has_nvidia_nodes)
        task = asyncio.create_task(report_nvidia_nodes(exists, kube, 42, 0.01))
        yield
        task.cancel()


def annotation(cluster, key=keys.NVIDIA_NODES):
    return cluster.get(LEASE)["metadata"]["annotations"].get(key)


def exact_node(cluster):
    cluster.node("exact-0", resource=keys.NVIDIA_GPU, **EXACT_LABELS)


async def test_the_lease_says_whether_linkwise_chooses_nvidia_gpus_anywhere(cluster):
    cluster.node("aliyun-0")
    async with reporting(cluster):
        exact_node(cluster)
        await until(lambda: annotation(cluster) == "true")
        cluster.remove("/api/v1/nodes/exact-0")
        await until(lambda: annotation(cluster) == "")


def kinds(*products):
    """Return the kinds of a node with GPUs of these products."""
    devices = (a_device(i, productName=name) for i, name in enumerate(products))
    return kinds_of([one.facts for one in read_slice(a_slice(*devices)).devices])


def seen(gpus, *products, complete=True):
    return ClaimsNodes(gpus, kinds(*products), complete)


T4, H100 = "Tesla T4", PRODUCT


@pytest.mark.parametrize(
    ("before", "readings", "text", "products"),
    [
        pytest.param("", [None, seen(4, T4), seen(8, T4)], "8", {T4}, id="grows"),
        pytest.param("", [seen(8, T4), seen(4, H100)], "8", {T4, H100}, id="no fall in a term"),
        pytest.param("", [seen(8, T4), None, seen(0)], "8", {T4}, id="nodes are away"),
        pytest.param("8", [seen(0, complete=False)], "8", {T4}, id="no slices after a start"),
        pytest.param(
            "8", [seen(4, H100, complete=False)], "8", {T4, H100}, id="some slices after a start"
        ),
        pytest.param("8", [seen(4, H100)], "4", {H100}, id="other nodes"),
        pytest.param("8", [seen(0)], "", set(), id="no claims nodes any more"),
        pytest.param(
            "8",
            [seen(0, complete=False), seen(4, H100), seen(0, complete=False)],
            "4",
            {H100},
            id="slices return with other GPUs",
        ),
    ],
)
async def test_the_lease_forgets_claims_nodes_only_on_evidence(
    cluster, before, readings, text, products
):
    if before:
        hold(cluster, **{keys.CLAIMS_NODES: before, keys.GPU_KINDS: encode_kinds(kinds(T4))})
    left, read = list(readings), asyncio.Event()

    def nodes():
        if len(left) > 1:
            return left.pop(0)
        read.set()
        return left[0]

    def lease():
        return msgspec.convert(cluster.get(LEASE), ScorerLease)

    async with Kube(cluster.url) as kube:
        task = asyncio.create_task(report_claims_nodes(nodes, kube, 42, 0.01))
        await read.wait()
        await until(lambda: (annotation(cluster, keys.CLAIMS_NODES) or "") == text)
        await until(lambda: frozenset(lease().gpu_kinds) == kinds(*products))
        task.cancel()


async def test_too_many_kinds_stay_unknown_until_all_slices_are_there(cluster):
    hold(cluster, **{keys.CLAIMS_NODES: "8"})
    readings = [seen(4, H100, complete=False)]
    async with Kube(cluster.url) as kube:
        task = asyncio.create_task(report_claims_nodes(lambda: readings[-1], kube, 42, 0.01))
        readings.append(seen(16, H100, complete=False))
        await until(lambda: annotation(cluster, keys.CLAIMS_NODES) == "16")
        assert not annotation(cluster, keys.GPU_KINDS)
        readings.append(seen(16, H100))
        await until(lambda: H100 in (annotation(cluster, keys.GPU_KINDS) or ""))
        task.cancel()


async def test_claims_nodes_are_complete_once_each_node_that_may_be_one_has_its_slices():
    async with claims_cluster() as cluster, leading(cluster) as leader:
        assert leader.context.claims_nodes().is_complete
        labels = {keys.NODE_MODE: "topology", keys.HOSTNAME: "gpu-1"}
        cluster.put("/api/v1/nodes/gpu-1", {"metadata": {"labels": labels}, "status": {}})
        await until(lambda: not leader.context.claims_nodes().is_complete)
        assert leader.context.claims_nodes().gpus == 8
        cluster.remove("/api/v1/nodes/gpu-1")
        await until(lambda: leader.context.claims_nodes().is_complete)
        cluster.remove(SLICE)
        await until(lambda: not leader.context.claims_nodes().is_complete)


async def test_a_leader_that_starts_without_slices_does_not_know_all_claims_nodes():
    async with claims_cluster() as cluster:
        cluster.remove(SLICE)
        async with leading(cluster) as leader:
            found = leader.context.claims_nodes()
            assert (found.gpus, found.is_complete) == (0, False)
            publish(cluster)
            await until(lambda: leader.context.claims_nodes().is_complete)
            assert leader.context.claims_nodes().gpus == 8


@pytest.mark.parametrize(
    ("text", "gpus"), [(None, 0), ("", 0), ("8", 8), ("many", 0), ("-1", 0), ("9" * 20, 0)]
)
def test_an_unreadable_size_is_none(text, gpus):
    annotations = {} if text is None else {keys.CLAIMS_NODES: text}
    lease = msgspec.convert({"metadata": {"annotations": annotations}}, ScorerLease)
    assert lease.claims_gpus == gpus


async def test_a_new_leader_corrects_the_lease(cluster):
    hold(cluster, **{keys.NVIDIA_NODES: "true"})

    async with reporting(cluster):
        await until(lambda: annotation(cluster) == "")


async def test_a_refused_write_is_retried(cluster):
    exact_node(cluster)
    refused = []

    def refuse(method, path, _body):
        if method == "PATCH" and path == LEASE and not refused:
            refused.append(path)
            return 500, "not now"
        return None

    cluster.refuse = refuse
    async with reporting(cluster):
        await until(lambda: annotation(cluster) == "true")

    assert refused
