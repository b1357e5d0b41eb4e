"""One connection of a server, with what aiohttp leaves out: a deadline for heads."""

import asyncio
from collections.abc import Callable

from aiohttp import web

from runtime.exchange import Answer, refusal
from runtime.limits import Limits


class Connection(web.RequestHandler):
    """An HTTP/1.1 connection that knows whether it is idle, and since when.

    Bodies are not decompressed: what was sent is what is counted.
    """

    __slots__ = ("_clock", "_malformed", "_opened", "busy", "head_since", "idle_since")

    def __init__(
        self,
        engine: web.Server,
        limits: Limits,
        *,
        opened: Callable[[], None],
        malformed: Callable[[Answer], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(
            engine,
            loop=loop,
            keepalive_timeout=limits.keep_alive_seconds,
            lingering_time=limits.linger_seconds,
            read_bufsize=1 << 16,
            auto_decompress=False,
        )
        self._clock = loop.time
        self._opened = opened
        self._malformed = malformed
        self.busy = False
        self.head_since: float | None = None
        """When the head began that is not whole yet; on the loop's clock."""
        self.idle_since = loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; the TLS handshake is over."""
        super().connection_made(transport)
        self._opened()

    def data_received(self, data: bytes) -> None:
        """Take what arrived; between requests it is the beginning of a head."""
        if not self.busy and self.head_since is None and data:
            self.head_since = self._clock()
        super().data_received(data)

    def begin(self) -> None:
        """Note that a head is whole."""
        self.busy = True
        self.head_since = None

    def end(self) -> None:
        """Note that its answer was made."""
        self.busy = False
        self.idle_since = self._clock()

    @property
    def idle(self) -> bool:
        """Whether nothing is lost when it is dropped."""
        return not self.busy and self.transport is not None and not self.transport.is_closing()

    def drop(self) -> None:
        """Close at once, whatever is under way."""
        if self.transport is not None:
            self.transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 400,
        exc: BaseException | None = None,  # noqa: ARG002
        message: str | None = None,  # noqa: ARG002
    ) -> web.StreamResponse:
        """Answer what is not HTTP, without its words, which aiohttp would log with a traceback."""
        if request.writer.output_size > 0:
            raise ConnectionError("the answer had begun")
        answer = refusal(status, "this is not a request in HTTP/1.1 that can be read")
        self._malformed(answer)
        response = written(answer)
        response.force_close()
        return response


def written(answer: Answer) -> web.Response:
    """Return an answer as aiohttp sends it."""
    headers = {"Content-Type": answer.content_type, "Server": "linkwise", **answer.headers}
    return web.Response(body=answer.body, status=answer.status, headers=headers)
