"""The jobs that run in a cluster over time, as lines of a trace without names. Pure.

A job is a gang, or a pod alone. It is a line of `linkwise.replay.traces.history` when it has ended.
"""

from collections.abc import Iterable, Iterator
from math import ceil
from typing import NamedTuple

from linkwise.cluster.account.node_ledger import Holding
from linkwise.cluster.allocations.gpus import Counted, GPUShare
from linkwise.cluster.keys import NVIDIA_GPU_SHARED
from linkwise.cluster.nodes.node import Node
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.objects.time import seconds_of
from linkwise.cluster.requests.amounts import CORE_MAX
from linkwise.replay.job import MILLI
from linkwise.replay.traces.format import MIB
from linkwise.replay.traces.history import COLUMNS
from linkwise.views.files.current_cluster import CurrentCluster

HEADER = f"{','.join(COLUMNS)}\n"


class _Needs(NamedTuple):
    """What each pod of a job has: the most of any of them."""

    pods: int
    gpus: int
    milli: int
    cpu: int
    memory: int


class _Running(NamedTuple):
    number: int
    submit: float
    start: float
    needs: _Needs
    uids: frozenset[str]


class _Held(NamedTuple):
    node: Node
    holding: Holding


class JobHistory:
    """The jobs that run now. Memory: these."""

    def __init__(self) -> None:
        """Start without a state of the cluster."""
        self._running: dict[str, _Running] = {}
        self._jobs = 0
        self.has_begun = False
        """It has a state of the cluster."""

    def observe(self, current: CurrentCluster, now: float) -> list[str]:
        """Take the state of the cluster, and return the lines of jobs that ended before it.

        Args:
            current: The cluster now.
            now: The time [s since 1970].
        """
        jobs = _jobs_of(current)
        uids = {key: frozenset(held.holding.uid for held in pods) for key, pods in jobs.items()}
        # A name that is used again, by other pods, is another job.
        gone = [
            key
            for key, running in self._running.items()
            if not running.uids & uids.get(key, frozenset())
        ]
        lines = [_line(self._running.pop(key), now) for key in gone]
        created = {pod.metadata.uid: pod for pod in current.cluster.pods}
        for key, pods in jobs.items():
            needs, before = _needs(pods), self._running.get(key)
            if before is None:
                submit = min((_created(created.get(uid), now) for uid in uids[key]), default=now)
                # Jobs that ran before the first state began at an unknown time.
                start = now if self.has_begun else submit
                self._jobs += 1
                self._running[key] = _Running(self._jobs, submit, start, needs, uids[key])
            elif needs.pods >= before.needs.pods:
                # Members end one by one; the job is what it was with all of them.
                self._running[key] = before._replace(needs=needs, uids=uids[key])
        self.has_begun = True
        return lines

    def finish(self) -> Iterator[str]:
        """Yield the lines of the jobs that still run."""
        for running in self._running.values():
            yield _line(running, None)


def _jobs_of(current: CurrentCluster) -> dict[str, list[_Held]]:
    """Return the pods with GPUs of each job, by gang or uid."""
    jobs: dict[str, list[_Held]] = {}
    for ledger in current.cluster.ledger.in_order:
        for holding in ledger.holdings.values():
            if holding.gpus and not holding.stays and not _is_replica_of_plugin(holding):
                key = f"gang {holding.gang}" if holding.gang else holding.uid
                jobs.setdefault(key, []).append(_Held(ledger.node, holding))
    return jobs


def _is_replica_of_plugin(holding: Holding) -> bool:
    """Return whether NVIDIA's plugin gave it a part of a GPU, of an unknown size."""
    return isinstance(holding.gpus, Counted) and holding.gpus.resource == NVIDIA_GPU_SHARED


def _needs(pods: Iterable[_Held]) -> _Needs:
    each = [
        _Needs(
            1, len(holding.gpus), _milli(holding, node), holding.demand.cpu, holding.demand.memory
        )
        for node, holding in pods
    ]
    return _Needs(len(each), *(max(amounts) for amounts in list(zip(*each, strict=True))[1:]))


def _milli(holding: Holding, node: Node) -> int:
    parts = (_part(node, share) for share in holding.gpus.shares)
    return max(parts, default=MILLI)


def _part(node: Node, share: GPUShare) -> int:
    """Return the part of a GPU that a pod has: of its memory, or of its compute if that is more."""
    if share.mem is None:
        return ceil(MILLI / max(1, node.replicas))
    memory = node.cards[share.i].memory
    part = MILLI * share.mem / memory if memory else MILLI
    return max(1, min(MILLI, ceil(max(part, MILLI * (share.core or 0) / CORE_MAX))))


def _created(pod: Pod | None, now: float) -> float:
    created = seconds_of(pod.metadata.creation_timestamp) if pod else None
    return now if created is None else created


def _line(job: _Running, end: float | None) -> str:
    duration = "" if end is None else f"{max(0.0, end - job.start):.1f}"
    pods, gpus, milli, cpu, memory = job.needs
    amounts = f"{pods},{gpus},{milli},{cpu},{ceil(memory / MIB)}"
    return f"{job.number},{job.submit:.1f},{duration},{amounts}\n"
