"""The control loop of the agent: observes the node, offers its GPUs, publishes and audits them."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import msgspec
from msgspec import Raw

from agent.audit.process_audit import ProcessAudit
from agent.binding.binder import Binder
from agent.binding.container_gpus import gpu_of
from agent.binding.container_spec import Binding
from agent.binding.holder import Holders
from agent.binding.node_spec import NodeSpec
from agent.control.desired_state import Observation, Problem, ProblemReason, desired_state
from agent.control.node_events import NodeEvents
from agent.control.node_report import NodeReport
from agent.control.repeated import Repeated
from agent.driver.health import GPUHealth
from agent.driver.reading import DriverError, DriverReading, DriverReplacedError, with_faults
from agent.kubelet.container_devices import ContainerDevices
from agent.metrics import Metrics
from agent.mps.shares import MPSShares
from agent.plugin.registration import DevicePlugins
from agent.plugin.watchdog import watch
from agent.publish.publisher import Publication, Publisher
from agent.settings import Paths
from linkwise.cluster.mode import NodeMode, is_watched, read_mode
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.kube.event_recorder import EventRecorder
from linkwise.runtime.kube.objects import LabelledMeta, LabelledObject
from linkwise.runtime.kube.reflector import Reflector
from linkwise.topology.machine import Machine

_INTERVAL = 10.0
"""Longest time between two observations [s]: containers end without a call."""
_AUDIT_INTERVAL = 15.0
"""Between two audits [s]; two in a row must agree."""


_nodes = msgspec.json.Decoder(LabelledObject)


@dataclass(frozen=True, slots=True)
class Services:
    """Everything that the control loop uses."""

    kube: Kube
    node_spec: NodeSpec
    binder: Binder
    holders: Holders
    plugins: DevicePlugins
    publisher: Publisher
    recorder: EventRecorder
    events: NodeEvents
    metrics: Metrics
    mps: MPSShares
    audit: ProcessAudit


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
        self._node, self._health, self._services = node, health, services
        self._labels = Reflector(
            services.kube,
            "/api/v1/nodes",
            _read_node,
            field_selector=f"metadata.name={node}",
            on_change=lambda _items, _changed: self.wake(),
        )
        self._report = NodeReport(
            paths, services.publisher, services.audit, services.mps, services.metrics
        )
        self._mode: NodeMode | None = None
        """The mode in effect; None before the first observation."""
        self._mode_in_use: str | None = None
        """As in `DesiredState`; None before the first observation."""
        self._observation = Repeated("observation", self._observe, _INTERVAL)
        # Work that may take from seconds to minutes, while a lost GPU is reported within seconds.
        self._search = Repeated("CDI specification", self._find_spec, _INTERVAL)
        self._limits = Repeated("MPS", self._limit_shares, _INTERVAL)
        self._audit = Repeated("audit", self._audit_processes, _AUDIT_INTERVAL)

    @property
    def not_ready(self) -> str | None:
        """Why pods cannot get the GPUs of this node now; None: they can, or none are offered."""
        if self._observation.error:
            return self._observation.error
        if self._mode is None:
            return "the node was not observed yet"
        if missing := self._services.plugins.unregistered:
            return f"the kubelet has not registered {', '.join(sorted(missing))}"
        return None

    def wake(self) -> None:
        """Observe the node soon."""
        self._search.wake()
        self._observation.wake()

    async def run(self, set_timer: Callable[[float], None]) -> None:
        """Run until cancelled.

        Args:
            set_timer: Sets the timer that ends this process unless it is set again.

        Raises:
            DriverReplacedError: Another version of the driver is loaded, which needs a new process.
        """
        self._health.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(watch(self._services.plugins.answer, set_timer))
                tasks.create_task(self._labels.run())
                tasks.create_task(self._services.plugins.run())
                tasks.create_task(self._services.publisher.run())
                tasks.create_task(self._services.recorder.run())
                await self._labels.synced.wait()
                for work in (self._observation, self._search, self._limits, self._audit):
                    tasks.create_task(work.run())
        finally:
            await asyncio.to_thread(self._health.stop)
            await self._services.mps.stop()

    async def _observe(self) -> None:
        """Bring what is offered and published up to date with the node."""
        services = self._services
        reading = self._health.reading
        if self._health.failure:
            raise RuntimeError("the GPUs are not read any more") from self._health.failure
        if reading is None:
            await self._report_unread(self._health.error)
            return
        if isinstance(self._health.error, DriverReplacedError):
            raise self._health.error
        unreleased = services.binder.unreleased
        reading = with_faults(reading, unreleased)
        machine = self._report.machine(reading)
        self._publish(reading, machine)
        if not services.node_spec.searched:
            return
        allocated, bindings = await services.binder.containers()
        if services.binder.unreleased != unreleased:
            self.wake()
        state = desired_state(
            Observation(
                labels=self._metadata.labels or {},
                reading=reading,
                machine=machine,
                allocated=allocated,
                unlisted=await self._unlisted(bindings),
                bound={
                    (each.namespace, each.pod, each.container): {
                        gpu.i for share in each.gpus if (gpu := gpu_of(share, reading))
                    }
                    for each in bindings
                },
                mode=self._mode,
                no_cdi=services.node_spec.reason if services.node_spec.spec is None else None,
            )
        )
        if state.mode is not self._mode:
            self._mode = state.mode
            self._limits.wake()
            self._audit.wake()
        if state.mode_in_use != self._mode_in_use:
            self._mode_in_use = state.mode_in_use
            self._publish(reading, machine)
        services.plugins.set(state.slots)
        self._report.measure(reading, bindings)
        services.events.report((*state.problems, *self._mps_problems()))

    def _publish(self, reading: DriverReading, machine: Machine) -> None:
        # Until the first audit, what an earlier process has published says which GPUs are busy.
        if self._services.audit.report.by_claims or not self._has_claims:
            self._report.publish(reading, machine, self._metadata.uid, self._mode_in_use)

    async def _find_spec(self) -> None:
        """Find or generate NVIDIA's CDI specification."""
        spec, before = self._services.node_spec, self._services.node_spec.reason
        if (reading := self._health.reading) is not None:
            await spec.refresh(reading)
            if spec.reason != before:
                self._observation.wake()

    async def _limit_shares(self) -> None:
        """Start, end or measure the MPS daemon."""
        if self._mode is not None:
            mps = self._services.mps
            before = mps.isolation, mps.problem
            await mps.reconcile(self._mode, self._services.binder.bindings)
            if before != (mps.isolation, mps.problem):
                self._observation.wake()

    async def _audit_processes(self) -> None:
        """Compare the processes on the GPUs with the bindings, or the claims."""
        reading, services = self._health.reading, self._services
        if reading is None or self._mode is None:
            return
        by_claims, before = self._has_claims, services.audit.report.by_claims
        if event := await services.audit.audit(reading, self._mode, by_claims=by_claims):
            services.events.add(event)
        if event or services.audit.report.by_claims != before:
            self._observation.wake()

    async def _unlisted(self, bindings: Iterable[Binding]) -> tuple[ContainerDevices, ...]:
        """Return devices of containers that the kubelet may not list, by the other books.

        The checkpoint, which costs a look at all processes, counts only before a change of mode.
        """
        bound = tuple(
            ContainerDevices(b.namespace, b.pod, b.container, b.resource, b.device_ids)
            for b in bindings
        )
        if read_mode(self._metadata.labels or {})[0] is self._mode:
            return bound
        return bound + tuple(
            ContainerDevices("", each.uid, each.container, each.resource, each.device_ids)
            for each in await self._services.holders.with_processes()
        )

    async def _report_unread(self, error: DriverError | None) -> None:
        """Report that the driver was never read.

        Raises:
            DriverError: Always, unless the containers of the node cannot be listed.
            BindError: They cannot.
        """
        if error is None:
            raise DriverError("the driver was not read yet")
        self._services.events.report([Problem(ProblemReason.NOTHING_OFFERED, str(error))])
        # Running pods may require the labels, and a kubelet that restarts compares them again.
        if not await self._services.binder.bindings():
            # Removes the labels of GPUs that an earlier process has read.
            self._services.publisher.set(Publication())
        raise error

    @property
    def _has_claims(self) -> bool:
        """Claims give out the GPUs of this node."""
        labels = self._metadata.labels or {}
        return read_mode(labels)[0] is NodeMode.TOPOLOGY and is_watched(labels)

    @property
    def _metadata(self) -> LabelledMeta:
        node = self._labels.items.get(("", self._node))
        return node.metadata if node else LabelledMeta()

    def _mps_problems(self) -> Iterator[Problem]:
        if problem := self._services.mps.problem:
            yield Problem(ProblemReason.NOT_LIMITED, problem)


def _read_node(raw: Raw) -> LabelledObject:
    return _nodes.decode(raw)
