"""The remedy for the cause by which nodes take no pod of a unit, whatever runs there. Pure.

A remedy is named only where a node would take a member without that cause: for other units, more
nodes or smaller requests are the only help.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from msgspec import structs

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.cel.selection import attributes_read
from linkwise.cluster.keys import GANG, GFD_COUNT, GFD_PRODUCT, MODE_LABELS, NVIDIA_GPU
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.nodes.node import Node
from linkwise.cluster.nodes.resource_slice import taint_text
from linkwise.cluster.objects.selector import tolerates
from linkwise.cluster.sharing_keys import ACCELERATOR_LABELS, GPU_PRESENT
from linkwise.planning.placement.filtering.feasibility import feasibility_of
from linkwise.planning.placement.filtering.filters import filter_node, gpu_capacity
from linkwise.planning.placement.filtering.reasons import Cause, Reason
from linkwise.planning.placement.pods.group import new_group
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.state.selected_nodes import selected_by
from linkwise.planning.placement.state.snapshot import Snapshot

_NODES_MAX = 500
"""Nodes that are looked at."""
_NAMES_MAX = 3

_Blocked = Mapping[Cause, list[NodeLedger]]


def remedy(snapshot: Snapshot, members: Sequence[Member]) -> str | None:
    """Return what to change for members that never fit; None: only more nodes, or less, help.

    Cost: an evaluation of all nodes, and a second one of at most 500.
    """
    member = members[0]
    seen = selected_by(snapshot.without_pods(), member.needs)
    blocked = _by_cause(seen, member)
    found = (text for cure in _CURES for text in cure(blocked, member))
    return next(found, None)


def _by_cause(snapshot: Snapshot, member: Member) -> _Blocked:
    feasibility = feasibility_of(snapshot, new_group([member]))
    blocked: dict[Cause, list[NodeLedger]] = {}
    reasons = list(Reason)
    for node, code in zip(snapshot.nodes[:_NODES_MAX], feasibility.codes.tolist(), strict=False):
        if 0 < code <= len(reasons):
            blocked.setdefault(reasons[code - 1], []).append(node)
    return blocked


def _tainted(blocked: _Blocked, member: Member) -> Iterator[str]:
    tolerations = member.pod.spec.tolerations
    untainted = _curable(blocked, Reason.TAINT, member, lambda node: replace(node, taints=()))
    for node in untainted[:1]:
        taints = [one for one in node.node.taints if not tolerates(tolerations, one)][:_NAMES_MAX]
        words = " and ".join(taint_text(one.key, one.value, one.effect) for one in taints)
        needed = ", ".join(
            f"{{key: {one.key}, operator: Exists, effect: {one.effect}}}" for one in taints
        )
        several = len(taints) > 1
        yield (
            f"{_names(untainted)} the {'taints' if several else 'taint'} {words}; let the pod "
            f"tolerate {'them' if several else 'it'}, by tolerations: [{needed}]"
        )


def _closed(blocked: _Blocked, member: Member) -> Iterator[str]:
    def opened(node: Node) -> Node:
        return replace(node, ready=True, unschedulable=False, taints=())

    if cordoned := _curable(blocked, Reason.CORDONED, member, opened):
        yield f"{_names(cordoned)} been cordoned; end that by kubectl uncordon"
    if unready := _curable(blocked, Reason.NOT_READY, member, opened):
        yield f"{_names(unready)} a kubelet that is not ready; see kubectl describe node"


def _unselected(blocked: _Blocked, member: Member) -> Iterator[str]:
    spec = member.pod.spec
    free = replace(
        member, pod=structs.replace(member.pod, spec=structs.replace(
            spec, node_selector=None, affinity=None
        ))
    )  # fmt: skip
    found = _curable(blocked, Reason.SELECTOR, free, lambda node: node)
    if not found:
        return
    wanted = (spec.node_selector or {}).items()
    none_has = [
        f"{key}={value}"
        for key, value in wanted
        if not any(node.node.labels.get(key) == value for node in found)
    ]
    asks = "the pod's node selector" if none_has else "the pod's node selector or affinity"
    keys = [
        f"{one.key} {one.operator} {', '.join((one.values or ())[:_NAMES_MAX])}".strip()
        for term in spec.required_terms
        for one in term.match_expressions or ()
    ]
    labels = none_has or list(dict.fromkeys(keys)) or [f"{key}={value}" for key, value in wanted]
    what = f" ({', '.join(labels[:_NAMES_MAX])})" if labels else ""
    yield (
        f"{_names(found)} enough, but not the labels that {asks}{what} asks for; label a node, or "
        "change what the pod asks for"
    )


def _misnamed_mode(blocked: _Blocked, member: Member) -> Iterator[str]:
    resource = member.request.resource
    found = [
        node
        for node in blocked.get(Reason.MODE, ())
        if node.node.mode is NodeMode.DISABLED
        and _wrong_labels(node.node)
        and node.node.resources.get(resource)
    ]
    if found:
        wrong = _wrong_labels(found[0].node)
        are = "is no mode" if len(wrong) == 1 else "disagree"
        modes = ", ".join(mode for mode in NodeMode if mode is not NodeMode.DISABLED)
        yield (
            f"{_names(found)} {resource}, but {' and '.join(wrong)} {are}: the node is left alone; "
            f"remove the label, or write one of {modes}"
        )


def _wrong_labels(node: Node) -> list[str]:
    """Return the labels for the mode that are wrong: one that is none, or two that differ."""
    labels = {key: node.labels[key][:63] for key in MODE_LABELS if key in node.labels}
    unknown = [f"{key}={word}" for key, word in labels.items() if word not in set(NodeMode)]
    if unknown:
        return unknown[:1]
    is_one = len({*labels.values()}) <= 1
    return [] if is_one else [f"{key}={word}" for key, word in labels.items()]


def _without_plugin(blocked: _Blocked, member: Member) -> Iterator[str]:
    if member.request.resource != NVIDIA_GPU or member.request.by_claim:
        return
    nodes = blocked.get(Reason.MODE, ())
    lacking = [
        node
        for node in nodes
        if node.node.mode is NodeMode.DEFAULT and NVIDIA_GPU not in node.node.resources
    ]
    stated = [node for node in lacking if _states_gpus(node.node)]
    if stated:
        yield (
            f"{_names(stated)} GPUs by the labels, but no {NVIDIA_GPU}: NVIDIA's device plugin "
            "does not run there, or finds no driver; see its pod on that node"
        )
    elif lacking and len(lacking) == sum(map(len, blocked.values())):
        yield (
            f"no node offers {NVIDIA_GPU}; NVIDIA's device plugin must run on the nodes with GPUs, "
            "or add such nodes"
        )


def _states_gpus(node: Node) -> bool:
    labels = node.labels
    named = (GFD_PRODUCT, GFD_COUNT, *ACCELERATOR_LABELS)
    return labels.get(GPU_PRESENT) == "true" or any(labels.get(key) for key in named)


def _unhealthy(blocked: _Blocked, member: Member) -> Iterator[str]:
    none_left = [
        node
        for node in blocked.get(Reason.GPUS, ())
        if node.node.is_counted and not node.node.resources[NVIDIA_GPU] and node.node.cards
        if len(node.node.cards) >= member.request.gpus
    ]
    if none_left:
        total = len(none_left[0].node.cards)
        yield (
            f"{_names(none_left)} {total} GPU{'s' * (total != 1)}, of which none is allocatable: "
            "NVIDIA's device plugin finds no healthy one, or does not run; see its log there"
        )
    if unusable := blocked.get(Reason.UNUSABLE, ()):
        yield f"{_names(unusable)} GPUs that are cordoned or unhealthy; see linkwise inspect"


def _divided(blocked: _Blocked, _: Member) -> Iterator[str]:
    if nodes := blocked.get(Reason.PARTS, ()):
        yield (
            f"{_names(nodes)} GPUs in parts only; a gang needs whole ones, so turn their sharing "
            f'off, add nodes, or place its pods one by one (pod label {GANG}: "false")'
        )


def _unread_attribute(blocked: _Blocked, member: Member) -> Iterator[str]:
    nodes = [node.node for node in blocked.get(Reason.DEVICES, ()) if node.node.pool]
    facts = [one for node in nodes if node.pool for one in node.pool.facts]
    if not facts:
        return
    known = {name.rpartition("/")[2] for one in facts for name, _ in one.attributes}
    if missing := sorted(attributes_read(member.needs.selectors) - known):
        yield (
            f"no GPU has the attribute {', '.join(missing[:_NAMES_MAX])}, which a selector of the "
            f"claim reads; its driver has {', '.join(sorted(known)[:16])}"
        )
    else:
        yield "no GPU satisfies the selectors of the claim; compare them with the ResourceSlices"


_CURES: tuple[Callable[[_Blocked, Member], Iterator[str]], ...] = (
    _tainted,
    _unselected,
    _closed,
    _misnamed_mode,
    _unhealthy,
    _unread_attribute,
    _divided,
    _without_plugin,
)


def _curable(
    blocked: _Blocked, reason: Reason, member: Member, cured: Callable[[Node], Node]
) -> list[NodeLedger]:
    """Return the nodes that would take the member without a reason."""
    return [
        node
        for node in blocked.get(reason, ())
        if _takes(replace(node, node=cured(node.node)), member)
    ]


def _takes(node: NodeLedger, member: Member) -> bool:
    is_open = filter_node(node, member) is None
    return is_open and isinstance(gpu_capacity(node, member.request), int)


def _names(nodes: Sequence[NodeLedger]) -> str:
    """Return the names of nodes, and the verb that follows them."""
    names = [node.node.name for node in nodes]
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    verb = "has" if len(names) == 1 else "have"
    return f"{'node' if len(names) == 1 else 'nodes'} {', '.join(names[:_NAMES_MAX])}{more} {verb}"
