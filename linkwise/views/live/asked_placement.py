"""Asks the dry-run API about pods that wait, for someone who may edit their namespace."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from linkwise.admission.dry_run.dryrun import MAX_TEMPLATES
from linkwise.cluster.whatif_api import FitResult
from linkwise.manifest.value import InputError
from linkwise.runtime.kube.client import KubeError
from linkwise.views.files.objects import Plain
from linkwise.views.live.dry_run_client import MAX_BYTES
from linkwise.views.live.dry_run_in_cluster import cluster_endpoint
from linkwise.views.live.dry_run_response import DryRun
from linkwise.views.live.kubeconfig import Access

_NOT_OF_NEW_PODS = {"schedulingGates", "nodeName"}


def placement_of(access: Access, pods: Sequence[Plain]) -> FitResult | None:
    """Return what would become of pods if they were created now; None: it is not known.

    Args:
        access: Chooses the cluster, the user, and the namespace of the pods.
        pods: They wait, and are placed together; of more than the API takes nothing is known.
    """
    if not 0 < len(pods) <= MAX_TEMPLATES:
        return None
    try:
        answer = asyncio.run(_ask(access, [_as_new(pod) for pod in pods]))
    except (InputError, KubeError):
        return None
    return next((pod.placement for pod in answer.pods if pod.placement is not None), None)


async def _ask(access: Access, pods: Sequence[Plain]) -> DryRun:
    async with cluster_endpoint(access) as endpoint:
        return await endpoint.kube.post(
            endpoint.path,
            msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": pods}),
            DryRun,
            content_type="application/json",
            params={"namespace": endpoint.namespace},
            max_bytes=MAX_BYTES,
        )


def _as_new(pod: Plain) -> Plain:
    """Return a pod as its owner would create it again."""
    spec: dict[str, Any] = pod["spec"]
    new = {key: value for key, value in spec.items() if key not in _NOT_OF_NEW_PODS}
    metadata = {key: value for key, value in pod["metadata"].items() if key in _OF_NEW_PODS}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": new}


_OF_NEW_PODS = {"name", "namespace", "labels", "annotations", "ownerReferences"}
