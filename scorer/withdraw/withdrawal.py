"""Delete the objects that affect pods and claims, then remove our gate from the pods that have it.

The order keeps every creation of a pod possible. First the policies that reject pods without a
gate: the webhook still reviews pods. Then the webhook configurations, after API servers have seen
the first deletion. From then on no pod gets the gate, and the pods that have it are released.
The rules that keep GPUs from the claims of others are deleted once the scorer may write none.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass

import structlog
from msgspec import Struct

from linkwise.cluster import keys
from linkwise.cluster.nodes.device_fence import OURS
from linkwise.cluster.nodes.taint_rules import VERSIONS
from linkwise.cluster.objects.kube_object import pod_path
from linkwise.runtime.kube.client import ApiError, Ignored, Kube, KubeError
from linkwise.runtime.kube.objects import ObjectMeta
from linkwise.runtime.kube.paging import Page, Params, pages
from linkwise.runtime.kube.paths import api_path, path_below

_log = structlog.get_logger()

REJECTING = (
    ("validatingadmissionpolicybindings", "linkwise-placed"),
    ("validatingadmissionpolicybindings", "linkwise-placed-nvidia"),
    ("validatingadmissionpolicybindings", "linkwise-guard"),
    ("validatingadmissionpolicybindings", "linkwise-claims"),
)
OTHERS = (
    ("mutatingwebhookconfigurations", "linkwise"),
    ("validatingwebhookconfigurations", "linkwise"),
    ("validatingadmissionpolicies", "linkwise-placed"),
    ("validatingadmissionpolicies", "linkwise-placed-nvidia"),
    ("validatingadmissionpolicies", "linkwise-guard"),
    ("validatingadmissionpolicies", "linkwise-claims"),
)
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
FENCE = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/linkwise-device-fence"
"""By it the scorer writes DeviceTaintRules."""
_RULES = {"labelSelector": ",".join(map("=".join, OURS.items()))}
_ALL: Params = {}
_PAGE = 50
"""Pods of one response: an object has up to 1.5 MB."""
_CONCURRENT = 16


@dataclass(frozen=True, slots=True)
class Times:
    """Waiting times [s]."""

    seen: float = 2
    """Until API servers apply a deletion."""
    reviews: float = 10
    """From the deletion of the webhook configurations until no review of before can add a gate:
    both calls of one have a timeout of 3 s."""
    retry: float = 1


class _Name(Struct, frozen=True):
    name: str


class _Spec(Struct, frozen=True, rename="camel"):
    scheduling_gates: list[_Name] | None = None


class _Pod(Struct, frozen=True):
    metadata: ObjectMeta
    spec: _Spec

    @property
    def gates(self) -> list[str]:
        return [gate.name for gate in self.spec.scheduling_gates or ()]


async def withdraw(kube: Kube, times: Times) -> None:
    """Delete the objects that affect pods, and return when no pod has our gate.

    Pods that users create with the gate themselves, after the last review, are not waited for. A
    failed request is repeated for ever: the deadline of the Job ends it.
    """
    await _delete(kube, FENCE, times)
    await _delete_all(kube, REJECTING, times)
    await asyncio.sleep(times.seen)
    await _delete_all(kube, OTHERS, times)
    for version in VERSIONS:
        await _delete(
            kube, api_path(f"resource.k8s.io/{version}", "devicetaintrules"), times, params=_RULES
        )
    end = asyncio.get_running_loop().time() + times.reviews
    last: set[str] | None = None
    while True:
        is_last = asyncio.get_running_loop().time() >= end
        held = await _held(kube)
        if held is not None and last is not None:
            held = [pod for pod in held if pod.metadata.uid in last]
        elif held is not None and is_last:
            last = {pod.metadata.uid for pod in held}
        await _release(kube, held or [])
        if held == [] and is_last:
            return
        await asyncio.sleep(times.retry)


async def _delete_all(kube: Kube, objects: tuple[tuple[str, str], ...], times: Times) -> None:
    for resource, name in objects:
        await _delete(kube, path_below(_ADMISSION, resource, name), times)


async def _delete(kube: Kube, path: str, times: Times, params: Params = _ALL) -> None:
    """Delete an object, or the selected ones of a collection, unless there is none."""
    while True:
        try:
            await kube.delete(path, params=params)
        except KubeError as error:
            if isinstance(error, ApiError) and error.status == 404:
                return
            _log.warning("Could not delete object", path=path, err=str(error))
            await asyncio.sleep(times.retry)
        else:
            _log.info("Deleted object", path=path)
            return


async def _held(kube: Kube) -> list[_Pod] | None:
    """Return the pods with our gate; None if they could not be listed."""
    params = {"fieldSelector": "status.phase=Pending", "limit": str(_PAGE)}
    held: list[_Pod] = []

    def read(params: Params) -> Awaitable[Page[_Pod]]:
        return kube.get("/api/v1/pods", Page[_Pod], params=params)

    try:
        async for page in pages(read, params):
            held += [pod for pod in page.items or () if keys.GANG in pod.gates]
    except KubeError as error:
        _log.warning("Could not list pods", err=str(error))
        return None
    return held


async def _release(kube: Kube, held: list[_Pod]) -> None:
    """Remove our gate from pods; those that were deleted or changed meanwhile are listed again."""
    limit = asyncio.Semaphore(_CONCURRENT)

    async def release(pod: _Pod) -> None:
        place = f"/spec/schedulingGates/{pod.gates.index(keys.GANG)}"
        patch = [
            {"op": "test", "path": f"{place}/name", "value": keys.GANG},
            {"op": "remove", "path": place},
        ]
        path = pod_path(pod.metadata.namespace, pod.metadata.name)
        identity = {"namespace": pod.metadata.namespace, "pod": pod.metadata.name}
        async with limit:
            try:
                await kube.patch(path, patch, Ignored, kind="json")
            except KubeError as error:
                _log.warning("Could not release pod", **identity, err=str(error))
            else:
                _log.info("Released pod", **identity)

    await asyncio.gather(*map(release, held))
