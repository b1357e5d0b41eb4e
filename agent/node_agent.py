"""The control loop of the agent: observes the node, offers its GPUs, publishes and audits them."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import msgspec
import structlog
from msgspec import Raw, Struct

from agent.audit.audit import Auditor, AuditReport, Expected
from agent.audit.proc import read_processes
from agent.binding.binder import Binder
from agent.binding.container_spec import Binding
from agent.binding.errors import BindError
from agent.binding.node_spec import NodeSpec
from agent.desired_state import Observation, Problem, ProblemReason, desired_state
from agent.driver.health import GPUHealth
from agent.driver.machine import machine_of, pair_bandwidth
from agent.driver.modules import has_open_modules
from agent.driver.nics import read_nics
from agent.driver.reading import DriverError, DriverReading, DriverReplacedError, GPUDriver
from agent.kubelet.call import KubeletError
from agent.kubelet.pod_resources import PodResources
from agent.metrics import GPUSample, HolderSample, Metrics
from agent.mps_shares import MPSShares
from agent.plugin.devices import unusable_gpus
from agent.plugin.registration import DevicePlugins
from agent.publish.node_labels import gpu_labels
from agent.publish.publisher import Publication, Publisher
from agent.settings import Paths
from cluster.mode import NodeMode
from cluster.topology_configmap import PublishedTopology
from runtime.kube.client import Kube, KubeError
from runtime.kube.event_recorder import Event, EventRecorder, ObjectReference
from runtime.kube.reflector import Reflector
from runtime.process.clock import wall
from topology.machine import NIC, Machine, TopologyError

_INTERVAL = 10.0
"""Longest time between two observations [s]: containers end without a call."""
_AUDIT_INTERVAL = 15.0
"""Between two audits [s]; two in a row must agree."""

_log = structlog.get_logger()


class _Metadata(Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None


class _Node(Struct, frozen=True):
    metadata: _Metadata = _Metadata()


_nodes = msgspec.json.Decoder(_Node)


@dataclass(frozen=True, slots=True)
class Services:
    """Everything that the control loop uses."""

    kube: Kube
    driver: GPUDriver
    pod_resources: PodResources
    node_spec: NodeSpec
    binder: Binder
    plugins: DevicePlugins
    publisher: Publisher
    events: EventRecorder
    metrics: Metrics
    mps: MPSShares


class NodeAgent:
    """The agent of one node."""

    def __init__(self, node: str, paths: Paths, health: GPUHealth, services: Services) -> None:
        """Prepare; `run` starts.

        Args:
            node: Name of this node.
            paths: Folders of the node.
            health: Readings of the driver.
            services: Everything else.
        """
        self._node, self._paths, self._health, self._services = node, paths, health, services
        self._wake = asyncio.Event()
        self._labels = Reflector(
            services.kube,
            "/api/v1/nodes",
            _read_node,
            field_selector=f"metadata.name={node}",
            on_change=lambda _items, _changed: self._wake.set(),
        )
        self._nics: dict[tuple[str, ...], tuple[NIC, ...]] = {}
        """By the bus ids of the GPUs."""
        self._mode: NodeMode | None = None
        self._auditor, self._audit = Auditor(), AuditReport()
        self._reported: dict[Problem, float] = {}
        """Present problems, with the time since which they are there."""
        self.not_ready: str | None = "the node was not observed yet"
        """Why the last observation failed; None if it succeeded."""

    def wake(self) -> None:
        """Observe the node soon."""
        self._wake.set()

    async def run(self) -> None:
        """Run until cancelled.

        Raises:
            DriverReplacedError: Another version of the driver is loaded, which needs a new process.
        """
        self._health.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._labels.run())
                tasks.create_task(self._services.plugins.run())
                tasks.create_task(self._services.publisher.run())
                tasks.create_task(self._observe_until_cancelled())
                tasks.create_task(self._audit_until_cancelled())
        finally:
            await asyncio.to_thread(self._health.stop)
            await self._services.mps.stop()

    async def _observe_until_cancelled(self) -> None:
        await self._labels.synced.wait()
        while True:
            self._wake.clear()
            try:
                await self._observe()
            except DriverReplacedError:
                raise
            except (BindError, DriverError, KubeletError, OSError, TopologyError) as error:
                if str(error) != self.not_ready:
                    _log.warning("Node not observed", err=str(error))
                self.not_ready = str(error)
            else:
                self.not_ready = None
            with suppress(TimeoutError):
                async with asyncio.timeout(_INTERVAL):
                    await self._wake.wait()

    async def _observe(self) -> None:
        """Bring what is offered and published up to date with the node."""
        services = self._services
        reading = self._health.reading
        if isinstance(self._health.error, DriverReplacedError):
            raise self._health.error
        if reading is None:
            await self._report_unread(self._health.error)
            return
        machine = self._machine(reading)
        self._publish(reading, machine)
        await services.node_spec.refresh(reading)
        allocated = await services.pod_resources.list()
        bindings = await services.binder.bindings()
        state = desired_state(
            Observation(
                labels=self._node_labels(),
                reading=reading,
                machine=machine,
                allocated=allocated,
                bound={
                    (each.namespace, each.pod, each.container): {gpu.i for gpu in each.gpus}
                    for each in bindings
                },
                mode=self._mode,
                no_cdi=services.node_spec.reason if services.node_spec.spec is None else None,
            )
        )
        self._mode = state.mode
        services.plugins.set(state.slots)
        self._measure(reading, bindings)
        await services.mps.reconcile(state.mode)
        self._publish(reading, machine)
        await self._report((*state.problems, *self._mps_problems()))

    def _machine(self, reading: DriverReading) -> Machine:
        """Return the machine; its network cards are read once for each set of GPUs.

        A network card that fails would otherwise change the class of the machine.
        """
        bus_ids = tuple(gpu.bus_id for gpu in reading.gpus)
        if bus_ids not in self._nics:
            self._nics = {bus_ids: read_nics(self._paths.sys, reading.gpus)}
        return machine_of(reading, self._nics[bus_ids])

    async def _report_unread(self, error: DriverError | None) -> None:
        """Report that the driver was never read.

        Raises:
            DriverError: Always.
        """
        if error is None:
            raise DriverError("the driver was not read yet")
        # Removes the labels of GPUs that an earlier process has read.
        self._services.publisher.set(Publication())
        await self._report([Problem(ProblemReason.NOTHING_OFFERED, str(error))])
        raise error

    def _node_labels(self) -> dict[str, str]:
        node = self._labels.items.get(("", self._node))
        return node.metadata.labels or {} if node else {}

    def _publish(self, reading: DriverReading, machine: Machine) -> None:
        unusable = unusable_gpus(reading.gpus)
        topology = PublishedTopology(
            machine,
            tuple(i not in unusable for i in range(machine.n)),
            reading.driver,
            mismatch=self._audit.text,
            isolation=self._services.mps.isolation,
        )
        labels = gpu_labels(reading, open_modules=has_open_modules(self._paths.proc))
        publication = Publication(topology, pair_bandwidth(machine), labels)
        self._services.publisher.set(publication)

    def _measure(self, reading: DriverReading, bindings: Iterable[Binding]) -> None:
        unusable, counts = unusable_gpus(reading.gpus), self._audit.counts(len(reading.gpus))
        self._services.metrics.gpus = tuple(
            GPUSample(gpu.i, gpu.uuid, gpu.model, i not in unusable, counts[i])
            for i, gpu in enumerate(reading.gpus)
        )
        self._services.metrics.holders = tuple(
            HolderSample(each.namespace, each.pod, each.container, gpu.i, gpu.uuid or "")
            for each in bindings
            for gpu in {gpu.i: gpu for gpu in each.gpus}.values()
        )

    def _mps_problems(self) -> Iterator[Problem]:
        if problem := self._services.mps.problem:
            yield Problem(ProblemReason.NOT_LIMITED, problem)

    async def _report(self, problems: Iterable[Problem]) -> None:
        """Create an Event for each problem that is new."""
        present = dict.fromkeys(problems)
        self._reported = {one: since for one, since in self._reported.items() if one in present}
        for problem in present.keys() - self._reported.keys():
            since = wall()
            _log.warning("Problem of the node", reason=problem.reason, message=problem.message)
            change = f"{problem.message}/{since}"
            if await self._record(Event(self._reference, problem.reason, problem.message, change)):
                self._reported[problem] = since

    @property
    def _reference(self) -> ObjectReference:
        # The kubelet's own Events have the node's name as uid, and kubectl looks for both.
        return ObjectReference("v1", "Node", self._node, self._node)

    async def _record(self, event: Event) -> bool:
        """Return whether the Event exists."""
        try:
            await self._services.events.record(event)
        except KubeError as error:
            _log.warning("Could not create event", reason=event.reason, err=str(error))
            return False
        return True

    async def _audit_until_cancelled(self) -> None:
        while True:
            await asyncio.sleep(_AUDIT_INTERVAL)
            try:
                await self._audit_processes()
            except (BindError, DriverError, OSError) as error:
                _log.warning("Processes not audited", err=str(error))

    async def _audit_processes(self) -> None:
        """Compare the processes on the GPUs with the bindings."""
        reading = self._health.reading
        if reading is None or self._mode is None or not self._mode.is_ours:
            return
        running = await asyncio.to_thread(self._services.driver.processes)
        processes = await asyncio.to_thread(read_processes, running, self._paths.proc)
        bindings = await self._services.binder.bindings()
        uuids = [gpu.uuid for gpu in reading.gpus]
        expected = Expected(self._services.mps.servers, mps=self._mode is NodeMode.MPS)
        before, self._audit = self._audit, self._auditor.audit(processes, bindings, uuids, expected)
        if (event := self._audit.event(before, self._node)) is not None:
            await self._record(event)
            self.wake()


def _read_node(raw: Raw) -> _Node:
    return _nodes.decode(raw)
