"""Authorizes requests for the page: the interface, and its implementation on loopback."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple, Protocol

from linkwise.dashboard.feed import Feed
from linkwise.dashboard.guard import HEADERS, Address, refusal
from linkwise.runtime.http.types import HttpRequest, HttpResponse, error_response


class Visit(NamedTuple):
    """A request that is authorized."""

    feed: Feed
    """The cluster that the caller may see."""
    user: str
    """The name of the caller; of the only one it is empty."""


class Entrance(Protocol):
    """Authorizes requests, and chooses the cluster that the page shows."""

    path: str
    """The path of the page; those of its parts begin with it."""

    def refuse(self, request: HttpRequest, *, is_page: bool) -> HttpResponse | None:
        """Return the refusal of a request for any caller; None: the caller decides.

        Args:
            request: The request.
            is_page: It is for the page itself, to which a link from elsewhere may lead.
        """
        ...

    def enter(self, request: HttpRequest) -> AbstractAsyncContextManager[Visit | HttpResponse]:
        """Yield the cluster that the caller may see, or the refusal, while it is answered."""
        ...


class Loopback:
    """The entrance for one person: the secret in the address authorizes, for the whole cluster."""

    def __init__(self, feed: Feed, secret: str) -> None:
        """Start without an address, which is known once the server listens.

        Args:
            feed: The cluster.
            secret: The part of the address that nobody can guess.
        """
        self._feed = feed
        self.path = Address(0, secret).path
        self.address: Address | None = None

    def refuse(self, request: HttpRequest, *, is_page: bool) -> HttpResponse | None:
        """Return the refusal of a request from another origin."""
        if self.address is None:
            return error_response(503, "the server is starting")
        reason = refusal(self.address, request.headers, is_page=is_page)
        return error_response(403, reason, HEADERS) if reason else None

    @asynccontextmanager
    async def enter(self, request: HttpRequest) -> AsyncIterator[Visit | HttpResponse]:
        """Yield the cluster."""
        del request
        yield Visit(self._feed, "")
