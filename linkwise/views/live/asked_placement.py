"""Asks the dry-run API about pods that wait, for someone who may edit their namespace."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from linkwise.admission.dry_run.dryrun import MAX_TEMPLATES
from linkwise.cluster.gang import gang_mark
from linkwise.cluster.keys import GANG_SIZE
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.whatif_api import FitResult
from linkwise.manifest.value import InputError
from linkwise.runtime.kube.client import ApiError, KubeError
from linkwise.views.files.objects import Plain
from linkwise.views.live.dry_run_client import MAX_BYTES
from linkwise.views.live.dry_run_in_cluster import MayNotEdit, cluster_endpoint
from linkwise.views.live.dry_run_response import DryRun
from linkwise.views.live.kubeconfig import Access

ANSWERED_IN = 5.0
"""The longest time that an explanation waits for an answer [s]."""
_OF_NEW_PODS = {"name", "namespace", "labels", "annotations"}
"""Fields of the metadata that a new pod has."""
_NOT_OF_NEW_PODS = {"schedulingGates", "nodeName"}


def placement_of(access: Access, pods: Sequence[Plain]) -> FitResult | None:
    """Return what would become of pods if they were created now; None: the user may not ask.

    Args:
        access: Chooses the cluster, the user, and the namespace of the pods.
        pods: They wait, and start together; of more than the API takes nothing is known.

    Raises:
        InputError: There is no answer, or none in time; one line for people.
    """
    if not 0 < len(pods) <= MAX_TEMPLATES:
        return None
    try:
        answer = asyncio.run(_ask(access, [_as_new(pod, len(pods)) for pod in pods]))
    except MayNotEdit:
        return None
    except TimeoutError:
        raise InputError(f"the dry-run API does not answer within {ANSWERED_IN:g} s.") from None
    except ApiError as error:
        reason = " ".join(error.message.split()).rstrip(".")
        raise InputError(f"the dry-run API answers with status {error.status}: {reason}.") from None
    except KubeError:
        raise InputError("there is no answer of the dry-run API.") from None
    found = next((pod.placement for pod in answer.pods if pod.placement is not None), None)
    if found is None and answer.notes:
        raise InputError(answer.notes[0])
    return found


async def _ask(access: Access, pods: Sequence[Plain]) -> DryRun:
    async with asyncio.timeout(ANSWERED_IN), cluster_endpoint(access) as endpoint:
        return await endpoint.kube.post(
            endpoint.path,
            msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": pods}),
            DryRun,
            content_type="application/json",
            params={"namespace": endpoint.namespace},
            max_bytes=MAX_BYTES,
        )


def _as_new(pod: Plain, together: int) -> Plain:
    """Return a pod as its owner would create it again, of a gang of this size if it is of one.

    The server reads no owner, so it knows neither the size of a gang by owner nor that the Jobs of
    one JobSet belong together.
    """
    spec: dict[str, Any] = pod["spec"]
    new = {key: value for key, value in spec.items() if key not in _NOT_OF_NEW_PODS}
    metadata = {key: value for key, value in pod["metadata"].items() if key in _OF_NEW_PODS}
    if gang_mark(msgspec.convert(pod, Pod))[0] is not None:
        size = {GANG_SIZE: str(together)}
        metadata["annotations"] = {**metadata.get("annotations", {}), **size}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": new}
