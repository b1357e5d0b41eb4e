"""Nominate the pods of a unit for nodes, so that kube-scheduler does not give the GPUs to others.

An evicted pod that Linkwise did not place is created again, and kube-scheduler would bind the new
pod as soon as the old one has ended. What a nominated pod needs (`status.nominatedNodeName`) it
gives to no pod of a lower priority, even if the nominated pod is still behind a gate.

Only nodes where NVIDIA's plugin chooses the GPUs need this, and only where pods of others may be
evicted.
"""

import asyncio
from collections.abc import Collection, Coroutine, Iterable
from typing import Any

import structlog

from linkwise.planning.gang.pod_info import PodInfo
from linkwise.runtime.kube.client import ApiError, Ignored, KubeError
from linkwise.runtime.kube.errors import is_outdated
from linkwise.runtime.kube.paths import path_below
from linkwise.runtime.process.backoff import Backoff
from scorer.commit.handle import Handle
from scorer.metrics import Stage
from scorer.preemption.nomination import Nomination

_AGAIN_MAX = 60.0
"""The longest delay before a node is removed again that was not [s]."""
_REMOVAL = "removal"

_log = structlog.get_logger()


class NominatedPods:
    """The nominated nodes of pods behind our gate."""

    def __init__(self, handle: Handle) -> None:
        """Nominate nothing yet."""
        self._kube, self._faults = handle.kube, handle.faults
        self._informers, self._state = handle.informers, handle.informers.state
        self._again = Backoff(handle.timings.commit_retry, _AGAIN_MAX, handle.informers.changed.set)
        self._is_removing = False

    async def nominate(self, nomination: Nomination) -> str | None:
        """Nominate the pods of a unit for their planned nodes; return why not, or None."""
        nodes = self._nodes(nomination)
        names = ((nomination.key.namespace, each.pod) for each in nomination.record.members)
        pods = [pod for pod in map(self._state.pod, names) if pod and pod.waiting]
        if nodes and self._is_removing:
            return "earlier nominations of pods are being removed"
        planned = ((pod, nodes.get(pod.uid)) for pod in pods)
        error = await self._write_all(
            (pod, node) for pod, node in planned if node and node != pod.nominated
        )
        return _reason(error) if error else None

    def reconcile(self, nominations: Collection[Nomination]) -> list[Coroutine[Any, Any, object]]:
        """Return the call that ends the nominations of pods for which nothing is evicted."""
        current = {uid for each in nominations for uid in self._nodes(each)}
        past = [pod for pod in self._state.nominated if pod.uid not in current]
        if not past or self._is_removing or _REMOVAL in self._again:
            return []
        self._is_removing = True
        return [self._remove(past)]

    def _nodes(self, nomination: Nomination) -> dict[str, str]:
        """Return the planned node of each pod of a unit that is to be nominated, by uid."""
        policy = self._informers.policy.policy.gangs.preemption
        if nomination.is_void or policy.others == "never":
            return {}
        members = ((each, self._state.node(each.node)) for each in nomination.record.members)
        return {each.uid: each.node for each, node in members if node and node.is_counted}

    async def _remove(self, pods: Iterable[PodInfo]) -> None:
        with self._faults.isolate(Stage.PREEMPT, _REMOVAL):
            if error := await self._write_all([(pod, None) for pod in pods]):
                _log.warning("Could not end nominations of pods", err=str(error))
        self._is_removing = False
        # What was written is shown by the watch within this time.
        self._again.start(_REMOVAL)

    async def _write_all(self, nodes: Iterable[tuple[PodInfo, str | None]]) -> KubeError | None:
        """Write the nominated nodes of pods concurrently; return an error, if any."""
        errors = await asyncio.gather(*(self._write(pod, node) for pod, node in nodes))
        return next(filter(None, errors), None)

    async def _write(self, pod: PodInfo, node: str | None) -> KubeError | None:
        body = {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node}}
        try:
            await self._kube.patch(path_below(pod.path, "status"), body, Ignored, kind="strategic")
        except KubeError as error:
            return None if is_outdated(error) else error
        return None


def _reason(error: KubeError) -> str:
    """Return why pods could not be nominated. The answer itself may name other namespaces."""
    if isinstance(error, ApiError) and error.status == 403:
        return "the scorer may not nominate its pods: manifests/preemption has the rights for it"
    return "the API server did not accept the nomination of its pods"
