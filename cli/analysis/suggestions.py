"""What would help a gang, or a pod, that waits for GPUs. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from cluster.capacity import capacity_of
from cluster.gang import Link
from cluster.node_ledger import Holding, NodeLedger
from scorer.gang.unit import Unit
from scorer.placement.baselines import never_fits
from scorer.placement.member import Member
from scorer.placement.result import Plan
from scorer.placement.schedule import plan
from scorer.placement.snapshot import Snapshot

MOST_NODES = 8
"""So many nodes, those with the most free GPUs, are looked at for pods whose end makes room."""
MOST_NAMES = 4
"""More pods than these are not named."""


def never_helped(before: Snapshot, members: Sequence[Member]) -> str:
    """Say what to change for a unit that never fits."""
    capacity = capacity_of(node.node for node in before.nodes)
    change = capacity.suggested_change(members[0].request)
    return f"it would not fit if nothing else ran: {change or 'add nodes, or ask for less'}"


def suggestions(before: Snapshot, unit: Unit) -> Iterator[str]:
    """Yield what would let a unit be placed that now waits, each a sentence.

    Args:
        before: The cluster when it was refused.
        unit: What waits.

    Cost: some dozen plans.
    """
    if unit.blocked is not None:
        yield from _missing(unit)
        return
    if unit.link is not Link.BEST:
        loose = plan(before, unit.members)
        if isinstance(loose, Plan):
            speed = f" at {loose.bandwidth:.1f} GB/s" if loose.bandwidth is not None else ""
            yield f"without its demand for links ({unit.link}) it would fit now{speed}"
    if never_fits(before, unit.members, unit.link):
        yield never_helped(before, unit.members)
    else:
        yield from _room(before, unit)


def _missing(unit: Unit) -> Iterator[str]:
    """Yield who must make the members that are missing."""
    if unit.needed is None or unit.present >= unit.needed:
        return
    if unit.owner is None:
        yield f"create {unit.needed - unit.present} more pods with the gang's mark"
    else:
        yield f"see what keeps {unit.owner.kind} {unit.owner.name} from making the others"


def _room(before: Snapshot, unit: Unit) -> Iterator[str]:
    """Yield which few pods keep it waiting; the fewest GPUs first."""
    nodes = sorted(before.nodes, key=lambda node: -node.gpus_free)[:MOST_NODES]
    ways = [way for node in nodes if (way := _freed(before, unit, [node]))]
    if not ways and (together := _freed(before, unit, nodes)):
        ways = [together]
    if ways:
        least = min(ways, key=lambda way: (sum(map(_size, way.values())), len(way)))
        names = list(least)
        shown = ", ".join(names[:MOST_NAMES])
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        yield f"it would fit once {shown}{more} {'ends' if len(names) == 1 else 'end'}"


def _freed(
    before: Snapshot, unit: Unit, nodes: Sequence[NodeLedger]
) -> dict[str, list[Holding]] | None:
    """Return what must end on these nodes, named, smallest first; None where all is not enough."""
    running: dict[str, list[Holding]] = {}
    for node in nodes:
        for holding in node.holdings.values():
            if holding.shares or holding.nvidia:
                gang = f"gang {holding.gang}" if holding.gang else f"pod {holding.pod}"
                running.setdefault(f"{gang} on {node.node.name}", []).append(holding)
    ended: dict[str, list[Holding]] = {}
    ledger = before.ledger
    for name, holdings in sorted(running.items(), key=lambda item: (_size(item[1]), item[0])):
        ended[name] = holdings
        for holding in holdings:
            ledger = ledger.release(holding.uid)
        if isinstance(plan(replace(before, ledger=ledger), unit.members, link=unit.link), Plan):
            return ended
    return None


def _size(holdings: Sequence[Holding]) -> int:
    return sum(len(holding.shares) + holding.nvidia for holding in holdings)
