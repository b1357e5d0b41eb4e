"""Bind pods to the nodes that a scheduler chose: choose GPUs, assume them, write them once.

A refused write is a result. After a write without an answer the GPUs stay assumed until a read
shows its outcome; repeated requests for the pod meanwhile return that outcome.
"""

import asyncio
from collections.abc import Mapping

import structlog

from cluster.pod import Pod
from runtime.kube.client import ApiError, Ignored, Kube, KubeError
from runtime.process.clock import Clock, loop_time
from scorer.cache.informers import Informers
from scorer.commit.patches import allocation_annotations, allocation_of, binding
from scorer.commit.read_after_write import outcome_unknown, read_after_write
from scorer.extender.gpu_choice import choose_gpus
from scorer.extender.wire import Binding
from scorer.fence import WRITE_TIMEOUT, LeadershipLost, is_leadership_lost
from scorer.gang.pod_info import PodInfo, pod_info
from scorer.metrics import Stage
from scorer.placement.reasons import Reason
from scorer.placement.result import Placement
from scorer.queue.fault_isolation import FAULT, FaultIsolation
from scorer.timings import Timings

_POLL_INTERVAL = 0.02
"""Between two checks whether the watch shows a pod [s]."""

_log = structlog.get_logger()


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
        self._tasks: dict[str, asyncio.Task[str]] = {}
        """By uid of the pod: returns why it was not bound; empty: it was bound."""
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

    async def bind(self, request: Binding) -> str:
        """Bind a pod, and return why it was not bound; empty: it was bound.

        Cancellation does not cancel a write that was started.
        """
        if not await self._is_watched(request):
            return "the watch of pods does not show this pod yet"
        task = self._tasks.get(request.pod_uid)
        if task is None:
            started: asyncio.Task[str] | str = FAULT
            with self._faults.isolate(Stage.BIND, request.pod_uid):
                started = self._start(request)
            if isinstance(started, str):
                return started
            task = started
        done, _ = await asyncio.wait((task,), timeout=self._timings.bind_timeout)
        if not done:
            return "the API server does not answer; the pod's GPUs are kept until it does"
        if task.cancelled() or task.exception():
            return "this scorer does not lead"
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

    def _start(self, request: Binding) -> "asyncio.Task[str] | str":
        """Assume GPUs for a pod and start its binding; or return why it is not bound."""
        pod = self._pod(request)
        if self._group is None or pod is None:
            return "this scorer does not lead"
        usage = pod.usage
        if usage is None:
            return "the pod is finished"
        if usage.node:
            return self._conflict(request)
        annotations: Mapping[str, str] = {}
        if usage.record is None and usage.places:
            allocated = self._allocate(pod, request.node)
            if isinstance(allocated, str):
                return allocated
            annotations = allocated
        elif conflict := self._conflict(request):
            return conflict
        task = self._group.create_task(self._write(pod, request.node, annotations))
        self._tasks[pod.uid] = task
        task.add_done_callback(lambda _: self._tasks.pop(pod.uid, None))
        return task

    def _allocate(self, pod: PodInfo, node: str) -> Mapping[str, str] | str:
        """Choose and assume GPUs; return the annotations, or why there are no GPUs."""
        member, table = pod.ungated, self._state.table(node)
        if member is None:
            return pod.unplannable or "the pod is leaving, or waits behind a gate"
        ledger = self._state.ledger_for(node, member.pod.spec.priority or 0)
        if ledger is None:
            return Reason.UNKNOWN
        if member.violation or member.gang:
            return Reason.REQUEST if member.violation else Reason.GATE
        gpus = choose_gpus(ledger, table, member.request, self._state.preferences.mode)
        if isinstance(gpus, Reason):
            return gpus
        self._bindings += 1
        placement = Placement(member, node, gpus)
        allocation = allocation_of(placement, ledger, table, f"{self._term}-s{self._bindings}")
        now_ns = int(self._clock() * 1e9)
        containers = self._informers.policy.policy.containers
        annotations = allocation_annotations(
            placement, allocation, ledger.node, containers, term=self._term, now_ns=now_ns
        )
        self._state.assume(pod, allocation)
        return annotations

    def _conflict(self, request: Binding) -> str:
        """Return why a pod that has GPUs cannot be bound to the node; empty: it can, or is."""
        pod = self._pod(request)
        usage = pod.usage if pod else None
        if usage is None:
            return "the pod is gone"
        if not usage.places:
            # NVIDIA's plugin chooses its GPUs; the extender binds it, as each pod that names them.
            on_another = usage.node not in ("", request.node)
            return f"the pod is on node {usage.node}" if on_another else ""
        if usage.allocation is None:
            return f"the pod is on node {usage.node}, with GPUs that Linkwise did not choose"
        if usage.target != request.node:
            return f"the pod has GPUs of node {usage.target}"
        ledger = self._state.ledger(request.node)
        return "" if ledger and request.pod_uid in ledger.holdings else Reason.LOST

    async def _write(self, pod: PodInfo, node: str, annotations: Mapping[str, str]) -> str:
        """Write a binding, and return why it was refused, once that is known; empty: it was not.

        Args:
            pod: The pod.
            node: The name of its node.
            annotations: With the GPUs that were assumed; empty where the pod had GPUs before.
        """
        was_sent, reason = False, FAULT
        with self._faults.isolate(Stage.BIND, pod.uid):
            error = await self._send(f"{pod.path}/binding", binding(pod, node, annotations))
            was_sent, reason = True, ""
            if error:
                reason = await self._read_outcome(pod, node, error, assumed=bool(annotations))
        if annotations and not was_sent:
            self._finish(pod, None)
        return reason

    async def _send(self, path: str, body: object) -> KubeError | None:
        try:
            await self._kube.create(path, body, Ignored, params=WRITE_TIMEOUT)
        except KubeError as error:
            if is_leadership_lost(error):
                raise LeadershipLost(str(error)) from error
            return error
        return None

    async def _read_outcome(
        self, pod: PodInfo, node: str, error: KubeError, *, assumed: bool
    ) -> str:
        """Return why a binding that failed was refused; empty: it was carried out nevertheless."""
        _log.warning("Could not bind pod", pod="/".join(pod.key), err=str(error))
        current = await self._current(pod.path, error)
        is_bound = current is not None and current.uid == pod.uid and _is_on(current, node)
        if assumed:
            self._finish(pod, current if is_bound else None)
        return "" if is_bound else str(error)

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
