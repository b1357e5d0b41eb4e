"""Authorize the callers of the page by SubjectAccessReview."""

import asyncio
from collections.abc import Callable, Iterable
from hashlib import sha256
from itertools import islice
from typing import NamedTuple

import msgspec

from dashboard.visible import ALL, Visible
from linkwise.cluster.keys import API_VERSION, CREDENTIAL_ID, DASHBOARD
from linkwise.dashboard.guard import HEADERS
from linkwise.runtime.http.authentication import Callers, UserInfo
from linkwise.runtime.http.authorization import is_allowed
from linkwise.runtime.http.reviews import Reviews
from linkwise.runtime.http.types import HttpRequest, HttpResponse, error_response
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.process.clock import Clock

REVIEWS_AT_ONCE = 16
"""The number of reviews of rights that are sent at once: few beside the hundreds of requests that
an API server answers at once by default."""
NAMESPACES_AT_ONCE = 4
"""The number of namespaces that are reviewed at once for one user: a quarter of all reviews, so
that four users are reviewed at the same time."""
NAMESPACES = 200
"""The number of namespaces that are reviewed for a user who may not list all pods: at two reviews
each, 400 for a user in 30 s."""

_NODES = {"group": "", "version": "v1", "resource": "nodes"}
_GROUP, _, _VERSION = API_VERSION.partition("/")
_INSIDE = (
    {"group": "", "version": "v1", "resource": "pods"},
    {"group": _GROUP, "version": _VERSION, "resource": "gangs"},
)
"""What a viewer must be allowed to list in a namespace."""


class Viewer(NamedTuple):
    """A caller who may see the page."""

    username: str
    visible: Visible


class Access:
    """The rights of callers, by reviews that count for some seconds."""

    def __init__(self, kube: Kube, clock: Clock, namespaces: Callable[[], Iterable[str]]) -> None:
        """Start without reviews; an event loop must run.

        Args:
            kube: Client of the API server.
            clock: A monotonic clock [s].
            namespaces: Returns the namespaces of the cluster, the important ones first.
        """
        self._kube, self._namespaces = kube, namespaces
        self._callers = Callers(kube, DASHBOARD, clock, HEADERS)
        self._rights: Reviews[bytes, Visible | None] = Reviews(clock, HEADERS)
        """By the digest of a user; None: it may not list nodes."""
        self._turns = asyncio.Semaphore(REVIEWS_AT_ONCE)

    async def viewer(self, request: HttpRequest) -> Viewer | HttpResponse:
        """Return the caller of a request, or why it gets nothing.

        Without an answer of the API server every caller is refused: a right may have been revoked.
        """
        caller = await self._callers.user(request)
        if isinstance(caller, HttpResponse):
            return caller
        # Each token has an id of its own, and all tokens of a user have the same rights.
        extra = {key: values for key, values in caller.extra.items() if key != CREDENTIAL_ID}
        user = msgspec.structs.replace(caller, extra=extra)
        identity = sha256(msgspec.json.encode(user, order="deterministic")).digest()
        visible = await self._rights.get(identity, lambda: self._visible(user))
        if isinstance(visible, HttpResponse):
            return visible
        if visible is None:
            message = "you may not list nodes: ask for the ClusterRole linkwise-dashboard-user"
            return error_response(403, message, {**HEADERS, "WWW-Authenticate": "Bearer"})
        return Viewer(user.username, visible)

    async def _visible(self, user: UserInfo) -> Visible | None:
        if not await self._may_list(user, _NODES):
            return None
        if await self._sees(user, ""):
            return ALL
        names = list(islice(self._namespaces(), NAMESPACES))
        visible: set[str] = set()
        for start in range(0, len(names), NAMESPACES_AT_ONCE):
            some = names[start : start + NAMESPACES_AT_ONCE]
            seen = await asyncio.gather(*(self._sees(user, name) for name in some))
            visible.update(name for name, sees in zip(some, seen, strict=True) if sees)
        return Visible(frozenset(visible))

    async def _sees(self, user: UserInfo, namespace: str) -> bool:
        """Return whether a user may list pods and Gangs in a namespace; empty: in all."""
        for resource in _INSIDE:
            if not await self._may_list(user, {**resource, "namespace": namespace}):
                return False
        return True

    async def _may_list(self, user: UserInfo, resource: dict[str, str]) -> bool:
        async with self._turns:
            return await is_allowed(self._kube, user, {**resource, "verb": "list"})
