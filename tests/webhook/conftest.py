"""A running webhook process with a fake API server."""

import asyncio
import gc
import json
import ssl
from collections import defaultdict
from dataclasses import replace
from io import BytesIO

import aiohttp
import pytest
import pytest_asyncio
import structlog
from aiohttp import web
from controlplane.process import free_ports
from support.certificates import a_ca, a_leaf
from support.servers.fake_api import FakeAPI
from support.tokens import a_token
from support.waiting import until, until_true

from linkwise.cluster import keys
from linkwise.runtime.process.logs import configure
from webhook.__main__ import admission
from webhook.settings import Settings

NAMESPACES, NODES = "/api/v1/namespaces", "/api/v1/nodes"
PROFILES = f"/api/v1/namespaces/{keys.PROFILE_NAMESPACE}/configmaps"
POLICY = f"/api/v1/namespaces/{keys.POLICY_NAMESPACE}/configmaps"


class Cluster(FakeAPI):
    """The collections that a webhook watches."""

    def __init__(self):
        super().__init__()
        self.collections = defaultdict(FakeAPI)
        self.users = {}
        """Status of a TokenReview, by token."""
        self.asked = []
        """Kinds of the reviews that were requested."""
        self.allowed = set()
        """(user, namespace) pairs with the right to create pods."""
        self.held = None
        """An event for which reviews of rights wait."""
        self.reviewing = None
        """An event for which reviews of tokens wait."""

    async def _call(self, request):
        body = await request.json()
        if body["kind"] != "Event":
            self.asked.append(body["kind"])
        if body["kind"] == "TokenReview":
            if self.reviewing:
                await self.reviewing.wait()
            status = self.users.get(body["spec"]["token"], {"authenticated": False})
            return web.json_response({"status": status}, status=201)
        if body["kind"] == "SubjectAccessReview":
            if self.held:
                await self.held.wait()
            attributes = body["spec"]["resourceAttributes"]
            assert (attributes["verb"], attributes["resource"]) == ("create", "pods")
            allowed = (body["spec"]["user"], attributes["namespace"]) in self.allowed
            return web.json_response({"status": {"allowed": allowed}}, status=201)
        return await super()._call(request)

    def user(self, name, *namespaces, audiences=(keys.DRY_RUN_AUDIENCE,)):
        """Return the token of a user who may create pods in these namespaces."""
        user = {"username": name, "groups": ["g"]}
        status = {"authenticated": True, "user": user, "audiences": list(audiences)}
        token = a_token(name, *audiences)
        self.users[token] = status
        self.allowed |= {(name, namespace) for namespace in namespaces}
        return token

    async def _get(self, request):
        return await self.collections[request.path]._get(request)

    async def stop(self):
        for collection in self.collections.values():
            collection.cut()
        await super().stop()

    def namespace(self, name, **labels):
        metadata = {"name": name, "labels": labels}
        self._put(NAMESPACES, name, metadata)

    def node(self, name, labels, **resources):
        metadata = {"name": name, "labels": labels}
        amounts = {resource: str(amount) for resource, amount in resources.items()}
        self._put(NODES, name, metadata, status={"allocatable": amounts, "capacity": amounts})

    def profiles(self, *selectors, text=None):
        text = json.dumps(list(selectors)) if text is None else text
        self._config_map(
            PROFILES, keys.PROFILE_NAMESPACE, keys.PROFILE_NAME, keys.PROFILE_KEY, text
        )

    def policy(self, text):
        self._config_map(POLICY, keys.POLICY_NAMESPACE, keys.POLICY_NAME, keys.POLICY_KEY, text)

    def forget_profiles(self):
        self.collections[PROFILES].remove(keys.PROFILE_NAME)

    def events(self):
        """Return the created Events."""
        return [json.loads(body) for _, path, _, body in self.calls if path.endswith("/events")]

    async def watched(self):
        """Wait until all watches are open."""
        for path in (NAMESPACES, NODES, PROFILES, POLICY):
            await self.collections[path].watching()

    def _config_map(self, path, namespace, name, key, text):
        metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
        self._put(path, name, metadata, data={key: text})

    def _put(self, path, name, metadata, **fields):
        collection = self.collections[path]
        version = str(collection.version + 1)
        collection.put(name, metadata={**metadata, "resourceVersion": version}, **fields)


class Webhook:
    """The webhook process, as clients see it."""

    def __init__(self, settings, session, context, logged):
        self.settings, self.stop, self.task = settings, asyncio.Event(), None
        self.session, self._context, self._logged = session, context, logged

    @property
    def lines(self):
        """Decoded log lines."""
        return [json.loads(line) for line in self._logged.getvalue().splitlines()]

    def answered(self):
        """Return the log lines of requests."""
        return [line for line in self.lines if line["msg"] == "Answered request"]

    async def post(self, path, body, *, port=None, **headers):
        data = BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
        url = f"https://127.0.0.1:{port or self.settings.port}{path}"
        headers = {"Content-Type": "application/json", **headers}
        async with self.session.post(url, data=data, headers=headers, ssl=self._context) as answer:
            return answer.status, answer.headers, await answer.read()

    async def review(self, review, path="/mutate"):
        status, _, body = await self.post(path, review)
        assert status == 200, body
        return json.loads(body)["response"]

    async def dry_run(self, text, token=None, *, query="", content="application/yaml", **headers):
        headers = {"Content-Type": content, **headers}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        port = self.settings.dry_run_port
        return await self.post(f"/v1/dry-run{query}", text.encode(), port=port, **headers)

    async def probe(self, path="/readyz"):
        url = f"http://127.0.0.1:{self.settings.probe_port}{path}"
        async with self.session.get(url) as answer:
            return answer.status, await answer.text()

    async def ready(self):
        async def is_ready():
            return (await self.probe())[0] == 200

        await until_true(is_ready)


@pytest_asyncio.fixture
async def cluster():
    async with Cluster() as running:
        running.namespace("default")
        yield running


@pytest.fixture(scope="session")
def ca():
    return a_ca()


@pytest_asyncio.fixture
async def started(request, cluster, ca, tmp_path):
    """A webhook that listens but may not be ready; its parameter overrides settings."""
    cert, key = a_leaf(ca).write(tmp_path)
    port, dry_run_port, probe_port = free_ports(3)
    settings = Settings(
        host="127.0.0.1",
        port=port,
        dry_run_port=dry_run_port,
        probe_port=probe_port,
        certificate=str(cert),
        key=str(key),
        api_server=cluster.url,
        drain_seconds=0,
    )
    settings = replace(settings, **getattr(request, "param", {}))
    logged = BytesIO()
    configure(stream=logged)
    context = ssl.create_default_context(cadata=ca.cert_pem.decode())
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        webhook = Webhook(settings, session, context, logged)
        webhook.task = group.create_task(admission(settings, "replica-0", webhook.stop))
        await until(lambda: any(line["msg"] == "Listening" for line in webhook.lines))
        yield webhook
        webhook.stop.set()
    structlog.reset_defaults()
    gc.unfreeze()


@pytest_asyncio.fixture
async def webhook(started):
    """A webhook that is ready."""
    await started.ready()
    yield started
