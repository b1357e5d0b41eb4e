"""Gang membership of a pod: the gang, and its size.

A gang is planned as one unit. Marks of other systems are supported; the first that is present
applies.
"""

from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple

from msgspec import Struct

from linkwise.cluster.finding import Code, Finding, Severity, quoted
from linkwise.cluster.keys import (
    GANG,
    GANG_SIZE,
    GPU_TOPOLOGY_REPLICA,
    KOORDINATOR_GANG_MIN_AVAILABLE,
    KOORDINATOR_GANG_NAME,
    LINK,
    LWS_GROUP_INDEX,
    LWS_NAME,
    LWS_SIZE,
    OTHER_GROUPS,
    POD_GROUP,
    POD_GROUP_MIN_AVAILABLE,
    POD_GROUP_NAME,
)
from linkwise.cluster.objects.pod import NewPod, SchedulingGroup
from linkwise.cluster.objects.quantity import count
from linkwise.cluster.requests.request import Family, Request

_POD_GROUP_PATH = f"metadata.labels[{POD_GROUP}]"
_TOTAL_PATH = f"metadata.labels[{GPU_TOPOLOGY_REPLICA}]"
_SIZED_MARKS = tuple(
    (kind, name, f"metadata.{kind}[{name}]", size, f"metadata.{kind}[{size}]")
    for kind, name, size in (
        ("labels", POD_GROUP_NAME, POD_GROUP_MIN_AVAILABLE),
        ("annotations", KOORDINATOR_GANG_NAME, KOORDINATOR_GANG_MIN_AVAILABLE),
        ("annotations", GANG, GANG_SIZE),
    )
)
"""Marks in order of precedence: place, then key and path of the name and of the size."""
_LONGEST_NAME = 253
"""Maximum length of names of Kubernetes objects; an annotation can be longer [characters]."""
_UNTOLD = "true"
"""Placeholder that drafts of arena v2 write instead of the number of replicas."""


class Link(StrEnum):
    """Required links of a gang (annotation `linkwise.dev/link`)."""

    BEST = "best"
    """The best available links."""
    NVLINK = "nvlink"
    """Each worker, and the whole gang on one node, must be connected by NVLink alone."""
    ONE_NODE = "one-node"
    """All members must be on one node."""


class GangKey(NamedTuple):
    """Identity of a gang; a new owner makes a new gang of the same name."""

    namespace: str
    name: str
    """Name in the mark."""
    owner: str
    """Uid of the top owner of its pods; empty without owner."""


class Mark(Struct, frozen=True, gc=False):
    """The gang mark of a pod."""

    name: str
    min_available: int | None
    """GPU members that must be placed together; None if the pod does not have it (PodGroup or owner
    may)."""
    total: int | None
    """Number of all GPU members, if arena's label has it."""
    source: str
    """Path of the mark, such as `metadata.labels[scheduling.x-k8s.io/pod-group]`."""


def gang_mark(pod: NewPod) -> tuple[Mark | None, tuple[Finding, ...]]:
    """Return the gang mark of a pod that takes precedence, and findings about invalid sizes.

    A pod may have a mark without being a member: see `is_member`.
    """
    labels = pod.metadata.labels or {}
    named = _name(pod.spec.scheduling_group, labels, pod.metadata.annotations or {})
    if named is None:
        return None, ()
    name, source, size, size_path = named
    replicas = labels.get(GPU_TOPOLOGY_REPLICA)
    if replicas == _UNTOLD:
        replicas = None
    if is_of_group(pod):
        # Each group of a LeaderWorkerSet is a gang.
        name = f"{name}-{labels[LWS_GROUP_INDEX]}"
        replicas = replicas or (pod.metadata.annotations or {}).get(LWS_SIZE)
    min_available = None if size is None else count(size) or None
    total = None if replicas is None else count(replicas) or None
    if len(name) > _LONGEST_NAME:
        name = _shortened(name)
    mark = Mark(name, min_available, total, source)
    if (min_available or size is None) and (total or replicas is None):
        return mark, ()
    sizes = ((size, min_available, size_path), (replicas, total, _TOTAL_PATH))
    return mark, tuple(
        _no_size(text, path) for text, size, path in sizes if text is not None and not size
    )


def is_member(pod: NewPod, request: Request, mark: Mark | None) -> bool:
    """Return whether a pod is planned with the gang of its mark.

    Members request GPUs that Linkwise chooses. A launcher without GPUs has the labels of its
    workers but is not a member; neither is a pod of a DaemonSet.
    """
    return request.places and may_be_member(pod, mark)


def may_be_member(pod: NewPod, mark: Mark | None) -> bool:
    """Return whether a pod is planned with the gang of its mark if Linkwise places it."""
    return mark is not None and not _is_of_daemon_set(pod)


def foreign_mark(pod: NewPod) -> str | None:
    """Return the path of the gang mark of a pod that Linkwise does not place; None: it has none.

    Marks of schedulers beside which Linkwise places no gangs count, too.
    """
    mark, _ = gang_mark(pod)
    if mark is not None:
        return mark.source
    if is_of_group(pod):
        return f"metadata.labels[{LWS_NAME}]"
    annotations = pod.metadata.annotations or {}
    key = next((key for key in OTHER_GROUPS if annotations.get(key)), None)
    return f"metadata.annotations[{key}]" if key else None


def is_of_group(pod: NewPod) -> bool:
    """Return whether a pod belongs to a group of a LeaderWorkerSet."""
    labels = pod.metadata.labels or {}
    return LWS_NAME in labels and LWS_GROUP_INDEX in labels


def link_strictness(pod: NewPod) -> tuple[Link, tuple[Finding, ...]]:
    """Return the required links of the gang of a pod; default `best`."""
    annotations = pod.metadata.annotations
    if not annotations or LINK not in annotations:
        return Link.BEST, ()
    text = annotations[LINK]
    try:
        return Link(text), ()
    except ValueError:
        allowed = ", ".join(Link)
        finding = Finding(
            Code.GANG_LINK,
            Severity.ERROR,
            f"metadata.annotations[{LINK}]",
            text,
            f"{quoted(text)} is not allowed: a gang's links are one of {allowed}",
            f"write one of {allowed}, or remove the annotation, which means {Link.BEST}",
        )
        return Link.BEST, (finding,)


def link_alone(pod: NewPod, request: Request) -> Link:
    """Return the required links of a single pod; one GPU or a share has none."""
    several = request.family is Family.WHOLE and request.gpus > 1
    return link_strictness(pod)[0] if several else Link.BEST


def _name(
    group: SchedulingGroup | None, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> tuple[str, str, str | None, str] | None:
    """Return name, path of the name, size as written and path of the size of a gang."""
    if group is not None and group.pod_group_name:
        return group.pod_group_name, "spec.schedulingGroup.podGroupName", None, ""
    if name := labels.get(POD_GROUP):
        return name, _POD_GROUP_PATH, None, ""
    for kind, name_key, name_path, size_key, size_path in _SIZED_MARKS:
        texts = labels if kind == "labels" else annotations
        if name := texts.get(name_key):
            return name, name_path, texts.get(size_key), size_path
    return None


def _shortened(name: str) -> str:
    """Return a shortened, still unique name: it is stored several times per pod."""
    digest = sha256(name.encode(errors="surrogatepass")).hexdigest()
    return f"{name[: _LONGEST_NAME - len(digest) - 1]}-{digest}"


def _no_size(text: str, path: str) -> Finding:
    return Finding(
        Code.GANG_SIZE,
        Severity.ERROR,
        path,
        text,
        f"{quoted(text)} is no size of a gang: it is a whole number of at least 1",
        'write the number of workers with GPUs, such as "4"',
    )


def _is_of_daemon_set(pod: NewPod) -> bool:
    for owner in pod.metadata.owner_references or ():
        if owner.kind == "DaemonSet" and owner.controller:
            return True
    return False
