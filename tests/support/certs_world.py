"""An API server in this process, at which replicas stop before each of their calls.

Replicas are coroutines of the real code, run step by step: no event loop, no time passes by itself.
"""

import json
from base64 import b64decode
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from types import coroutine

import msgspec

from certs.__main__ import KEY_SOURCE, TARGETS
from certs.authority import expiry, is_issued_by
from certs.issuer import Issuer
from certs.leaf import Server, read_leaf
from certs.pem import ContentError, read_certificates
from certs.reporter import Reporter
from certs.rotation import IssuancePolicy
from certs.store import CA_SECRET, Store
from linkwise.cluster.keys import CERTS, ROTATE_CA
from linkwise.runtime.kube import client
from linkwise.runtime.kube.errors import api_error
from linkwise.runtime.kube.event_recorder import EventRecorder

NOW = 1_800_000_000.0
NAMESPACE = "/api/v1/namespaces/linkwise-system"
SERVERS = (Server("webhook", "linkwise-webhook-cert", ("a",)), Server("scorer", "scorer", ("b",)))
WAIT = 600.0
SHORT_WAIT = WAIT / 60
POLICY = IssuancePolicy(SERVERS, leaf_duration=3_000, ca_duration=9_000, propagation=WAIT)
CA = f"{NAMESPACE}/secrets/{CA_SECRET}"
LEAVES = [f"{NAMESPACE}/secrets/{server.secret}" for server in SERVERS]
CONFIGURATIONS = [f"{target.collection}/{target.name}" for target in TARGETS]
STATUS = f"{NAMESPACE}/configmaps/{CERTS}"


@coroutine
def _stop():
    """Yield to the event loop once."""
    yield


@dataclass
class World:
    """Objects by path, their history, and the time."""

    objects: dict = field(default_factory=dict)
    version: int = 0
    monotonic: float = 0.0
    offset: float = NOW
    """Of the wall clock from the monotonic one [s]."""
    skews: dict = field(default_factory=lambda: defaultdict(float))
    """By how much the clock of a replica is ahead, by the number of the replica [s]."""
    lag: float = WAIT
    """How late an API server sees a bundle, and a server its leaf [s]."""
    tells_time: bool = True
    """Whether responses have the time."""
    history: list = field(default_factory=list)
    """Path, content and time of each write of a leaf or a `caBundle`."""
    actions: list = field(default_factory=list)

    def __post_init__(self):
        for path in CONFIGURATIONS:
            config = {"name": "pods.linkwise.dev", "clientConfig": {"url": "https://a/"}}
            self.put(path, {"metadata": {"generation": 1}, "webhooks": [config]})
        self.put(STATUS, {"metadata": {}})

    @property
    def wall(self):
        return self.offset + self.monotonic

    def replica(self, number=0):
        kube = Kube(self)
        store = Store(kube, "linkwise-system", SERVERS, TARGETS)
        recorder = EventRecorder(kube, "linkwise-certs", "", lambda: self.wall)
        return Issuer(
            kube,
            store,
            Reporter(kube, recorder, "linkwise-system"),
            POLICY,
            key_source=KEY_SOURCE,
            clock=lambda: self.wall + self.skews[number],
            monotonic=lambda: self.monotonic,
            on_transition=self.actions.append,
        )

    def settle(self, replica=None):
        """Run passes, without a wait, until one changes nothing."""
        replica = replica or self.replica()
        for _ in range(10):
            version = self.version
            outcome = run(replica.reconcile())
            if outcome and version == self.version:
                return outcome
        raise AssertionError("it does not settle")

    def put(self, path, value):
        self.version += 1
        metadata = {"uid": f"uid-{self.version}", **value.get("metadata", {})}
        metadata |= {"name": path.rpartition("/")[2], "resourceVersion": str(self.version)}
        self.objects[path] = {**value, "metadata": metadata}
        if path in (*LEAVES, *CONFIGURATIONS):
            self.history.append((path, self.content(path), self.monotonic))

    def content(self, path):
        """Return the leaf of a Secret, or the CAs of a configuration."""
        if path in LEAVES:
            return read_leaf(self.objects[path]["data"]).certificate
        configuration = self.objects[path]["webhooks"][0]["clientConfig"]
        try:
            pem = b64decode(configuration.get("caBundle", ""))
            return frozenset(read_certificates(pem, "caBundle"))
        except (ContentError, ValueError):
            return frozenset()

    def overwrite(self, path, bundle):
        """Change a `caBundle` as another client does."""
        present = self.objects[path]
        hooks = [
            {**hook, "clientConfig": {**hook["clientConfig"], "caBundle": bundle}}
            for hook in present["webhooks"]
        ]
        metadata = {**present["metadata"], "generation": present["metadata"]["generation"] + 1}
        self.put(path, {"metadata": metadata, "webhooks": hooks})

    def request_rotation(self):
        if CA in self.objects:
            present = self.objects[CA]
            metadata = {**present["metadata"], "annotations": {ROTATE_CA: ""}}
            self.put(CA, {**present, "metadata": metadata})

    def forget(self):
        """Keep only the present contents in the history, as if they had always been there."""
        paths = [path for path in (*LEAVES, *CONFIGURATIONS) if path in self.objects]
        self.history = [(path, self.content(path), float("-inf")) for path in paths]

    def uncovered(self):
        """Return a leaf and a bundle that a client may see together, and that do not agree.

        An API server may use any bundle that was present within the lag, and a server any leaf.
        An expired leaf counts no more.
        """
        since, seen, ends = self.monotonic - self.lag, {True: set(), False: set()}, {}
        kept = []
        for path, content, start in reversed(self.history):
            if path not in ends or ends[path] > since:
                seen[path in LEAVES].add(content)
                kept.append((path, content, start))
            ends[path] = start
        self.history = kept[::-1]
        for leaf in (leaf for leaf in seen[True] if expiry(leaf) > self.wall):
            for bundle in seen[False]:
                if not any(_is_issued_by(leaf, authority) for authority in bundle):
                    return leaf, bundle
        return None


_is_issued_by = cache(is_issued_by)


class Kube:
    """The part of the client that certs uses, at a World."""

    def __init__(self, world):
        self.world = world

    @property
    def server_time(self):
        return self.world.wall if self.world.tells_time else None

    find = client.Kube.find

    async def get(self, path, kind, **_):
        await _stop()
        if path not in self.world.objects:
            raise api_error(404, b"{}")
        return msgspec.convert(self.world.objects[path], kind)

    async def create(self, collection, body, _kind):
        await _stop()
        path = f"{collection}/{body['metadata']['name']}"
        if path in self.world.objects:
            raise api_error(409, b"{}")
        self.world.put(path, json.loads(msgspec.json.encode(body)))

    async def patch(self, path, body, _kind, *, kind, params=None):
        await _stop()
        present = self.world.objects.get(path)
        if present is None:
            raise api_error(404, b"{}")
        if body["metadata"]["resourceVersion"] != present["metadata"]["resourceVersion"]:
            raise api_error(409, b"{}")
        if kind == "apply":
            assert params["force"] == "true"
            self.world.overwrite(path, body["webhooks"][0]["clientConfig"]["caBundle"])
            return
        merged = {**present.get("data", {}), **body["data"]}
        metadata = dict(present["metadata"])
        if "annotations" in body["metadata"]:
            metadata.pop("annotations", None)
        data = {key: text for key, text in merged.items() if text is not None}
        self.world.put(path, {**present, "metadata": metadata, "data": data})


def run(work):
    """Run a coroutine to its end, and return its result."""
    while True:
        try:
            work.send(None)
        except StopIteration as end:
            return end.value
