"""Calls of the Eviction API, which observes disruption budgets; only `removal` makes them.

Each eviction has the term of its leader, like a write that allocates GPUs: the API server refuses
those of a past leader (`fence`), which may have been stopped in the middle of a gang.
"""

import asyncio
from collections.abc import Collection

import structlog

from linkwise.cluster.keys import TERM
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.runtime.kube.client import ApiError, Ignored, KubeError
from linkwise.runtime.kube.paths import path_below
from scorer.commit.handle import Handle
from scorer.fence import LeadershipLost, is_leadership_lost
from scorer.metrics import Stage

_NO_DRY_RUN = 400
"""Status of a dry run if the cluster has a webhook that does not support it."""
_GONE = 404
_TOO_MANY, _SERVER_ERROR = 429, 500
_UNAVAILABLE = {502, 503, 504}
_SEVERAL_BUDGETS = "more than one PodDisruptionBudget"

_log = structlog.get_logger()


async def evict(
    handle: Handle, pods: Collection[PodInfo], *, dry_run: bool
) -> dict[str, int | None]:
    """Evict pods concurrently; return the HTTP status of each refusal, by uid.

    None: it is evicted, or is not there. 0: the API server did not answer, or was not able to.
    429: disruption budgets do not allow it.

    Args:
        handle: The API server, the term, and a counter of unforeseen exceptions.
        pods: The pods. Another pod of the same name is not evicted.
        dry_run: Ask only whether they would be. It uses up no disruption budget.

    Raises:
        LeadershipLost: Another process leads.
    """
    answers = await asyncio.gather(*(_isolated(handle, pod, dry_run) for pod in pods))
    return {pod.uid: answer for pod, answer in zip(pods, answers, strict=True)}


async def _isolated(handle: Handle, pod: PodInfo, dry_run: bool) -> int | None:
    with handle.faults.isolate(Stage.EVICT, pod.key):
        return await _evict(handle, pod, dry_run)
    return 0


async def _evict(handle: Handle, pod: PodInfo, dry_run: bool) -> int | None:
    try:
        await _call(handle, pod, dry_run)
    except KubeError as error:
        if is_leadership_lost(error):
            raise LeadershipLost(str(error)) from error
        status = _status(error) if isinstance(error, ApiError) else 0
        if status == _GONE or (dry_run and status == _NO_DRY_RUN):
            return None
        _log.warning("Could not evict pod", pod="/".join(pod.key), dry_run=dry_run, err=str(error))
        return status
    return None


def _status(error: ApiError) -> int:
    """Return the status of a refusal, which tells budgets from an API server that is too busy."""
    if error.status == _TOO_MANY:
        return _TOO_MANY if "budget" in " ".join((error.message, *error.causes)).lower() else 0
    if error.status == _SERVER_ERROR and _SEVERAL_BUDGETS in error.message:
        return _TOO_MANY
    return 0 if error.status in _UNAVAILABLE else error.status


async def _call(handle: Handle, pod: PodInfo, dry_run: bool) -> None:
    # A pod changes several times while a kubelet starts it, so its version is no precondition.
    options: dict[str, object] = {"preconditions": {"uid": pod.uid}}
    if dry_run:
        options["dryRun"] = ["All"]
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "annotations": {TERM: str(handle.term)},
        },
        "deleteOptions": options,
    }
    # Webhooks see the parameter, the Eviction API both.
    params = {"dryRun": "All"} if dry_run else {}
    await handle.kube.create(path_below(pod.path, "eviction"), body, Ignored, params=params)
