"""What `linkwise simulate` answers to scripts: the stable document of `-o json` and `-o yaml`."""

from msgspec import to_builtins

from cli.simulation import PodResult, Simulation
from cluster.ledger import NodeLedger
from scorer.compare import IndexOrder
from scorer.outcome import Plan
from scorer.simulation import GangResult
from scorer.snapshot import Snapshot
from scorer.whatif import left_on
from scorer.why import Why, why


def document(simulation: Simulation) -> dict[str, object]:
    """Return the answer for scripts; fields may be added, never changed."""
    alone = {id(one.members[0].pod): one for one in simulation.gangs if not one.is_gang}
    return {
        "pods": [_pod(pod, alone.get(id(pod.applicant.pod))) for pod in simulation.pods],
        "gangs": [_gang(one) for one in simulation.gangs if one.is_gang],
        "nodes": [
            _node(before, simulation.after.ledger.nodes[before.node.name])
            for before in simulation.before.nodes
        ],
    }


def _pod(result: PodResult, alone: GangResult | None) -> dict[str, object]:
    plan = alone.plan if alone else None
    request = result.applicant.outcome.request
    return {
        "name": result.applicant.pod.metadata.name,
        "namespace": result.applicant.namespace,
        "gang": result.gang,
        "verdict": result.applicant.outcome.verdict.value,
        "node": result.node,
        "gpus": [share.i for share in result.shares] if request.places and result.node else None,
        "reason": result.reason,
        "bandwidth": rounded(plan.bandwidth if plan else None),
        "best_possible": rounded(alone.best_possible if alone else None),
        "findings": [
            {"code": f.code.value, "message": f.message, "fix": f.fix}
            for f in result.applicant.outcome.findings
        ],
    }


def _gang(gang: GangResult) -> dict[str, object]:
    shown: dict[str, object] = {
        "name": gang.name,
        "namespace": gang.namespace,
        "size": len(gang.members),
        "placed": gang.plan is not None,
        "nodes": [],
        "gpus": {},
        "bandwidth": None,
        "best_possible": rounded(gang.best_possible),
        "index_order": index_order(gang.index_order),
        "reason": gang.reason,
    }
    return shown | _planned(gang.seen, gang.plan) if gang.plan else shown


def _planned(seen: Snapshot, plan: Plan) -> dict[str, object]:
    """Return what is said of a gang that is placed, beside what is said of every gang."""
    told = why(seen, plan)
    return {
        "nodes": list(plan.gpus),
        "gpus": lists(plan.gpus),
        "bandwidth": rounded(plan.bandwidth),
        "bandwidth_note": "nic unknown" if plan.nic_unknown else None,
        "exact": plan.exact,
        "why": told.nodes,
        "notes": list(told.notes),
        "runner_up": runner_up(told),
    }


def index_order(order: IndexOrder | None) -> dict[str, object]:
    """Return what nodes by name and lowest free indices would have given."""
    if order is None:
        return {"nodes": [], "gpus": {}, "bandwidth": None}
    gpus = lists(order.gpus)
    return {"nodes": list(gpus), "gpus": gpus, "bandwidth": rounded(order.bandwidth)}


def lists(gpus: dict[str, tuple[int, ...]]) -> dict[str, list[int]]:
    """Return the GPUs of each node."""
    return {node: list(taken) for node, taken in gpus.items()}


def runner_up(told: Why) -> dict[str, object]:
    """Return the next set on each node, by node; None where every other set is alike."""
    return {
        node: (
            {"gpus": list(one.runner_up.gpus), "bandwidth": rounded(one.runner_up.bandwidth)}
            if one.runner_up
            else None
        )
        for node, one in told.gpus.items()
    }


def _node(before: NodeLedger, after: NodeLedger) -> dict[str, object]:
    left: dict[str, object] = to_builtins(left_on(before, after))
    return {**left, "unaccounted": before.unaccounted}


def rounded(bandwidth: float | None) -> float | None:
    """Return a bandwidth as answers show it, to 0.1 GB/s."""
    return None if bandwidth is None else round(bandwidth, 1)
