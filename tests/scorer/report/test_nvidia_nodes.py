import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest
import pytest_asyncio
from support.builders import EXACT_LABELS
from support.dra import PRODUCT, a_device, a_slice, read_slice
from support.servers.leader_harness import Cluster, leading
from support.waiting import until

from cluster import keys
from cluster.nodes.gpu_kinds import kinds_of
from cluster.scorer_lease import LEASE, ScorerLease
from runtime.kube.client import Kube
from scorer.report.lease_annotations import (
    report_claims_nodes,
    report_gpu_kinds,
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
        work = report_nvidia_nodes(lambda: leader.has_nvidia_nodes, kube, 42, 0.01)
        task = asyncio.create_task(work)
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


async def test_the_lease_says_how_large_claims_nodes_are(cluster):
    known = [None]
    async with Kube(cluster.url) as kube:
        task = asyncio.create_task(report_claims_nodes(lambda: known[-1], kube, 42, 0.01))
        for size, text in ((4, "4"), (8, "8")):
            known.append(size)
            await until(lambda text=text: annotation(cluster, keys.CLAIMS_NODES) == text)
        task.cancel()


async def test_the_size_of_claims_nodes_falls_with_a_new_leader_only(cluster):
    sizes = iter((8, 0, 4, None, 0))
    seen = []

    def next_size():
        seen.append(annotation(cluster, keys.CLAIMS_NODES))
        return next(sizes, 0)

    async with Kube(cluster.url) as kube:
        task = asyncio.create_task(report_claims_nodes(next_size, kube, 42, 0.01))
        await until(lambda: len(seen) > 6)
        task.cancel()
        assert set(seen[1:]) == {"8"}

        task = asyncio.create_task(report_claims_nodes(lambda: 0, kube, 42, 0.01))
        await until(lambda: annotation(cluster, keys.CLAIMS_NODES) == "")
        task.cancel()


async def test_kinds_of_gpus_are_in_the_lease_and_stay_for_the_term(cluster):
    kinds = [kinds_of([device.facts for device in read_slice(a_slice(a_device(0))).devices])]
    async with Kube(cluster.url) as kube:
        task = asyncio.create_task(report_gpu_kinds(lambda: kinds[-1], kube, 42, 0.01))
        await until(lambda: PRODUCT in (annotation(cluster, keys.GPU_KINDS) or ""))
        kinds.append(None)
        other = read_slice(a_slice(a_device(0, productName="Tesla T4"))).devices
        kinds.append(kinds_of([device.facts for device in other]))
        await until(lambda: "Tesla T4" in annotation(cluster, keys.GPU_KINDS))
        task.cancel()
    text = annotation(cluster, keys.GPU_KINDS)
    lease = msgspec.convert({"metadata": {"annotations": {keys.GPU_KINDS: text}}}, ScorerLease)

    assert frozenset(lease.gpu_kinds) == kinds[0] | kinds[2]


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
