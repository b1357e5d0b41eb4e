"""Name the units that would be evicted for a unit that fits nowhere. Pure: nothing is evicted."""

from collections.abc import Collection
from dataclasses import replace as with_fields

from msgspec import UNSET
from msgspec.structs import replace

from linkwise.cluster.whatif_api import FitResult, Preempted
from linkwise.planning.gang.unit import Unit
from linkwise.planning.gang.victim_choice import RunningUnits, choose_victims, may_preempt
from linkwise.planning.placement.options import PlanOptions
from linkwise.planning.placement.preemption.search import Eviction
from linkwise.planning.placement.preemption.victim import Victim
from linkwise.planning.placement.state.snapshot import Snapshot

SEARCHES_MAX = 256
"""Searches for the units of one simulation; each takes up to about 40 ms."""


class Preemptions:
    """The units that would be evicted for several units, one after another: each once."""

    def __init__(self, running: RunningUnits, searches: int = SEARCHES_MAX) -> None:
        """Start without evictions.

        Args:
            running: The units that hold GPUs.
            searches: For so many units is searched; the others have none.
        """
        self._running, self._searches_left = running, searches
        self._evicted: set[Victim] = set()
        self._refused: set[object] = set()
        """What distinguishes units for which no victims were found."""

    def find(self, snapshot: Snapshot, unit: Unit) -> tuple[Preempted, ...]:
        """Return the units that would be evicted for one that does not fit; empty: none.

        Args:
            snapshot: The cluster as the unit sees it.
            unit: The unit.
        """
        kind = unit.priority, unit.signature
        if unit.blocked or kind in self._refused or not self._searches_left:
            return ()
        if self._running.is_promised(unit) or not may_preempt(unit):
            return ()
        self._searches_left -= 1
        units = [one for one in self._running.units if one not in self._evicted]
        running = with_fields(self._running, units=units)
        found = choose_victims(unit, snapshot, running, PlanOptions(unit.link))
        if not isinstance(found, Eviction):
            self._refused.add(kind)
            return ()
        self._evicted.update(victim.whole or victim for victim in found.victims)
        return tuple(_preempted(victim, running.disruptions.now) for victim in found.victims)


def without_names(fit: FitResult, namespaces: Collection[str]) -> FitResult:
    """Return a result that names only the units of some namespaces, and counts the others."""
    if not fit.preempts:
        return fit
    named = [one for one in fit.preempts if one.namespace in namespaces]
    others = len(fit.preempts) - len(named)
    return replace(fit, preempts=named or UNSET, preempts_others=others or UNSET)


def _preempted(victim: Victim, now: float) -> Preempted:
    namespace, _, name = victim.name.partition("/")
    is_gang = victim.pods[0].holding.gang is not None
    return Preempted(
        kind="gang" if is_gang else "pod",
        namespace=namespace,
        name=name,
        pods=len(victim.pods),
        running_seconds=round(now - min(pod.started for pod in victim.pods)),
        gpu_hours=round(victim.gpu_seconds(now) / 3600, 1),
    )
