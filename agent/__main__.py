"""`python -m agent`: the process that reads the GPUs of a node and gives them to containers."""

import linkwise.runtime.process.missing_package  # noqa: F401 - before packages that it reports

# isort: split

import asyncio
import os
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import structlog

from agent.audit.proc import running_pods
from agent.audit.process_audit import ProcessAudit
from agent.binding.binder import Binder
from agent.binding.cdi_spec import Edits
from agent.binding.errors import BindError
from agent.binding.holder import Holders
from agent.binding.last_holders import LastHolders
from agent.binding.node_spec import NodeSpec, Toolkit
from agent.control.node_agent import NodeAgent, Services
from agent.control.node_events import NodeEvents
from agent.driver.health import GPUHealth
from agent.driver.library import CUDA
from agent.driver.node_driver import NodeDriver
from agent.driver.reading import DriverReading, DriverReplacedError, GPUDriver
from agent.kubelet.pod_resources import PodResources
from agent.metrics import Metrics
from agent.mps.daemon import ControlDaemon, DaemonSettings
from agent.mps.isolation import Prober
from agent.mps.shares import MPSShares
from agent.plugin.registration import DevicePlugins
from agent.plugin.watchdog import KernelTimer
from agent.publish.publisher import Publisher
from agent.settings import Settings
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.keys import AGENT
from linkwise.cluster.objects.pod import Pod
from linkwise.runtime.http.probes import PROBE_LIMITS, probe_routes
from linkwise.runtime.http.server import serve
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.kube.event_recorder import EventRecorder
from linkwise.runtime.process.backoff import Backoff
from linkwise.runtime.process.clock import monotonic, wall
from linkwise.runtime.process.lifecycle import run_until, start, tune_gc
from linkwise.runtime.process.metrics import measure_loop_lag, new_registry

_CHECKPOINT = "kubelet_internal_checkpoint"
_SPEC = Path("/run/linkwise/nvidia.yaml")
"""On the node: what `nvidia-ctk` generates where no CDI specification fits."""

_SPEC_RETRY = 2, 600
"""First and longest delay after `nvidia-ctk` has failed [s]."""

_log = structlog.get_logger()


def main() -> int:
    """Run until a termination signal; return 2 where the environment is invalid."""
    try:
        return start(Settings, partial(run, set_timer=KernelTimer().set))
    except ExceptionGroup as errors:
        if errors.subgroup(DriverReplacedError) is None:
            raise
        _log.error("Driver replaced: the process ends, so that the next one loads its library")
        return 1


async def run(
    settings: Settings,
    stop: asyncio.Event,
    set_timer: Callable[[float], None] = lambda _seconds: None,
) -> None:
    """Run the agent, and serve probes and metrics, until `stop` is set.

    Args:
        settings: Of this process.
        stop: Ends it.
        set_timer: Sets the timer that ends this process unless it is set again.
    """
    registry = new_registry()
    measure_loop_lag(registry)
    metrics = Metrics(registry, settings.node_name)
    driver = NodeDriver(settings.paths.host_root, settings.paths.sys)
    loop = asyncio.get_running_loop()

    def wake(*_change: object) -> None:
        loop.call_soon_threadsafe(agent.wake)

    health = GPUHealth(driver, wake, interval_s=settings.read_seconds)
    async with Kube.from_settings(settings, os.environ) as kube:
        services = _services(settings, kube, driver, health, metrics, wake)
        agent = NodeAgent(settings.node_name, settings.paths, health, services)
        routes = probe_routes(registry, {"node": lambda: agent.not_ready})
        async with serve(routes, host=settings.host, port=settings.probe_port, limits=PROBE_LIMITS):
            tune_gc()
            await run_until(stop, agent.run(set_timer))


def _services(
    settings: Settings,
    kube: Kube,
    driver: GPUDriver,
    health: GPUHealth,
    metrics: Metrics,
    wake: Callable[[], None],
) -> Services:
    paths = settings.paths
    recorder = EventRecorder(kube, AGENT, settings.node_name, wall)
    pod_resources = PodResources(paths.pod_resources)
    # The folder for our files is the node's `/var/run/cdi`, which is often a link below its root.
    backoff = Backoff(*_SPEC_RETRY, wake)
    node_spec = NodeSpec((*paths.nvidia_cdi, paths.cdi), Toolkit(paths.host_root, _SPEC), backoff)
    mps = MPSShares(
        ControlDaemon(DaemonSettings(paths.host_root), wake),
        Prober(CUDA, paths.host_root),
    )

    def reading() -> DriverReading:
        if health.reading is None:
            raise BindError(f"the GPUs were not read yet: {health.error}; the kubelet tries again")
        return health.reading

    last = LastHolders(partial(running_pods, proc=paths.proc))
    holders = Holders(
        settings.node_name, pod_resources, paths.device_plugins / _CHECKPOINT, kube, last
    )

    async def edits(pod: Pod, container: str, gpus: tuple[GPUShare, ...]) -> Edits:
        return await mps.edits(pod, container, gpus, binder.bindings)

    binder = Binder(holders, recorder, reading, node_spec, paths.cdi, extra_edits=edits)
    return Services(
        kube=kube,
        node_spec=node_spec,
        binder=binder,
        holders=holders,
        plugins=DevicePlugins(paths.device_plugins, _MeasuredBinder(binder, metrics, wake)),
        publisher=Publisher(kube, settings.node_name),
        recorder=recorder,
        events=NodeEvents(recorder, settings.node_name, wall),
        metrics=metrics,
        mps=mps,
        audit=ProcessAudit(settings.node_name, settings.pod_uid, paths, driver, binder, mps),
    )


class _MeasuredBinder:
    """Measures how long binding takes, and says when it is done."""

    def __init__(self, binder: Binder, metrics: Metrics, wake: Callable[[], None]) -> None:
        self._binder, self._metrics, self._wake = binder, metrics, wake

    async def bind(self, resource: str, device_ids: Iterable[str]) -> None:
        """Bind a container."""
        began, refused = monotonic(), True
        try:
            await self._binder.bind(resource, device_ids)
            refused = False
        finally:
            self._metrics.bound(monotonic() - began, refused=refused)
            self._wake()


if __name__ == "__main__":
    sys.exit(main())
