"""What `inspect` answers to scripts: gpushare's `/inspect`, with more beside it.

Of gpushare are `nodes[].{name,totalGPU,usedGPU,devs[].{id,totalGPU,usedGPU,pods[].{name,namespace,
usedGPU}}}`, amounts in GiB, 0 where nothing tells a card's memory. Fields may be added.
"""

from collections.abc import Sequence

from cli.inspection import Holder, NodeView
from cli.simulate_json import rounded


def document(views: Sequence[NodeView]) -> dict[str, object]:
    """Return the answer for scripts; fields may be added, never changed."""
    return {"nodes": [_node(view) for view in views]}


def _node(view: NodeView) -> dict[str, object]:
    node, ledger = view.node, view.ledger
    return {
        "name": node.name,
        "totalGPU": sum(map(view.total, view.indices)),
        "usedGPU": sum(map(view.used, view.indices)) + sum(pod.memory for pod in view.pending),
        "devs": [_device(view, i) for i in view.indices],
        "address": view.address,
        "mode": node.mode.value,
        "placement": node.placement.value,
        "ready": node.ready,
        "unschedulable": node.unschedulable,
        "class": view.table.key if node.machine_known else None,
        "model": node.machine.model if node.machine else None,
        "free": list(view.free),
        "free_bandwidth": rounded(view.bandwidth(view.free)),
        "gpus_free": ledger.gpus_free,
        "enforced": sorted(view.enforced),
        "unaccounted": ledger.unaccounted,
        "pending": [
            {"name": name, "namespace": namespace, "usedGPU": pod.memory}
            for pod in view.pending
            for namespace, _, name in [pod.name.partition("/")]
        ],
        "counted": [
            {"name": one.name, "namespace": one.namespace, "gpus": one.holding.nvidia}
            for one in view.holders
            if one.holding.nvidia
        ],
    }


def _device(view: NodeView, i: int) -> dict[str, object]:
    card, taken = view.node.cards[i], view.ledger.taken[i]
    machine = view.node.machine
    links = machine.links[i] if machine and view.node.machine_known else ()
    return {
        "id": i,
        "totalGPU": view.total(i),
        "usedGPU": view.used(i),
        "pods": [_pod(view, holder, i) for holder in view.of(i)],
        "uuid": card.uuid,
        "healthy": card.healthy,
        "cordoned": card.cordoned,
        "whole": taken.whole,
        "holders": taken.holders,
        "replicas": view.node.replicas or None,
        "used_core": taken.core,
        "nvlinks": {str(j): count for j, count in enumerate(links) if count and j != i},
    }


def _pod(view: NodeView, holder: Holder, i: int) -> dict[str, object]:
    shares = holder.shares_of(i)
    return {
        "name": holder.name,
        "namespace": holder.namespace,
        "usedGPU": view.has(holder, i),
        "core": sum(share.core or 0 for share in shares) or None,
        "replicas": len(shares) if view.node.replicas else None,
        "whole": not view.node.replicas and any(share.mem is None for share in shares),
        "gang": holder.holding.gang,
        "isolation": holder.isolation,
        "bound": holder.bound,
    }
