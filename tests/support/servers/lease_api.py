"""An API server that stores one Lease, in memory, with configured delays and lost responses."""

import asyncio
import json
from dataclasses import dataclass
from itertools import repeat

import msgspec

from linkwise.runtime.kube.client import ApiError, Kube, Unreachable
from support import virtual_time

PATH = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"


@dataclass(frozen=True)
class Fate:
    """What becomes of one call, or of the news of one change [s]."""

    there: float = 0
    back: float = 0
    lost: str = ""
    """`there`: the request is lost; `back`: it is carried out and the response is lost."""


class LeaseAPI:
    def __init__(self):
        self.record = None
        self.version = 0
        self.last = b""
        self.calls = []
        self.watches = set()

    def put(self, **spec):
        """Write to the Lease, as another client."""
        self._store({"metadata": {"name": "leader"}, "spec": spec})

    def remove(self):
        self.version += 1
        gone, self.record = self.record, None
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._tell("DELETED", gone)

    @property
    def spec(self):
        return self.record and self.record["spec"]

    def list(self):
        metadata = {"resourceVersion": str(self.version)}
        return {"metadata": metadata, "items": [self.record] if self.record else []}

    def create(self, body):
        if self.record:
            raise ApiError(409, "AlreadyExists", "it is there")
        return self._store(body)

    def read(self):
        if self.record is None:
            raise ApiError(404, "NotFound", "it is not there")
        return self.record

    def merge(self, body):
        found = self.read()
        wanted = body["metadata"].get("resourceVersion")
        if wanted not in {None, found["metadata"]["resourceVersion"]}:
            raise ApiError(409, "Conflict", "it has been modified")
        metadata = {**found["metadata"], **body["metadata"]}
        return self._store({"metadata": metadata, "spec": {**found["spec"], **body["spec"]}})

    def _store(self, record):
        self.version += 1
        metadata = {**record["metadata"], "namespace": "ns", "resourceVersion": str(self.version)}
        kind = "MODIFIED" if self.record else "ADDED"
        self.record = {**record, "metadata": metadata}
        self._tell(kind, self.record)
        return self.record

    def _tell(self, kind, record):
        self.last = event = json.dumps({"type": kind, "object": record}).encode()
        for client, queue in self.watches:
            fate = next(client.news)
            if not fate.lost:
                asyncio.get_running_loop().call_later(fate.back, queue.put_nowait, event)


class Client:
    """What `Kube` is to the code, over a network that a test makes."""

    def __init__(self, api, fates=None, news=None):
        self.api = api
        self.fates = fates or repeat(Fate())
        self.news = news or repeat(Fate())

    find = Kube.find

    async def get(self, path, returns, **_):
        return await self._ask(self.api.list if path == PATH else self.api.read, returns)

    async def create(self, path, body, returns):
        assert path == PATH
        return await self._ask(lambda: self.api.create(body), returns, body)

    async def patch(self, path, body, returns, *, kind):
        assert (path, kind) == (f"{PATH}/leader", "merge")
        return await self._ask(lambda: self.api.merge(body), returns, body)

    async def stream(self, path, params, *, read_timeout):
        assert (path, params["fieldSelector"]) == (PATH, "metadata.name=leader")
        del read_timeout  # What it says is late or lost; the connection itself never breaks.
        queue = asyncio.Queue()
        here = self, queue
        self.api.watches.add(here)
        try:
            yield []
            # Send missed changes: for one object, the last event is enough.
            if self.api.version > int(params["resourceVersion"]):
                queue.put_nowait(self.api.last)
            async with asyncio.timeout(int(params["timeoutSeconds"])):
                while True:
                    yield [await queue.get()]
        except TimeoutError:
            return
        finally:
            self.api.watches.discard(here)

    async def _ask(self, act, returns, body=None):
        """Have it done, whether or not the caller still waits."""
        loop, answer, fate = asyncio.get_running_loop(), asyncio.Future(), next(self.fates)
        if body:
            self.api.calls.append((loop.time(), body["spec"]))

        def arrive():
            try:
                result = act()
            except ApiError as error:
                result = error
            if fate.lost != "back":
                loop.call_later(fate.back, lambda: answer.done() or answer.set_result(result))

        if fate.lost != "there":
            loop.call_later(fate.there, arrive)
        try:
            async with asyncio.timeout(10):
                result = await answer
        except TimeoutError:
            raise Unreachable("no answer") from None
        if isinstance(result, ApiError):
            raise result
        return msgspec.json.decode(json.dumps(result), type=returns)


def now():
    return asyncio.get_running_loop().time()


def in_no_time(test):
    """Run a test on a clock of its own."""

    def run():
        virtual_time.run(test(LeaseAPI()))

    # Not functools.wraps: pytest would take the argument for a fixture.
    run.__name__ = test.__name__
    return run
