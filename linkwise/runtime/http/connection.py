"""One connection of a server: pass its bytes to aiohttp, with the limits that aiohttp lacks.

aiohttp speaks HTTP. This protocol stands between it and the transport, knows which part of a
request is arriving, and enforces times and the number of connections.
"""

import asyncio
import math
from collections.abc import Callable
from typing import cast

from linkwise.runtime.http.body import ByteBudget
from linkwise.runtime.http.bytes_ahead import BytesAhead
from linkwise.runtime.http.connection_limiter import BYTES, ConnectionLimiter
from linkwise.runtime.http.limits import Limits
from linkwise.runtime.http.phase import Phase
from linkwise.runtime.http.transport import PausableTransport
from linkwise.runtime.http.unread_answers import UnreadAnswers

_ROUNDS = 8
"""Rounds of the event loop within which aiohttp calls the handler of a request that has arrived.
It needs three. If it needed more, requests that arrive together would count as incomplete."""


async def handlers_called() -> None:
    """Wait until aiohttp has called the handlers of all requests that it has parsed."""
    for _ in range(_ROUNDS):
        await asyncio.sleep(0)


class Connection(asyncio.Protocol):
    """A protocol around aiohttp's; the handler of a request reports its progress to it."""

    def __init__(
        self,
        http: Callable[[], asyncio.Protocol],
        limiter: ConnectionLimiter["Connection"],
        answers: UnreadAnswers["Connection"],
        ahead: ByteBudget,
        limits: Limits,
        peer: str,
    ) -> None:
        """Start without a transport.

        Args:
            http: Makes aiohttp's protocol of this connection.
            limiter: All connections of the server; the caller adds this one.
            answers: The unread answers of the server.
            ahead: Bytes that clients of the server sent ahead.
            limits: The times that apply.
            peer: The client's address.
        """
        self._loop = asyncio.get_running_loop()
        self._make_http = http
        self._http = asyncio.Protocol()
        """Ignores everything until the connection is open."""
        self._handshake: asyncio.Task[None] | None = None
        self._limiter = limiter
        self._answers = answers
        self._limits = limits
        self._transport: PausableTransport | None = None
        self._phase = Phase.HANDSHAKE
        self._due = math.inf
        self._requests = 0
        self._ahead = BytesAhead(ahead)
        self._flushing: asyncio.Task[None] | None = None
        self._writing_paused = False
        self._counted = False
        self.peer = peer
        self.since = self._loop.time()
        """Time when it was accepted or became idle, or the present request began [s]."""
        self.used = False
        """A request was answered on it."""

    @property
    def half_sent(self) -> bool:
        """A part of a request or of a handshake is missing."""
        return self._phase.is_half_sent

    @property
    def in_handshake(self) -> bool:
        """TLS is not established."""
        return self._phase is Phase.HANDSHAKE

    @property
    def head_incomplete(self) -> bool:
        """Bytes have arrived that are no complete head yet."""
        return self._phase is Phase.HEAD

    @property
    def evictable(self) -> bool:
        """It may be dropped for another: no answer is being made.

        While it is being closed, too: a client can delay that.
        """
        is_open = self._transport is not None or self._handshake is not None
        return self._phase is not Phase.ANSWER and is_open

    @property
    def awaits_turn(self) -> bool:
        """Its request waits for the turn of its address."""
        return self._phase is Phase.TURN

    @property
    def has_unsent(self) -> bool:
        """The kernel has not sent all bytes that were written, or the client does not take them."""
        return self._transport is not None and self._transport.has_unsent

    @property
    def connected(self) -> bool:
        """It is not closed, and not being closed."""
        return self._transport is not None and not self._transport.is_closing()

    def begin_handshake(self, handshake: asyncio.Task[None]) -> None:
        """Record the task that opens the connection; it is cancelled if it is dropped."""
        self._handshake = handshake

    def end_handshake(self) -> bool:
        """Record that this task has ended; return whether the connection was opened."""
        self._handshake = None
        return self._phase is not Phase.HANDSHAKE

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start; the TLS handshake is complete."""
        if self._handshake is None:
            # It was dropped at this moment.
            cast("asyncio.Transport", transport).abort()
            return
        # uvloop's transports do not inherit from asyncio's.
        self._transport = PausableTransport(cast("asyncio.Transport", transport))
        self._handshake = None
        self._limiter.end_handshake(self)
        self._rest(Phase.IDLE)
        self._http = self._make_http()
        self._http.connection_made(cast("asyncio.Transport", self._transport))

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection; a route that is waiting continues."""
        self._transport = None
        self._due = math.inf
        self._ahead.take()
        self._uncount()
        self._limiter.remove(self)
        self._answers.remove(self)
        self._http.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on; buffer them and pause reading while a request is being answered."""
        # aiohttp would parse and keep up to 32 requests of a connection, bodies included.
        is_full = self._ahead.is_full and self._phase is not Phase.BODY
        if self._ahead.buffer or self._phase.is_complete or self._writing_paused or is_full:
            if not self._ahead.add(data):
                self._limiter.drop(self, BYTES)
                return
            if self._transport is not None:
                self._transport.pause("connection", paused=True)
            if is_full:
                self._flush_later()
            return
        self._ahead.pass_on(data)
        if self._phase is Phase.IDLE:
            self._phase = Phase.HEAD
            self.since = self._loop.time()
            self._due = self.since + self._limits.head_seconds
        self._http.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass the end of the client's bytes on."""
        return self._http.eof_received()

    def pause_writing(self) -> None:
        """Pass on that the client does not read; pass on no further request until it does."""
        self._writing_paused = True
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that the client reads again."""
        self._writing_paused = False
        self._http.resume_writing()
        self._flush_later()

    def begin_request(self) -> None:
        """Record that a head is complete."""
        self._phase = Phase.BODY
        self._requests += 1
        self._due = math.inf
        self._uncount()

    def begin_waiting(self, *, expects_continue: bool) -> None:
        """Record that the body is incomplete; its reader limits the time.

        Args:
            expects_continue: The client waits for status 100 before it sends the body.
        """
        self.count_half_sent()
        if self._transport is not None and expects_continue:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self._ahead.buffer:
            self._flush()

    def await_turn(self) -> None:
        """Record that a request is complete."""
        self._phase = Phase.TURN
        self._uncount()

    def begin_answer(self) -> None:
        """Record that its turn has come."""
        self._phase = Phase.ANSWER

    def end_request(self, read: int, answer: int, *, last: bool, abandoned: bool) -> None:
        """Record that a request has its answer, which is written next.

        Args:
            read: Size of the body that the handler read [bytes].
            answer: Size of the body of the answer [bytes].
            last: The connection ends with it.
            abandoned: The client may still be sending the body.
        """
        self.used = True
        self._ahead.end_request(read)
        self._uncount()
        self._rest(Phase.CLOSING if last else Phase.IDLE)
        if self._transport is not None:
            self._answers.add(self, answer, self.since)
        if abandoned:
            self._due = self.since + 2 * self._limits.linger_seconds
        self._flush_later()

    def count_half_sent(self) -> None:
        """Count the present request among the incomplete ones of its address."""
        if self.half_sent and not self._counted and self.connected:
            self._counted = True
            self._limiter.add_half_sent(self)

    def enforce(self, now: float) -> None:
        """Drop the connection if its head is overdue, or if it should be closed by now."""
        if now >= self._due:
            self.drop()

    def close(self) -> None:
        """Close the connection if it is idle, and no further request has arrived."""
        if self.in_handshake:
            self.drop()
        elif self._phase is Phase.IDLE and not self._ahead.buffer and self._transport is not None:
            self._transport.close()

    def drop_body(self) -> None:
        """Close the connection: its body was given up for bodies of others."""
        self._limiter.drop(self, BYTES)

    def drop(self) -> None:
        """Close the connection immediately; responses that are not sent are lost."""
        if self._transport is not None:
            self._transport.abort()
        elif self._handshake is not None:
            self._handshake.cancel()
            self._handshake = None

    def _rest(self, phase: Phase) -> None:
        self._phase = phase
        self.since = self._loop.time()
        # aiohttp closes it earlier, unless the client does not read.
        self._due = self.since + self._limits.keep_alive_seconds + self._limits.linger_seconds

    def _uncount(self) -> None:
        if self._counted:
            self._counted = False
            self._limiter.remove_half_sent(self)

    def _flush_later(self) -> None:
        if self._ahead.may_wait:
            self._flushing = self._loop.create_task(self._flush_when_idle(self._requests))

    async def _flush_when_idle(self, requests: int) -> None:
        """Pass the buffer on, unless aiohttp has already parsed another request."""
        await handlers_called()
        if not self._is_idle(requests):
            return
        # aiohttp may hold bytes that it parses only when it is called again.
        self._http.data_received(b"")
        await handlers_called()
        if self._is_idle(requests):
            self._ahead.end_idle()
            self._flush()

    def _is_idle(self, requests: int) -> bool:
        """Return whether no request has begun since, and none is being answered."""
        answering = self._phase.is_complete or self._writing_paused
        return self.connected and requests == self._requests and not answering

    def _flush(self) -> None:
        data = self._ahead.take()
        if self._transport is not None and data:
            self._transport.pause("connection", paused=False)
            self.data_received(data)
