"""Templates and DeviceClasses are read when a pod that names them is reviewed."""

import asyncio

import pytest
import pytest_asyncio
from support.servers.fake_cluster import FakeCluster
from support.servers.user_claims_cluster import (
    CLAIMS,
    CLASS,
    a_claim_spec,
    a_gpu_class,
    an_allocation,
)

from cluster.requests.user_claims.claim_spec import ClaimedDevices, LeftToScheduler
from cluster.requests.user_claims.pod_claims import CLAIM, TEMPLATE, ClaimSource
from runtime.kube.client import Kube
from webhook import claim_reader
from webhook.claim_reader import ClaimReader

TWO = ClaimedDevices((("gpu", 2),))
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaimtemplates"
TEMPLATE_TWO = ClaimSource(TEMPLATE, "two")


class Cluster(FakeCluster):
    def __init__(self):
        super().__init__()
        self.reads = []
        self.broken = False
        self.hold = None

    async def _read(self, request, place):
        self.reads.append(request.path)
        if self.hold:
            await self.hold.wait()
        if self.broken:
            request.transport.close()
        return await super()._read(request, place)

    def template(self, name, spec):
        self.put(f"{TEMPLATES}/{name}", {"metadata": {}, "spec": {"spec": spec}})


@pytest_asyncio.fixture
async def cluster():
    async with Cluster() as running:
        running.put(CLASS, a_gpu_class())
        running.template("two", a_claim_spec(2))
        yield running


@pytest_asyncio.fixture
async def now():
    return [0.0]


@pytest_asyncio.fixture
async def reader(cluster, now):
    async with Kube(cluster.url) as kube:
        yield ClaimReader(kube, lambda: now[0])


async def test_a_template_is_read_once_for_the_pods_of_a_gang(cluster, reader):
    found = await asyncio.gather(*(reader.read("team", [TEMPLATE_TWO]) for _ in range(50)))

    assert found == [{TEMPLATE_TWO: TWO}] * 50
    assert cluster.reads == [f"{TEMPLATES}/two", CLASS]


async def test_a_replaced_template_is_read_again_after_some_seconds(cluster, reader, now):
    await reader.read("team", [TEMPLATE_TWO])
    cluster.template("two", a_claim_spec(3))

    assert await reader.read("team", [TEMPLATE_TWO]) == {TEMPLATE_TWO: TWO}
    now[0] += 2
    three = {TEMPLATE_TWO: ClaimedDevices((("gpu", 3),))}
    assert await reader.read("team", [TEMPLATE_TWO]) == three


@pytest.mark.parametrize("kind", [TEMPLATE, CLAIM])
@pytest.mark.parametrize("name", ["../../pods/x", "A", "a/b", "a?x=1", "a" * 254, "", "a\n"])
async def test_a_name_that_no_object_has_is_not_read(cluster, reader, name, kind):
    assert await reader.read("team", [ClaimSource(kind, name)]) == {}
    assert cluster.reads == []


@pytest.mark.parametrize("kind", [TEMPLATE, CLAIM])
async def test_what_does_not_exist_is_left_to_the_scheduler(reader, kind):
    none = ClaimSource(kind, "none")
    found = await reader.read("team", [none])

    assert isinstance(found[none], LeftToScheduler)
    assert "does not exist yet" in found[none].reason


async def test_a_claim_and_a_template_of_one_name_are_told_apart(cluster, reader):
    status = {"allocation": an_allocation("gpu-0")}
    cluster.put(f"{CLAIMS}/two", {"metadata": {}, "spec": a_claim_spec(3), "status": status})
    claim = ClaimSource(CLAIM, "two")

    found = await reader.read("team", [claim, TEMPLATE_TWO])

    assert found == {claim: ClaimedDevices((("gpu", 3),)), TEMPLATE_TWO: TWO}


async def test_a_read_that_fails_or_takes_long_is_left_to_the_scheduler(
    cluster, reader, now, monkeypatch
):
    cluster.broken = True
    failed = {TEMPLATE_TWO: LeftToScheduler("it could not be read")}
    assert await reader.read("team", [TEMPLATE_TWO]) == failed
    cluster.broken, cluster.hold, now[0] = False, asyncio.Event(), 2.0
    monkeypatch.setattr(claim_reader, "_TIMEOUT", 0)
    assert (await reader.read("team", [TEMPLATE_TWO]))[TEMPLATE_TWO] == claim_reader._UNREAD
    cluster.hold.set()
    monkeypatch.undo()
    assert await reader.read("team", [TEMPLATE_TWO]) == {TEMPLATE_TWO: TWO}


async def test_few_templates_are_read_for_a_pod_and_few_are_kept(reader, monkeypatch):
    monkeypatch.setattr(claim_reader, "_KEPT", 3)
    sources = [ClaimSource(TEMPLATE, f"t-{i:02}") for i in range(20)]
    found = await reader.read("team", sources)

    assert sorted(found) == sources[:8]
    assert len(reader._reads) == 3
