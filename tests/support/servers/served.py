"""A server with test routes, and a client that writes HTTP byte by byte."""

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import replace

from linkwise.runtime.http.limits import Limits
from linkwise.runtime.http.server import serve
from linkwise.runtime.http.types import JSON, HttpResponse, Route
from support.waiting import PATIENCE

TAKES = frozenset({JSON})
USUAL = Limits()
LONG = 2 * PATIENCE
"""Longer than any test waits [s]."""
PATIENT = replace(
    USUAL, head_seconds=LONG, body_seconds=LONG, answer_seconds=LONG, unread_seconds=LONG
)
"""Clients of a busy machine are slow."""
WORK = 0.0003
"""Duration of the route `/work` [s]."""
SMALL = replace(PATIENT, body_bytes=1000, bytes_in_flight=1500, linger_seconds=0.05)


class Site:
    """Test routes, and everything that was observed."""

    def __init__(self):
        self.seen = []
        self.going_on = asyncio.Event()
        self.waiting = 0

    def routes(self):
        return [
            Route("POST", "/echo", lambda call: HttpResponse(call.body), TAKES),
            Route("POST", "/wait", self._wait, TAKES),
            Route("POST", "/bug", self._bug, TAKES),
            Route("GET", "/call", lambda call: HttpResponse(call.query.encode())),
            Route("GET", "/fields", lambda _call: HttpResponse(fields={"pod": "ns/a"})),
            Route("GET", "/work", self._work),
        ]

    async def _wait(self, call):
        self.waiting += 1
        await self.going_on.wait()
        return HttpResponse(call.body)

    def _bug(self, _call):
        raise RuntimeError("a bug")

    def _work(self, call):
        """Use the processor for `WORK`, or for the milliseconds in the query."""
        end = time.perf_counter() + (int(call.query) / 1000 if call.query else WORK)
        while time.perf_counter() < end:
            pass
        return HttpResponse()


class Client:
    """One connection, and helpers to write requests on it."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    def head(self, path="/echo", *, method="POST", size=None, **headers):
        names = {"Host": "x", "Content-Type": JSON}
        names |= {name.replace("_", "-"): value for name, value in headers.items()}
        if size is not None:
            names["Content-Length"] = size
        lines = [f"{name}: {value}" for name, value in names.items() if value is not None]
        return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode()

    def send(self, data):
        self.writer.write(data)

    async def answer(self, *, bare=False):
        """Return status, headers and body of the next response; None where there is none."""
        async with asyncio.timeout(PATIENCE):
            try:
                first, *rest = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                return None
            headers = dict(line.split(": ", 1) for line in rest if line)
            size = 0 if bare else int(headers.get("Content-Length", 0))
            return int(first.split()[1]), headers, await self.reader.readexactly(size)

    async def asks(self, path="/echo", body=b"{}", **headers):
        self.send(self.head(path, size=len(body), **headers) + body)
        return await self.answer()

    async def is_closed(self):
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True

    def close(self):
        self.writer.transport.abort()


@asynccontextmanager
async def served(limits=PATIENT, context=None):
    site = Site()
    async with serve(
        site.routes(),
        host="127.0.0.1",
        port=0,
        limits=limits,
        observers=(site.seen.append,),
        context=context,
    ) as server:
        site.server = server
        yield site


@asynccontextmanager
async def client(site, context=None, source="127.0.0.1"):
    address = "127.0.0.1", site.server.port
    async with asyncio.timeout(PATIENCE):
        streams = await asyncio.open_connection(*address, ssl=context, local_addr=(source, 0))
    made = Client(*streams)
    try:
        yield made
    finally:
        made.close()
