"""The planner of Linkwise itself: the function that the scorer calls for each unit."""

from collections.abc import Iterable, Sequence

from replay.job import Shape
from scorer.placement.pods.member import Member
from scorer.placement.preemption.search import Eviction, find_victims
from scorer.placement.preemption.victim import Disruptions, Victim
from scorer.placement.result import Placement, Plan
from scorer.placement.schedule import plan
from scorer.placement.state.snapshot import Snapshot


class Linkwise:
    """Places jobs as the scorer does, by `scorer.placement.schedule`."""

    def place(
        self, snapshot: Snapshot, _shape: Shape, members: Sequence[Member]
    ) -> Sequence[Placement] | None:
        """Return the placement of each pod, or None where not all of them fit."""
        planned = plan(snapshot, members)
        return planned.placements if isinstance(planned, Plan) else None

    def preempt(
        self, snapshot: Snapshot, members: Sequence[Member], units: Iterable[Victim], now: float
    ) -> Eviction | None:
        """Return the jobs to evict as the scorer would, or None."""
        found = find_victims(snapshot, members, units, Disruptions(now))
        return found if isinstance(found, Eviction) else None
