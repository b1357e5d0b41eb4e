"""Limit the connections of a server: where there are too many, drop the least useful one.

Several clients can share one address (an API server and others behind a proxy), and one client can
have several addresses. So neither the address nor the age of a connection decides alone.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection
from typing import Generic, Protocol, TypeVar

from runtime.http.limits import Limits

FULL, PEER, HALF_SENT = "full", "peer", "half-sent"
"""Why a connection is dropped: there are too many; too many of one address; too many requests of
one address are half sent."""
REASONS = (FULL, PEER, HALF_SENT)
_SLOW = 1.0
"""An API server sends a whole request within this time [s]."""
_CROWD = 16
"""An API server rarely has more half-sent requests than this at once."""


class LimitedConnection(Protocol):
    """What is known of a connection."""

    peer: str
    since: float
    used: bool

    @property
    def half_sent(self) -> bool:
        """Whether a part of a request has arrived, and the rest has not."""
        ...

    @property
    def evictable(self) -> bool:
        """Whether it may be dropped for another."""
        ...

    def drop(self) -> None:
        """Close it at once."""
        ...


M = TypeVar("M", bound=LimitedConnection)


class ConnectionLimiter(Generic[M]):
    """The connections of a server, by address, within its limits."""

    def __init__(self, limits: Limits) -> None:
        """Start without connections."""
        self._limits = limits
        self.dropped: Counter[str] = Counter()
        """How many were dropped, by reason."""
        self.open: set[M] = set()
        self.empty = asyncio.Event()
        """Set while no connection is open."""
        self.empty.set()
        self._by_peer: defaultdict[str, set[M]] = defaultdict(set)
        self._half_sent: defaultdict[str, dict[M, None]] = defaultdict(dict)
        """By address; the slowest first."""

    def add(self, member: M, now: float) -> None:
        """Add a connection, and drop another one where that makes too many.

        Cost: one pass over all connections where there are too many.
        """
        self.open.add(member)
        self.empty.clear()
        same = self._by_peer[member.peer]
        same.add(member)
        if len(same) > self._limits.peer_connections:
            self._evict(same, member, now, PEER)
        elif len(self.open) > self._limits.connections:
            self._evict(self.open, member, now, FULL)

    def remove(self, member: M) -> None:
        """Forget a connection."""
        self.open.discard(member)
        if not self.open:
            self.empty.set()
        same = self._by_peer[member.peer]
        same.discard(member)
        if not same:
            del self._by_peer[member.peer]

    def add_half_sent(self, member: M) -> None:
        """Note that a request is half sent; drop the slowest of its address if there are many."""
        same = self._half_sent[member.peer]
        same[member] = None
        if len(same) > self._limits.peer_half_sent:
            slowest = next(iter(same))
            # It closes later; until then, the next one to drop must be another one.
            self.remove_half_sent(slowest)
            self._drop(slowest, HALF_SENT)

    def remove_half_sent(self, member: M) -> None:
        """Note that a request has arrived, or never will."""
        same = self._half_sent[member.peer]
        same.pop(member, None)
        if not same:
            del self._half_sent[member.peer]

    def _evict(self, among: Collection[M], newest: M, now: float, reason: str) -> None:
        others = [one for one in among if one is not newest and one.evictable]
        if not others:
            self._drop(newest, reason)
            return
        worth = {one: self._priority(one, now) for one in others}
        least = min(worth.values())
        same = [one for one in others if worth[one] == least]
        crowd = Counter(one.peer for one in same)
        self._drop(min(same, key=lambda one: (-crowd[one.peer], one.since)), reason)

    def _priority(self, member: M, now: float) -> int:
        if member.half_sent:
            crowded = len(self._half_sent[member.peer]) > _CROWD
            return 0 if crowded or now - member.since > _SLOW else 3
        # A connection that was used may be an API server's, so it is kept longer.
        return 2 if member.used else 1

    def _drop(self, member: M, reason: str) -> None:
        self.dropped[reason] += 1
        member.drop()
