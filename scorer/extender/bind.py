"""Pods bound to the nodes that a scheduler chose: GPUs are chosen and kept, then written at once.

A conflict is an answer. A write that had no answer keeps its GPUs until a read settles it, and
whoever asks again meanwhile is told what became of it.
"""

import asyncio
from collections.abc import Mapping

import structlog
from msgspec import Struct

from cluster.pod import Pod
from cluster.record import Allocation
from runtime.kube.client import ApiError, Kube, KubeError
from runtime.process.clock import Clock
from scorer.cache.informers import Informers
from scorer.commit.patches import allocation_annotations, allocation_of, binding
from scorer.commit.read_after_write import outcome_unknown, read_after_write
from scorer.extender.filter import request_of
from scorer.extender.gpu_choice import choose_gpus
from scorer.extender.wire import Binding
from scorer.fence import WRITE_TIMEOUT, LeadershipLost, is_leadership_lost
from scorer.gang.pod_info import PodInfo, pod_info
from scorer.metrics import Stage
from scorer.placement.member import new_member
from scorer.placement.reasons import Reason
from scorer.placement.result import Placement
from scorer.queue.fault_isolation import FAULT, FaultIsolation

_PATIENCE = 3.5
"""How long who asks waits for the API server [s]. With the second in which the watch may show the
pod, it is less than the 5 that a scheduler waits."""
_LOOK, _LOOKS = 0.02, 50
"""Between two looks whether the watch shows a pod [s], and how many: a scheduler that is refused
tries the pod again after a second, too."""

_log = structlog.get_logger()


class _Ignored(Struct, frozen=True):
    """Of an answer, nothing."""


class Binder:
    """Who binds pods, for one term of the Lease."""

    def __init__(
        self,
        kube: Kube,
        informers: Informers,
        faults: FaultIsolation,
        *,
        term: int,
        clock: Clock,
        outcome_read: float,
    ) -> None:
        """Say whom to write to, what is known, and under which term."""
        self._kube, self._informers, self._state = kube, informers, informers.state
        self._faults, self._term, self._clock = faults, term, clock
        self._outcome_read = outcome_read
        self._under_way: dict[str, asyncio.Task[str]] = {}
        """By uid of the pod: returns why it was not bound; empty where it was."""
        self._group: asyncio.TaskGroup | None = None
        self._decisions = 0

    async def run(self) -> None:
        """Carry out what is decided, until cancelled.

        Raises:
            Deposed: Another process leads by now.
        """
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await asyncio.Event().wait()
            finally:
                self._group = None

    async def bind(self, asked: Binding) -> str:
        """Bind a pod, and return why it was not bound: in words for people, empty where it was.

        Cancelled, it leaves what was begun to be carried out.
        """
        if not await self._is_shown(asked):
            return "the watch of pods does not show this pod yet"
        task = self._under_way.get(asked.pod_uid)
        if task is None:
            begun: asyncio.Task[str] | str = FAULT
            with self._faults.isolate(Stage.BIND, asked.pod_uid):
                begun = self._begin(asked)
            if isinstance(begun, str):
                return begun
            task = begun
        done, _ = await asyncio.wait((task,), timeout=_PATIENCE)
        if not done:
            return "the API server does not answer; the pod's GPUs are kept until it does"
        if task.cancelled() or task.exception():
            return "this scorer does not lead"
        return task.result() or self._elsewhere(asked)

    async def _is_shown(self, asked: Binding) -> bool:
        """Tell whether the watch shows the pod: a scheduler's own may be ahead of it."""
        for _ in range(_LOOKS):
            pod = self._state.pod((asked.pod_namespace, asked.pod_name))
            if pod is not None and pod.uid == asked.pod_uid:
                return True
            await asyncio.sleep(_LOOK)
        return False

    def _begin(self, asked: Binding) -> "asyncio.Task[str] | str":
        """Keep GPUs for a pod and send its binding; or return what there is to say at once."""
        pod = self._state.pod((asked.pod_namespace, asked.pod_name))
        if self._group is None or pod is None:
            return "this scorer does not lead"
        usage = pod.usage
        if usage is None:
            return "the pod is finished"
        if usage.node:
            return self._elsewhere(asked)
        record: Mapping[str, str] = {}
        if usage.record is None:
            given = self._give(pod, asked.node)
            if isinstance(given, str):
                return given
            record = given
        elif why := self._elsewhere(asked):
            return why
        task = self._group.create_task(self._send(pod, asked.node, record))
        self._under_way[pod.uid] = task
        task.add_done_callback(lambda _: self._under_way.pop(pod.uid, None))
        return task

    def _give(self, pod: PodInfo, node: str) -> Mapping[str, str] | str:
        """Choose GPUs and keep them; return the record, or why there are none."""
        if pod.ungated is None:
            return pod.unplannable or "the pod is leaving, or waits behind a gate"
        request, ledger = request_of(pod.ungated), self._state.ledger(node)
        if ledger is None or isinstance(request, Reason):
            return Reason.UNKNOWN if ledger is None else str(request)
        table = self._state.table(node)
        shares = choose_gpus(ledger, table, request, self._state.preferences.mode)
        if isinstance(shares, Reason):
            return shares
        self._decisions += 1
        placement = Placement(new_member(pod.ungated, pod.namespace), node, shares)
        allocation = allocation_of(placement, table, f"{self._term}-s{self._decisions}")
        now_ns = int(self._clock() * 1e9)
        record = allocation_annotations(
            placement, allocation, ledger.node, term=self._term, now_ns=now_ns
        )
        self._state.assume(pod, allocation)
        return record

    def _elsewhere(self, asked: Binding) -> str:
        """Return why a pod that has its GPUs is not on the node, or may not go there; or empty."""
        pod = self._state.pod((asked.pod_namespace, asked.pod_name))
        usage = pod.usage if pod and pod.uid == asked.pod_uid else None
        if usage is None:
            return "the pod is gone"
        if not isinstance(usage.record, Allocation):
            return f"the pod is on node {usage.node}, with GPUs that nobody chose"
        if usage.target != asked.node:
            return f"the pod has GPUs of node {usage.target}"
        ledger = self._state.ledger(asked.node)
        return "" if ledger and asked.pod_uid in ledger.holdings else Reason.LOST

    async def _send(self, pod: PodInfo, node: str, record: Mapping[str, str]) -> str:
        """Return why a binding was refused, once it is known; empty where it was carried out.

        Args:
            pod: Whom.
            node: Where to.
            record: What it is given, and what is kept for it; empty where it was given it before.
        """
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        was_sent, why = False, FAULT
        with self._faults.isolate(Stage.BIND, pod.uid):
            error = await self._write(path, binding(pod, node, record))
            was_sent = True
            why = await self._settled(pod, node, path, error, is_ours=bool(record)) if error else ""
        if record and not was_sent:
            self._settle(pod, None)
        return why

    async def _write(self, path: str, body: object) -> KubeError | None:
        """Return why a binding was not carried out, or not answered; None where it was."""
        try:
            await self._kube.create(f"{path}/binding", body, _Ignored, params=WRITE_TIMEOUT)
        except KubeError as error:
            if is_leadership_lost(error):
                raise LeadershipLost(str(error)) from error
            return error
        return None

    async def _settled(
        self, pod: PodInfo, node: str, path: str, error: KubeError, *, is_ours: bool
    ) -> str:
        """Return why a binding that failed so was refused; empty where it was carried out."""
        _log.warning("Could not bind pod", pod="/".join(pod.key), err=str(error))
        found = await self._found(path, error)
        bound = found is not None and found.uid == pod.uid and _is_on(found, node)
        if is_ours:
            self._settle(pod, found if bound else None)
        return "" if bound else str(error)

    async def _found(self, path: str, error: KubeError) -> PodInfo | None:
        """Return the pod as it is after a binding failed so; None where nothing was written."""
        # A binding that was carried out before is refused as a conflict.
        repeated = isinstance(error, ApiError) and error.status == 409
        if not (repeated or outcome_unknown(error)):
            return None
        pod = await read_after_write(
            self._kube, path, Pod, pause=self._outcome_read, is_pending=not repeated
        )
        return pod_info(pod) if pod else None

    def _settle(self, pod: PodInfo, bound: PodInfo | None) -> None:
        """Keep what a pod has, if it is bound, and nothing else."""
        now, record = self._state.pod(pod.key), bound and bound.usage and bound.usage.record
        if not isinstance(record, Allocation):
            self._state.forget(pod)
            self._informers.changed.set()
        elif now and now.uid == pod.uid and now.usage and not now.usage.node:
            # Bound before this time, it has other GPUs than those just chosen.
            self._state.assume(pod, record)


def _is_on(pod: PodInfo, node: str) -> bool:
    """Tell whether a pod is bound to a node, with GPUs that were chosen."""
    usage = pod.usage
    return bool(usage and usage.node == node and isinstance(usage.record, Allocation))
