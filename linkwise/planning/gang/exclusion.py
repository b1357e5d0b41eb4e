"""Nodes that a unit does not use for a while, since one of its pods could not be bound there. Pure.

A gang keeps its key while its pods are replaced. Of a pod on its own, exclusions are those of its
controller and of what it asks for, so that they hold for the pod that replaces it, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256

import msgspec

from linkwise.cluster.gang import GangKey
from linkwise.cluster.nodes.node import Node
from linkwise.planning.gang.unit import Unit
from linkwise.runtime.process.clock import rfc3339

_SHOWN = 3
_NAMESPACE_DIGITS, _UNIT_DIGITS, _NODE_DIGITS = 8, 12, 12
_ORDINAL = "StatefulSet"
"""The kind of controllers that give a replacement the name and the volumes of its predecessor."""


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A node is excluded for a unit."""

    until: float
    """At the latest [s since 1970]; it ends earlier if the cause may be gone."""
    why: str = ""
    """In the words of kube-scheduler; empty: it said nothing."""


def exclusion_key(unit: Unit) -> GangKey:
    """Return the key under which exclusions of a unit are kept, also for its later pods."""
    first = (unit.waiting or unit.settled)[0]
    usage, owner = first.usage, first.controller
    if unit.is_gang or owner is None or usage is None:
        return unit.key
    record, member = first.allocation, first.member
    gpus = len(record.gpus) if record else member.request.gpus if member else 0
    name = first.name if owner.kind == _ORDINAL else ""
    shape = msgspec.json.encode((name, usage.family, gpus, usage.demand), order="deterministic")
    return GangKey(first.namespace, f"/{_digest(shape, _UNIT_DIGITS)}", owner.uid)


def exclusion_id(key: GangKey) -> str:
    """Return a key as the Lease has it, which people may read who may not see all namespaces."""
    namespace = _digest(key.namespace.encode(), _NAMESPACE_DIGITS)
    return namespace + _digest("/".join(key).encode(), _UNIT_DIGITS)


def namespace_of(unit: str) -> str:
    """Return what stands for its namespace in the id of a unit (`exclusion_id`)."""
    return unit[:_NAMESPACE_DIGITS]


def lasting(node: Node | None) -> Node | None:
    """Return what a node offers whatever its pods are: if that changes, it may take a pod again."""
    if node is None:
        return None
    cards = tuple(replace(card, claimed=False) for card in node.cards)
    return replace(node, cards=cards, pool=None, mismatch=None, warnings=())


def lasting_digest(node: Node | None) -> str:
    """Return a digest of what a node offers whatever its pods are, as it is for another leader."""
    if (same := lasting(node)) is None:
        return "-"
    return _digest(msgspec.msgpack.encode(same, order="deterministic"), _NODE_DIGITS)


def _digest(content: bytes, digits: int) -> str:
    return sha256(content).hexdigest()[:digits]


def exclusions_text(exclusions: Mapping[str, Exclusion]) -> str:
    """Return excluded nodes for users, at least one.

    >>> exclusions_text({"gpu-0": Exclusion(1767225600.0, "Insufficient rdma/hca")})
    'excluded, since a member could not be bound there: gpu-0 until 2026-01-01T00:00:00Z \
(Insufficient rdma/hca)'
    """
    texts = [
        f"{node} until {rfc3339(each.until)}{f' ({each.why})' if each.why else ''}"
        for node, each in sorted(exclusions.items())
    ]
    if len(texts) > _SHOWN:
        texts[_SHOWN:] = [f"{len(texts) - _SHOWN} more"]
    return f"excluded, since a member could not be bound there: {', '.join(texts)}"
