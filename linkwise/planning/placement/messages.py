"""Messages of refusals: numbers, nodes counted by reason, and the best node where it helps."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.keys import COMPUTE_CLASS, DRIVER_VERSION, MODEL_SERIES
from linkwise.cluster.objects.selector import names_label
from linkwise.cluster.requests.request import Family
from linkwise.planning.placement.bandwidth import Bandwidth
from linkwise.planning.placement.filtering.feasibility import Feasibility, excluded
from linkwise.planning.placement.filtering.reasons import Cause, Reason, count_reasons, set_reason
from linkwise.planning.placement.pods.group import Group
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.state.node_columns import node_columns
from linkwise.policy.catalogue import GPU


def not_comparable(planned: Bandwidth, other: Bandwidth) -> str:
    """Return why the bandwidths of a plan and of another placement are not comparable."""
    if other.nodes is None:
        return "not comparable: the number of its nodes is not recorded"
    return f"not comparable: it spans {_nodes(other.nodes)}, this plan {planned.nodes}"


def one_node_refusal(feasibility: Feasibility, group: Group) -> str:
    """Return why no single node fits all members, each with whole GPUs."""
    snapshot = feasibility.snapshot
    # A feasible node is refused only where no set of its GPUs is suitable.
    blocked = feasibility.blocked + Counter[Cause]({set_reason(group): len(feasibility.feasible)})
    gpus = _gpus(group.gpus)
    if not blocked:
        return f"needs {gpus} on one node; there are no nodes"
    suitable = node_columns(snapshot).free[~excluded(snapshot, group)]
    most = int(suitable.max(initial=0))
    where = "on one node"
    if group.options.is_linked:
        where = f"connected by NVLink alone {where}"
    return (
        f"needs {gpus} {where}; the freest suitable node has {most}; "
        f"of {_nodes(blocked.total())}: {count_reasons(blocked)}"
    )


def gang_refusal(group: Group, capacities: Sequence[int], blocked: Counter[Cause]) -> str:
    """Return why all nodes together do not fit all members.

    Args:
        group: The members.
        capacities: How many members each feasible node fits.
        blocked: How many nodes fit none, by reason.
    """
    fits = sum(capacities)
    each = _gpus(group.gpus_each or 0)
    is_linked = group.options.is_linked
    joined = ", each worker's (on one node all) connected by NVLink alone" if is_linked else ""
    needs = f"needs {_gpus(group.gpus)} as {group.size} × {each}{joined}"
    total = len(capacities) + blocked.total()
    conflict = (
        "; two that want the same host port need two nodes" if group.has_port_conflict else ""
    )
    if group.coupling and group.coupling.words:
        conflict += f"; {group.coupling.words}"
    rest = f"; on the others: {count_reasons(blocked)}" if blocked else ""
    return (
        f"{needs}; {fits} of {group.size} workers fit now, "
        f"on {len(capacities)} of {_nodes(total)}{conflict}{rest}"
    )


def member_refusal(member: Member, placed: int, size: int, blocked: Counter[Cause]) -> str:
    """Return why one member fits nowhere, so that the others do not start either."""
    others = f"; {placed} of {size} members would fit" if size > 1 else ""
    needs = f"needs {_needs(member)}{others}"
    if not blocked:
        return f"{needs}; there are no nodes"
    return f"{needs}; of {_nodes(blocked.total())}: {count_reasons(blocked)}"


def label_hint(member: Member, nodes: Iterable[NodeLedger], blocked: Mapping[Cause, int]) -> str:
    """Name a label that no node has, where a pod of an ACS class requires it.

    Admission adds the requirement, and ACS's virtual nodes have no such label.
    """
    if Reason.SELECTOR not in blocked or member.pod.labels.get(COMPUTE_CLASS) != GPU:
        return ""
    labels = (key for key in (MODEL_SERIES, DRIVER_VERSION) if names_label(member.pod.spec, key))
    all_nodes = list(nodes)
    for key in labels:
        if not any(key in node.node.labels for node in all_nodes):
            return (
                f"; no node has the label {key}: where ACS's virtual nodes take these pods, set "
                "affinity.platform: acs in the policy"
            )
    return ""


def together_refusal(group: Group, problem: str) -> str:
    """Return why members that would fit one by one are not placed."""
    needs = sorted({_needs(member) for member in group.representatives})
    return f"{group.size} members that need {' or '.join(needs)}, all on one node: {problem}"


def _needs(member: Member) -> str:
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
