"""What admission knows of the cluster: namespaces, decisions, and what its nodes offer.

Everything is read while nothing is awaited, so that one pod is judged by one state.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Set
from functools import partial
from typing import Any

import msgspec
import structlog
from msgspec import Struct

from cluster.capacity import Capacity, capacity_of
from cluster.node import Node, NodeError, NodeObject, read_node
from runtime.kube.client import Kube, KubeError
from runtime.kube.event_recorder import Event, EventRecorder, ObjectReference
from runtime.kube.reflector import Key, Reflector, WatchTimings
from runtime.process.clock import Clock, wall
from webhook.active_config import SOURCES, ActiveConfig, ConfigSource

_SOON = WatchTimings(max_backoff=1)
"""A policy takes effect within 2 s, so a watch that is lost is tried again each second."""
_AT_ONCE = 50
"""Nodes that are read before others have their turn."""

_COMPONENT = "linkwise-webhook"

_log = structlog.get_logger()


class _Labels(Struct, frozen=True):
    labels: dict[str, str] | None = None


class _Namespace(Struct, frozen=True):
    """As little as is needed: thousands of them are kept."""

    metadata: _Labels = _Labels()


class _ConfigMapMeta(Struct, frozen=True, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class _ConfigMap(Struct, frozen=True):
    metadata: _ConfigMapMeta = _ConfigMapMeta()
    data: dict[str, str] | None = None


_namespaces = msgspec.json.Decoder(_Namespace)
_config_maps = msgspec.json.Decoder(_ConfigMap)
_node_objects = msgspec.json.Decoder(NodeObject)


class Namespaces(Mapping[str, Mapping[str, str]]):
    """Labels of the namespaces that the watch has shown, by name: a view that follows it."""

    def __init__(self, items: Mapping[Key, _Namespace]) -> None:
        self._items = items

    def __getitem__(self, name: str) -> Mapping[str, str]:
        """Return a namespace's labels."""
        return self._items["", name].metadata.labels or {}

    def __iter__(self) -> Iterator[str]:
        """Return the names."""
        return (name for _, name in self._items)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._items)


class Informers:
    """The state, and the tasks that keep it."""

    def __init__(self, kube: Kube, *, instance: str, clock: Clock = wall, every: float = 2) -> None:
        """Say whom to ask; `run` begins.

        Args:
            kube: The API server.
            instance: This replica's name, for events.
            clock: What tells the time of events.
            every: The nodes are summed up at most so often [s].
        """
        self._recorder, self._every = EventRecorder(kube, _COMPONENT, instance, clock), every
        self._names = Reflector(
            kube,
            "/api/v1/namespaces",
            _namespaces.decode,
            on_change=self._name_changed,
            timings=_SOON,
        )
        self._maps = {
            source: Reflector(
                kube,
                f"/api/v1/namespaces/{source.namespace}/configmaps",
                _config_maps.decode,
                field_selector=f"metadata.name={source.name}",
                on_change=partial(self._map_changed, source),
                timings=_SOON,
            )
            for source in SOURCES
        }
        self._nodes = Reflector(
            kube, "/api/v1/nodes", _node_objects.decode, on_change=self._node_changed, timings=_SOON
        )
        self._name_came = asyncio.Event()
        self._node_came = asyncio.Event()
        self._read: dict[Key, tuple[NodeObject, Node | None]] = {}
        self._texts: dict[ConfigSource, str | None] = {}
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._since = time.monotonic()
        self.namespaces = Namespaces(self._names.items)
        self.config = ActiveConfig()
        self.capacity = Capacity()

    async def run(self) -> None:
        """Keep the state up to date until cancelled."""
        reflectors: tuple[Reflector[Any], ...] = (self._names, *self._maps.values(), self._nodes)
        async with asyncio.TaskGroup() as group:
            for reflector in reflectors:
                group.create_task(reflector.run())
            group.create_task(self._sum_nodes())
            group.create_task(self._record_events())

    def missing(self) -> str | None:
        """Say what admission cannot do without and is not there yet; None when all is."""
        if not self._names.synced.is_set():
            return f"namespaces were not listed yet: {self._names.error or 'the list is under way'}"
        for reflector in self._maps.values():
            if not reflector.synced.is_set() and reflector.error:
                return f"ConfigMaps were not listed yet: {reflector.error}"
        return self.config.missing()

    async def wait_for_namespace(self, namespace: str, *, within: float) -> bool:
        """Wait until the watch has shown a namespace; say whether it did in time [s]."""
        try:
            async with asyncio.timeout(within):
                while namespace not in self.namespaces:
                    await self._name_came.wait()
        except TimeoutError:
            return False
        return True

    def watch_ages(self) -> Mapping[str, Callable[[], float | None]]:
        """Return what tells for how long nothing was heard of each resource [s]."""
        named: dict[str, Reflector[Any]] = {"namespaces": self._names, "nodes": self._nodes}
        named |= {source.name: reflector for source, reflector in self._maps.items()}
        return {name: partial(_age, reflector) for name, reflector in named.items()}

    def policy_age(self) -> float:
        """Return for how long the decisions have been in force [s]."""
        return time.monotonic() - self._since

    def _name_changed(self, items: Mapping[Key, _Namespace], _changed: Set[Key]) -> None:
        self.namespaces = Namespaces(items)
        self._name_came.set()
        self._name_came = asyncio.Event()

    def _node_changed(self, _items: Mapping[Key, NodeObject], _changed: Set[Key]) -> None:
        self._node_came.set()

    def _map_changed(
        self, source: ConfigSource, items: Mapping[Key, _ConfigMap], _changed: Set[Key]
    ) -> None:
        found = items.get((source.namespace, source.name))
        text = (found.data or {}).get(source.key) if found else None
        if source in self._texts and self._texts[source] == text:
            return
        self._texts[source] = text
        before, self.config = self.config, self.config.update(source, text)
        why, snapshot = self.config.refusal(source), self.config.snapshot
        if why and found:
            _log.error("Refused decisions", err=why)
            self._events.put_nowait(_refusal(source, found.metadata, why))
        elif snapshot is not before.snapshot:
            self._since = time.monotonic()
            _log.info(
                "Took decisions",
                source=source.display_name,
                generation=snapshot.generation,
                digest=snapshot.digest,
            )

    async def _record_events(self) -> None:
        while True:
            event = await self._events.get()
            try:
                await self._recorder.record(event)
            except KubeError as error:
                source = f"ConfigMap {event.about.namespace}/{event.about.name}"
                _log.warning("Could not create event", source=source, err=str(error))

    async def _sum_nodes(self) -> None:
        while True:
            await self._node_came.wait()
            self._node_came.clear()
            items = dict(self._nodes.items)
            self._read = {key: one for key, one in self._read.items() if key in items}
            for number, (key, raw) in enumerate(items.items(), 1):
                known = self._read.get(key)
                if known is None or known[0] is not raw:
                    self._read[key] = raw, _node(raw)
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)
            self.capacity = capacity_of(node for _, node in self._read.values() if node)
            await asyncio.sleep(self._every)


def _refusal(home: ConfigSource, metadata: _ConfigMapMeta, why: str) -> Event:
    """Return the Event about one version of a ConfigMap."""
    version = metadata.resource_version
    about = ObjectReference("v1", "ConfigMap", home.name, metadata.uid, home.namespace, version)
    return Event(about, "PolicyRefused", why, change=version)


def _node(raw: NodeObject) -> Node | None:
    try:
        return read_node(raw)
    except NodeError as error:
        _log.warning("Left node out", err=str(error))
        return None


def _age(reflector: Reflector[Any]) -> float | None:
    if not reflector.synced.is_set():
        return None
    return reflector.last_event_age(time.monotonic())
