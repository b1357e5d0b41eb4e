"""Reduces objects to what Linkwise reads, for a snapshot without secrets. Pure.

Every object is decoded as the type that placement uses and encoded again. This drops environment
variables, commands, volumes and foreign annotations. It also drops fields that only change with
time, so that two snapshots of an unchanged cluster are equal.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any

import msgspec
from msgspec import Struct, structs

from linkwise.cluster import keys, volume_keys
from linkwise.cluster.nodes.device_claims import ClaimObject
from linkwise.cluster.nodes.node_resources import NodeObject
from linkwise.cluster.nodes.resource_slice import SliceObject
from linkwise.cluster.nodes.taint_rules import RuleObject
from linkwise.cluster.objects.disruption_budget import DisruptionBudget
from linkwise.cluster.objects.metadata import Metadata
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.user_claims.device_class import DeviceClass
from linkwise.cluster.sharing_keys import HAMI_REGISTER
from linkwise.views.files.objects import NodeAddresses, Plain
from linkwise.views.files.stored_volumes import KINDS
from linkwise.views.output.document import Document
from linkwise.views.output.printer import Format, dumped
from linkwise.workloads import operator_keys
from linkwise.workloads.kind import Workload
from linkwise.workloads.pod_group import PodGroup
from linkwise.workloads.registry import kind_of

_ANNOTATIONS = keys.RECORD | {
    keys.GANG_SIZE,
    keys.KOORDINATOR_GANG_NAME,
    keys.KOORDINATOR_GANG_MIN_AVAILABLE,
    operator_keys.JOB_COMPLETION_INDEX,
    keys.MIRROR_POD,
    *HAMI_REGISTER,
}
_OF_VOLUMES = frozenset(
    {
        volume_keys.BIND_COMPLETED,
        volume_keys.SELECTED_NODE,
        volume_keys.STORAGE_CLASS_BEFORE,
    }
)
_OURS = (keys.PREFIX, keys.VISIBLE_DEVICES_OF)
_TOPOLOGY = frozenset(
    {
        keys.TOPOLOGY_DEVICES,
        keys.TOPOLOGY_LINKS,
        keys.TOPOLOGY_BANDWIDTH,
        keys.TOPOLOGY_BANDWIDTH_ARENA,
        keys.TOPOLOGY_MACHINE,
        keys.TOPOLOGY_MISMATCH,
        keys.TOPOLOGY_ISOLATION,
    }
)
_FIRST = ("Namespace", "ConfigMap", "Node")
"""Kinds that come first in a snapshot; pods come last, workloads between."""


class Snapshot(Document, frozen=True, kw_only=True):
    """Kubernetes objects of a cluster, reduced to what Linkwise reads."""

    items: list[dict[str, Any]]


_OF_OWNERS = {operator_keys.KUEUE_MIN_PARALLELISM}
"""Annotations of owners of pods that are read."""


def reduced(kind: str, plain: Plain) -> Plain | None:
    """Return an object reduced to what Linkwise reads; None for one that it does not read.

    Args:
        kind: Its kind.
        plain: The object as the API server returns it.

    Raises:
        msgspec.ValidationError: It is no object of this kind.
    """
    if reduce := _REDUCE.get(kind):
        return reduce(plain)
    known = kind_of(str(plain.get("apiVersion", "")), kind)
    return _declaration(plain, known.shape if known else Workload)


def snapshot_text(objects: Iterable[Plain], output: Format = Format.JSON) -> str:
    """Return a snapshot's text, its objects ordered by kind and name.

    JSON has one object per line, so that two snapshots can be compared by diff.
    """
    if output is not Format.JSON:
        return dumped(msgspec.to_builtins(Snapshot(items=ordered(objects))), output)
    lines = (
        json.dumps(plain, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        for plain in ordered(objects)
    )
    head = msgspec.json.encode(Snapshot(items=[])).decode().removesuffix("]}")
    items = ",\n".join(lines)
    return f"{head}\n{items}\n]}}\n"


def ordered(objects: Iterable[Plain]) -> list[Plain]:
    """Return objects in the order of a snapshot."""
    return sorted(objects, key=_sort_key)


def _sort_key(plain: Plain) -> tuple[int, str, str, str]:
    kind, metadata = str(plain["kind"]), plain["metadata"]
    between = len(_FIRST) + (kind == "Pod")
    order = _FIRST.index(kind) if kind in _FIRST else between
    names = metadata if isinstance(metadata, dict) else {}
    return order, kind, str(names.get("namespace", "")), str(names.get("name", ""))


def _pod(plain: Plain) -> Plain:
    pod = msgspec.convert(plain, Pod)
    reduced_pod = structs.replace(pod, metadata=_reduced_metadata(pod.metadata))
    return {"apiVersion": "v1", "kind": "Pod", **_encoded(reduced_pod)}


def _node(plain: Plain) -> Plain:
    node = msgspec.convert(plain, NodeObject)
    conditions = [item for item in node.status.conditions or () if item.type == "Ready"]
    status = structs.replace(node.status, conditions=conditions)
    metadata = _reduced_metadata(node.metadata)
    encoded = _encoded(structs.replace(node, metadata=metadata, status=status))
    if internal := msgspec.convert(plain, NodeAddresses).internal:
        encoded["status"] = {**_encoded(status), "addresses": list(map(_encoded, internal))}
    return {"apiVersion": "v1", "kind": "Node", **encoded}


def _config_map(plain: Plain) -> Plain | None:
    """Return a ConfigMap with the keys that Linkwise reads; None where there is none."""
    metadata = _metadata(plain)
    name, namespace = metadata.get("name"), metadata.get("namespace")
    labels = metadata.get("labels", {})
    data = plain.get("data")
    wanted: frozenset[str] | None = None
    if isinstance(labels, Mapping) and keys.TOPOLOGY_NODE in labels and keys.NODE_MODE in labels:
        wanted = _TOPOLOGY
    elif str(name).startswith(keys.UNHEALTHY_NAME_PREFIX):
        wanted = frozenset((keys.UNHEALTHY_KEY,))
    elif (namespace, name) == (keys.PROFILE_NAMESPACE, keys.PROFILE_NAME):
        wanted = frozenset((keys.PROFILE_KEY,))
    elif (namespace, name) == (keys.POLICY_NAMESPACE, keys.POLICY_NAME):
        wanted = frozenset((keys.POLICY_KEY,))
    if wanted is None or not isinstance(data, Mapping):
        return None
    kept = {key: text for key, text in data.items() if key in wanted}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": kept}


def _lease(plain: Plain) -> Plain | None:
    """Return the scorer's Lease if it has facts about nodes."""
    metadata = msgspec.convert(plain.get("metadata", {}), Metadata)
    facts = keys.REFUSED_MACHINES, keys.UNFENCED_NODES, keys.EXCLUDED_NODES
    annotations = {
        key: text for key, text in (metadata.annotations or {}).items() if key in facts and text
    }
    if metadata.name != keys.SCORER or not annotations:
        return None
    head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    return {**head, "metadata": {**_metadata(plain), "annotations": annotations}}


def _slice(plain: Plain) -> Plain | None:
    """Return a ResourceSlice with all attributes, which selectors may read; None: without GPUs."""
    found = msgspec.convert(plain, SliceObject)
    return _about_devices("ResourceSlice", plain, found) if found.content else None


def _claim(plain: Plain) -> Plain | None:
    """Return a ResourceClaim with its GPUs, or its nodes; None if it has neither."""
    claim = msgspec.convert(plain, ClaimObject)
    return _about_devices("ResourceClaim", plain, claim) if claim.content or claim.place else None


def _class(plain: Plain) -> Plain:
    """Return a DeviceClass with the resource that it offers."""
    found = msgspec.convert(plain, DeviceClass)
    return _about_devices("DeviceClass", plain, found)


def _rule(plain: Plain) -> Plain | None:
    """Return a DeviceTaintRule; None if it is about no GPUs."""
    rule = msgspec.convert(plain, RuleObject)
    return _about_devices("DeviceTaintRule", plain, rule) if rule.content else None


def _namespace(plain: Plain) -> Plain:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": _metadata(plain)}


def _pod_group(plain: Plain) -> Plain:
    return _declaration(plain, PodGroup)


def _about_devices(kind: str, plain: Plain, found: Struct) -> Plain:
    head = {"apiVersion": "resource.k8s.io/v1", "kind": kind}
    return {**_encoded(found), **head, "metadata": _metadata(plain)}


def _about_volumes(kind: str, plain: Plain) -> Plain:
    """Return an object about volumes with the annotations that say how claims are bound."""
    version = "v1" if kind.startswith("Persistent") else "storage.k8s.io/v1"
    metadata = msgspec.convert(plain.get("metadata", {}), Metadata)
    kept = {key: text for key, text in (metadata.annotations or {}).items() if key in _OF_VOLUMES}
    metadata = structs.replace(metadata, annotations=kept or None, resource_version="")
    head = {"apiVersion": version, "kind": kind, "metadata": _encoded(metadata)}
    return {**_encoded(msgspec.convert(plain, KINDS[kind])), **head}


def _budget(plain: Plain) -> Plain:
    budget = msgspec.convert(plain, DisruptionBudget)
    head = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": _metadata(plain)}
    return {**_encoded(budget), **head}


def _declaration(plain: Plain, kind: type[Struct]) -> Plain:
    """Return the part of an object that states the number of pods."""
    head = {"apiVersion": plain["apiVersion"], "kind": plain["kind"], "metadata": _metadata(plain)}
    return {**_encoded(msgspec.convert(plain, kind)), **head}


def _metadata(plain: Plain) -> Plain:
    metadata = msgspec.convert(plain.get("metadata", {}), Metadata)
    kept = {key: text for key, text in (metadata.annotations or {}).items() if key in _OF_OWNERS}
    return _encoded(structs.replace(metadata, annotations=kept or None, resource_version=""))


def _reduced_metadata(metadata: Metadata) -> Metadata:
    annotations = {
        key: text
        for key, text in (metadata.annotations or {}).items()
        if key in _ANNOTATIONS or key.startswith(_OURS)
    }
    return structs.replace(metadata, annotations=annotations or None, resource_version="")


def _encoded(value: Struct) -> Plain:
    """Return a value as JSON, without environment variables and default values."""
    return {
        name: _plain(inner)
        for attribute, name, default in _fields(type(value))
        if attribute != "env"
        and (inner := getattr(value, attribute)) is not None
        and inner != default
    }


def _plain(value: object) -> object:
    if isinstance(value, Struct):
        return _encoded(value)
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return value


@cache
def _fields(kind: type[Struct]) -> tuple[tuple[str, str, object], ...]:
    """Return each field's name, its name on the wire, and its default."""
    return tuple(
        (
            each.name,
            each.encode_name,
            each.default if each.default_factory is msgspec.NODEFAULT else each.default_factory(),
        )
        for each in structs.fields(kind)
    )


_REDUCE: Mapping[str, Callable[[Plain], Plain | None]] = {
    "Pod": _pod,
    "Node": _node,
    "ConfigMap": _config_map,
    "Lease": _lease,
    "Namespace": _namespace,
    "ResourceSlice": _slice,
    "ResourceClaim": _claim,
    "DeviceClass": _class,
    "DeviceTaintRule": _rule,
    "PodDisruptionBudget": _budget,
    **{kind: partial(_about_volumes, kind) for kind in KINDS},
    "PodGroup": _pod_group,
}
"""By kind; all others are workloads."""
