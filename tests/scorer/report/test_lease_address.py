import asyncio

import pytest
import pytest_asyncio
from fake_cluster import FakeCluster
from waiting import until

from cluster import keys
from cluster.scorer_lease import LEASE
from runtime.kube.client import Kube
from scorer.report.lease_address import publish_address

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
async def test_a_leader_says_where_it_is_and_leaves_what_others_say(cluster, kube, others):
    lead(cluster, 3, **others)

    await publish_address(kube, ADDRESS, 3, 0.01)

    assert annotations(cluster) == {**others, keys.SCORER_ADDRESS: ADDRESS}


async def test_of_a_lease_that_is_anothers_by_now_nothing_is_changed(cluster, kube):
    lead(cluster, 4, **{keys.SCORER_ADDRESS: "192.0.2.9:1"})

    late = asyncio.create_task(publish_address(kube, ADDRESS, 3, 0.01))
    await until(lambda: len(cluster.writes) > 1)
    late.cancel()

    assert annotations(cluster) == {keys.SCORER_ADDRESS: "192.0.2.9:1"}


async def test_what_could_not_be_written_is_tried_again(cluster, kube):
    lead(cluster, 3)
    cluster.refuse = lambda *_: (500, "not now") if len(cluster.writes) < 3 else None

    await publish_address(kube, ADDRESS, 3, 0.01)

    assert annotations(cluster) == {keys.SCORER_ADDRESS: ADDRESS}


async def test_who_does_not_know_where_it_is_says_nothing(cluster, kube):
    await publish_address(kube, "", 3)

    assert cluster.writes == []
