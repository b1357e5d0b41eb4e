"""Gangs in files whose members state different sizes, as the planner reads them. Pure.

An owner that makes as many pods as it states is a gang by itself, so that a job which is submitted
again under the same mark may have another size.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from linkwise.cluster.finding import Code, Finding, Severity
from linkwise.cluster.gang import Mark
from linkwise.manifest.template import PodTemplate


@dataclass(frozen=True, slots=True)
class MarkedTemplate:
    """A pod template whose pods are members of a gang."""

    template: PodTemplate
    mark: Mark
    place: int
    """Its index among all templates."""

    @property
    def size(self) -> int:
        """The size that it states; 0: none."""
        return self.mark.min_available or self.mark.total or 0

    @property
    def owner(self) -> tuple[str, str]:
        """The workload."""
        return self.template.workload.kind, self.template.workload.name


def different_sizes(members: Iterable[MarkedTemplate]) -> Iterator[tuple[int, Finding]]:
    """Yield a warning for each template that states another size than its gang has, by index."""
    marks: dict[tuple[str, str], dict[tuple[str, str], list[MarkedTemplate]]] = {}
    for member in members:
        if member.size:
            of_mark = marks.setdefault((member.template.namespace, member.mark.name), {})
            of_mark.setdefault(member.owner, []).append(member)
    for owners in marks.values():
        parts: list[MarkedTemplate] = []
        for own in owners.values():
            size, made = max(one.size for one in own), sum(one.template.replicas for one in own)
            if made >= size:
                yield from _of_gang(own)
            else:
                parts += own
        yield from _of_gang(parts)


def _of_gang(members: list[MarkedTemplate]) -> Iterator[tuple[int, Finding]]:
    sizes = sorted({member.size for member in members})
    for member in members:
        if member.size == sizes[-1]:
            continue
        mark = member.mark
        yield (
            member.place,
            Finding(
                Code.GANG_SIZE,
                Severity.WARNING,
                mark.source,
                mark.name,
                f"members of gang {mark.name} state different sizes, {sizes[0]} to {sizes[-1]}: "
                "the largest counts",
                f"state the same size in all of them, such as {sizes[-1]}",
            ),
        )
