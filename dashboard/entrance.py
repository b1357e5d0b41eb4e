"""Authenticate requests by token, and choose the feed that each caller may see."""

from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass

from dashboard.access import Access
from dashboard.feeds import Feeds
from linkwise.dashboard.entrance import Visit
from linkwise.dashboard.guard import HEADERS, refusal
from linkwise.runtime.http.types import HttpRequest, HttpResponse, error_response, retry_later

VISITS = 64
"""The number of requests of one user that are answered at once: an eighth of all."""
_LOCAL = frozenset(("localhost", "127.0.0.1", "[::1]"))
"""Hosts of a forwarded port."""


@dataclass(frozen=True, slots=True)
class Hosts:
    """The names under which the page is served, on any port."""

    names: frozenset[str]

    def origins(self, host: str) -> Collection[str]:
        """Return the origins of the page where `Host` is this; none if it is not served there.

        An Ingress may end TLS, so that the scheme is not known here.
        """
        name, colon, port = host.rpartition(":")
        if not colon or not port.isdecimal():
            name = host
        is_known = name.lower() in self.names | _LOCAL
        return (f"https://{host}", f"http://{host}") if is_known else ()


class TokenEntrance:
    """The entrance of the page in the cluster."""

    path = "/"

    def __init__(self, hosts: Hosts, access: Access, feeds: Feeds) -> None:
        """Start without visitors.

        Args:
            hosts: Where the page is served.
            access: Reviews callers.
            feeds: The cluster.
        """
        self._hosts, self._access, self._feeds = hosts, access, feeds
        self._visits: Counter[str] = Counter()
        """The requests that are being answered, by user."""

    def refuse(self, request: HttpRequest, *, is_page: bool) -> HttpResponse | None:
        """Return the refusal of a request for another host, or from another origin."""
        reason = refusal(self._hosts, request.headers, is_page=is_page)
        return error_response(403, reason, HEADERS) if reason else None

    @asynccontextmanager
    async def enter(self, request: HttpRequest) -> AsyncIterator[Visit | HttpResponse]:
        """Yield the cluster that the caller may see, or the refusal, while it is answered."""
        if self._feeds.missing():
            yield retry_later("the cluster is not read yet: try again", HEADERS)
            return
        viewer = await self._access.viewer(request)
        if isinstance(viewer, HttpResponse):
            yield viewer
            return
        if self._visits[viewer.username] >= VISITS:
            yield retry_later("you have too many requests at once: send it again", HEADERS)
            return
        self._visits[viewer.username] += 1
        try:
            full = "too many people with different rights use this page: try again in some minutes"
            feed = await self._feeds.of(viewer.visible)
            yield Visit(feed, viewer.username) if feed else retry_later(full, HEADERS)
        finally:
            self._visits[viewer.username] -= 1
            if not self._visits[viewer.username]:
                del self._visits[viewer.username]
