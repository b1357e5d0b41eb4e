"""Alternatives for the node of a volume, of which a node must satisfy one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from linkwise.cluster.keys import NODE_NAME_FIELD
from linkwise.cluster.objects.affinity import NodeSelectorTerm, Requirement
from linkwise.cluster.objects.selector import terms_match
from linkwise.cluster.volume_keys import REGION, REGION_BEFORE, ZONE, ZONE_BEFORE

BYTES_MAX = 16 << 10
"""Largest choice that is kept [bytes, encoded]: about a thousand names of nodes."""

_CURRENT = {ZONE_BEFORE: ZONE, REGION_BEFORE: REGION}
"""The label that replaced a label."""
_PLACES = (ZONE_BEFORE, REGION_BEFORE, ZONE, REGION)


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """Terms of node selectors, which are ORed; equal if they read the same."""

    encoded: bytes
    terms: tuple[NodeSelectorTerm, ...] = field(compare=False, repr=False)

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether a node satisfies one of the terms."""
        return terms_match(self.terms, name, labels)

    @property
    def is_too_large(self) -> bool:
        """It has more than is kept, so that no node is compared with it."""
        return not self.terms and len(self.encoded) > BYTES_MAX


TOO_LARGE = NodeChoice(b" " * (BYTES_MAX + 1), ())
"""Stands for every choice that is too large."""


def choice_of(terms: Iterable[NodeSelectorTerm]) -> NodeChoice:
    """Return the choice between terms. Cost: linear in them."""
    kept = tuple(terms)
    encoded = msgspec.msgpack.encode(kept)
    return NodeChoice(encoded, kept) if len(encoded) <= BYTES_MAX else TOO_LARGE


def only_node(name: str) -> NodeChoice:
    """Return the choice of one node, by its name."""
    named = Requirement(key=NODE_NAME_FIELD, operator="In", values=[name])
    return choice_of([NodeSelectorTerm(match_fields=[named])])


def place_choices(labels: Mapping[str, str]) -> tuple[NodeChoice, ...]:
    """Return what the labels of a volume for zones and regions require of a node.

    A node without any of these labels satisfies them, since it is in a cluster of one zone. The
    value of a volume may name several zones, as `a__b`.
    """
    return tuple(
        choice_of([*_placed(key, zones), _NOWHERE])
        for key in _PLACES
        if (zones := _zones(labels.get(key)))
    )


_NOWHERE = NodeSelectorTerm(
    match_expressions=[Requirement(key=key, operator="DoesNotExist") for key in _PLACES]
)


def _placed(key: str, zones: list[str]) -> Iterable[NodeSelectorTerm]:
    yield NodeSelectorTerm(match_expressions=[Requirement(key=key, operator="In", values=zones)])
    if key in _CURRENT:
        # The label that replaced it counts where the node lacks this one.
        absent = Requirement(key=key, operator="DoesNotExist")
        current = Requirement(key=_CURRENT[key], operator="In", values=zones)
        yield NodeSelectorTerm(match_expressions=[absent, current])


def _zones(value: str | None) -> list[str]:
    """Return the zones in the value of a label; none where kube-scheduler ignores it."""
    zones = [zone.strip() for zone in value.split("__")] if value else []
    return zones if all(zones) else []
