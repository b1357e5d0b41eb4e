"""An API server that does on demand what a real one does when it pleases.

One collection, at any path. Whatever is put into `faults` is done, once each, instead of answering
the next request for a list or a watch.
"""

import asyncio
import json
from collections import deque

from aiohttp import web


class FakeAPI:
    """Use it in `async with`; it listens on a free port of 127.0.0.1."""

    def __init__(self):
        self.objects = {}
        self.version = 1
        self.history = []
        self.faults = {"list": deque(), "watch": deque(), "call": deque()}
        self.queries = []
        self.calls = []
        self.authorizations = []
        self.watches = set()
        self._opened = asyncio.Event()
        self._runner = None
        self.port = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self):
        await self.start()
        return self

    async def __aexit__(self, *_):
        await self.stop()

    async def start(self):
        app = web.Application()
        app.router.add_get("/{path:.*}", self._get)
        app.router.add_route("*", "/{path:.*}", self._call)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self):
        for queue in self.watches:
            queue.put_nowait(None)
        await self._runner.cleanup()

    # ---- What happens in the cluster.

    def put(self, name, **fields):
        self.version += 1
        old = self.objects.get(name)
        made = {"metadata": {"name": name, "namespace": "ns", "resourceVersion": str(self.version)}}
        self.objects[name] = made = {**made, **fields}
        self._tell("MODIFIED" if old else "ADDED", made)

    def remove(self, name):
        self.version += 1
        gone = self.objects.pop(name)
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._tell("DELETED", gone)

    def bookmark(self):
        self.version += 1
        self._send(
            {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self.version)}}}
        )

    def error(self, code):
        self._send(
            {"type": "ERROR", "object": {"kind": "Status", "code": code, "reason": "Expired"}}
        )

    def cut(self, last=None):
        """End every watch, as a restart does; with half a line where one is given."""
        for queue in self.watches:
            if last:
                queue.put_nowait(last)
            queue.put_nowait(None)

    def send(self, data):
        """Send any bytes on every watch."""
        for queue in self.watches:
            queue.put_nowait(data)

    async def watching(self):
        """Wait for the next watch to be open, or one that is."""
        while not self.watches:
            self._opened.clear()
            await self._opened.wait()

    def _tell(self, kind, what):
        event = {"type": kind, "object": json.loads(json.dumps(what))}
        self.history.append((self.version, event))
        self._send(event)

    def _send(self, event):
        for queue in self.watches:
            queue.put_nowait(json.dumps(event).encode() + b"\n")

    # ---- What is asked.

    async def _get(self, request):
        watch = "watch" in request.query
        self.authorizations.append(request.headers.get("Authorization"))
        self.queries.append(dict(request.query))
        faults = self.faults["watch" if watch else "list"]
        if faults and (answer := await faults.popleft()(request)) is not None:
            return answer
        return await (self._watch(request) if watch else self._list(request))

    async def _list(self, request):
        names = sorted(self.objects)
        start = int(request.query.get("continue", "0"))
        limit = int(request.query.get("limit", "0")) or len(names)
        more = str(start + limit) if start + limit < len(names) else ""
        items = [self.objects[name] for name in names[start : start + limit]]
        metadata = {"resourceVersion": str(self.version), "continue": more}
        return web.json_response({"metadata": metadata, "items": items})

    async def _watch(self, request):
        since = int(request.query["resourceVersion"])
        response = await opened(request)
        queue = asyncio.Queue()
        for version, event in self.history:
            if version > since:
                queue.put_nowait(json.dumps(event).encode() + b"\n")
        self.watches.add(queue)
        self._opened.set()
        try:
            while (line := await queue.get()) is not None:
                await response.write(line)
        finally:
            self.watches.discard(queue)
        if request.transport is not None:
            request.transport.close()
        return response

    async def _call(self, request):
        self.authorizations.append(request.headers.get("Authorization"))
        content = await request.read()
        self.calls.append((request.method, request.path_qs, request.content_type, content))
        if self.faults["call"]:
            return await self.faults["call"].popleft()(request)
        return web.json_response({"metadata": {"name": "stored"}})


async def opened(request):
    response = web.StreamResponse()
    await response.prepare(request)
    return response


def status(code, reason="", message=""):
    """Answer with a Status."""

    async def fault(_request):
        body = {"kind": "Status", "code": code, "reason": reason, "message": message}
        return web.json_response(body, status=code)

    return fault


def text(code, body):
    async def fault(_request):
        return web.Response(status=code, text=body)

    return fault


def held(event, *, headers):
    """Say nothing, or nothing after the headers, until the event is set."""

    async def fault(request):
        response = await opened(request) if headers else web.Response()
        await event.wait()
        return response

    return fault


def after(event):
    """Answer as ever, but not before the event is set."""

    async def fault(_request):
        await event.wait()

    return fault


async def ended(request):
    """A watch that is over as soon as it has begun."""
    return await opened(request)
