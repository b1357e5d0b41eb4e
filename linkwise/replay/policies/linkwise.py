"""The planner of Linkwise itself: the function that the scorer calls for each unit."""

from collections.abc import Iterable, Sequence

import numpy as np

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.planning.placement.assignment.node_assignment import SelectionOptions, select_gpus
from linkwise.planning.placement.assignment.single_node import TOLERANCE
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.preemption.search import Eviction, find_victims
from linkwise.planning.placement.preemption.victim import Disruptions, Victim
from linkwise.planning.placement.result import Placement, Plan
from linkwise.planning.placement.schedule import plan
from linkwise.planning.placement.state.node_cache import Value
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.replay.job import Shape
from linkwise.replay.policies.fgd import FragmentationGradientDescent, TypicalPods
from linkwise.replay.policies.view import Floats, View, view_of


class Linkwise:
    """Places jobs as the scorer does, by `linkwise.planning.placement.schedule`."""

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


class LinkwiseByFragments:
    """Places single pods on the node where fragmentation grows the least, as `fgd`.

    The planner chooses their GPUs there, and places gangs. Of pods for several whole GPUs only
    nodes as fast as the best one count. The product has no such strategy; docs/replay.md says why.
    """

    def __init__(self, typical: TypicalPods) -> None:
        """Choose by these pods."""
        self._descent, self._planner = FragmentationGradientDescent(typical), Linkwise()

    def place(
        self, snapshot: Snapshot, shape: Shape, members: Sequence[Member]
    ) -> Sequence[Placement] | None:
        """Return the placement of each pod, or None where not all of them fit."""
        if len(members) > 1:
            return self._planner.place(snapshot, shape, members)
        view = view_of(snapshot)
        rows = np.flatnonzero(view.capacity(shape, 1))
        if not len(rows):
            return None
        speed = _speeds(view, shape)[rows]
        rows = rows[speed >= speed.max() * (1 - TOLERANCE)]
        node = view.node(self._descent.node(view, shape, rows)).name
        return self._planner.place(snapshot.only(node), shape, members)


def _speeds(view: View, shape: Shape) -> Floats:
    """Return A of the best free set of each node [GB/s]; 0 where nodes give out shares."""
    tables, options = view.snapshot.tables, SelectionOptions(view.snapshot.preferences.mode)

    def compute(node: NodeLedger) -> Value:
        table = None if node.node.mode.shares_memory else tables.get(node.node.name)
        found = table and select_gpus(table, node.free_mask, (shape.gpus,), options)
        return (found.bandwidth if found else 0.0,)

    key, nodes = ("replay speed", shape.gpus), view.snapshot.nodes
    speeds: Floats = view.snapshot.cache.get_or_compute(key, nodes, compute, np.float64)[0]
    return speeds
