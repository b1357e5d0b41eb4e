"""Why nothing is placed: numbers, nodes counted by reason, and what would be enough."""

from collections.abc import Sequence

from cluster.gang import Link
from cluster.request import Family
from scorer.group import Group
from scorer.member import Member
from scorer.reason import Reason, count_reasons
from scorer.room import obstacle, shortage
from scorer.seat import Candidate
from scorer.snapshot import Snapshot


def one_node_refusal(snapshot: Snapshot, group: Group, link: Link) -> str:
    """Say why no single node takes all members, each with whole GPUs."""
    blocked = [shortage(node, group) or Reason.LINK for node in snapshot.nodes]
    suitable = [
        node for node in snapshot.nodes if not any(obstacle(node, kind) for kind in group.kinds)
    ]
    most = max((node.free_mask.bit_count() for node in suitable), default=0)
    gpus = _gpus(group.gpus)
    if not blocked:
        return f"needs {gpus} on one node; there are no nodes"
    where = "connected by NVLink alone on one node" if link is Link.NVLINK else "on one node"
    return (
        f"needs {gpus} {where}; the freest suitable node has {most}; "
        f"of {_nodes(len(blocked))}: {count_reasons(blocked)}"
    )


def gang_refusal(
    group: Group, candidates: Sequence[Candidate], blocked: Sequence[Reason], *, linked: bool
) -> str:
    """Say why all nodes together do not take all members."""
    fits = sum(candidate.room for candidate in candidates)
    each = _gpus(group.each or 0)
    joined = ", each worker's (on one node all) connected by NVLink alone" if linked else ""
    needs = f"needs {_gpus(group.gpus)} as {group.size} × {each}{joined}"
    total = len(candidates) + len(blocked)
    apart = "; two that want the same host port need two nodes" if group.apart else ""
    rest = f"; on the others: {count_reasons(blocked)}" if blocked else ""
    return (
        f"{needs}; {fits} of {group.size} workers fit now, "
        f"on {len(candidates)} of {_nodes(total)}{apart}{rest}"
    )


def member_refusal(member: Member, placed: int, size: int, blocked: Sequence[Reason]) -> str:
    """Say why one member fits nowhere, and that the others therefore do not start."""
    others = f"; {placed} of {size} members would fit" if size > 1 else ""
    needs = f"needs {_asked(member)}{others}"
    if not blocked:
        return f"{needs}; there are no nodes"
    return f"{needs}; of {_nodes(len(blocked))}: {count_reasons(blocked)}"


def together_refusal(group: Group, problem: str) -> str:
    """Say why members that would fit one by one may not go where they fit."""
    asked = sorted({_asked(member) for member in group.kinds})
    return f"{group.size} members that need {' or '.join(asked)}, all on one node: {problem}"


def _asked(member: Member) -> str:
    request = member.request
    match request.family:
        case Family.SHARE:
            core = f" and {request.core} % of its compute" if request.core else ""
            cards = (
                f" over {request.gpus} cards of one node" if request.gpus > 1 else " of one card"
            )
            return f"{request.memory} GiB{cards}{core}"
        case Family.REPLICA:
            return f"{request.gpus} shared GPU replica{'s' * (request.gpus > 1)} on one node"
        case _:
            return f"{_gpus(request.gpus)} on one node"


def _gpus(number: int) -> str:
    return f"{number} GPU{'s' * (number != 1)}"


def _nodes(number: int) -> str:
    return f"{number} node{'s' * (number != 1)}"
