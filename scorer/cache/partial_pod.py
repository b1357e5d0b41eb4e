"""Read pods from the watch; where a pod cannot be decoded, read each part of it separately.

One bad field must not hide the GPUs that a pod holds: where it is not known which these are, the
pod's node becomes unaccounted.
"""

from collections.abc import Iterator
from dataclasses import replace

import msgspec
import structlog
from msgspec import Raw

from cluster.keys import ALLOCATION, GANG
from cluster.pod import Container, Metadata, Pod, PodSpec, PodStatus, Resources, SchedulingGate
from cluster.pod_usage import PodUsage, pod_usage
from cluster.request import Family
from runtime.kube.decode import decode
from scorer.gang.pod_info import PodInfo, pod_info, unplanned
from scorer.placement.member import new_member

_LONGEST = 200
"""Of an error's text [characters]."""

_pods = msgspec.json.Decoder(Pod)
_anything = msgspec.json.Decoder()
_log = structlog.get_logger()


def read_pod(raw: bytes | Raw) -> PodInfo:
    """Return what is kept of a pod.

    Never raises for the JSON of an object: a pod that cannot be decoded is read part by part.
    """
    try:
        return pod_info(decode(raw, _pods))
    except Exception as error:  # noqa: BLE001 - whatever it is, the pod may hold GPUs.
        why = f"its object cannot be read: {str(error)[:_LONGEST]}"
        found = _read_apart(raw, why)
        _log.warning("Could not read pod", pod="/".join(found.key), err=why)
        return found


def _read_apart(raw: bytes | Raw, why: str) -> PodInfo:
    """Return what is kept of a pod that cannot be decoded as a whole."""
    pod, is_complete = _readable(decode(raw, _anything))
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
    """Return what the pod claims.

    Args:
        pod: Its readable parts.
        why: Why there are others.
        is_complete: The resources of all its containers are among them.
    """
    usage = pod_usage(pod)
    if usage is None or not usage.node or (is_complete and not usage.places):
        return usage
    family = usage.family or Family.WHOLE
    return replace(usage, family=family, places=True, unreadable=why)


def _readable(whole: object) -> tuple[Pod, bool]:
    """Return the readable parts of a pod, and whether all resources are among them."""
    name, namespace, uid, version, created = (
        _text(_part(whole, "metadata", field))
        for field in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    )
    spec = _part(whole, "spec")
    lists = [list(_containers(_part(spec, kind))) for kind in ("containers", "initContainers")]
    apps, inits = ([one for one in each if one is not None] for each in lists)
    gates = _part(spec, "schedulingGates")
    gated = isinstance(gates, list) and any(_part(gate, "name") == GANG for gate in gates)
    record = _part(whole, "metadata", "annotations", ALLOCATION)
    pod = Pod(
        metadata=Metadata(
            name=name,
            namespace=namespace,
            uid=uid,
            resource_version=version,
            creation_timestamp=created,
            annotations={ALLOCATION: record} if isinstance(record, str) else {},
        ),
        spec=PodSpec(
            containers=apps,
            init_containers=inits,
            node_name=_text(_part(spec, "nodeName")),
            scheduling_gates=[SchedulingGate(GANG)] if gated else None,
        ),
        status=PodStatus(phase=_text(_part(whole, "status", "phase"))),
    )
    return pod, all(one is not None for each in lists for one in each)


def _containers(listed: object) -> Iterator[Container | None]:
    """Yield each container by its resources; None for each of which these cannot be read."""
    if listed is None:
        return
    for one in listed if isinstance(listed, list) else [None]:
        if not isinstance(one, dict):
            yield None
            continue
        try:
            yield Container(
                name=_text(_part(one, "name")),
                resources=msgspec.convert(_part(one, "resources") or {}, Resources),
                restart_policy=_text(_part(one, "restartPolicy")),
            )
        except msgspec.ValidationError:
            yield None


def _part(whole: object, *path: str) -> object:
    """Return the part at a path; None where there is none."""
    for name in path:
        whole = whole.get(name) if isinstance(whole, dict) else None
    return whole


def _text(part: object) -> str:
    return part if isinstance(part, str) else ""
