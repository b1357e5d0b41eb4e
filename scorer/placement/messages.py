"""Why nothing is placed: numbers, nodes counted by reason, and what would be enough."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from cluster.gang import Link
from cluster.keys import COMPUTE_CLASS, DRIVER_VERSION, MODEL_SERIES
from cluster.ledger import NodeLedger
from cluster.request import Family
from cluster.selector import names_label
from policy.catalogue import GPU
from scorer.placement.feasibility import Feasibility, closed, free_gpus
from scorer.placement.group import Group
from scorer.placement.member import Member
from scorer.placement.reasons import Reason, count_reasons


def one_node_refusal(seen: Feasibility, group: Group, link: Link) -> str:
    """Say why no single node takes all members, each with whole GPUs."""
    snapshot = seen.snapshot
    # A node that has all they ask for was not taken since no set there is connected.
    blocked = seen.blocked + Counter({Reason.LINK: len(seen.able)})
    gpus = _gpus(group.gpus)
    if not blocked:
        return f"needs {gpus} on one node; there are no nodes"
    suitable = free_gpus(snapshot)[~closed(snapshot, group)]
    most = int(suitable.max(initial=0))
    where = "connected by NVLink alone on one node" if link is Link.NVLINK else "on one node"
    return (
        f"needs {gpus} {where}; the freest suitable node has {most}; "
        f"of {_nodes(blocked.total())}: {count_reasons(blocked)}"
    )


def gang_refusal(
    group: Group, rooms: Sequence[int], blocked: Counter[Reason], *, linked: bool
) -> str:
    """Say why all nodes together do not take all members.

    Args:
        group: The members.
        rooms: How many of them each node takes that takes any.
        blocked: How many nodes take none, for each reason.
        linked: Sets of GPUs must be connected by NVLink alone.
    """
    fits = sum(rooms)
    each = _gpus(group.each or 0)
    joined = ", each worker's (on one node all) connected by NVLink alone" if linked else ""
    needs = f"needs {_gpus(group.gpus)} as {group.size} × {each}{joined}"
    total = len(rooms) + blocked.total()
    apart = "; two that want the same host port need two nodes" if group.apart else ""
    rest = f"; on the others: {count_reasons(blocked)}" if blocked else ""
    return (
        f"{needs}; {fits} of {group.size} workers fit now, "
        f"on {len(rooms)} of {_nodes(total)}{apart}{rest}"
    )


def member_refusal(member: Member, placed: int, size: int, blocked: Counter[Reason]) -> str:
    """Say why one member fits nowhere, and that the others therefore do not start."""
    others = f"; {placed} of {size} members would fit" if size > 1 else ""
    needs = f"needs {_asked(member)}{others}"
    if not blocked:
        return f"{needs}; there are no nodes"
    return f"{needs}; of {_nodes(blocked.total())}: {count_reasons(blocked)}"


def label_hint(member: Member, nodes: Iterable[NodeLedger], blocked: Mapping[Reason, int]) -> str:
    """Say which label no node has, where that keeps a pod of an ACS class from all of them.

    Admission adds the requirement, and ACS's virtual nodes carry no such label.
    """
    if Reason.SELECTOR not in blocked or member.pod.labels.get(COMPUTE_CLASS) != GPU:
        return ""
    named = (key for key in (MODEL_SERIES, DRIVER_VERSION) if names_label(member.pod.spec, key))
    known = list(nodes)
    for key in named:
        if not any(key in node.node.labels for node in known):
            return (
                f"; no node has the label {key}: where ACS's virtual nodes take these pods, set "
                "affinity.platform: acs in the policy"
            )
    return ""


def together_refusal(group: Group, problem: str) -> str:
    """Say why members that would fit one by one may not go where they fit."""
    asked = sorted({_asked(member) for member in group.representatives})
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
