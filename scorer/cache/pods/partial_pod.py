"""Read pods from the watch; where a pod cannot be decoded, read each part of it separately.

An invalid field must not hide the GPUs of a pod: where these are unknown, the pod's node becomes
unaccounted.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import msgspec
import structlog
from msgspec import Raw

from linkwise.cluster.account.pod_usage import PodUsage, pod_usage
from linkwise.cluster.allocations.gpus import Unreadable
from linkwise.cluster.keys import ALLOCATION, CLAIMED_GPUS, GANG
from linkwise.cluster.objects.container import Container, ResourceClaim, Resources
from linkwise.cluster.objects.metadata import Metadata
from linkwise.cluster.objects.pod import Pod, PodSpec, SchedulingGate
from linkwise.cluster.objects.pod_status import PodStatus
from linkwise.cluster.requests.request import Family
from linkwise.planning.gang.pod_info import PodInfo, pod_info, unplanned
from linkwise.planning.placement.pods.member import new_member
from linkwise.runtime.kube.decode import decode

_KEPT = (ALLOCATION, CLAIMED_GPUS)
"""Annotations that say which GPUs a pod has."""
_ERROR_MAX = 200
"""Length of an error's text [characters]."""

_pod_decoder = msgspec.json.Decoder(Pod)
_json_decoder = msgspec.json.Decoder()
_log = structlog.get_logger()


def read_pod(raw: bytes | Raw) -> PodInfo:
    """Return what is kept of a pod.

    Never raises for the JSON of an object: a pod that cannot be decoded is read part by part.
    """
    try:
        return pod_info(decode(raw, _pod_decoder))
    except Exception as error:  # noqa: BLE001 - whatever the fault, the pod may hold GPUs.
        why = f"its object cannot be read: {str(error)[:_ERROR_MAX]}"
        pod = _read_parts(raw, why)
        _log.warning("Could not read pod", pod="/".join(pod.key), err=why)
        return pod


def _read_parts(raw: bytes | Raw, why: str) -> PodInfo:
    """Return what is kept of a pod that cannot be decoded as a whole."""
    pod, is_complete = _readable(decode(raw, _json_decoder))
    usage = _usage(pod, why, is_complete=is_complete)
    return unplanned(
        PodInfo(
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            uid=pod.metadata.uid,
            version=pod.metadata.resource_version,
            created=pod.metadata.creation_timestamp or "",
            usage=usage,
            gang=None,
            controller=None,
            settled=usage is not None and bool(usage.target),
            member=new_member(pod, pod.metadata.namespace)
            if usage and not usage.target and pod.spec.is_gated
            else None,
        ),
        why,
    )


def _usage(pod: Pod, why: str, *, is_complete: bool) -> PodUsage | None:
    """Return the usage of a pod.

    Args:
        pod: Its readable parts.
        why: Why other parts cannot be read.
        is_complete: The resources of all its containers could be read.
    """
    usage = pod_usage(pod)
    if usage is None or not usage.node or (is_complete and not usage.places):
        return usage
    family = usage.family or Family.WHOLE
    return replace(usage, family=family, places=True, unreadable=Unreadable(why))


def _readable(whole: object) -> tuple[Pod, bool]:
    """Return the readable parts of a pod, and whether all its resources could be read."""
    name, namespace, uid, version, created = (
        _text(_part(whole, "metadata", field))
        for field in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    )
    spec = _part(whole, "spec")
    all_apps, all_inits = (
        list(_containers(_part(spec, kind))) for kind in ("containers", "initContainers")
    )
    apps, inits = (list(filter(None, containers)) for containers in (all_apps, all_inits))
    gates = _part(spec, "schedulingGates")
    gated = isinstance(gates, list) and any(_part(gate, "name") == GANG for gate in gates)
    kept = {key: _part(whole, "metadata", "annotations", key) for key in _KEPT}
    pod = Pod(
        metadata=Metadata(
            name=name,
            namespace=namespace,
            uid=uid,
            resource_version=version,
            creation_timestamp=created,
            annotations={key: text for key, text in kept.items() if isinstance(text, str)},
        ),
        spec=PodSpec(
            containers=apps,
            init_containers=inits,
            node_name=_text(_part(spec, "nodeName")),
            scheduling_gates=[SchedulingGate(GANG)] if gated else None,
            resource_claims=list(_claims(_part(spec, "resourceClaims"))),
        ),
        status=PodStatus(phase=_text(_part(whole, "status", "phase"))),
    )
    return pod, None not in (*all_apps, *all_inits)


def _containers(part: object) -> Iterator[Container | None]:
    """Yield each container with its resources; None where these cannot be read."""
    if part is None:
        return
    for container in part if isinstance(part, list) else [None]:
        if not isinstance(container, dict):
            yield None
            continue
        try:
            yield Container(
                name=_text(_part(container, "name")),
                resources=msgspec.convert(_part(container, "resources") or {}, Resources),
                restart_policy=_text(_part(container, "restartPolicy")),
            )
        except msgspec.ValidationError:
            yield None


def _claims(part: object) -> Iterator[ResourceClaim]:
    """Yield the readable claims of a pod."""
    for claim in part if isinstance(part, list) else []:
        with suppress(msgspec.ValidationError):
            yield msgspec.convert(claim, ResourceClaim)


def _part(whole: object, *path: str) -> object:
    """Return the part at a path; None where there is none."""
    for name in path:
        whole = whole.get(name) if isinstance(whole, dict) else None
    return whole


def _text(part: object) -> str:
    return part if isinstance(part, str) else ""
