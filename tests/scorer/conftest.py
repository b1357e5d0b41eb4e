"""A scorer process, in this process, with a fake API server."""

import asyncio
import gc
import json
from dataclasses import replace
from io import BytesIO
from itertools import count

import aiohttp
import msgspec
import pytest
import pytest_asyncio
import structlog
from controlplane.process import free_ports
from support.certificates import a_ca, a_leaf
from support.servers.fake_cluster import FakeCluster
from support.waiting import PATIENCE, until, until_true

from linkwise.cluster.whatif_api import PATH
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.process.logs import configure
from scorer.__main__ import LEASE, run_scorer
from scorer.settings import Settings
from scorer.timings import Timings

LEASES = "/apis/coordination.k8s.io/v1/namespaces/linkwise-system/leases"


class Scorer:
    """The process, as users see it."""

    def __init__(self, settings, session, stream):
        self.settings, self.stopped, self.task = settings, asyncio.Event(), None
        self._session, self._stream = session, stream

    @property
    def lines(self):
        """The log lines."""
        return [json.loads(line) for line in self._stream.getvalue().splitlines()]

    def logged(self, message):
        """Return the lines with a message."""
        return [line for line in self.lines if line["msg"] == message]

    async def get(self, port, path):
        async with self._session.get(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, await answer.text()

    async def probe(self, path="/readyz"):
        return await self.get(self.settings.probe_port, path)

    async def look(self, path):
        return await self.get(self.settings.inspect_port, path)

    async def ask(self, verb, body, *, content="application/json"):
        """Send a request as a scheduler; return the status and the body."""
        url = f"http://127.0.0.1:{self.settings.extender_port}/{verb}"
        headers = {"Content-Type": content}
        async with self._session.post(url, data=body, headers=headers) as answer:
            return answer.status, await answer.text()

    async def fits(self, question, token):
        """Send a request as the webhook; return the status and the body."""
        url = f"https://127.0.0.1:{self.settings.fit_port}{PATH}"
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        body = question if isinstance(question, bytes) else msgspec.json.encode(question)
        async with self._session.post(url, data=body, headers=headers, ssl=False) as answer:
            return answer.status, await answer.read()

    async def leading(self):
        """Wait until it leads and has synced."""

        async def leads():
            return (await self.look("/v1/gangs"))[0] == 200

        await until_true(leads)


@pytest_asyncio.fixture
async def cluster():
    async with FakeCluster() as running:
        yield running


@pytest.fixture
def beside():
    """The holder of the Lease in a scheduler beside the scorer; empty: there is no scheduler."""
    return ""


@pytest.fixture
def timings():
    """The durations of the leader's work."""
    return Timings()


async def hold_lease(cluster, holder):
    """Renew the Lease as a scheduler does."""
    for number in count():
        spec = {"holderIdentity": holder, "leaseTransitions": 3, "renewTime": f"{number}"}
        cluster.put(f"{LEASES}/{LEASE}", {"metadata": {"name": LEASE}, "spec": spec})
        await asyncio.sleep(0.05)


@pytest_asyncio.fixture
async def started(request, cluster, beside, timings, tmp_path, monkeypatch):
    """A scorer whose ports are open; it may not lead yet. Its parameter overrides settings."""
    cert, key = a_leaf(a_ca()).write(tmp_path)
    probe_port, inspect_port, fit_port, extender_port = free_ports(4)
    settings = Settings(
        host="127.0.0.1",
        probe_port=probe_port,
        inspect_port=inspect_port,
        fit_port=fit_port,
        certificate=str(cert),
        key=str(key),
        extender_port=extender_port if beside else 0,
        api_server=cluster.url,
        write_seconds=0.1,
        lease_seconds=2 * PATIENCE,
        renew_seconds=PATIENCE,
        retry_seconds=0.05,
    )
    settings = replace(settings, **getattr(request, "param", {}))
    # Settings have a short time for writes so that it leads soon; the machine may be slower.
    client = Kube.from_settings

    def patient(settings, environment, **_given):
        return client(settings, environment, timeout=PATIENCE)

    monkeypatch.setattr(Kube, "from_settings", patient)
    stream = BytesIO()
    scheduler = asyncio.create_task(hold_lease(cluster, beside)) if beside else None
    configure(stream=stream)
    async with aiohttp.ClientSession() as session:
        scorer = Scorer(settings, session, stream)
        scorer.task = asyncio.create_task(
            run_scorer(settings, timings, "replica-0", scorer.stopped)
        )
        await until(lambda: scorer.logged("Listening") or scorer.task.done())
        yield scorer
        scorer.stopped.set()
        await asyncio.wait((scorer.task,))
    if scheduler:
        scheduler.cancel()
    structlog.reset_defaults()
    gc.unfreeze()


@pytest_asyncio.fixture
async def scorer(started):
    """A scorer that leads."""
    await started.leading()
    yield started
