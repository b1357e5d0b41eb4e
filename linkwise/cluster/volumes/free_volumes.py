"""PersistentVolumes of one StorageClass that unbound claims may bind, such as local disks.

As in kube-scheduler a volume that names its claim in advance is for that claim alone, which takes
no other.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

from linkwise.cluster.objects.affinity import NodeSelectorTerm, Requirement
from linkwise.cluster.objects.label_match import LabelMatch
from linkwise.cluster.volumes.claim import Wanted
from linkwise.cluster.volumes.node_choice import NodeChoice
from linkwise.cluster.volumes.volume import FreeVolume, PersistentVolume

_CHOICES_MAX = 64
"""Different choices of nodes, beside those of one label, that are compared with every node."""
_WANTED_MAX = 64
"""Different sets of volumes that are remembered."""
_SELECTED_MAX = 256
"""Kinds of volumes, by their labels, too, that are compared with the selector of a claim: a pod may
name 64 claims, each with another selector."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """How many volumes a claim may bind from each node; equal only to itself."""

    by_label: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By label and value of a node: the number of volumes there."""
    others: tuple[tuple[NodeChoice, int], ...] = ()
    """Other choices of nodes, and the number of volumes of each."""
    anywhere: int = 0
    """Volumes that can be used from every node."""

    @property
    def total(self) -> int:
        """Number of volumes."""
        by_label = sum(sum(values.values()) for values in self.by_label.values())
        return by_label + sum(count for _, count in self.others) + self.anywhere


class FreeVolumes:
    """The free volumes of one class; a change of one makes a new object."""

    def __init__(self, volumes: Mapping[str, PersistentVolume]) -> None:
        """Take the volumes, by name. Cost: linear."""
        kinds: dict[FreeVolume, list[NodeChoice | None]] = {}
        labelled: dict[Hashable, tuple[FreeVolume, list[NodeChoice | None]]] = {}
        for _, volume in sorted(volumes.items()):
            if (free := volume.free) and volume.is_available:
                kind = free._replace(labels=None)
                kinds.setdefault(kind, []).append(volume.affinity)
                labels = tuple(sorted((free.labels or {}).items()))
                labelled.setdefault((kind, labels), (free, []))[1].append(volume.affinity)
        self._kinds = tuple(kinds.items())
        """Volumes that differ in no more than their labels and nodes."""
        self._labelled = tuple(labelled.values())
        """Volumes that differ in no more than their nodes."""
        self._claimed = {
            volume.claim[:2]: volume for volume in volumes.values() if volume.free and volume.claim
        }
        self._candidates: dict[Hashable, Candidates] = {}

    def candidates(self, key: tuple[str, str], uid: str, wanted: Wanted) -> Candidates:
        """Return the volumes that a claim may bind.

        Args:
            key: Its namespace and name.
            uid: Its uid.
            wanted: What it asks for.

        Cost: linear in the kinds of volumes; with a selector in those that differ in labels, too,
        at most `_SELECTED_MAX`.
        """
        own = self._claimed.get(key)
        is_own = own and own.claim and own.claim[2] in ("", uid)
        if own and is_own and own.free and _suits(own.free, wanted):
            return self._remembered((key, uid), lambda: [own.affinity])
        if wanted.selector is not None:
            selector = wanted.selector
            return self._remembered(wanted, lambda: self._selected(wanted, selector))
        kinds = tuple(
            number
            for number, (free, _) in enumerate(self._kinds)
            if _suits(free, wanted) and wanted.modes_in(free.modes)
        )
        return self._remembered(
            kinds, lambda: [choice for number in kinds for choice in self._kinds[number][1]]
        )

    def _remembered(self, key: Hashable, find: Callable[[], list[NodeChoice | None]]) -> Candidates:
        found = self._candidates.get(key)
        if found is None:
            found = self._candidates[key] = _counted(find())
            if len(self._candidates) > _WANTED_MAX:
                del self._candidates[next(iter(self._candidates))]
        return found

    def _selected(self, wanted: Wanted, selector: LabelMatch) -> list[NodeChoice | None]:
        return [
            affinity
            for free, affinities in self._labelled[:_SELECTED_MAX]
            if _suits(free, wanted)
            and wanted.modes_in(free.modes)
            and selector.matches(free.labels or {})
            for affinity in affinities
        ]


def _suits(free: FreeVolume, wanted: Wanted) -> bool:
    is_alike = (free.is_block, free.attributes) == (wanted.is_block, wanted.attributes)
    return is_alike and free.size >= wanted.size


def _counted(choices: list[NodeChoice | None]) -> Candidates:
    by_label: dict[str, Counter[str]] = {}
    others = Counter[NodeChoice]()
    for choice in choices:
        if choice is None:
            continue
        if single := _single_label(choice):
            by_label.setdefault(single[0], Counter()).update(set(single[1]))
        else:
            others[choice] += 1
    if len(by_label) + len(others) > _CHOICES_MAX:
        # Fewer volumes are counted than there are, so that a plan never counts on one too many.
        by_label = dict(list(by_label.items())[:_CHOICES_MAX])
        others = Counter(dict(others.most_common(_CHOICES_MAX)))
    return Candidates(by_label, tuple(others.items()), choices.count(None))


def _single_label(choice: NodeChoice) -> tuple[str, list[str]] | None:
    """Return the label, and its values, that is all that a choice reads; None: it reads more."""
    match choice.terms:
        case [
            NodeSelectorTerm(
                match_expressions=[Requirement(key=key, operator="In", values=list(values))],
                match_fields=None,
            )
        ]:
            return key, values
        case _:
            return None
