"""Give each container the GPUs of its record, by a CDI file that is written before it starts."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import structlog

from agent.binding.cdi_spec import Edits, SpecError, encode_spec
from agent.binding.container_gpus import (
    conflict_text,
    conflicts,
    container_gpus,
    gpu_of,
    gpu_problem,
    unreleased_text,
)
from agent.binding.container_spec import Binding, container_spec
from agent.binding.errors import BindError
from agent.binding.gpu_edits import edits_of
from agent.binding.holder import ApiOutage, Holders
from agent.binding.last_holders import set_aside
from agent.binding.liveness import Hold
from agent.binding.names import device_name, file_name
from agent.binding.node_spec import NodeSpec
from agent.binding.spec_files import SpecFiles
from agent.driver.reading import DriverReading
from agent.kubelet.container_devices import ContainerDevices
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.objects.pod import Pod
from linkwise.runtime.kube.event_recorder import Event, EventRecorder, ObjectReference
from linkwise.runtime.process.clock import monotonic

_log = structlog.get_logger()

ExtraEdits = Callable[[Pod, str, tuple[GPUShare, ...]], Awaitable[Edits]]
"""Returns more edits of a container: pod, name of the container, its GPUs. May raise BindError."""
_CONCURRENT = 16
"""Containers that are bound at the same time. The pod of each is in memory, and tenants may make it
1.5 MB long."""
_POLL = 0.2
"""Between two looks at the processes that a container waits for [s]."""


async def no_edits(_pod: Pod, _container: str, _gpus: tuple[GPUShare, ...]) -> Edits:
    """Return no edits."""
    return Edits()


class Binder:
    """Writes the CDI files of containers, and removes those of containers that are gone.

    The files are the only state: after a restart the bindings are read from them.
    """

    def __init__(
        self,
        holders: Holders,
        events: EventRecorder,
        reading: Callable[[], DriverReading],
        node_spec: NodeSpec,
        folder: Path,
        *,
        extra_edits: ExtraEdits = no_edits,
    ) -> None:
        """Read nothing yet.

        Args:
            holders: Finds the container that holds devices.
            events: Records why a container was refused, on its pod.
            reading: Returns the latest reading of the driver.
            node_spec: NVIDIA's CDI specification of the node.
            folder: CDI folder in which the files are written.
            extra_edits: Returns more edits of a container, such as those of an MPS client.
        """
        self._holders, self._events = holders, events
        self._reading, self._node_spec = reading, node_spec
        self._files = SpecFiles(folder)
        self._extra_edits = extra_edits
        self._not_removed: str | None = None
        """Why a file could not be removed."""
        self._lock, self._slots = asyncio.Lock(), asyncio.Semaphore(_CONCURRENT)

    async def bind(self, resource: str, device_ids: Iterable[str]) -> None:
        """Write the CDI file of the container that holds devices; call it before each start.

        If the API server cannot be reached, the file of an earlier start of the same container is
        kept. After an error there is no file.

        Args:
            resource: The resource.
            device_ids: All devices of the resource that the container holds.

        Raises:
            BindError: The container must not start.
        """
        ids = frozenset(device_ids)
        device = device_name(resource, ids)
        await self._set_aside(device, resource, ids)
        try:
            async with self._slots:
                await self._bind(device, resource, ids)
        except Exception:
            with suppress(BindError):
                self._files.remove(file_name(device))
            raise

    async def bindings(self) -> tuple[Binding, ...]:
        """Return the second result of `containers`, which raises the same errors."""
        return (await self.containers())[1]

    async def containers(self) -> tuple[tuple[ContainerDevices, ...], tuple[Binding, ...]]:
        """Return the devices of containers as the kubelet lists them, and the GPUs they have.

        The files of containers that are gone are removed.

        Raises:
            BindError: The kubelet gives no answer, or the files cannot be read.
        """
        files = self._files.bindings()
        liveness = await self._holders.liveness()
        held = {file_name(device_name(each.resource, each.device_ids)) for each in liveness.listed}
        live, ended = [], []
        for name, binding in files.items():
            hold = Hold.REPLACED if binding is None else await liveness.hold(binding)
            if binding is None and name in held:
                _log.error("The CDI file of a running container is unreadable", file=name)
            elif binding is not None and hold is Hold.LIVE:
                live.append(binding)
            elif binding is not None and hold is Hold.ENDED:
                ended.append(binding)
            else:
                self._collect(name, binding)
        left = await self._holders.last.update(ended)
        for binding in ended:
            if binding not in left:
                self._collect(file_name(binding.device), binding)
        return liveness.listed, tuple(live)

    @property
    def unreleased(self) -> Mapping[str, str]:
        """GPUs that cannot be given, by UUID, with the reason: processes of a pod that is gone."""
        return self._holders.last.faults

    async def _set_aside(self, device: str, resource: str, ids: frozenset[str]) -> None:
        """Keep a record of the pod that had these device ids before, if it has processes.

        Raises:
            BindError: The record cannot be written, or the processes cannot be read.
        """
        last = self._files.known().get(file_name(device))
        if last is None:
            return
        uids = {each.uid for each in await self._holders.in_checkpoint(resource, ids)}
        if last.uid not in uids and await self._holders.last.processes({last.uid}):
            self._files.write(*set_aside(last))

    def _collect(self, file: str, binding: Binding | None) -> None:
        """Remove the file of a container that is gone; log a failure once."""
        # A file that was replaced in the meantime belongs to a container that starts.
        if self._files.bindings().get(file) != binding:
            return
        try:
            self._files.remove(file)
        except BindError as error:
            if str(error) != self._not_removed:
                _log.warning("CDI file not removed", file=file, reason=str(error))
            self._not_removed = str(error)

    async def _bind(self, device: str, resource: str, ids: frozenset[str]) -> None:
        try:
            pod, container = await self._holders.find(resource, ids)
        except ApiOutage as outage:
            await self._keep(device, resource, ids, outage)
            return
        try:
            reading = self._reading()
            gpus = container_gpus(pod, container, resource, self._holders.node, reading)
            about = pod.metadata
            binding = Binding(
                about.namespace, about.name, about.uid, container, resource, ids, gpus
            )
            extra = await self._extra_edits(pod, container, gpus)
            edits, version = self._edits(gpus, reading)
            spec = encode_spec(container_spec(binding, edits, extra, version))
            await self._write_when_released(binding, spec)
        except BindError as error:
            self._report(pod, f"container {container}: {error}")
            raise
        _log.info(
            "GPUs bound",
            namespace=binding.namespace,
            pod=binding.pod,
            container=container,
            gpus=[gpu.uuid for gpu in gpus],
        )

    def _edits(self, gpus: tuple[GPUShare, ...], reading: DriverReading) -> tuple[Edits, str]:
        """Return the edits of GPUs, and the CDI version that they need."""
        spec = self._node_spec.spec
        if spec is None:
            raise BindError(self._node_spec.reason)
        # The GPU of a replica may repeat.
        present = dict.fromkeys(gpu for share in gpus if (gpu := gpu_of(share, reading)))
        try:
            return edits_of(spec, present), spec.cdi_version
        except SpecError as error:
            raise BindError(f"NVIDIA's CDI specification does not fit: {error}") from error

    async def _write_when_released(self, binding: Binding, spec: bytes) -> None:
        """Write a file as soon as no pod that is gone has processes that may use its GPUs.

        Raises:
            BindError: There are such processes after ten seconds, or a GPU belongs to a container.
        """
        deadline = monotonic() + self._holders.last.patience
        while reason := await self._write(binding, spec):
            if monotonic() >= deadline:
                raise BindError(reason)
            await asyncio.sleep(_POLL)

    async def _write(self, binding: Binding, spec: bytes) -> str | None:
        """Write a file, or return which process of a pod that is gone may use its GPUs.

        Raises:
            BindError: A container of another pod has one of them.
        """
        async with self._lock:
            # Only this process writes the files, and a scan of 200 takes some milliseconds.
            files = self._files.known()
            files.pop(file_name(binding.device), None)
            rivals = conflicts(binding, filter(None, files.values()))
            if rivals:
                # The kubelet is asked again: a rival may be newer than the list before.
                liveness = await self._holders.liveness()
                holds = {rival: await liveness.hold(rival) for rival in rivals}
                if live := [rival for rival in rivals if holds[rival] is Hold.LIVE]:
                    raise BindError(conflict_text(binding, live[0]))
                ended = [rival for rival in rivals if holds[rival] is Hold.ENDED]
                running = await self._holders.last.processes({rival.uid for rival in ended})
                if left := [rival for rival in ended if rival.uid in running]:
                    return unreleased_text(binding, left[0], running[left[0].uid])
            for rival in rivals:
                self._files.remove(file_name(rival.device))
            self._files.write(binding.device, spec)
            return None

    async def _keep(
        self, device: str, resource: str, ids: frozenset[str], outage: ApiOutage
    ) -> None:
        """Keep the file of an earlier start of the container that holds devices.

        Raises:
            BindError: There is none, or one of its GPUs cannot be used.
        """
        binding = self._files.get(device)
        if binding is None or not await self._is_holder(binding, resource, ids):
            raise BindError(
                f"the API server cannot be asked for the record of the pod: {outage}; "
                "the kubelet tries again"
            )
        reading = self._reading()
        problems = [problem for gpu in binding.gpus if (problem := gpu_problem(gpu, reading))]
        if problems:
            raise BindError(f"{'; '.join(problems)}; delete the pod")
        _log.warning("GPUs kept during an API outage", pod=binding.pod, reason=str(outage))

    async def _is_holder(self, binding: Binding, resource: str, ids: frozenset[str]) -> bool:
        """Return whether a binding is of the container that holds devices now."""
        uids = {each.uid for each in await self._holders.in_checkpoint(resource, ids)}
        if uids and binding.uid not in uids:
            return False
        of_devices = (binding.namespace, binding.pod, binding.container)
        listed = [
            (each.namespace, each.pod, each.container)
            for each in await self._holders.listed()
            if (each.resource, each.device_ids) == (resource, ids)
        ]
        return of_devices in listed if listed else bool(uids)

    def _report(self, pod: Pod, message: str) -> None:
        about = ObjectReference(
            "v1", "Pod", pod.metadata.name, pod.metadata.uid, pod.metadata.namespace
        )
        _log.warning("GPUs not bound", pod=about.name, namespace=about.namespace, reason=message)
        self._events.record(Event(about, "GPUsNotBound", message, message))
