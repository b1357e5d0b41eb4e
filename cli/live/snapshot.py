"""What a snapshot of a cluster keeps: only what Linkwise reads, so that it holds no secret. Pure.

Every object is read as the type that placement knows and written again from it. Variables,
commands, volumes' contents and foreign annotations have no place there, nor has what only changes
with time: an unchanged cluster gives the same text twice.
"""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct, structs

from cli.render.document import Document
from cli.render.output import Format, dumped
from cluster import keys
from cluster.node_resources import NodeObject
from cluster.pod import Metadata, Pod
from scorer.gang.owners import Declaration, PodGroup

Plain: TypeAlias = dict[str, object]
"""An object as JSON."""

_ANNOTATIONS = keys.RECORD | {
    keys.GANG_SIZE,
    keys.KOORDINATOR_GANG_NAME,
    keys.KOORDINATOR_GANG_MIN_AVAILABLE,
    keys.JOB_COMPLETION_INDEX,
    keys.MIRROR_POD,
}
_OURS = (keys.PREFIX, keys.VISIBLE_DEVICES_OF)
_TOPOLOGY = frozenset(
    {
        keys.TOPOLOGY_DEVICES,
        keys.TOPOLOGY_LINKS,
        keys.TOPOLOGY_BANDWIDTH,
        keys.TOPOLOGY_BANDWIDTH_ARENA,
        keys.TOPOLOGY_MACHINE,
    }
)
_FIRST = ("Namespace", "ConfigMap", "Node")
"""Kinds that come first in a snapshot; pods come last, workloads between."""


class Snapshot(Document, frozen=True, kw_only=True):
    """Kubernetes objects of a cluster, as far as Linkwise reads them."""

    items: list[dict[str, Any]]


class _Address(Struct, frozen=True):
    type: str = ""
    address: str = ""


class _Status(Struct, frozen=True):
    addresses: list[_Address] = []


class _Addressed(Struct, frozen=True):
    status: _Status = _Status()


def reduced(kind: str, found: Plain) -> Plain | None:
    """Return what a snapshot keeps of an object; None where it says nothing to Linkwise.

    Args:
        kind: Its kind.
        found: The object as the API server gives it.

    Raises:
        msgspec.ValidationError: It is no such object.
    """
    match kind:
        case "Pod":
            return _pod(found)
        case "Node":
            return _node(found)
        case "ConfigMap":
            return _config_map(found)
        case "Namespace":
            return {"apiVersion": "v1", "kind": kind, "metadata": _metadata(found)}
        case "PodGroup":
            return _told(found, PodGroup)
        case _:
            return _told(found, Declaration)


def written(objects: Iterable[Plain], output: Format = Format.JSON) -> str:
    """Return a snapshot's text, its objects in the order of kinds and names.

    JSON has one object a line, so that two snapshots can be compared with diff.
    """
    if output is not Format.JSON:
        return dumped(msgspec.to_builtins(Snapshot(items=ordered(objects))), output)
    lines = (
        json.dumps(one, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        for one in ordered(objects)
    )
    head = msgspec.json.encode(Snapshot(items=[])).decode().removesuffix("]}")
    items = ",\n".join(lines)
    return f"{head}\n{items}\n]}}\n"


def ordered(objects: Iterable[Plain]) -> list[Plain]:
    """Return objects in the order of a snapshot."""
    return sorted(objects, key=_place)


def _place(one: Plain) -> tuple[int, str, str, str]:
    kind, metadata = str(one["kind"]), one["metadata"]
    between = len(_FIRST) + (kind == "Pod")
    order = _FIRST.index(kind) if kind in _FIRST else between
    names = metadata if isinstance(metadata, dict) else {}
    return order, kind, str(names.get("namespace", "")), str(names.get("name", ""))


def _pod(found: Plain) -> Plain:
    pod = msgspec.convert(found, Pod)
    told = _written(structs.replace(pod, metadata=_kept(pod.metadata)))
    return {"apiVersion": "v1", "kind": "Pod", **told}


def _node(found: Plain) -> Plain:
    node = msgspec.convert(found, NodeObject)
    conditions = [one for one in node.status.conditions or () if one.type == "Ready"]
    status = structs.replace(node.status, conditions=conditions)
    told = _written(structs.replace(node, metadata=_kept(node.metadata), status=status))
    addresses = msgspec.convert(found, _Addressed).status.addresses
    inner = [_written(one) for one in addresses if one.type == "InternalIP"]
    if inner:
        told["status"] = {**_written(status), "addresses": inner}
    return {"apiVersion": "v1", "kind": "Node", **told}


def _config_map(found: Plain) -> Plain | None:
    """Return a ConfigMap's keys that are ours; None where none is."""
    told = _metadata(found)
    name, namespace, labels = told.get("name"), told.get("namespace"), told.get("labels", {})
    data = found.get("data")
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
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": told, "data": kept}


def _told(found: Plain, kind: type[Struct]) -> Plain:
    """Return what an object says of how many pods there are to be."""
    head = {"apiVersion": found["apiVersion"], "kind": found["kind"], "metadata": _metadata(found)}
    return {**_written(msgspec.convert(found, kind)), **head}


def _metadata(found: Plain) -> Plain:
    metadata = msgspec.convert(found.get("metadata", {}), Metadata)
    return _written(structs.replace(metadata, annotations=None, resource_version=""))


def _kept(metadata: Metadata) -> Metadata:
    annotations = {
        key: text
        for key, text in (metadata.annotations or {}).items()
        if key in _ANNOTATIONS or key.startswith(_OURS)
    }
    return structs.replace(metadata, annotations=annotations or None, resource_version="")


def _written(value: Struct) -> Plain:
    """Return a value as JSON, without variables and fields that say nothing."""
    return {
        name: _plain(inner)
        for attribute, name, default in _fields(type(value))
        if attribute != "env"
        and (inner := getattr(value, attribute)) is not None
        and inner != default
    }


def _plain(value: object) -> object:
    if isinstance(value, Struct):
        return _written(value)
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
            one.name,
            one.encode_name,
            one.default_factory() if one.default_factory is not msgspec.NODEFAULT else one.default,
        )
        for one in structs.fields(kind)
    )
