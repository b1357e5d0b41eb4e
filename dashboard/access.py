"""Authenticate callers by TokenReview, authorize them by SubjectAccessReview, and cache both."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from hashlib import sha256
from itertools import islice
from typing import NamedTuple

import structlog

from cli.dashboard.guard import HEADERS
from cluster.keys import API_VERSION, DASHBOARD
from dashboard.visible import ALL, Visible
from runtime.http.authentication import UserInfo, authenticate
from runtime.http.authorization import is_allowed
from runtime.http.types import HttpRequest, HttpResponse, error_response, retry_later
from runtime.kube.client import Kube, KubeError
from runtime.process.clock import Clock

REVIEWED = 30.0
"""How long a review counts [s]. A message is waited for 20 s: in a minute a revoked token gets
nothing more."""
TOKENS = 2000
"""The number of tokens whose reviews are kept."""
NEW = 100
"""The number of callers whose first review is awaited."""
AT_ONCE = 16
"""The number of reviews that the API server makes at once."""
SOME = 4
"""The number of namespaces that are reviewed at once for one caller: each is a task in memory."""
NAMESPACES = 200
"""The number of namespaces for which a viewer is reviewed who may not list all pods."""

_NODES = {"group": "", "version": "v1", "resource": "nodes"}
_GROUP, _, _VERSION = API_VERSION.partition("/")
_INSIDE = (
    {"group": "", "version": "v1", "resource": "pods"},
    {"group": _GROUP, "version": _VERSION, "resource": "gangs"},
)
"""What a viewer must be allowed to list in a namespace."""
_WANTED = f"bring a token for the audience {DASHBOARD}"

_log = structlog.get_logger()


class Viewer(NamedTuple):
    """A caller who may see the page."""

    username: str
    visible: Visible


class _Review(NamedTuple):
    viewer: Viewer
    ends: float


class Access:
    """The reviews of callers, which count for some seconds."""

    def __init__(self, kube: Kube, clock: Clock, namespaces: Callable[[], Iterable[str]]) -> None:
        """Start without reviews; an event loop must run.

        Args:
            kube: Client of the API server.
            clock: A monotonic clock [s].
            namespaces: Returns the namespaces of the cluster, the important ones first.
        """
        self._kube, self._clock, self._namespaces = kube, clock, namespaces
        self._reviews: OrderedDict[bytes, _Review] = OrderedDict()
        """By the digest of a token; the least recently used first."""
        self._running: dict[bytes, asyncio.Task[Viewer | HttpResponse]] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def viewer(self, request: HttpRequest) -> Viewer | HttpResponse:
        """Return the caller of a request, or why it gets nothing.

        Without an answer of the API server every caller is refused: a token may have been revoked.
        """
        header = request.headers.get("Authorization", "")
        if not header:
            return _unauthorized(401, _WANTED)
        digest = sha256(header.encode(errors="surrogatepass")).digest()
        review = self._reviews.get(digest)
        if review and self._clock() < review.ends:
            self._reviews.move_to_end(digest)
            return review.viewer
        running = self._running.get(digest)
        if running is None:
            if review is None and len(self._running) >= NEW:
                return retry_later("too many tokens are being reviewed: send it again", HEADERS)
            running = asyncio.create_task(self._reviewed(request, digest))
            self._running[digest] = running
        # If one client leaves, others with the same token wait for it.
        return await asyncio.shield(running)

    async def _reviewed(self, request: HttpRequest, digest: bytes) -> Viewer | HttpResponse:
        started = self._clock()
        try:
            viewer = await self._review(request)
        except KubeError as error:
            _log.warning("Could not review token", err=str(error))
            return retry_later("the API server did not review your token", HEADERS)
        finally:
            del self._running[digest]
        if isinstance(viewer, HttpResponse):
            self._reviews.pop(digest, None)
            return viewer
        self._reviews[digest] = _Review(viewer, started + REVIEWED)
        self._reviews.move_to_end(digest)
        if len(self._reviews) > TOKENS:
            self._reviews.popitem(last=False)
        return viewer

    async def _review(self, request: HttpRequest) -> Viewer | HttpResponse:
        async with self._turns:
            user = await authenticate(self._kube, request, DASHBOARD)
        if user is None:
            return _unauthorized(401, f"this token is not accepted: {_WANTED}")
        if not await self._may_list(user, _NODES):
            return _unauthorized(
                403, "you may not list nodes: ask for the ClusterRole linkwise-dashboard-user"
            )
        if await self._sees(user, ""):
            return Viewer(user.username, ALL)
        names = list(islice(self._namespaces(), NAMESPACES))
        visible: set[str] = set()
        for start in range(0, len(names), SOME):
            some = names[start : start + SOME]
            seen = await asyncio.gather(*(self._sees(user, name) for name in some))
            visible.update(name for name, sees in zip(some, seen, strict=True) if sees)
        return Viewer(user.username, Visible(frozenset(visible)))

    async def _sees(self, user: UserInfo, namespace: str) -> bool:
        """Return whether a user may list pods and Gangs in a namespace; empty: in all."""
        for resource in _INSIDE:
            if not await self._may_list(user, {**resource, "namespace": namespace}):
                return False
        return True

    async def _may_list(self, user: UserInfo, resource: dict[str, str]) -> bool:
        async with self._turns:
            return await is_allowed(self._kube, user, {**resource, "verb": "list"})


def _unauthorized(status: int, message: str) -> HttpResponse:
    """Return a refusal after which the page asks for another token."""
    return error_response(status, message, {**HEADERS, "WWW-Authenticate": "Bearer"})
