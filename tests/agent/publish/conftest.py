"""A fake API server with conditional writes, for the objects that the agent publishes."""

import json

import pytest
from aiohttp import web

NODE = "/api/v1/nodes/gpu-0"


class Server:
    def __init__(self):
        self.objects = {}
        self.version = 0
        self.before_write = []
        """Each is called once, before a write is handled: a concurrent write of another client."""
        self.refuses = {}
        """Status by method and path."""
        self.writes = []
        """Method, path, query and body of each accepted write."""
        self.reads = []

    def put(self, path, value):
        self.version += 1
        metadata = {**value["metadata"], "resourceVersion": str(self.version)}
        self.objects[path] = {**value, "metadata": metadata}

    def put_node(self, uid="uid-1", labels=None, managed=(), annotations=None):
        metadata = {"name": "gpu-0", "uid": uid, "labels": labels, "managedFields": list(managed)}
        self.put(NODE, {"metadata": {**metadata, "annotations": annotations}})

    async def handle(self, request):
        path, body = request.path, None
        if status := self.refuses.get((request.method, path)):
            return refusal(status)
        if request.method == "GET":
            self.reads.append(path)
            found = self.objects.get(path)
            return web.json_response(found) if found else refusal(404)
        body = json.loads(await request.read())
        if self.before_write:
            self.before_write.pop(0)()
        if request.method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                return refusal(409)
        elif path not in self.objects:
            return refusal(404)
        stored = self.objects.get(path, {}).get("metadata", {})
        version = body["metadata"].get("resourceVersion")
        if request.method == "PUT" and version != stored["resourceVersion"]:
            return refusal(409)
        self.writes.append((request.method, path, dict(request.query), body))
        if request.method != "PATCH":
            self.put(path, body)
        return web.json_response({})


def refusal(status):
    return web.json_response({"kind": "Status", "message": f"no: {status}"}, status=status)


@pytest.fixture
async def server():
    fake = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield fake
    await runner.cleanup()
