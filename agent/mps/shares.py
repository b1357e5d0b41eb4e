"""The MPS daemon of the node, and the edits that make containers its limited clients."""

from collections.abc import Awaitable, Callable, Iterable

from agent.binding.cdi_spec import Edits
from agent.binding.container_spec import Binding
from agent.binding.errors import BindError
from agent.mps.daemon import ControlDaemon, State
from agent.mps.isolation import Prober
from agent.mps.limits import Directories, client_edits, daemon_limits
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.allocations.record import Isolation
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.objects.container import Container
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.request_reader import read_request

Bindings = Callable[[], Awaitable[Iterable[Binding]]]
_NO_EDITS = Edits()


class MPSShares:
    """Limits the containers of a node of mode `mps`; on other nodes it does nothing."""

    def __init__(self, daemon: ControlDaemon, prober: Prober) -> None:
        """Start nothing yet.

        Args:
            daemon: The control daemon of the node.
            prober: Measures whether clients are limited.
        """
        self._daemon, self._prober = daemon, prober
        self._needed = False
        self._probed: Directories | None = None
        """Of the daemon whose clients were measured."""
        self._starting: tuple[GPUShare, ...] = ()
        self._started: tuple[GPUShare, ...] = ()
        """Of containers that had edits since the last reconcile, and in the interval before: the
        bindings of the node may not have them yet."""
        self._in_use = False
        """At the last reconcile, a container had a share."""
        self.isolation: Isolation | None = None
        """Isolation that was seen; None on a node of another mode."""
        self.problem: str | None = None
        """Why shares are not limited; None if they are, or need not be."""

    @property
    def servers(self) -> tuple[int, ...]:
        """Pids of the servers of the daemon, which use the GPUs for all clients."""
        return self._daemon.status.servers

    async def reconcile(self, mode: NodeMode, bindings: Bindings) -> None:
        """Start or end the daemon, and measure its clients once after each start.

        After the last container has ended, the files that containers have left are removed.

        Args:
            mode: The mode in effect.
            bindings: Returns the GPUs of all live containers.

        Raises:
            BindError: The bindings cannot be read.

        Cost: a short program; some seconds after a start.
        """
        self._needed = mode is NodeMode.MPS
        self._started, self._starting = self._starting, ()
        status = await self._daemon.reconcile(needed=self._needed)
        if status.ours and await self._has_ended(bindings):
            status = await self._daemon.renew()
        if status.directories is None:
            self._probed = None
            self.isolation = Isolation.NONE if self._needed else None
            self.problem = status.reason if self._needed else None
        elif status.directories != self._probed:
            seen = await self._prober.probe(status.directories)
            self._probed, self.isolation = status.directories, seen.isolation
            self.problem = None if seen.isolation is Isolation.MPS else seen.reason

    async def _has_ended(self, bindings: Bindings) -> bool:
        """Return whether the last container with a share has ended since the last reconcile."""
        live = [share for binding in await bindings() for share in binding.gpus]
        before = self._in_use
        self._in_use = bool(live or self._started or self._starting)
        return before and not self._in_use

    async def stop(self) -> None:
        """End the daemon if the agent started it."""
        await self._daemon.stop()

    async def edits(
        self,
        pod: Pod,
        container: str,
        gpus: tuple[GPUShare, ...],
        bindings: Bindings,
    ) -> Edits:
        """Return the edits of a container; none on a node of another mode.

        Args:
            pod: The pod.
            container: Name of the container.
            gpus: Its GPUs.
            bindings: Returns the GPUs of all live containers.

        Raises:
            BindError: The daemon does not run, or does not accept the limits.
        """
        if not self._needed:
            return _NO_EDITS
        status = self._daemon.status
        if status.state is not State.RUNNING or status.directories is None:
            raise BindError(f"no MPS daemon runs: {status.reason}; the kubelet tries again")
        live = [share for binding in await bindings() for share in binding.gpus]
        self._starting += gpus
        limits = daemon_limits((*live, *self._started, *self._starting))
        if problem := await self._daemon.apply(limits):
            raise BindError(f"the MPS daemon does not accept limits: {problem}")
        request, _ = read_request(pod)
        ask = next(each for each in request.containers if each.container == container)
        return client_edits(ask, len(gpus), _variables(pod, container), status.directories)


def _variables(pod: Pod, name: str) -> dict[str, str]:
    """Return the variables of a container that have literal values."""
    containers: tuple[Container, ...] = (*pod.spec.containers, *(pod.spec.init_containers or ()))
    container = next(each for each in containers if each.name == name)
    return {each.name: each.value for each in container.env or () if each.value_from is None}
