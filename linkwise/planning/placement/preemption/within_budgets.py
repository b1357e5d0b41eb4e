"""Find a set of units that the disruption budgets allow, with a search that ignores them.

The search is given some units and finds a set of them that makes room, of which no part would do,
or says that there is none. If a budget does not allow its set, that set and all larger ones are
excluded, and the search is asked again:

* An allowed set has fewer pods of this budget. So it lacks one of the units of the set that are
  under the budget, or has a smaller part of it. For each of these units there is a branch in which
  it is reduced. The first branch reduces the costliest one.
* A branch need not repeat the sets of those before it, which lack their unit: it keeps the units
  that those reduce. What they leave of the budgets limits all the others.
* More units never make less room, so a branch ends where the search finds nothing in it.

So no allowed set is missed as long as the search misses none, unless `SEARCHES_MAX` ends it. The
search itself prefers units that the budgets allow, so that mostly its first set is allowed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from linkwise.planning.placement.preemption.victim import Disruptions, Victim

SEARCHES_MAX = 32
"""Searches for one unit."""


class _Found(Protocol):
    @property
    def victims(self) -> tuple[Victim, ...]: ...


_Set = TypeVar("_Set", bound=_Found)


class _Branch(NamedTuple):
    """Sets of which each has at most `units`, and at least `kept`."""

    units: Sequence[Victim]
    kept: Mapping[Victim, Victim]
    """By unit: it, or the part of it that each set has."""


def first_allowed(
    units: Sequence[Victim],
    disruptions: Disruptions,
    search: Callable[[Sequence[Victim]], _Set | None],
) -> _Set | None:
    """Return a set that the budgets allow, or None.

    Args:
        units: All units that may be evicted.
        disruptions: The budgets.
        search: Returns a set of some units, or None if no set of them does.

    Cost: at most `SEARCHES_MAX` searches; one, where the first set is allowed.
    """
    if not any(unit.budgets for unit in units):
        return search(units)
    branches = [_Branch(_limited(units, {}, disruptions), {})]
    for _ in range(SEARCHES_MAX):
        if not branches:
            break
        branch = branches.pop()
        found = search(branch.units)
        if found is None:
            continue
        excess = disruptions.excess(found.victims)
        if not excess:
            return found
        branches += reversed(list(_branches(branch, found.victims, excess, disruptions)))
    return None


def _branches(
    branch: _Branch, victims: Sequence[Victim], excess: Counter[str], disruptions: Disruptions
) -> Iterator[_Branch]:
    """Yield branches that have all allowed sets of a branch, none of which has all these victims.

    Args:
        branch: Its units are at least the victims.
        victims: A set that the budgets do not allow.
        excess: Pods beyond the budgets.
        disruptions: The budgets.
    """
    # The budget with the fewest units makes the fewest branches.
    name = min(sorted(excess), key=lambda name: sum(name in unit.budgets for unit in victims))
    under = [unit for unit in victims if name in unit.budgets]
    under.sort(key=lambda unit: disruptions.cost([unit]))
    kept = dict(branch.kept)
    for victim in reversed(under):
        unit = _whole(victim)
        least, less = kept.get(unit), _reduced(victim, name)
        if least is None or (less and len(least.pods) <= len(less.pods)):
            limits = (less if _whole(each) is unit else each for each in branch.units)
            yield _Branch(_limited(filter(None, limits), kept, disruptions), dict(kept))
        kept[unit] = victim


def _reduced(victim: Victim, budget: str) -> Victim | None:
    """Return the largest part of a unit that has fewer pods of a budget; None: there is none."""
    few = victim.budgets[budget]
    return next((part for part in victim.smaller() if part.budgets[budget] < few), None)


def _limited(
    units: Iterable[Victim], kept: Mapping[Victim, Victim], disruptions: Disruptions
) -> list[Victim]:
    """Return of each unit the largest part that the budgets allow beside what is kept of others."""
    used = Counter[str]()
    for part in kept.values():
        used.update(part.budgets)

    def is_allowed(part: Victim) -> bool:
        own = kept.get(_whole(part))
        return all(
            used[name] - (own.budgets[name] if own else 0) + count
            <= disruptions.allowed.get(name, 0)
            for name, count in part.budgets.items()
        )

    largest = (
        next(filter(is_allowed, (unit, *unit.smaller())), None) if unit.budgets else unit
        for unit in units
    )
    return [unit for unit in largest if unit is not None]


def _whole(unit: Victim) -> Victim:
    return unit.whole or unit
