"""The page in the cluster, with a fake API server that reviews callers."""

from collections import Counter
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from support.dashboard import a_current
from support.servers.fake_api import FakeAPI

from dashboard.__main__ import LIMITS
from dashboard.access import Access
from dashboard.entrance import Hosts, TokenEntrance
from dashboard.feeds import Feeds
from linkwise.cluster.keys import DASHBOARD
from linkwise.dashboard.server import Dashboard
from linkwise.runtime.http.server import serve
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.process.clock import wall

HOST = "gpus.example"
NODES, PODS, GANGS = "nodes", "pods", "gangs"


class Reviews(FakeAPI):
    """An API server that knows some tokens."""

    def __init__(self):
        super().__init__()
        self.users = {}
        """User, groups and audiences, by token."""
        self.allowed = set()
        """User or group, resource, and namespace, which is empty for all."""
        self.asked = Counter()

    async def _call(self, request):
        if self.faults["call"]:
            return await self.faults["call"].popleft()(request)
        body = await request.json()
        spec = body["spec"]
        self.asked[body["kind"]] += 1
        if body["kind"] == "TokenReview":
            assert spec["audiences"] == [DASHBOARD]
            token = spec["token"]
            user, groups, audiences = self.users.get(token, (None, [], []))
            status = {"authenticated": user is not None, "audiences": audiences}
            extra = {"authentication.kubernetes.io/credential-id": [f"JTI={token}"]}
            info = {"username": user or "", "groups": groups, "extra": extra}
            return web.json_response({"status": {**status, "user": info}})
        attributes = spec["resourceAttributes"]
        assert attributes["verb"] == "list"
        place = attributes["resource"], attributes.get("namespace", "")
        is_allowed = any((name, *place) in self.allowed for name in (spec["user"], *spec["groups"]))
        return web.json_response({"status": {"allowed": is_allowed}})

    def user(self, name, *namespaces, nodes=True, audience=DASHBOARD):
        """Return the token of a user who may list nodes, and all of these namespaces."""
        self.users[f"token-{name}"] = name, [], [audience]
        self.allowed |= {(name, kind, place) for kind in (PODS, GANGS) for place in namespaces}
        if nodes:
            self.allowed.add((name, NODES, ""))
        return f"token-{name}"

    def other_tokens(self, name, number, *groups):
        """Return more tokens of a user, which has these groups by them."""
        tokens = [f"token-{name}-{'-'.join(groups)}-{n}" for n in range(number)]
        self.users |= dict.fromkeys(tokens, (name, list(groups), [DASHBOARD]))
        return tokens


class Clock:
    """A clock that stands until it is set."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Page:
    """What runs."""

    def __init__(self, api, feeds, access, clock, server, dashboard):
        self.api, self.feeds, self.access, self.clock = api, feeds, access, clock
        self.server, self._dashboard = server, dashboard

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.port}/"

    @property
    def turns(self):
        """The users whose manifest is tried, or waits for that."""
        return self._dashboard._turns.users

    async def get(self, session, path, token=None, **headers):
        if token:
            headers["Authorization"] = f"Bearer {token}"
        async with session.get(self.url + path, headers=headers) as response:
            return response.status, await response.text(), response.headers

    async def tried(self, session, token, text):
        """Return the status and the result for a manifest."""
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/yaml"}
        async with session.post(f"{self.url}api/trial", data=text, headers=headers) as response:
            return response.status, await response.text()


@pytest.fixture
def serving():
    """Serves a cluster with some pods."""

    @asynccontextmanager
    async def serving(*pods, seconds=5.0):
        clock = Clock()
        feeds = Feeds(wall, clock, b"key")
        async with Reviews() as api, Kube(api.url) as kube:
            access = Access(kube, clock, feeds.namespaces)
            entrance = TokenEntrance(Hosts(frozenset({HOST})), access, feeds)
            dashboard = Dashboard(entrance, seconds)
            routes = dashboard.routes()
            await feeds.publish(a_current(*pods))
            async with serve(routes, host="127.0.0.1", port=0, limits=LIMITS) as server:
                try:
                    yield Page(api, feeds, access, clock, server, dashboard)
                finally:
                    feeds.close()

    return serving
