import asyncio

import pytest
import pytest_asyncio
from support.servers.fake_cluster import FakeCluster
from support.waiting import until

from linkwise.cluster import keys
from linkwise.cluster.scorer_lease import LEASE
from linkwise.runtime.kube.client import Kube
from scorer.report.lease_annotations import publish_address, report_excluded_nodes

ADDRESS = "192.0.2.1:8445"


@pytest_asyncio.fixture
async def cluster():
    async with FakeCluster() as running:
        yield running


@pytest_asyncio.fixture
async def kube(cluster):
    async with Kube(cluster.url) as made:
        yield made


def lead(cluster, term, **annotations):
    metadata = {"name": keys.SCORER}
    if annotations:
        metadata["annotations"] = annotations
    cluster.put(LEASE, {"metadata": metadata, "spec": {"leaseTransitions": term}})


def annotations(cluster):
    return cluster.get(LEASE)["metadata"].get("annotations", {})


@pytest.mark.parametrize("others", [{}, {"theirs": "kept", keys.SCORER_ADDRESS: "192.0.2.9:1"}])
async def test_the_address_is_written_beside_other_annotations(cluster, kube, others):
    lead(cluster, 3, **others)

    await publish_address(kube, ADDRESS, 3, 0.01)

    assert annotations(cluster) == {**others, keys.SCORER_ADDRESS: ADDRESS}


async def test_the_lease_of_another_term_is_not_changed(cluster, kube):
    lead(cluster, 4, **{keys.SCORER_ADDRESS: "192.0.2.9:1"})

    late = asyncio.create_task(publish_address(kube, ADDRESS, 3, 0.01))
    await until(lambda: len(cluster.writes) > 1)
    late.cancel()

    assert annotations(cluster) == {keys.SCORER_ADDRESS: "192.0.2.9:1"}


async def test_a_failed_write_is_retried(cluster, kube):
    lead(cluster, 3)
    cluster.refuse = lambda *_: (500, "not now") if len(cluster.writes) < 3 else None

    await publish_address(kube, ADDRESS, 3, 0.01)

    assert annotations(cluster) == {keys.SCORER_ADDRESS: ADDRESS}


@pytest.mark.parametrize("others", [{}, {"theirs": "old"}], ids=["none before", "one before"])
async def test_an_annotation_that_is_written_meanwhile_is_kept(cluster, kube, others):
    lead(cluster, 3, **others)

    def write_meanwhile(*_):
        if len(cluster.writes) == 1:
            lead(cluster, 3, theirs="new")

    cluster.refuse = write_meanwhile

    await publish_address(kube, ADDRESS, 3, 0.01)

    assert annotations(cluster) == {"theirs": "new", keys.SCORER_ADDRESS: ADDRESS}


async def test_an_empty_address_is_not_written(cluster, kube):
    await publish_address(kube, "", 3)

    assert cluster.writes == []


async def test_excluded_nodes_are_written_as_long_as_there_are_any(cluster, kube):
    nodes = {}
    lead(cluster, 3)
    task = asyncio.create_task(report_excluded_nodes(lambda: nodes, kube, 3, 0.01))
    nodes["0a"] = {"gpu-0": 1_767_225_600.0}
    await until(lambda: annotations(cluster).get(keys.EXCLUDED_NODES))
    assert annotations(cluster)[keys.EXCLUDED_NODES] == '{"0a":{"gpu-0":1767225600.0}}'
    nodes.clear()
    await until(lambda: not annotations(cluster)[keys.EXCLUDED_NODES])
    task.cancel()
