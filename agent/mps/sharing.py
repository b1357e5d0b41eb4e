"""MPS on this node: the daemon, the limits of its clients, and what was seen to be enforced."""

from collections.abc import Iterable

import structlog

from agent.mps.daemon import ControlDaemon, DaemonStatus, State
from agent.mps.isolation import Enforcement, Prober
from agent.mps.limits import ClientEdits, client_edits, daemon_limits
from cluster.container_request import all_containers
from cluster.pod import Pod
from cluster.record import GPUShare, Isolation
from cluster.request import Family, read_request
from runtime.process.backoff import Backoff

_log = structlog.get_logger()

_FIRST_DELAY, _LONGEST_DELAY = 60, 3600
"""Until limits that were not seen to hold are probed again [s]."""


class MPS:
    """Shares of GPUs on a node of mode `mps`."""

    def __init__(self, daemon: ControlDaemon, prober: Prober) -> None:
        """Start nothing.

        Args:
            daemon: The control daemon.
            prober: Finds out whether limits hold.
        """
        self._daemon, self._prober = daemon, prober
        self._backoff = Backoff(_FIRST_DELAY, _LONGEST_DELAY, daemon.on_ready)
        self._running: tuple[GPUShare, ...] = ()
        self._starting: list[GPUShare] = []
        """Of containers that were bound since the last reconcile."""
        self.enforcement: Enforcement | None = None
        """What was seen; None where the mode of the node is not `mps`."""

    @property
    def isolation(self) -> Isolation | None:
        """The isolation to publish; None where the mode of the node is not `mps`."""
        return self.enforcement.isolation if self.enforcement else None

    @property
    def status(self) -> DaemonStatus:
        """The state of the daemon."""
        return self._daemon.status

    async def reconcile(self, shares: Iterable[GPUShare], *, needed: bool) -> None:
        """Bring daemon and limits up to date, and probe a daemon whose limits were not seen.

        Args:
            shares: Of all live containers.
            needed: The mode of the node is `mps`.
        """
        before = self._daemon.status
        status = await self._daemon.reconcile(needed=needed)
        # A container may have started while the caller listed the live ones.
        self._running, self._starting = (*shares, *self._starting), []
        if not needed:
            self.enforcement = None
            return
        if status.state is not State.RUNNING or status.directories is None:
            self.enforcement = Enforcement(Isolation.NONE, status.reason)
            self._backoff.reset("probe")
            return
        await self._apply()
        is_new = before.state is not State.RUNNING or before.directories != status.directories
        if is_new or (self.isolation is not Isolation.MPS and "probe" not in self._backoff):
            self.enforcement = await self._prober.probe(status.directories)
            _log.info("MPS limits probed", **_logged(self.enforcement))
            if self.isolation is Isolation.MPS:
                self._backoff.reset("probe")
            else:
                self._backoff.start("probe")

    async def edits(self, pod: Pod, container: str, gpus: tuple[GPUShare, ...]) -> ClientEdits:
        """Return the edits that make a container a client with limits; none without a daemon.

        The limits of the daemon are raised first where they are below the container's.

        Args:
            pod: The pod.
            container: Name of its container.
            gpus: GPUs of the container.
        """
        directories, request = self.status.directories, read_request(pod)[0]
        asked = next((each for each in request.containers if each.container == container), None)
        if directories is None or asked is None or request.family is not Family.SHARE:
            return ClientEdits({}, ())
        self._starting += gpus
        await self._apply()
        variables = {
            variable.name: variable.value
            for each in all_containers(pod.spec)
            if each.name == container
            for variable in each.env or ()
            if variable.value_from is None
        }
        return client_edits(asked, len(gpus), variables, directories)

    async def stop(self) -> None:
        """End the daemon if it is the agent's; its clients may finish first."""
        await self._daemon.stop()

    async def _apply(self) -> None:
        limits = daemon_limits((*self._running, *self._starting))
        if problem := await self._daemon.apply(limits):
            _log.warning("MPS limits not set", err=problem)


def _logged(enforcement: Enforcement) -> dict[str, str]:
    return {"isolation": enforcement.isolation.value, "reason": enforcement.reason}
