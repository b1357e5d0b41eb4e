"""A fake API server that stores any kind of object in memory, with watches.

It has no defaults, no controllers, and no schemas but that of Gangs. `refuse` can replace its
responses.
"""

import asyncio
import json
import re
from collections import defaultdict
from itertools import count

import jsonpatch
from aiohttp import web

from support.gang_definition import refusal

_PATH = re.compile(
    r"(?P<api>/api/v1|/apis/[^/]+/[^/]+)(/namespaces/(?P<ns>[^/]+))?/(?P<kind>[a-z]+)"
    r"(/(?P<name>[^/]+))?(/(?P<sub>[a-z]+))?"
)


_DENIED = (
    "ValidatingAdmissionPolicy 'linkwise-fence' with binding 'linkwise-fence' denied request: "
    "the scorer that decided this is no longer the leader"
)
FENCED = (403, f'pods "x" is forbidden: {_DENIED}', _DENIED)
"""The refusal of a past leader's write: status, message and cause."""


class FakeCluster:
    """Use it in `async with`; it listens on a free port of 127.0.0.1."""

    def __init__(self):
        self.objects = defaultdict(dict)
        """By collection, such as `/api/v1/pods`, then by namespace and name."""
        self.writes = []
        """Method, path and body of each, in order."""
        self.refuse = lambda _method, _path, _body: None
        """Takes a write; returns a status, a message and causes, or None to accept it."""
        self.refuse_dry_run = lambda _method, _path, body: self.fence(body)
        """The same for dry runs."""
        self.term = 0
        """The leader's term if there is no Lease."""
        self.queries = []
        """The query parameters of each of `writes`."""
        self.tried = []
        """The path of each dry run, and its refusal or None."""
        self.serves_claims = False
        """Whether the API of resource claims is there."""
        self.taint_rules = None
        """The version of that API that has DeviceTaintRules; None: none."""
        self.apis = {}
        """By path of a version of an API, such as `/apis/batch/v1`: the names of its resources."""
        self.forbidden = set()
        """Resources that may not be listed and watched."""
        self.unserved = set()
        """Resources that are not served."""
        self.users = {}
        """The status of a TokenReview, by token."""
        self.version = 0
        self._history = []
        self._watches = []
        self._uids = count(1)
        self._runner = None
        self.url = ""

    async def __aenter__(self):
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_):
        self.end_watches()
        await self._runner.cleanup()

    def end_watches(self):
        """End all watches, as an API server that stops."""
        for _, queue in self._watches:
            queue.put_nowait(None)
        self._watches.clear()

    # ---- Changes in the cluster.

    def put(self, path, body):
        """Store an object at its path, as another client; return it."""
        place = _PATH.fullmatch(path)
        found = self.objects[_collection(place)].get((place["ns"] or "", place["name"]))
        return self._store(place, body, found)

    def remove(self, path, *, at_once=False):
        """Delete an object; a pod with a node has ended then, unless it is deleted at once."""
        place = _PATH.fullmatch(path)
        gone = self.objects[_collection(place)].pop((place["ns"] or "", place["name"]))
        if _collection(place).endswith("/pods") and not at_once:
            gone = {**gone, "status": {**gone.get("status", {}), "phase": "Failed"}}
        self._tell("DELETED", _collection(place), gone)

    def get(self, path):
        """Return an object; None: it does not exist."""
        place = _PATH.fullmatch(path)
        return self.objects[_collection(place)].get((place["ns"] or "", place["name"]))

    def all(self, collection):
        return list(self.objects[collection].values())

    def _store(self, place, body, old=None):
        key = place["ns"] or "", place["name"] or body["metadata"]["name"]
        was = old["metadata"] if old else {"uid": f"uid-{next(self._uids)}"}
        metadata = {
            "uid": was["uid"],
            "creationTimestamp": "2026-01-02T03:04:05Z",
            **body["metadata"],
            "name": key[1],
            "resourceVersion": str(self.version + 1),
        }
        if place["ns"]:
            metadata["namespace"] = key[0]
        made = {**body, "metadata": metadata}
        self.objects[_collection(place)][key] = made
        self._tell("MODIFIED" if old else "ADDED", _collection(place), made)
        return made

    def _tell(self, kind, collection, what):
        self.version += 1
        what = {**what, "metadata": {**what["metadata"], "resourceVersion": str(self.version)}}
        event = self.version, collection, {"type": kind, "object": what}
        self._history.append(event)
        for wanted, queue in self._watches:
            if wanted(event):
                queue.put_nowait(event)

    def fence(self, body):
        """Return the refusal of a write under another term than the Lease's."""
        leases = self.all("/apis/coordination.k8s.io/v1/leases")
        term = leases[0]["spec"]["leaseTransitions"] if leases else self.term
        return None if f'"{term}"' in json.dumps(_terms(body)) else FENCED

    # ---- Requests.

    async def _answer(self, request):
        place = _PATH.fullmatch(request.path)
        if place is None:
            return self._discover(request.path)
        if request.method == "GET":
            return await self._read(request, place)
        body = json.loads(await request.read() or b"null")
        if "dryRun" in request.query:
            return self._dry_run(request, body)
        if place["kind"] == "tokenreviews":
            review = self.users.get(body["spec"]["token"], {"authenticated": False})
            return web.json_response({"status": review}, status=201)
        self.writes.append((request.method, request.path, body))
        self.queries.append(dict(request.query))
        if refusal := self.refuse(request.method, request.path, body):
            return status(*refusal)
        return getattr(self, f"_{request.method.lower()}")(request, place, body)

    def _discover(self, path):
        """Answer which resources a version of an API has, such as that of claims for devices."""
        if path not in self.apis and not self.serves_claims:
            return status(404, "not served")
        names = list(self.apis.get(path, ()))
        if self.taint_rules and path.endswith(f"/{self.taint_rules}"):
            names.append("devicetaintrules")
        return web.json_response({"resources": [{"name": name} for name in names]})

    async def _read(self, request, place):
        if place["name"]:
            found = self.get(request.path)
            return web.json_response(found) if found else status(404, "it is not there")
        if place["kind"] in self.forbidden:
            return status(403, f"{place['kind']} is forbidden")
        if place["kind"] in self.unserved:
            return status(404, f"{place['kind']} is not served")
        wanted = _chosen(place, request.query.get("fieldSelector", ""))
        watch = "watch" in request.query
        return await self._watch(request, wanted) if watch else self._list(place, wanted)

    def _dry_run(self, request, body):
        refusal = self.refuse_dry_run(request.method, request.path, body)
        self.tried.append((request.path, refusal))
        return status(*refusal) if refusal else web.json_response({})

    def _list(self, place, wanted):
        collection = _collection(place)
        items = [
            item
            for item in self.objects[collection].values()
            if wanted((0, collection, {"object": item}))
        ]
        return web.json_response(
            {"metadata": {"resourceVersion": str(self.version)}, "items": items}
        )

    async def _watch(self, request, wanted):
        response = web.StreamResponse()
        await response.prepare(request)
        queue = asyncio.Queue()
        since = int(request.query["resourceVersion"])
        for event in self._history:
            if event[0] > since and wanted(event):
                queue.put_nowait(event)
        self._watches.append((wanted, queue))
        while (event := await queue.get()) is not None:
            await response.write(json.dumps(event[2]).encode() + b"\n")
        return response

    def _post(self, _request, place, body):
        if place["sub"] == "eviction":
            self.remove(_request.path.removesuffix("/eviction"))
            return web.json_response({}, status=201)
        if place["sub"] == "binding":
            return self._bind(place, body)
        key = place["ns"] or "", body["metadata"]["name"]
        if key in self.objects[_collection(place)]:
            return status(409, "it is there")
        return self._stored(place, body, code=201)

    def _bind(self, place, body):
        pod = self.objects[_collection(place)].get((place["ns"], place["name"]))
        if pod is None:
            return status(404, "it is not there")
        metadata, spec = pod["metadata"], pod["spec"]
        if metadata["uid"] != body["metadata"]["uid"]:
            return status(409, "it is another pod")
        if spec.get("nodeName") or spec.get("schedulingGates"):
            return status(409, f"it is on {spec.get('nodeName')}, or held by a gate")
        annotations = {**(metadata.get("annotations") or {}), **body["metadata"]["annotations"]}
        bound = {
            **pod,
            "metadata": {**metadata, "annotations": annotations},
            "spec": {**spec, "nodeName": body["target"]["name"]},
        }
        self._store(place, bound, pod)
        return web.json_response({"kind": "Status"}, status=201)

    def _patch(self, request, place, body):
        old = self.objects[_collection(place)].get((place["ns"] or "", place["name"]))
        if old is None:
            return status(404, "it is not there")
        if request.content_type == "application/json-patch+json":
            try:
                new = jsonpatch.apply_patch(old, body)
            except jsonpatch.JsonPatchException as error:
                return status(422, str(error))
        elif request.content_type == "application/strategic-merge-patch+json":
            if body["metadata"]["uid"] != old["metadata"]["uid"]:
                return status(409, "it is another object")
            new = {**old, "status": _merged_status(old.get("status", {}), body["status"])}
        else:
            if body["metadata"].get("resourceVersion") not in {
                None,
                old["metadata"]["resourceVersion"],
            }:
                return status(409, "it has changed")
            new = _merged(old, body)
        return self._stored(place, new, old)

    def _stored(self, place, new, old=None, code=200):
        """Store what a request has made of an object, unless its definition refuses that."""
        if place["kind"] == "gangs" and (reason := refusal(new, old)):
            return status(422, reason)
        return web.json_response(self._store(place, new, old), status=code)

    def _put(self, request, place, body):
        old = self.get(request.path)
        if old is None:
            return status(404, "it is not there")
        if body["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]:
            return status(409, "it has changed")
        return web.json_response(self._store(place, body, old))

    def _delete(self, request, place, body):
        if not place["name"]:
            return self._delete_selected(request, place)
        found = self.get(request.path)
        if found is None:
            return status(404, "it is not there")
        wanted = (body or {}).get("preconditions", {})
        if any(found["metadata"][field] != value for field, value in wanted.items()):
            return status(409, "it is another object, or has changed")
        self.remove(request.path)
        return web.json_response({})

    def _delete_selected(self, request, place):
        collection = self.objects[_collection(place)]
        label, _, value = request.query["labelSelector"].partition("=")
        for (namespace, name), found in list(collection.items()):
            if (found["metadata"].get("labels") or {}).get(label) == value:
                assert not namespace
                self.remove(f"{request.path}/{name}")
        return web.json_response({})


def _merged(old, new):
    """Return the result of a merge patch (RFC 7386)."""
    if not isinstance(new, dict):
        return new
    merged = dict(old) if isinstance(old, dict) else {}
    for key, value in new.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged


def _merged_status(old, new):
    """Return a status with changed fields; conditions are merged by their type."""
    both = *old.get("conditions", ()), *new.get("conditions", ())
    merged = {"conditions": list({one["type"]: one for one in both}.values())} if both else {}
    return _merged(old, {**new, **merged})


def is_object(path):
    """Return whether a path is that of a single object."""
    place = _PATH.fullmatch(path)
    return place is not None and place["name"] is not None


def _collection(place):
    return f"{place['api']}/{place['kind']}"


def _chosen(place, selector):
    """Return a predicate that selects events by namespace and fields, such as `status.phase`."""
    fields = [one.partition("=")[::2] for one in selector.split(",") if one]

    def wanted(event):
        found = event[2]["object"]
        return (
            event[1] == _collection(place)
            and place["ns"] in {None, found["metadata"].get("namespace")}
            and all(_field(found, path) == value for path, value in fields)
        )

    return wanted


def _field(found, path):
    """Return a field of an object; `source` of an Event is the component of its source."""
    section, _, field = path.partition(".")
    value = found.get(section)
    return value.get(field or "component") if isinstance(value, dict) else value


def _terms(body):
    """Return the term of an object, or those of a patch: with all annotations, or alone."""
    if isinstance(body, dict):
        return [body["metadata"]["annotations"]["linkwise.dev/term"]]
    whole = [step["value"] for step in body if step["path"] == "/metadata/annotations"]
    alone = [step["value"] for step in body if step["path"].endswith("/linkwise.dev~1term")]
    return [value["linkwise.dev/term"] for value in whole] + alone


def status(code, message, *causes):
    body = {"kind": "Status", "code": code, "message": message}
    if causes:
        body["details"] = {"causes": [{"message": cause} for cause in causes]}
    return web.json_response(body, status=code)
