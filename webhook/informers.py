"""Informers: labels of namespaces, policy and profiles, and the capacity of the nodes.

Admission reads the state without awaiting, so that one pod is handled with one consistent state.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Set
from functools import partial
from typing import Any

import msgspec
import structlog
from msgspec import Struct

from linkwise.cluster.cel.values import DeviceFacts
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.cluster.nodes.node import Node
from linkwise.cluster.nodes.node_capacity import capacity_of
from linkwise.cluster.nodes.node_reader import read_node
from linkwise.cluster.nodes.node_resources import NodeError, NodeObject
from linkwise.cluster.scorer_lease import LEASE, ScorerLease
from linkwise.policy.active_config import SOURCES, ActiveConfig, ConfigSource
from linkwise.runtime.kube.client import ApiError, Kube, KubeError
from linkwise.runtime.kube.event_recorder import Event, EventRecorder, ObjectReference
from linkwise.runtime.kube.objects import ConfigMap, Key, ObjectMeta
from linkwise.runtime.kube.paths import api_path
from linkwise.runtime.kube.reflector import Reflector, WatchTimings
from linkwise.runtime.process.clock import Clock, wall

_TIMINGS = WatchTimings(max_backoff=1)
"""A lost watch is restarted each second, since a policy must take effect within 2 s."""
_NODES_PER_STEP = 50
"""Nodes that are read before control returns to the event loop."""

_COMPONENT = "linkwise-webhook"

_log = structlog.get_logger()


class _Labels(Struct, frozen=True):
    labels: dict[str, str] | None = None


class _Namespace(Struct, frozen=True):
    """Only the labels, since clusters have thousands of namespaces."""

    metadata: _Labels = _Labels()


_namespaces = msgspec.json.Decoder(_Namespace)
_config_maps = msgspec.json.Decoder(ConfigMap)
_node_objects = msgspec.json.Decoder(NodeObject)


class Namespaces(Mapping[str, Mapping[str, str]]):
    """Labels of namespaces by name: a live view of an informer's store."""

    def __init__(self, items: Mapping[Key, _Namespace]) -> None:
        self._items = items

    def __getitem__(self, name: str) -> Mapping[str, str]:
        """Return the labels of a namespace."""
        return self._items["", name].metadata.labels or {}

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return (name for _, name in self._items)

    def __len__(self) -> int:
        """Return the number of namespaces."""
        return len(self._items)


class Informers:
    """State of the cluster, and the tasks that update it."""

    def __init__(
        self, kube: Kube, *, instance: str, clock: Clock = wall, interval: float = 2
    ) -> None:
        """Prepare the informers; `run` starts them.

        Args:
            kube: Client of the API server.
            instance: Name of this replica, for Events.
            clock: The wall clock, for Events [s since 1970].
            interval: Shortest time between two computations of the capacity, and between two
                readings of the scorer's Lease [s].
        """
        self._kube = kube
        self._recorder = EventRecorder(kube, _COMPONENT, instance, clock)
        self._interval = interval
        self._namespaces = Reflector(
            kube,
            "/api/v1/namespaces",
            _namespaces.decode,
            on_change=self._namespace_changed,
            timings=_TIMINGS,
        )
        self._config_maps = {
            source: Reflector(
                kube,
                api_path("v1", "namespaces", source.namespace, "configmaps"),
                _config_maps.decode,
                field_selector=f"metadata.name={source.name}",
                on_change=partial(self._config_map_changed, source),
                timings=_TIMINGS,
            )
            for source in SOURCES
        }
        self._nodes = Reflector(
            kube,
            "/api/v1/nodes",
            _node_objects.decode,
            on_change=self._node_changed,
            timings=_TIMINGS,
        )
        self._namespace_added = asyncio.Event()
        self._nodes_changed = asyncio.Event()
        self._node_cache: dict[Key, tuple[NodeObject, Node | None]] = {}
        self._claims_nodes: tuple[int, tuple[DeviceFacts, ...]] = (0, ())
        """GPUs of the largest one, and kinds of their GPUs."""
        self._is_lease_read = False
        """The API server has answered what the scorer knows of claims nodes."""
        self._texts: dict[ConfigSource, str | None] = {}
        self._config_since = time.monotonic()
        self.namespaces = Namespaces(self._namespaces.items)
        self.config = ActiveConfig()
        self.capacity = Capacity()

    async def run(self) -> None:
        """Update the state until cancelled."""
        reflectors: tuple[Reflector[Any], ...] = (
            self._namespaces,
            *self._config_maps.values(),
            self._nodes,
        )
        async with asyncio.TaskGroup() as group:
            for reflector in reflectors:
                group.create_task(reflector.run())
            group.create_task(self._compute_capacity())
            group.create_task(self._read_claims_nodes())
            group.create_task(self._recorder.run())

    def not_ready_reason(self) -> str | None:
        """Return which required state is not known yet; None where all is."""
        if not self._namespaces.synced.is_set():
            reason = self._namespaces.error or "the list is in progress"
            return f"namespaces were not listed yet: {reason}"
        for reflector in self._config_maps.values():
            if not reflector.synced.is_set() and reflector.error:
                return f"ConfigMaps were not listed yet: {reflector.error}"
        if not self._is_lease_read:
            return "the Lease of the scorer, which has the claims nodes, was not read yet"
        return self.config.not_ready_reason()

    async def wait_for_namespace(self, namespace: str, *, within: float) -> bool:
        """Wait until a namespace is known; return whether that was within a time [s]."""
        try:
            async with asyncio.timeout(within):
                while namespace not in self.namespaces:
                    await self._namespace_added.wait()
        except TimeoutError:
            return False
        return True

    def watch_ages(self) -> Mapping[str, Callable[[], float | None]]:
        """Return functions that give the age of the last watch event of each resource [s]."""
        reflectors: dict[str, Reflector[Any]] = {
            "namespaces": self._namespaces,
            "nodes": self._nodes,
        }
        reflectors |= {source.name: reflector for source, reflector in self._config_maps.items()}
        return {name: reflector.age for name, reflector in reflectors.items()}

    def policy_age(self) -> float:
        """Return for how long the present policy and profiles have been in force [s]."""
        return time.monotonic() - self._config_since

    def _namespace_changed(self, items: Mapping[Key, _Namespace], _changed: Set[Key]) -> None:
        self.namespaces = Namespaces(items)
        self._namespace_added.set()
        self._namespace_added = asyncio.Event()

    def _node_changed(self, _items: Mapping[Key, NodeObject], _changed: Set[Key]) -> None:
        self._nodes_changed.set()

    def _config_map_changed(
        self, source: ConfigSource, items: Mapping[Key, ConfigMap], _changed: Set[Key]
    ) -> None:
        config_map = items.get((source.namespace, source.name))
        text = (config_map.data or {}).get(source.key) if config_map else None
        if source in self._texts and self._texts[source] == text:
            return
        self._texts[source] = text
        before, self.config = self.config, self.config.update(source, text)
        error, snapshot = self.config.error(source), self.config.snapshot
        if error and config_map:
            _log.error("Policy rejected", err=error)
            self._recorder.record(_rejected_event(source, config_map.metadata, error))
        elif snapshot is not before.snapshot:
            self._config_since = time.monotonic()
            _log.info(
                "Policy loaded",
                source=source.display_name,
                generation=snapshot.generation,
                digest=snapshot.digest,
            )

    async def _compute_capacity(self) -> None:
        while True:
            await self._nodes_changed.wait()
            self._nodes_changed.clear()
            items = dict(self._nodes.items)
            cache = {key: entry for key, entry in self._node_cache.items() if key in items}
            self._node_cache = cache
            for number, (key, raw) in enumerate(items.items(), 1):
                cached = cache.get(key)
                if cached is None or cached[0] is not raw:
                    cache[key] = raw, _node(raw)
                if number % _NODES_PER_STEP == 0:
                    await asyncio.sleep(0)
            self._update_capacity()
            await asyncio.sleep(self._interval)

    async def _read_claims_nodes(self) -> None:
        """Read from the scorer's Lease, again and again, which GPUs claims nodes have."""
        while True:
            try:
                lease = await self._kube.get(LEASE, ScorerLease)
            except KubeError as error:
                # The last GPUs stay known. Before the first leader there is no Lease.
                self._is_lease_read |= isinstance(error, ApiError) and error.status < 500
                _log.debug("Could not read size of claims nodes", err=str(error))
            else:
                self._is_lease_read = True
                found = lease.claims_gpus, lease.gpu_kinds
                if found != self._claims_nodes:
                    self._claims_nodes = found
                    self._update_capacity()
            await asyncio.sleep(self._interval)

    def _update_capacity(self) -> None:
        nodes = (node for _, node in self._node_cache.values() if node)
        self.capacity = capacity_of(nodes, *self._claims_nodes)


def _rejected_event(source: ConfigSource, metadata: ObjectMeta, error: str) -> Event:
    """Return the Event about an invalid version of a ConfigMap."""
    version = metadata.resource_version
    about = ObjectReference("v1", "ConfigMap", source.name, metadata.uid, source.namespace, version)
    return Event(about, "PolicyRefused", error, change=version)


def _node(raw: NodeObject) -> Node | None:
    try:
        return read_node(raw)
    except NodeError as error:
        _log.warning("Node skipped", err=str(error))
        return None
