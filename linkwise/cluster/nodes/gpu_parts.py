"""Parts of GPUs that a node offers under the name of whole ones: replicas, or partitions by MIG.

A device plugin gives each pod as many of them as it asks for, and two may be of one card. Labels
of GPU feature discovery and GKE, and an annotation of HAMi, state it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from linkwise.cluster.keys import GFD_COUNT, GFD_PRODUCT, GFD_REPLICAS
from linkwise.cluster.sharing_keys import (
    GFD_SHARING,
    GFD_SLICES,
    GKE_CLIENTS,
    GKE_PARTITION,
    GKE_SHARING,
    HAMI_REGISTER,
    MIG_CONFIG,
    MIG_STATE,
    MIG_STRATEGY,
)
from linkwise.topology.machine import MAX_GPUS

_TEXT_MAX = 64 * 1024
"""Of an annotation [characters]; longer ones are not read."""
_CARDS_MAX = 256
"""Cards of an annotation that are counted."""
_SHARED, _PARTED = "-SHARED", "-MIG-"
"""In products of GPU feature discovery: replicas, and partitions of the strategy `single`."""


class PartKind(StrEnum):
    """The noun for one part."""

    REPLICA = "replica"
    PARTITION = "partition"
    UNKNOWN = "part"
    """There are more than a machine has GPUs, and nothing states what they are."""


@dataclass(frozen=True, slots=True)
class GPUParts:
    """The parts of a node's GPUs that it offers as whole ones."""

    kind: PartKind
    count: int
    cards: int | None
    """GPUs that have them; None: it is not known how many."""

    @property
    def words(self) -> str:
        """Their number, such as `4 replicas of 1 GPU`."""
        return f"{self.count} {self.noun(self.count)} of {self.of_cards}"

    @property
    def of_cards(self) -> str:
        """The GPUs, such as `1 GPU`; `GPUs` if it is not known how many."""
        return f"{self.cards} GPU{'s' * (self.cards != 1)}" if self.cards else "GPUs"

    def noun(self, number: int) -> str:
        """Return the noun for a number of them."""
        return f"{self.kind}{'s' * (number != 1)}"


class _Card(msgspec.Struct, frozen=True):
    id: str = ""
    count: int = 0


_cards = msgspec.json.Decoder(list[_Card])


def parts_of(
    labels: Mapping[str, str], annotations: Mapping[str, str], offered: int, *, renamed: bool
) -> GPUParts | None:
    """Return the parts that a node offers as whole GPUs; None if these are whole.

    Args:
        labels: Of the node.
        annotations: Of the node.
        offered: The number of its `nvidia.com/gpu`, healthy or not.
        renamed: It offers replicas under their own name, so that its labels are about those.
    """
    if not offered:
        return None
    if hami := _hami(annotations):
        cards, parts = hami
        return GPUParts(PartKind.REPLICA, offered, cards) if max(parts, offered) > cards else None
    is_parted = _is_parted(labels)
    if not renamed and (shared := _shared(labels, offered, is_parted=is_parted)):
        return shared
    if is_parted:
        return GPUParts(PartKind.PARTITION, offered, None)
    return GPUParts(PartKind.UNKNOWN, offered, None) if offered > MAX_GPUS else None


def _is_parted(labels: Mapping[str, str]) -> bool:
    """Return whether MIG devices are offered as whole GPUs; all GPUs are divided equally then."""
    if _PARTED in labels.get(GFD_PRODUCT, "") or labels.get(GKE_PARTITION):
        return True
    is_configured = labels.get(MIG_STATE) == "success" and labels.get(MIG_CONFIG, "").startswith(
        "all-"
    )
    divides = is_configured and labels.get(MIG_CONFIG) != "all-disabled"
    return labels.get(MIG_STRATEGY) == "single" and (divides or GFD_SLICES in labels)


def _shared(labels: Mapping[str, str], offered: int, *, is_parted: bool) -> GPUParts | None:
    count, replicas = _number(labels, GFD_COUNT), _number(labels, GFD_REPLICAS)
    clients = _number(labels, GKE_CLIENTS)
    is_shared = (
        labels.get(GFD_PRODUCT, "").endswith(_SHARED)
        or max(replicas, clients) > 1
        or labels.get(GFD_SHARING) in {"time-slicing", "mps"}
        or bool(labels.get(GKE_SHARING))
        or 0 < count < offered
    )
    if not is_shared:
        return None
    # With MIG, the label counts partitions.
    known = count or offered // max(replicas, clients, 1)
    cards = None if is_parted or known >= offered > 1 else known
    return GPUParts(PartKind.REPLICA, offered, cards or None)


def _hami(annotations: Mapping[str, str]) -> tuple[int, int] | None:
    """Return the number of cards and of their parts by HAMi's annotation; None without cards."""
    text = next((annotations[key] for key in HAMI_REGISTER if annotations.get(key)), "")
    if not text or len(text) > _TEXT_MAX:
        return None
    parts = dict(_json(text) if text.lstrip().startswith("[") else _listed(text))
    return (len(parts), sum(parts.values())) if parts else None


def _json(text: str) -> list[tuple[str, int]]:
    try:
        cards = _cards.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return []
    return [(card.id, max(1, card.count)) for card in cards[:_CARDS_MAX] if card.id]


def _listed(text: str) -> list[tuple[str, int]]:
    """Return the cards of the form before: `UUID,parts,memory,…:UUID,…`."""
    fields = [card.split(",", 2) for card in text.split(":")[:_CARDS_MAX]]
    return [
        (one[0].strip(), max(1, int(one[1])))
        for one in fields
        if len(one) > 1 and one[0].strip() and one[1].isascii() and one[1].isdigit()
        if len(one[1]) <= 4
    ]


def _number(labels: Mapping[str, str], key: str) -> int:
    """Return the number in a label to 9999; 0 if it is invalid."""
    text = labels.get(key, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else 0
