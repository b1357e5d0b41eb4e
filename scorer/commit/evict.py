"""Eviction of pods by the Eviction API, which observes disruption budgets."""

import asyncio
from collections.abc import Iterable

import structlog

from runtime.kube.client import ApiError, Ignored, Kube, KubeError
from scorer.gang.pod_info import PodInfo
from scorer.metrics import Stage
from scorer.queue.fault_isolation import FaultIsolation

_log = structlog.get_logger()


async def evict(kube: Kube, pods: Iterable[PodInfo], faults: FaultIsolation) -> None:
    """Evict pods concurrently, each only if it has not changed.

    A pod that has changed, or that a disruption budget protects, stays; the caller retries.
    """
    await asyncio.gather(*(_isolated(kube, pod, faults) for pod in pods))


async def _isolated(kube: Kube, pod: PodInfo, faults: FaultIsolation) -> None:
    with faults.isolate(Stage.EVICT, pod.key):
        await _evict(kube, pod)


async def _evict(kube: Kube, pod: PodInfo) -> None:
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid, "resourceVersion": pod.version}},
    }
    try:
        await kube.create(f"{pod.path}/eviction", body, Ignored)
    except KubeError as error:
        if not (isinstance(error, ApiError) and error.status == 404):
            _log.warning("Could not evict pod", pod="/".join(pod.key), err=str(error))
