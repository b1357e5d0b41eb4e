"""Limit the connections of a server: where there are too many, drop the least useful one.

Several clients can share one address (an API server and others behind a proxy), and one client can
have several addresses. Therefore neither the address nor the age of a connection decides alone.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection
from typing import Generic, Protocol, TypeVar

from linkwise.runtime.http.limits import Limits

FULL, PEER, HALF_SENT, UNREAD, BYTES = "full", "peer", "half-sent", "unread", "bytes"
"""Reasons to drop a connection: too many in total; too many of one address; too many half-sent
requests of one address; an answer that its client did not read; a body of the address that holds
the most bytes, where there is no room for another's, or bytes sent ahead, without room for them."""
REASONS = (FULL, PEER, HALF_SENT, UNREAD, BYTES)
_SLOW = 1.0
"""An API server sends a whole request within this time [s]."""
_CROWD = 16
"""An API server rarely has more half-sent requests than this at once."""
_QUEUE = 64
"""Nor more requests that wait for its turn, since each takes a millisecond at most."""


class LimitedConnection(Protocol):
    """A connection, as the limiter needs it."""

    peer: str
    since: float
    used: bool

    @property
    def in_handshake(self) -> bool:
        """TLS is not established."""
        ...

    @property
    def half_sent(self) -> bool:
        """A part of a request or of a handshake is missing."""
        ...

    @property
    def awaits_turn(self) -> bool:
        """Its request waits for the turn of its address."""
        ...

    @property
    def evictable(self) -> bool:
        """It may be dropped for another."""
        ...

    def drop(self) -> None:
        """Close it immediately."""
        ...


M = TypeVar("M", bound=LimitedConnection)


class ConnectionLimiter(Generic[M]):
    """The open connections of a server, by address."""

    def __init__(self, limits: Limits) -> None:
        """Start without connections."""
        self._limits = limits
        self.dropped: Counter[str] = Counter()
        """Number of dropped connections, by reason."""
        self.open: set[M] = set()
        self.empty = asyncio.Event()
        """Set while no connection is open."""
        self.empty.set()
        self.occupied = asyncio.Event()
        """Set while a connection is open."""
        self._by_peer: defaultdict[str, set[M]] = defaultdict(set)
        self._half_sent: defaultdict[str, dict[M, None]] = defaultdict(dict)
        """By address; the oldest first."""
        self._handshakes: Counter[str] = Counter()
        """Handshakes that are not complete, by address."""

    def add(self, connection: M, now: float) -> bool:
        """Add a connection that was just accepted; drop one if there are too many.

        Returns:
            Whether there was room for it.

        Cost: one pass over all connections if there are too many.
        """
        self.open.add(connection)
        self.empty.clear()
        self.occupied.set()
        same = self._by_peer[connection.peer]
        same.add(connection)
        if connection.in_handshake:
            self._handshakes[connection.peer] += 1
        if len(same) > self._limits.peer_connections:
            self._evict(same, connection, now, PEER)
        elif len(self.open) > self._limits.connections:
            self._evict(self.open, connection, now, FULL)
        else:
            return True
        return False

    def end_handshake(self, connection: M) -> None:
        """Record that the handshake of a connection is complete, or has failed."""
        self._handshakes[connection.peer] -= 1
        if not self._handshakes[connection.peer]:
            del self._handshakes[connection.peer]

    def remove(self, connection: M) -> None:
        """Remove a connection that was closed or dropped."""
        if connection not in self.open:
            return
        if connection.in_handshake:
            self.end_handshake(connection)
        self.open.discard(connection)
        if not self.open:
            self.empty.set()
            self.occupied.clear()
        same = self._by_peer[connection.peer]
        same.discard(connection)
        if not same:
            del self._by_peer[connection.peer]

    def add_half_sent(self, connection: M) -> None:
        """Count a half-sent request; drop the oldest of its address if there are too many."""
        same = self._half_sent[connection.peer]
        same[connection] = None
        if len(same) > self._limits.peer_half_sent:
            oldest = next(iter(same))
            # It is closed later; until then, another one must be the next to drop.
            self.remove_half_sent(oldest)
            self.drop(oldest, HALF_SENT)

    def remove_half_sent(self, connection: M) -> None:
        """Stop counting a request: it is complete, or its connection was closed."""
        same = self._half_sent[connection.peer]
        same.pop(connection, None)
        if not same:
            del self._half_sent[connection.peer]

    def drop(self, connection: M, reason: str) -> None:
        """Drop a connection, and count it."""
        self.dropped[reason] += 1
        self.remove(connection)
        connection.drop()

    def _evict(self, candidates: Collection[M], newest: M, now: float, reason: str) -> None:
        others = [each for each in candidates if each is not newest and each.evictable]
        if not others:
            self.drop(newest, reason)
            return
        queues = Counter(each.peer for each in others if each.awaits_turn)
        priorities = {each: self._priority(each, now, queues) for each in others}
        lowest = min(priorities.values())
        least_useful = [each for each in others if priorities[each] == lowest]
        by_peer = Counter(each.peer for each in least_useful)
        self.drop(min(least_useful, key=lambda each: (-by_peer[each.peer], each.since)), reason)

    def _priority(self, connection: M, now: float, queues: Counter[str]) -> int:
        if connection.half_sent:
            half_sent = len(self._half_sent.get(connection.peer, ()))
            crowded = half_sent + self._handshakes[connection.peer] > _CROWD
            if crowded or now - connection.since > _SLOW:
                return 0
            return 1 if connection.in_handshake else 3
        if connection.awaits_turn:
            # Those of a long queue are compared with new connections, of which others have fewer.
            return 1 if queues[connection.peer] > _QUEUE else 3
        # A used connection may be an API server's.
        return 2 if connection.used else 1
