"""What `explain` answers to scripts."""

from cli.explained import Explained, Sitting
from cli.simulate_json import index_order, lists, rounded, runner_up
from scorer.why import why


def document(one: Explained) -> dict[str, object]:
    """Return the answer for scripts; fields may be added, never changed."""
    told = why(one.seen, one.plan) if one.plan and one.seen else None
    return {
        "kind": one.kind,
        "namespace": one.namespace,
        "name": one.name,
        "state": one.state.value,
        "reason": one.reason,
        "help": list(one.remedies),
        "nodes": list(one.plan.gpus) if one.plan else [],
        "gpus": lists(one.plan.gpus) if one.plan else {},
        "bandwidth": rounded(one.bandwidth),
        "best_possible": rounded(one.best_possible),
        "index_order": index_order(one.index_order),
        "runner_up": runner_up(told) if told else {},
        "why": told.nodes if told and one.changed is None else None,
        "changed": one.changed,
        "notes": list(told.notes) if told else [],
        "pods": [_pod(pod) for pod in one.pods],
    }


def _pod(pod: Sitting) -> dict[str, object]:
    return {"name": pod.name, "node": pod.node, "gpus": list(pod.gpus), "state": pod.state}
