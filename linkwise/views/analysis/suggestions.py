"""Suggests changes that would let a waiting pod or gang be placed. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.gang import Link
from linkwise.cluster.nodes.node_capacity import capacity_of
from linkwise.planning.gang.unit import Unit
from linkwise.planning.placement.baselines import never_fits
from linkwise.planning.placement.options import PlanOptions
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.result import Plan
from linkwise.planning.placement.schedule import plan
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.views.analysis.remedies import remedy

MAX_NODES = 8
"""The number of nodes, those with the most free GPUs, that are searched for pods to end."""
MAX_NAMES = 4
"""The number of pods and gangs that are named."""


def suggested_change(before: Snapshot, members: Sequence[Member]) -> str:
    """Return what to change for a unit that never fits."""
    capacity = capacity_of(node.node for node in before.nodes)
    change = capacity.suggested_change(members[0].request) or remedy(before, members)
    return never_fits_because(change)


def never_fits_because(change: str | None = None) -> str:
    """Return that a unit never fits, with what to change; None: it is not known."""
    return f"it would not fit if nothing else ran: {change or 'add nodes, or ask for less'}"


def suggestions(before: Snapshot, unit: Unit) -> Iterator[str]:
    """Yield changes that would let a waiting unit be placed, each a sentence.

    Args:
        before: The cluster for which the unit was refused.
        unit: The waiting unit.

    Cost: up to some dozens of plans.
    """
    if unit.blocked is not None:
        yield from _create_members(unit)
        return
    unit = unit.least
    if unit.link is not Link.BEST:
        relaxed = plan(before, unit.members)
        if isinstance(relaxed, Plan):
            value = relaxed.bandwidth.value
            speed = f" at {value:.1f} GB/s" if value is not None else ""
            yield f"without its demand for links ({unit.link}) it would fit now{speed}"
    if never_fits(before, unit.members, unit.link):
        yield suggested_change(before, unit.members)
    else:
        yield from _end_pods(before, unit)


def _create_members(unit: Unit) -> Iterator[str]:
    """Yield how the missing members can be created."""
    if unit.needed is None or unit.present >= unit.needed:
        return
    if unit.owner is None:
        yield f"create {unit.needed - unit.present} more pods with the gang's mark"
    else:
        yield f"see what keeps {unit.owner.kind} {unit.owner.name} from making the others"


def _end_pods(before: Snapshot, unit: Unit) -> Iterator[str]:
    """Yield the pods, with the fewest GPUs, whose end would make room."""
    nodes = sorted(before.nodes, key=lambda node: -node.gpus_free)[:MAX_NODES]
    options = [option for node in nodes if (option := _ended(before, unit, [node]))]
    if not options and (on_all := _ended(before, unit, nodes)):
        options = [on_all]
    if options:
        least = min(options, key=lambda option: (sum(map(_size, option.values())), len(option)))
        names = list(least)
        shown = ", ".join(names[:MAX_NAMES])
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        yield f"it would fit once {shown}{more} {'ends' if len(names) == 1 else 'end'}"


def _ended(
    before: Snapshot, unit: Unit, nodes: Sequence[NodeLedger]
) -> dict[str, list[Holding]] | None:
    """Return what must end on these nodes, by name, smallest first; None if that is not enough."""
    running: dict[str, list[Holding]] = {}
    for node in nodes:
        for holding in node.holdings.values():
            if holding.gpus:
                gang = f"gang {holding.gang}" if holding.gang else f"pod {holding.pod}"
                running.setdefault(f"{gang} on {node.node.name}", []).append(holding)
    ended: dict[str, list[Holding]] = {}
    ledger = before.ledger
    for name, holdings in sorted(running.items(), key=lambda item: (_size(item[1]), item[0])):
        ended[name] = holdings
        for holding in holdings:
            ledger = ledger.release(holding.uid)
        if isinstance(
            plan(replace(before, ledger=ledger), unit.members, PlanOptions(unit.link)), Plan
        ):
            return ended
    return None


def _size(holdings: Sequence[Holding]) -> int:
    return sum(len(holding.gpus) for holding in holdings)
