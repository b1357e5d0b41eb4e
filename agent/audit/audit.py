"""Compare the processes on the GPUs with the GPUs that containers were given, or pods by claims.

A mismatch is reported when two readings in a row have it: a container that is just ending is none.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeAlias

from agent.audit.processes import Process
from agent.binding.container_spec import Binding
from agent.kubelet.prepared_claims import PodWithClaim
from linkwise.runtime.kube.event_recorder import Event, ObjectReference

MISMATCH = "GPUProcessMismatch"
RESOLVED = "GPUProcessMismatchResolved"
"""Reasons of Events."""
MPS_SERVER = "nvidia-cuda-mps"
"""Name of the processes of MPS, as the kernel truncates it."""
_SHOWN = 5

Holder: TypeAlias = Binding | PodWithClaim


@dataclass(frozen=True, slots=True)
class Expected:
    """Processes that may use any GPU."""

    pids: Collection[int] = ()
    """Such as the servers that an MPS control daemon lists."""
    pod_uid: str = ""
    """The pod of the agent, which probes the limits of MPS and may run its daemon."""
    mps: bool = False
    """The mode of the node is `mps`, so that the host may run an MPS server."""

    def __contains__(self, process: object) -> bool:
        """Return whether a process may use any GPU."""
        if not isinstance(process, Process):
            return False
        if process.pid in self.pids:
            return True
        if process.container is None:
            return self.mps and process.name == MPS_SERVER
        return process.container.pod_uid == self.pod_uid


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A process on a GPU that it should not use."""

    process: Process
    text: str


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The mismatches that two readings in a row have, in the order of GPUs and pids."""

    mismatches: tuple[Mismatch, ...] = ()
    by_claims: bool = False
    """Claims give out the GPUs: those with a mismatch are closed, and not the node."""

    @property
    def busy(self) -> dict[int, str]:
        """The first process on each GPU that is closed for it, by GPU index.

        Viewers of the dashboard see these texts, so they have no names of pods and processes.
        """
        closing = (mismatch.process for mismatch in reversed(self.mismatches) if self.by_claims)
        return {process.gpu: f"process {process.pid} of {_owner(process)}" for process in closing}

    @property
    def text(self) -> str | None:
        """The first mismatches, then a count, for people; None if there are none."""
        if not self.mismatches:
            return None
        shown = "; ".join(mismatch.text for mismatch in self.mismatches[:_SHOWN])
        rest = len(self.mismatches) - _SHOWN
        return f"{shown}; and {rest} more" if rest > 0 else shown

    def counts(self, gpus: int) -> tuple[int, ...]:
        """Return the number of mismatches on each of the GPUs, for metrics."""
        on = [mismatch.process.gpu for mismatch in self.mismatches]
        return tuple(on.count(i) for i in range(gpus))

    def event(self, before: "AuditReport", node: str) -> Event | None:
        """Return the Event on the node about this report; None if nothing changed.

        Every reader of Events in namespace `default` sees it, so it names no pods and processes.

        Args:
            before: The report of the audit before.
            node: Name of the node.
        """
        if self.mismatches == before.mismatches:
            return None
        about = ObjectReference.of_node(node)
        if self.text is None:
            message = "The processes on the GPUs agree with the records of pods again"
            return Event(about, RESOLVED, message, before.identity, is_warning=False)
        gpus = ", ".join(str(gpu) for gpu in sorted({m.process.gpu for m in self.mismatches}))
        records, closed = "records", "New pods are not placed on this node"
        if self.by_claims:
            records, closed = "claims", "No pods are placed on these GPUs meanwhile"
        message = (
            f"{len(self.mismatches)} of the processes on GPU {gpus} contradict the {records} of "
            f"pods. {closed}: end these processes, which `linkwise inspect {node}` names"
        )
        return Event(about, MISMATCH, message, self.identity)

    @property
    def identity(self) -> str:
        """Differs for other processes, also if they have the same pids and texts."""
        parts = [(m.process.started, m.text) for m in self.mismatches]
        return sha256(repr(parts).encode()).hexdigest()


class Auditor:
    """Remembers the reading before, and the pods that processes belong to."""

    def __init__(self) -> None:
        self.report = AuditReport()
        """The report of the last audit."""
        self._once: frozenset[tuple[int, int, int]] = frozenset()
        """GPU, pid and start of the processes that the last reading had as mismatches."""
        self._names: dict[str, str] = {}
        """UID to `namespace/name` of pods with GPUs, and of those gone with processes left."""

    def audit(
        self,
        processes: Iterable[Process],
        holders: Iterable[Holder],
        uuids: Sequence[str],
        expected: Expected,
        *,
        by_claims: bool = False,
    ) -> AuditReport:
        """Return the mismatches that this reading and the one before have.

        Args:
            processes: The processes on the GPUs.
            holders: The GPUs of all live containers, read after the processes.
            uuids: Of the GPUs, by index.
            expected: Processes that may use any GPU.
            by_claims: Claims give out the GPUs.
        """
        held = _held(holders := tuple(holders), uuids)
        live = {holder.uid: f"{holder.namespace}/{holder.pod}" for holder in holders}
        self._names |= live
        found = [
            Mismatch(process, _text(process, held, self._names))
            for process in sorted(set(processes), key=_key)
            if process not in expected and not _is_held(process, held)
        ]
        keys = frozenset(_key(mismatch.process) for mismatch in found)
        twice = tuple(mismatch for mismatch in found if _key(mismatch.process) in self._once)
        used = {m.process.container.pod_uid for m in found if m.process.container}
        self._names = {uid: name for uid, name in self._names.items() if uid in live or uid in used}
        self._once, self.report = keys, AuditReport(twice, by_claims)
        return self.report


def _held(holders: Iterable[Holder], uuids: Sequence[str]) -> dict[str, set[int]]:
    """Return the GPU indices of each pod, by its uid."""
    index = {uuid: i for i, uuid in enumerate(uuids)}
    held: dict[str, set[int]] = {}
    for holder in holders:
        # Indices may change when the node is rebooted, UUIDs never.
        gpus = {index.get(share.uuid or "", share.i) for share in holder.gpus}
        held.setdefault(holder.uid, set()).update(gpus)
    return held


def _key(process: Process) -> tuple[int, int, int]:
    return process.gpu, process.pid, process.started


def _is_held(process: Process, held: Mapping[str, set[int]]) -> bool:
    return process.container is not None and process.gpu in held.get(
        process.container.pod_uid, set()
    )


def _owner(process: Process) -> str:
    uid = process.container and process.container.pod_uid
    return f"the pod with the uid {uid}" if uid else "the host"


def _text(process: Process, held: Mapping[str, set[int]], names: Mapping[str, str]) -> str:
    subject = f"process {process.pid} ({process.name})"
    gpu = f"GPU {process.gpu}"
    if process.container is None:
        return f"{subject} of the host, of no pod, uses {gpu}"
    uid = process.container.pod_uid
    gpus = held.get(uid)
    if gpus is not None:
        has = ", ".join(map(str, sorted(gpus))) or "none"
        return f"{subject} of pod {names[uid]} uses {gpu}, and the pod has: {has}"
    if uid in names:
        return f"{subject} of pod {names[uid]}, which is gone, still uses {gpu}"
    return f"{subject} uses {gpu}, and no GPU is recorded for its pod (uid {uid})"
