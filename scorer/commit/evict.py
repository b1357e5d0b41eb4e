"""Eviction of pods by the Eviction API, which observes disruption budgets.

Each eviction has the term of its leader, like a write that allocates GPUs: the API server refuses
those of a past leader (`fence`), which may have been stopped in the middle of a gang.
"""

import asyncio
from collections.abc import Collection

import structlog

from cluster.keys import TERM
from runtime.kube.client import ApiError, Ignored, KubeError
from runtime.kube.paths import path_below
from scorer.commit.handle import Handle
from scorer.fence import LeadershipLost, is_leadership_lost
from scorer.gang.pod_info import PodInfo
from scorer.metrics import Stage

_log = structlog.get_logger()


async def evict(
    handle: Handle, pods: Collection[PodInfo], *, only_unchanged: bool = True
) -> dict[str, int]:
    """Evict pods concurrently; return the HTTP status for those that stay, by uid.

    429: a disruption budget protects it. 0: the API server did not answer.

    Args:
        handle: The API server, the term, and a counter of unforeseen exceptions.
        pods: All pods of some units.
        only_unchanged: A pod that has changed stays, too. Else only another pod of its name does.

    Raises:
        LeadershipLost: Another process leads.
    """
    results = await asyncio.gather(*(_isolated(handle, pod, only_unchanged) for pod in pods))
    return {pod.uid: got for pod, got in zip(pods, results, strict=True) if got is not None}


async def _isolated(handle: Handle, pod: PodInfo, only_unchanged: bool) -> int | None:
    with handle.faults.isolate(Stage.EVICT, pod.key):
        return await _evict(handle, pod, only_unchanged)
    return 0


async def _evict(handle: Handle, pod: PodInfo, only_unchanged: bool) -> int | None:
    preconditions = {"uid": pod.uid}
    if only_unchanged:
        preconditions["resourceVersion"] = pod.version
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "annotations": {TERM: str(handle.term)},
        },
        "deleteOptions": {"preconditions": preconditions},
    }
    try:
        await handle.kube.create(path_below(pod.path, "eviction"), body, Ignored)
    except KubeError as error:
        if is_leadership_lost(error):
            raise LeadershipLost(str(error)) from error
        status = error.status if isinstance(error, ApiError) else 0
        if status == 404:
            return None
        _log.warning("Could not evict pod", pod="/".join(pod.key), err=str(error))
        return status
    return None
