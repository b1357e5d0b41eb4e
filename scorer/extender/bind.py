"""Bind pods to the nodes that a scheduler chose: choose GPUs, assume them, write them once.

A refused write is a result. After a write without an answer the GPUs stay assumed until a read
shows its outcome; repeated requests for the pod meanwhile return that outcome.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from linkwise.cluster.objects.pod import Pod
from linkwise.planning.gang.patches import allocation_annotations, allocation_of, binding
from linkwise.planning.gang.pod_info import PodInfo, pod_info
from linkwise.planning.placement.filtering.reasons import Reason
from linkwise.planning.placement.result import Placement
from linkwise.runtime.kube.client import ApiError, Ignored, Kube, KubeError
from linkwise.runtime.kube.paths import path_below
from linkwise.runtime.process.clock import Clock, loop_time
from scorer.cache.informers import Informers
from scorer.commit.read_after_write import outcome_unknown, read_after_write
from scorer.extender.gpu_choice import choose_gpus
from scorer.extender.wire import Binding
from scorer.fence import WRITE_TIMEOUT, LeadershipLost, is_leadership_lost
from scorer.metrics import Stage
from scorer.queue.fault_isolation import FAULT, FaultIsolation
from scorer.timings import Timings

_POLL_INTERVAL = 0.02
"""Between two checks whether the watch shows a pod [s]."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class NotBound:
    """A pod was not bound."""

    reason: str


_NOT_LEADING = NotBound("this scorer does not lead")


@dataclass(frozen=True, slots=True)
class _Write:
    """A binding that is to be written."""

    pod: PodInfo
    node: str
    annotations: Mapping[str, str]
    """With the GPUs that were assumed; empty where the pod had GPUs before."""


class Binder:
    """Binds pods, for one term of the Lease."""

    def __init__(
        self,
        kube: Kube,
        informers: Informers,
        faults: FaultIsolation,
        *,
        term: int,
        clock: Clock,
        timings: Timings,
    ) -> None:
        """Bind nothing yet; `run` must run meanwhile.

        Args:
            kube: The API server.
            informers: The pods, and the state that counts assumed GPUs.
            faults: Isolates unforeseen exceptions.
            term: Of the Lease.
            clock: The wall clock [s since 1970].
            timings: Timeouts.
        """
        self._kube, self._informers, self._state = kube, informers, informers.state
        self._faults, self._term, self._clock = faults, term, clock
        self._timings = timings
        self._tasks: dict[str, asyncio.Task[NotBound | None]] = {}
        """By uid of the pod: its binding."""
        self._group: asyncio.TaskGroup | None = None
        self._bindings = 0

    async def run(self) -> None:
        """Own the tasks that write, until cancelled.

        Raises:
            LeadershipLost: Another process leads.
        """
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await asyncio.Event().wait()
            finally:
                self._group = None

    async def bind(self, request: Binding) -> NotBound | None:
        """Bind a pod; None: it was bound.

        Cancellation does not cancel a write that was started.
        """
        if not await self._is_watched(request):
            return NotBound("the watch of pods does not show this pod yet")
        task = self._tasks.get(request.pod_uid)
        if task is None:
            write: _Write | NotBound | None = NotBound(FAULT)
            with self._faults.isolate(Stage.BIND, request.pod_uid):
                write = self._prepare(request)
            if not isinstance(write, _Write):
                return write
            task = self._start(write)
        done, _ = await asyncio.wait((task,), timeout=self._timings.bind_timeout)
        if not done:
            return NotBound("the API server does not answer; the pod's GPUs are kept until it does")
        if task.cancelled() or task.exception():
            return _NOT_LEADING
        return task.result() or self._conflict(request)

    async def _is_watched(self, request: Binding) -> bool:
        """Return whether the watch shows a pod in time: that of the scheduler may be ahead."""
        timeout_at = loop_time() + self._timings.pod_watch_timeout
        while self._pod(request) is None:
            if loop_time() >= timeout_at:
                return False
            await asyncio.sleep(_POLL_INTERVAL)
        return True

    def _pod(self, request: Binding) -> PodInfo | None:
        pod = self._state.pod((request.pod_namespace, request.pod_name))
        return pod if pod and pod.uid == request.pod_uid else None

    def _prepare(self, request: Binding) -> _Write | NotBound | None:
        """Assume GPUs for a pod and return its binding; None: it is bound already."""
        pod = self._pod(request)
        if self._group is None or pod is None:
            return _NOT_LEADING
        usage = pod.usage
        if usage is None:
            return NotBound("the pod is finished")
        if usage.node:
            return self._conflict(request)
        if usage.record is None and usage.places:
            return self._allocate(pod, request.node)
        return self._conflict(request) or _Write(pod, request.node, {})

    def _start(self, write: _Write) -> asyncio.Task[NotBound | None]:
        if self._group is None:
            raise AssertionError("`_prepare` returns no binding then")
        uid = write.pod.uid
        task = self._tasks[uid] = self._group.create_task(self._write(write))
        task.add_done_callback(lambda _: self._tasks.pop(uid, None))
        return task

    def _allocate(self, pod: PodInfo, node: str) -> _Write | NotBound:
        """Choose and assume GPUs; return the binding with them."""
        member, table = pod.ungated, self._state.table(node)
        if member is None:
            return NotBound(pod.unplannable or "the pod is leaving, or waits behind a gate")
        ledger = self._state.ledger_for(node, member.pod.spec.priority or 0)
        if ledger is None:
            return NotBound(Reason.UNKNOWN)
        if member.violation or member.gang:
            return NotBound(Reason.REQUEST if member.violation else Reason.GATE)
        gpus = choose_gpus(ledger, table, member.request, self._state.preferences.mode)
        if isinstance(gpus, Reason):
            return NotBound(gpus)
        self._bindings += 1
        placement = Placement(member, node, gpus)
        allocation = allocation_of(placement, ledger, table, f"{self._term}-s{self._bindings}")
        now_ns = int(self._clock() * 1e9)
        containers = self._informers.policy.policy.containers
        annotations = allocation_annotations(
            placement, allocation, ledger.node, containers, term=self._term, now_ns=now_ns
        )
        self._state.assume(pod, allocation)
        return _Write(pod, node, annotations)

    def _conflict(self, request: Binding) -> NotBound | None:
        """Return why a pod that has GPUs cannot be bound to the node; None: it can, or is."""
        pod = self._pod(request)
        usage = pod.usage if pod else None
        if usage is None:
            return NotBound("the pod is gone")
        if not usage.places:
            # NVIDIA's plugin chooses its GPUs; the extender binds it, as each pod that names them.
            on_another = usage.node not in ("", request.node)
            return NotBound(f"the pod is on node {usage.node}") if on_another else None
        if usage.allocation is None:
            on_node = f"the pod is on node {usage.node}"
            return NotBound(f"{on_node}, with GPUs that Linkwise did not choose")
        if usage.target != request.node:
            return NotBound(f"the pod has GPUs of node {usage.target}")
        ledger = self._state.ledger(request.node)
        has_gpus = ledger is not None and request.pod_uid in ledger.holdings
        return None if has_gpus else NotBound(Reason.LOST)

    async def _write(self, write: _Write) -> NotBound | None:
        """Write a binding; return why it was refused, once that is known."""
        pod, was_sent = write.pod, False
        refused: NotBound | None = NotBound(FAULT)
        with self._faults.isolate(Stage.BIND, pod.uid):
            body = binding(pod, write.node, write.annotations)
            error = await self._send(path_below(pod.path, "binding"), body)
            # A read of the outcome that raises leaves it unknown, and the GPUs assumed.
            was_sent, refused = True, None
            if error:
                refused = await self._read_outcome(write, error)
        if write.annotations and not was_sent:
            self._finish(pod, None)
        return refused

    async def _send(self, path: str, body: object) -> KubeError | None:
        try:
            await self._kube.create(path, body, Ignored, params=WRITE_TIMEOUT)
        except KubeError as error:
            if is_leadership_lost(error):
                raise LeadershipLost(str(error)) from error
            return error
        return None

    async def _read_outcome(self, write: _Write, error: KubeError) -> NotBound | None:
        """Return why a binding that failed was refused; None: it was carried out nevertheless."""
        pod = write.pod
        _log.warning("Could not bind pod", pod="/".join(pod.key), err=str(error))
        current = await self._current(pod.path, error)
        is_bound = current is not None and current.uid == pod.uid and _is_on(current, write.node)
        if write.annotations:
            self._finish(pod, current if is_bound else None)
        return None if is_bound else NotBound(str(error))

    async def _current(self, path: str, error: KubeError) -> PodInfo | None:
        """Return the pod after its binding failed; None: it is gone, or nothing was written."""
        # The API server refuses a binding that it carried out before as a conflict.
        is_repeated = isinstance(error, ApiError) and error.status == 409
        if not (is_repeated or outcome_unknown(error)):
            return None
        pause = self._timings.outcome_read
        pod = await read_after_write(self._kube, path, Pod, pause=pause, is_pending=not is_repeated)
        return pod_info(pod) if pod else None

    def _finish(self, pod: PodInfo, bound: PodInfo | None) -> None:
        """Assume the GPUs that a bound pod has; forget those of a pod that is not bound."""
        known, record = self._state.pod(pod.key), bound.allocation if bound else None
        if record is None:
            self._state.forget(pod)
            self._informers.changed.set()
        elif known and known.uid == pod.uid and known.usage and not known.usage.node:
            # An earlier binding may have given it other GPUs than those that were just chosen.
            self._state.assume(pod, record)


def _is_on(pod: PodInfo, node: str) -> bool:
    """Return whether a pod is bound to a node, with GPUs that Linkwise chose if it chooses them."""
    usage = pod.usage
    if usage is None or usage.node != node:
        return False
    return not usage.places or usage.allocation is not None
