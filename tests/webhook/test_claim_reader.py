"""Templates and DeviceClasses are read when a pod that names them is reviewed."""

import asyncio

import pytest
import pytest_asyncio
from aiohttp import web
from support.servers.fake_cluster import FakeCluster
from support.servers.user_claims_cluster import (
    CLAIMS,
    CLASS,
    a_claim_spec,
    a_gpu_class,
    an_allocation,
)
from support.waiting import until

from linkwise.cluster.requests.user_claims.claim_spec import ClaimedDevices, Delegated
from linkwise.cluster.requests.user_claims.pod_claims import CLAIM, TEMPLATE, ClaimSource
from linkwise.runtime.kube.client import Kube
from webhook import claim_reader
from webhook.claim_reader import ClaimReader, NotInTimeError

TWO = ClaimedDevices((("gpu", 2),))
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaimtemplates"
TEMPLATE_TWO = ClaimSource(TEMPLATE, "two")


class Cluster(FakeCluster):
    def __init__(self):
        super().__init__()
        self.reads = []
        self.broken = False
        self.status = None
        self.hold = None

    async def _read(self, request, place):
        self.reads.append(request.path)
        if self.hold:
            await self.hold.wait()
        if self.broken and self.status:
            return web.json_response({}, status=self.status)
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
@pytest.mark.parametrize("name", ["../../pods/x", "a/b", "a?x=1", "a" * 254, "", "a\n"])
async def test_a_name_that_no_object_has_is_not_read(cluster, reader, name, kind):
    assert await reader.read("team", [ClaimSource(kind, name)]) == {}
    assert await reader.read(name, [TEMPLATE_TWO]) == {}
    assert cluster.reads == []


async def test_a_namespace_that_is_a_path_is_not_read(cluster, reader):
    namespace = "../../../../api/v1/nodes?watch=true&x="

    assert await reader.read(namespace, [TEMPLATE_TWO]) == {}
    assert cluster.reads == []


@pytest.mark.parametrize("kind", [TEMPLATE, CLAIM])
async def test_what_does_not_exist_is_left_to_the_scheduler(reader, kind):
    none = ClaimSource(kind, "none")
    found = await reader.read("team", [none])

    assert isinstance(found[none], Delegated)
    assert "does not exist yet" in found[none].reason


async def test_that_something_does_not_exist_holds_for_nobody_else(cluster, reader):
    new = ClaimSource(TEMPLATE, "new")
    assert isinstance((await reader.read("team", [new]))[new], Delegated)

    cluster.template("new", a_claim_spec(2))

    assert await reader.read("team", [new]) == {new: TWO}


async def test_a_claim_and_a_template_of_one_name_are_told_apart(cluster, reader):
    status = {"allocation": an_allocation("gpu-0")}
    cluster.put(f"{CLAIMS}/two", {"metadata": {}, "spec": a_claim_spec(3), "status": status})
    claim = ClaimSource(CLAIM, "two")

    found = await reader.read("team", [claim, TEMPLATE_TWO])

    assert found == {claim: ClaimedDevices((("gpu", 3),)), TEMPLATE_TWO: TWO}


@pytest.mark.parametrize("status", [None, 429, 503])
async def test_a_read_that_an_outage_ends_is_not_in_time(cluster, reader, status):
    """So the pod is created again, and not left to kube-scheduler for ever."""
    cluster.broken = True
    cluster.status = status
    with pytest.raises(NotInTimeError, match="template two"):
        await reader.read("team", [TEMPLATE_TWO])
    cluster.broken = False

    assert await reader.read("team", [TEMPLATE_TWO]) == {TEMPLATE_TWO: TWO}


async def test_a_read_that_is_forbidden_is_left_to_the_scheduler_and_tried_again(cluster, reader):
    cluster.broken, cluster.status = True, 403
    failed = {TEMPLATE_TWO: Delegated("it could not be read")}
    assert await reader.read("team", [TEMPLATE_TWO]) == failed
    cluster.broken = False

    assert await reader.read("team", [TEMPLATE_TWO]) == {TEMPLATE_TWO: TWO}


async def test_a_read_that_takes_long_is_ended_and_begins_again(cluster, reader, monkeypatch):
    cluster.hold = asyncio.Event()
    monkeypatch.setattr(claim_reader, "_TIMEOUT", 0.05)
    with pytest.raises(NotInTimeError):
        await reader.read("team", [TEMPLATE_TWO])
    await until(lambda: not reader._reads)
    monkeypatch.undo()
    cluster.hold = None

    assert await reader.read("team", [TEMPLATE_TWO]) == {TEMPLATE_TWO: TWO}


async def test_reads_of_one_namespace_leave_places_to_others(cluster, reader):
    cluster.hold = asyncio.Event()
    many = [ClaimSource(TEMPLATE, f"t-{i}") for i in range(8)]
    large = asyncio.create_task(reader.read("large", many))
    other = asyncio.create_task(reader.read("team", [TEMPLATE_TWO]))
    await until(lambda: f"{TEMPLATES}/two" in cluster.reads)

    assert len(cluster.reads) == 3
    cluster.hold.set()
    assert await other == {TEMPLATE_TWO: TWO}
    assert len(await large) == 8


async def test_an_answer_of_many_bytes_is_not_read(cluster, reader, monkeypatch):
    monkeypatch.setattr(claim_reader, "_MAX_BYTES", 1000)
    cluster.template("two", {**a_claim_spec(2), "x": "x" * 1000})

    failed = {TEMPLATE_TWO: Delegated("it could not be read")}
    assert await reader.read("team", [TEMPLATE_TWO]) == failed


async def test_few_templates_are_read_for_a_pod_and_few_are_kept(cluster, reader, monkeypatch):
    monkeypatch.setattr(claim_reader, "_KEPT", 3)
    sources = [ClaimSource(TEMPLATE, f"t-{i:02}") for i in range(20)]
    for source in sources:
        cluster.template(source.name, a_claim_spec(1))
    found = await reader.read("team", sources)

    assert sorted(found) == sources[:8]
    assert len(reader._reads) == 3
