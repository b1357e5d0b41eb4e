"""A fake API server with conditional writes, for the objects that certs reads and writes."""

import asyncio
import json
from collections import Counter
from email.utils import formatdate

import pytest
from aiohttp import web

from linkwise.runtime.process.clock import wall

SECRETS = "/api/v1/namespaces/linkwise-system/secrets"


class Cluster:
    def __init__(self):
        self.objects = {}
        self.version = 1
        self.before_write = []
        """Each is called once, before a write is handled: a concurrent write of another client."""
        self.applied = []
        self.watches = []
        self.refuses = {}
        self.refused = Counter()
        """Refused requests by path."""
        self.reads = Counter()
        """Reads by path."""
        self.clock = wall

    def put(self, path, value):
        self.version += 1
        name = path.rpartition("/")[2]
        kind = "MODIFIED" if path in self.objects else "ADDED"
        metadata = {**value.get("metadata", {}), "name": name}
        self.objects[path] = stored = {
            **value,
            "metadata": {**metadata, "resourceVersion": str(self.version)},
        }
        collection = path.rpartition("/")[0]
        for watched, queue in self.watches:
            if watched == collection:
                queue.put_nowait({"type": kind, "object": json.loads(json.dumps(stored))})
        return stored

    def cut(self):
        """End the watches after their queued events."""
        for _, queue in self.watches:
            queue.put_nowait(None)
        self.watches.clear()

    def secret(self, name):
        return self.objects[f"{SECRETS}/{name}"]

    async def set_date(self, _request, response):
        response.headers["Date"] = formatdate(self.clock(), usegmt=True)

    async def handle(self, request):
        path = request.path
        if status := self.refuses.get(request.method):
            self.refused[path] += 1
            return refusal(status)
        match request.method:
            case "GET" if "watch" in request.query:
                return await self._watch(request)
            case "GET" if path in self.objects:
                self.reads[path] += 1
                return web.json_response(self.objects[path])
            case "GET" if "fieldSelector" in request.query:
                name = request.query["fieldSelector"].removeprefix("metadata.name=")
                items = [self.objects[key] for key in self.objects if key == f"{path}/{name}"]
                return web.json_response(
                    {"metadata": {"resourceVersion": str(self.version)}, "items": items}
                )
            case "GET":
                return refusal(404)
        return self._write(request, await request.json())

    def _write(self, request, body):
        path = request.path
        if self.before_write:
            self.before_write.pop(0)()
        if request.method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            return refusal(409) if path in self.objects else web.json_response(self.put(path, body))
        if path not in self.objects:
            return refusal(404)
        present = self.objects[path]
        if body["metadata"]["resourceVersion"] != present["metadata"]["resourceVersion"]:
            return refusal(409)
        if request.content_type == "application/apply-patch+yaml":
            self.applied.append((dict(request.query), body))
            ours = {hook["name"]: hook["clientConfig"] for hook in body["webhooks"]}
            hooks = [
                {**hook, "clientConfig": {**hook["clientConfig"], **ours[hook["name"]]}}
                for hook in present["webhooks"]
            ]
            return web.json_response(self.put(path, {**present, "webhooks": hooks}))
        data = {**present.get("data", {}), **body["data"]}
        data = {key: text for key, text in data.items() if text is not None}
        return web.json_response(self.put(path, {**present, "data": data}))

    async def _watch(self, request):
        response = web.StreamResponse()
        await response.prepare(request)
        queue = asyncio.Queue()
        self.watches.append((request.path, queue))
        since = int(request.query["resourceVersion"])
        for path, stored in self.objects.items():
            missed = int(stored["metadata"]["resourceVersion"]) > since
            if missed and path.rpartition("/")[0] == request.path:
                queue.put_nowait({"type": "MODIFIED", "object": stored})
        while (event := await queue.get()) is not None:
            await response.write(json.dumps(event).encode() + b"\n")
        return response


def refusal(status):
    return web.json_response({"kind": "Status", "message": "no", "reason": ""}, status=status)


@pytest.fixture
async def cluster():
    fake = Cluster()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.handle)
    app.on_response_prepare.append(fake.set_date)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield fake
    fake.cut()
    await runner.cleanup()
