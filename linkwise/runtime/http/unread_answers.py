"""Answers that their clients have not read: they use the byte budget, and for a limited time.

Under TLS a transport does not show how much it holds. But what the socket does not take stays in
the process, so nothing is left there once the kernel has sent all that it took.
"""

import asyncio
from typing import Generic, Protocol, TypeVar

from linkwise.runtime.http.body import ByteBudget
from linkwise.runtime.http.connection_limiter import UNREAD, ConnectionLimiter, LimitedConnection
from linkwise.runtime.http.limits import Limits

_WRITTEN = 0.1
"""An answer that is ready is given to the kernel, and is read by a client in the cluster, within
this time [s]."""


class AnsweringConnection(LimitedConnection, Protocol):
    """A connection, as it is needed here."""

    @property
    def has_unsent(self) -> bool:
        """The kernel has not sent all bytes that were written, or the client does not take them."""
        ...


M = TypeVar("M", bound=AnsweringConnection)


class UnreadAnswers(Generic[M]):
    """The connections of a server whose last answers were not sent completely."""

    def __init__(self, budget: ByteBudget, limiter: ConnectionLimiter[M], limits: Limits) -> None:
        """Start without answers.

        Args:
            budget: Bytes of bodies and answers; answers are dropped when it is used up.
            limiter: Counts and drops connections.
            limits: The time that a client has to read.
        """
        self._loop = asyncio.get_running_loop()
        self._budget = budget
        self._limiter = limiter
        self._seconds = limits.unread_seconds
        self._answers: dict[M, tuple[int, float]] = {}
        """Bytes, and the time of the first answer [s]; the oldest first."""
        budget.reclaim = self._reclaim

    def add(self, connection: M, size: int, now: float) -> None:
        """Count an answer that is written next; drop older ones if there is no room for it."""
        held, since = self._answers.get(connection, (0, now))
        # Seldom: the check is a system call, and most clients read an answer before the next one.
        if held and now - since >= _WRITTEN and not connection.has_unsent:
            self.remove(connection)
            held, since = 0, now
        self._budget.hold(size)
        self._answers[connection] = held + size, since

    def remove(self, connection: M) -> None:
        """Stop counting the answers of a connection: they are sent, or it was closed."""
        held, _ = self._answers.pop(connection, (0, 0.0))
        self._budget.give_back(held)

    def enforce(self, now: float) -> None:
        """Release answers that are sent; drop connections that have not read theirs in time.

        Cost: one system call for each connection that was answered since it was last released.
        """
        for connection, (_, since) in list(self._answers.items()):
            if now - since < _WRITTEN:
                return
            if not connection.has_unsent:
                self.remove(connection)
            elif now - since >= self._seconds:
                self._drop(connection)

    def _reclaim(self) -> bool:
        """Release one answer, if need be by its connection; return whether there was one.

        One that was just written ends no connection: a client that sends bodies could otherwise
        end those of others while their answers are on the way.
        """
        now = self._loop.time()
        for connection, (_, since) in list(self._answers.items()):
            if not connection.has_unsent:
                self.remove(connection)
                return True
            if now - since >= _WRITTEN:
                self._drop(connection)
                return True
        return False

    def _drop(self, connection: M) -> None:
        self.remove(connection)
        self._limiter.drop(connection, UNREAD)
