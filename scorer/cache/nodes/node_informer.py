"""Watch Nodes, and the ConfigMaps with their topology and their unhealthy GPUs."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace

import msgspec
import structlog
from msgspec import Raw

from linkwise.cluster.account.node_ledger import Holding
from linkwise.cluster.account.pod_usage import PodUsage, recorded_gpus
from linkwise.cluster.keys import TOPOLOGY_NAMESPACE
from linkwise.cluster.nodes.node import MachineSource, Node
from linkwise.cluster.nodes.node_devices import NodeDevices
from linkwise.cluster.nodes.node_resources import NodeError, NodeObject
from linkwise.cluster.volumes.csi_node import AttachLimits
from linkwise.planning.state.cluster_state import ClusterState
from linkwise.planning.state.node_info import NodeConfigMap, build_node
from linkwise.policy.snapshot import PolicySnapshot
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.kube.errors import UNDECODABLE
from linkwise.runtime.kube.objects import Key
from linkwise.runtime.kube.paths import api_path
from linkwise.runtime.kube.reflector import Reflector
from linkwise.runtime.process.clock import monotonic
from linkwise.topology.machine import Machine, TopologyError
from linkwise.topology.table import Table
from scorer.cache.nodes.machine_changes import MachineChanges
from scorer.cache.nodes.recovered_gpus import RecoveredGPUs
from scorer.cache.nodes.table_builder import TableBuilder
from scorer.cache.nodes.unreleased_gpus import UnreleasedGPUs

_WARNINGS_MAX, _TEXT_MAX = 5, 200
"""Warnings that are logged of one node, and characters of each."""

_OF_NODES = {MachineSource.AGENT, MachineSource.CAPTURED, MachineSource.RESOURCE_SLICES}
"""Sources of machines that a node itself writes."""

_CONFIG_MAP_MAX = 256 << 10
"""Of a ConfigMap about a node [bytes]: an agent publishes about 20 KiB for 16 GPUs."""

_node_decoder = msgspec.json.Decoder(NodeObject)
_config_map_decoder = msgspec.json.Decoder(NodeConfigMap)
_log = structlog.get_logger()


class NodeInformer:
    """The nodes of a cluster state."""

    def __init__(
        self,
        kube: Kube,
        state: ClusterState,
        on_change: Callable[[], None],
        build_table: Callable[[Machine], Table],
    ) -> None:
        """Prepare the watches.

        Args:
            kube: The API server.
            state: Takes the nodes.
            on_change: Called after every change.
            build_table: As `TableBuilder` calls it.
        """
        self._state, self._on_change = state, on_change
        self._policy = PolicySnapshot()
        self._config_maps: dict[str, dict[str, NodeConfigMap]] = {}
        """By node, then by their names."""
        self._devices: dict[str, NodeDevices] = {}
        """By node: its GPUs in ResourceSlices and claims."""
        self._attach_limits: dict[str, AttachLimits] = {}
        """By node: how many volumes its drivers attach, where they are limited."""
        self._warnings: dict[str, tuple[str, ...]] = {}
        """By node: data that was guessed or ignored."""
        self._logs_warnings = False
        self.tables = TableBuilder(self._table_built, self._update_later, build_table)
        self._changes = MachineChanges(monotonic)
        self._recovered = RecoveredGPUs(monotonic)
        self._unreleased = UnreleasedGPUs(monotonic)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        """By node: ends the refusal of its machine, or gives back a GPU that was closed."""
        self.nodes = Reflector(kube, "/api/v1/nodes", read_node, on_change=self._nodes_changed)
        self.topologies = Reflector(
            kube,
            api_path("v1", "namespaces", TOPOLOGY_NAMESPACE, "configmaps"),
            read_config_map,
            on_change=self._config_maps_changed,
        )

    def set_policy(self, policy: PolicySnapshot) -> None:
        """Build all nodes again, by another policy."""
        self._policy = policy
        for _, name in self.nodes.items:
            self._update(name, is_policy=True)

    def update_devices(self, changed: Mapping[str, NodeDevices]) -> None:
        """Take the GPUs in ResourceSlices and claims of nodes on which they changed."""
        for name, devices in changed.items():
            self._set_devices(name, devices)
            self._update(name)
        self._on_change()

    def update_attach_limits(self, changed: Mapping[str, AttachLimits]) -> None:
        """Take how many volumes can be attached to nodes on which this changed."""
        for name, limits in changed.items():
            if limits:
                self._attach_limits[name] = limits
            elif self._attach_limits.pop(name, None) is None:
                continue
            self._update(name)
        self._on_change()

    def update_records(self, usages: Iterable[PodUsage]) -> None:
        """Update the nodes of which a record that changed names a GPU that is lost, or was."""
        names: set[str] = set()
        for usage in usages:
            node = self._state.node(usage.target)
            if node and not {gpu.uuid for gpu in usage.recorded} <= _listed(node):
                names.add(node.name)
        for name in names:
            self._update(name)

    def close(self, name: str, held: Holding) -> None:
        """Close the GPUs of a pod that was deleted while its containers may run, for a while."""
        uuids = [share.uuid for share in held.gpus.shares if share.uuid]
        self._unreleased.add(name, uuids, held.pod)
        self._update(name)

    def _set_devices(self, name: str, devices: NodeDevices) -> None:
        """Take the devices of a node, with the past ones as long as the node exists."""
        before = self._devices.pop(name, None)
        if before and ("", name) in self.nodes.items:
            devices = devices.after(before)
        if devices.is_known:
            self._devices[name] = devices

    def log_warnings(self) -> None:
        """Log the warnings of all nodes, and from now on those that change.

        Before all is listed, a warning may be wrong: a ConfigMap may still explain the data.
        """
        self._logs_warnings = True
        for node, warnings in self._warnings.items():
            _log_warnings(node, warnings)

    def _nodes_changed(self, items: Mapping[Key, NodeObject], changed: Set[Key]) -> None:
        for key in changed:
            _, name = key
            if key not in items and name in self._devices:
                # A node that is created again may be another machine.
                self._set_devices(name, self._devices[name].current)
            self._update(name)
        self._on_change()

    def _config_maps_changed(self, items: Mapping[Key, NodeConfigMap], _changed: Set[Key]) -> None:
        before, self._config_maps = self._config_maps, {}
        for (_, name), config_map in items.items():
            if config_map.node:
                self._config_maps.setdefault(config_map.node, {})[name] = config_map
        for node in before.keys() | self._config_maps.keys():
            if before.get(node) != self._config_maps.get(node):
                self._update(node)
        self._on_change()

    def _table_built(self, name: str, table: Table) -> None:
        node = self._state.node(name)
        if node is not None:
            built = replace(node, preparing=False, machine_refused=None)
            self._state.update_node(name, built, table)
            self._on_change()

    def _update_later(self, name: str) -> None:
        """Update a node outside of a watch event."""
        self._update(name)
        self._on_change()

    def _update(self, name: str, *, is_policy: bool = False) -> None:
        """Build a node again.

        Args:
            name: Its name.
            is_policy: Because of another policy.
        """
        raw = self.nodes.items.get(("", name))
        config_maps = self._config_maps.get(name, {})
        try:
            recorded = recorded_gpus(self._state.usages.on(name))
            devices = self._devices.get(name)
            if devices:
                devices = self._devices[name] = devices.with_recorded(recorded)
            node = build_node(raw, config_maps, self._policy, devices, recorded) if raw else None
            if node and (limits := self._attach_limits.get(name)):
                node = replace(node, attach_limits=limits)
        except (NodeError, TopologyError) as error:
            _log.warning("Node skipped", node=name, err=str(error))
            node = None
        if node and node.machine and node.machine_source in _OF_NODES:
            self._changes.note(name, node.machine, is_counted=not is_policy)
        refused, delay = self._changes.refusal(name) or (None, None)
        node, recovery = self._with_recovered(node) if node else (node, None)
        node, release = self._unreleased.cordoned(node) if node else (node, None)
        self._start_timer(name, delay, recovery, release)
        table = self.tables.table(name, node.machine if node and not refused else None)
        if node and node.machine and table is None:
            refused = refused or self.tables.refusal(name)
            node = replace(node, preparing=not refused, machine_refused=refused)
        if node is None:
            self._recovered.forget(name)
            self._unreleased.forget(name)
        self._state.update_node(name, node, table)
        self._note_warnings(name, node.warnings if node else ())

    def _with_recovered(self, node: Node) -> tuple[Node, float | None]:
        """Cordon the GPUs that have recovered, if gangs are moved; return the time until then."""
        gangs = self._policy.policy.gangs
        seconds = gangs.on_fault_seconds if gangs.on_fault == "evict" else 0.0
        return self._recovered.cordoned(node, seconds)

    def _start_timer(self, name: str, *delays: float | None) -> None:
        """Update a node again after the shortest of these times [s]; None: not."""
        if timer := self._timers.pop(name, None):
            timer.cancel()
        known = [delay for delay in delays if delay is not None]
        if known:
            loop = asyncio.get_running_loop()
            self._timers[name] = loop.call_later(min(known), self._update_later, name)

    def _note_warnings(self, node: str, warnings: tuple[str, ...]) -> None:
        """Note the warnings of a node, and log them if they changed."""
        before = self._warnings.pop(node, ())
        if warnings:
            self._warnings[node] = warnings
        if warnings and warnings != before and self._logs_warnings:
            _log_warnings(node, warnings)


def _listed(node: Node) -> set[str | None]:
    """Return the UUIDs of the GPUs of a node that it has."""
    return {card.uuid for card in node.cards if not card.faulty}


def read_node(raw: bytes | Raw) -> NodeObject | None:
    """Return a Node; None if it cannot be read, since nothing is placed by its older version."""
    try:
        return _node_decoder.decode(raw)
    except UNDECODABLE as error:
        _log.warning("Could not read node", err=str(error)[:_TEXT_MAX])
        return None


def read_config_map(raw: bytes | Raw) -> NodeConfigMap | None:
    """Return a ConfigMap about a node; None for all others, so that these are not kept.

    Raises:
        ValueError: It is too large to be that of an agent.
    """
    config_map = _config_map_decoder.decode(raw)
    if config_map.node is None:
        return None
    if memoryview(raw).nbytes > _CONFIG_MAP_MAX:
        raise ValueError(f"a topology has at most {_CONFIG_MAP_MAX >> 10} KiB")
    return config_map


def _log_warnings(node: str, warnings: tuple[str, ...]) -> None:
    # A published topology may have any number of errors.
    shown = [warning[:_TEXT_MAX] for warning in warnings[:_WARNINGS_MAX]]
    _log.warning("Inconsistent node data", node=node, warnings=shown, count=len(warnings))
