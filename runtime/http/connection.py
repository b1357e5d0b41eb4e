"""One connection of a server: bytes become requests, one at a time, and answers become bytes.

aiohttp's parser reads HTTP. Its server, which would also make a task of every request, takes twice
the time of all that stands here; docs/decisions/0006-connections-of-our-own.md has the figures.
"""

import asyncio
import math
from collections.abc import Awaitable
from typing import Protocol, cast

from aiohttp import StreamReader
from aiohttp.http import HttpProcessingError, HttpVersion11, RawRequestMessage

from runtime.http.body import Body
from runtime.http.limits import Limits
from runtime.http.peers import Room
from runtime.http.types import HttpResponse, refusal
from runtime.http.wire import new_parser, written


class Request(Protocol):
    """What a server makes of a head."""

    body: Body | None
    """Where the body goes; None where none is read."""

    def answer(self) -> HttpResponse | Awaitable[HttpResponse]:
        """Answer, the body being whole."""
        ...

    def end(self, answer: HttpResponse | None) -> None:
        """Count it; None where the client left before its answer."""
        ...


class Service(Protocol):
    """What a connection needs of its server."""

    draining: bool
    room: Room["Connection"]

    def opened(self, connection: "Connection") -> None:
        """Take notice of a new connection."""
        ...

    def closed(self, connection: "Connection") -> None:
        """Forget a connection."""
        ...

    def begin(self, head: RawRequestMessage) -> Request:
        """Return what is to become of a request."""
        ...

    def malformed(self, answer: HttpResponse) -> None:
        """Take notice of what is not HTTP."""
        ...


class Connection(asyncio.Protocol):
    """An HTTP/1.1 connection, in one of five states, each with a time at which it is overdue.

    Idle; a head is arriving; a body is arriving; its route is waiting for others, which bounds
    itself; refused, where what still comes is forgotten.
    """

    def __init__(self, service: Service, limits: Limits) -> None:
        self._loop = asyncio.get_running_loop()
        self._service = service
        self._limits = limits
        self._parser = new_parser(self._loop)
        self._transport: asyncio.Transport | None = None
        self._head: RawRequestMessage | None = None
        self._content: StreamReader | None = None
        self._request: Request | None = None
        self._task: asyncio.Task[None] | None = None
        self._later = b""
        self._refused = False
        self._choked = False
        self._due = math.inf
        self.peer = ""
        """The client's address; empty where there is none."""
        self.since = 0.0
        """Since when nothing is asked, or a request is half sent; on the loop's clock."""
        self.half_sent = False
        """Whether a part of a request has arrived, and the rest has not."""
        self.used = False
        """Whether a request was answered on it."""
        self._arriving = False

    @property
    def idle(self) -> bool:
        """Whether nothing is lost when it is dropped."""
        return self._request is None and not self._going

    @property
    def may_make_room(self) -> bool:
        """Whether it may be dropped for another: it is open, and no answer is being made."""
        return self._task is None and not self._going

    @property
    def _going(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; the TLS handshake is over."""
        # uvloop's are transports without saying so.
        self._transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        self.peer = str(address[0]) if address else ""
        self._rest()
        self._service.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """End; a route that waits for others goes on."""
        self._transport = None
        self._due = math.inf
        self._end_half_sent()
        self._service.closed(self)
        if self._request is not None and self._task is None:
            self._request.end(None)
            self._request = None

    def data_received(self, data: bytes) -> None:
        """Take what arrived."""
        if self._refused:
            return
        if self._task is not None or self._choked:
            self._later += data
            return
        self._parse(data)

    def pause_writing(self) -> None:
        """Answer no more: the client does not read."""
        self._choked = True

    def resume_writing(self) -> None:
        """Go on."""
        self._choked = False
        if self._task is None:
            self._resume()

    def overdue(self, now: float) -> None:
        """Do what is due by now, on the loop's clock."""
        if now < self._due:
            return
        if self._request is not None:
            seconds = self._limits.body_seconds
            self._finish(refusal(408, f"the body did not arrive within {seconds:g} s"))
        elif self._arriving or self._refused or self._choked:
            self.drop()
        else:
            self.close()

    def close(self) -> None:
        """Close, if nothing is asked; who is being answered is asked to leave with the answer."""
        if self.idle and not self._arriving and self._transport is not None:
            self._transport.close()

    def drop(self) -> None:
        """Close at once, whatever is under way."""
        if self._task is not None:
            self._task.cancel()
        if self._transport is not None:
            self._transport.abort()

    def _rest(self) -> None:
        self._arriving = False
        self.since = self._loop.time()
        self._due = self.since + self._limits.keep_alive_seconds

    def _begin_half_sent(self) -> None:
        if not self.half_sent:
            self.half_sent = True
            self.since = self._loop.time()
            self._service.room.begin_half_sent(self)

    def _end_half_sent(self) -> None:
        if self.half_sent:
            self.half_sent = False
            self._service.room.end_half_sent(self)

    def _resume(self) -> None:
        data, self._later = self._later, b""
        if self._transport is not None and not self._refused:
            self._transport.resume_reading()
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        going_on = True
        while going_on:
            try:
                messages, _, _ = self._parser.feed_data(data)
            except HttpProcessingError:
                self._reject()
                return
            for head, content in messages:
                self._begin(head, content)
            if self._request is None:
                if data and not self._arriving:
                    self._arriving = True
                    self._due = self._loop.time() + self._limits.head_seconds
                    self._begin_half_sent()
                return
            going_on = self._proceed()
            data = b""

    def _begin(self, head: RawRequestMessage, content: StreamReader) -> None:
        self._head, self._content = head, content
        self._request = self._service.begin(head)
        if self._request.body is not None and not content.is_eof():
            self._due = self._loop.time() + self._limits.body_seconds
            if head.headers.get("Expect", "").lower() == "100-continue":
                self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _proceed(self) -> bool:
        """Go on with the request; say whether another one may follow now."""
        request, content = self._request, self._content
        assert request is not None  # noqa: S101
        assert content is not None  # noqa: S101
        if request.body is not None:
            if refused := request.body.take(content.read_nowait()):
                return self._finish(refused)
            if not content.is_eof():
                self._begin_half_sent()
                return False
        self._end_half_sent()
        found = request.answer()
        if isinstance(found, HttpResponse):
            return self._finish(found)
        self._due = math.inf
        if self._transport is not None:
            self._transport.pause_reading()
        self._task = self._loop.create_task(self._wait_for(found))
        return False

    async def _wait_for(self, found: Awaitable[HttpResponse]) -> None:
        try:
            answer = await found
        except asyncio.CancelledError:
            if self._request is not None:
                self._request.end(None)
            raise
        self._task = None
        if self._finish(answer):
            self._resume()

    def _finish(self, answer: HttpResponse) -> bool:
        """Write the answer; say whether another request may follow now."""
        request, head, content = self._request, self._head, self._content
        assert request is not None  # noqa: S101
        assert head is not None  # noqa: S101
        assert content is not None  # noqa: S101
        self._request = None
        self.used = True
        self._end_half_sent()
        request.end(answer)
        whole = content.is_eof()
        last = (
            self._service.draining
            or not whole
            or head.should_close
            or head.version < HttpVersion11
            # It may go on in another protocol, and nothing is served that could be switched to.
            or head.upgrade
        )
        self._write(written(answer, last=last, bare=head.method == "HEAD"))
        if last:
            self._leave(linger=not whole)
            return False
        self._parser.message_consumed()
        self._rest()
        if self._choked and self._transport is not None:
            self._transport.pause_reading()
        return not self._choked

    def _reject(self) -> None:
        """Answer what is not HTTP, without its words."""
        answer = refusal(400, "this is not a request in HTTP/1.1 that can be read")
        request, self._request = self._request, None
        self._end_half_sent()
        if request is None:
            self._service.malformed(answer)
        else:
            request.end(answer)
        self._write(written(answer, last=True))
        self._leave(linger=False)

    def _leave(self, *, linger: bool) -> None:
        """Close; with a pause where the client still sends, for it could not read the answer."""
        self._refused = True
        if linger:
            self._due = self._loop.time() + self._limits.linger_seconds
        elif self._transport is not None:
            self._transport.close()

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)
