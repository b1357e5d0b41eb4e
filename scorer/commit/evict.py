"""Pods sent away to be made anew, by the Eviction API, which budgets and quotas have a say in."""

import asyncio
from collections.abc import Iterable

import structlog
from msgspec import Struct

from runtime.kube.client import ApiError, Kube, KubeError
from scorer.gang.pod_info import PodInfo
from scorer.metrics import Stage
from scorer.queue.fault_isolation import FaultIsolation

_log = structlog.get_logger()


class _Ignored(Struct, frozen=True):
    """Of an answer, nothing."""


async def evict(kube: Kube, pods: Iterable[PodInfo], faults: FaultIsolation) -> None:
    """Evict pods concurrently, each if it is still as it was seen.

    One that has changed meanwhile, or that a disruption budget keeps, stays: it is looked at again.
    """
    await asyncio.gather(*(_contained(kube, pod, faults) for pod in pods))


async def _contained(kube: Kube, pod: PodInfo, faults: FaultIsolation) -> None:
    with faults.contained(Stage.EVICT, pod.key):
        await _evict(kube, pod)


async def _evict(kube: Kube, pod: PodInfo) -> None:
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid, "resourceVersion": pod.version}},
    }
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/eviction"
    try:
        await kube.create(path, body, _Ignored)
    except KubeError as error:
        if not (isinstance(error, ApiError) and error.status == 404):
            _log.warning("Could not evict pod", pod="/".join(pod.key), err=str(error))
