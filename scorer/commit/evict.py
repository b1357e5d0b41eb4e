"""Eviction of pods by the Eviction API, which observes disruption budgets."""

import asyncio
from collections.abc import Collection

import structlog

from runtime.kube.client import ApiError, Ignored, Kube, KubeError
from scorer.gang.pod_info import PodInfo
from scorer.metrics import Stage
from scorer.queue.fault_isolation import FaultIsolation

_log = structlog.get_logger()


async def evict(
    kube: Kube, pods: Collection[PodInfo], faults: FaultIsolation, *, only_unchanged: bool = True
) -> dict[str, int]:
    """Evict pods concurrently; return the HTTP status for those that stay, by uid.

    429: a disruption budget protects it. 0: the API server did not answer.

    Args:
        kube: The API server.
        pods: All pods of some units.
        faults: Counts unforeseen exceptions.
        only_unchanged: A pod that has changed stays, too. Else only another pod of its name does.
    """
    results = await asyncio.gather(*(_isolated(kube, pod, faults, only_unchanged) for pod in pods))
    return {pod.uid: got for pod, got in zip(pods, results, strict=True) if got is not None}


async def _isolated(
    kube: Kube, pod: PodInfo, faults: FaultIsolation, only_unchanged: bool
) -> int | None:
    with faults.isolate(Stage.EVICT, pod.key):
        return await _evict(kube, pod, only_unchanged)
    return 0


async def _evict(kube: Kube, pod: PodInfo, only_unchanged: bool) -> int | None:
    preconditions = {"uid": pod.uid}
    if only_unchanged:
        preconditions["resourceVersion"] = pod.version
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": preconditions},
    }
    try:
        await kube.create(f"{pod.path}/eviction", body, Ignored)
    except KubeError as error:
        status = error.status if isinstance(error, ApiError) else 0
        if status == 404:
            return None
        _log.warning("Could not evict pod", pod="/".join(pod.key), err=str(error))
        return status
    return None
