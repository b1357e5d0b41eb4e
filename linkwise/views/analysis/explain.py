"""Explains the placement of a pod or a gang, or why it waits, with the scorer's engine. Pure.

A unit that waits is explained by the planner's decision for it, a placed one by its records.
"""

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import replace

from linkwise.cluster.finding import printable
from linkwise.cluster.gang import GangKey, Link
from linkwise.cluster.keys import ALLOCATION, GANG, GANG_KIND, LEFT_TO_SCHEDULER
from linkwise.cluster.requests.other_systems import gpus_of_others
from linkwise.cluster.requests.request import Family
from linkwise.planning.gang.bind_answer import answer_of
from linkwise.planning.gang.crd import (
    GPUS_AS_PLANNED,
    GPUS_HEALTHY,
    PREPARED,
    GangStatus,
)
from linkwise.planning.gang.events import FENCED, SHARED
from linkwise.planning.gang.health import (
    LedgerOf,
    Links,
    slower_gpus,
    unhealthy_gpus,
    unplanned_gpus,
    unprepared_pods,
)
from linkwise.planning.gang.moved import running
from linkwise.planning.gang.pod_info import PodInfo, pod_info
from linkwise.planning.placement.bandwidth import UNDEFINED
from linkwise.planning.placement.baselines import best_possible, index_order, never_fits
from linkwise.planning.placement.pods.member import new_member
from linkwise.planning.placement.result import Plan
from linkwise.planning.placement.schedule import plan
from linkwise.planning.whatif.preemption import Preemptions
from linkwise.views.analysis.explain_placed import explain_placed
from linkwise.views.analysis.named_gangs import (
    ENDED,
    evicted_text,
    explain_empty_gang,
    gangs_named,
    members_of,
)
from linkwise.views.analysis.planner_view import Decision, PlannerView
from linkwise.views.analysis.suggestions import suggested_change, suggestions
from linkwise.views.analysis.unit_explanation import UnitExplanation, UnitState, pod_placement
from linkwise.workloads.rank import rank_order
from linkwise.workloads.registry import GANG_KINDS


def explain_gang(view: PlannerView, namespace: str, name: str) -> tuple[UnitExplanation, ...]:
    """Explain the gangs of a name: several if a job was submitted again, none if there is none.

    Args:
        view: The cluster.
        namespace: The gang's namespace.
        name: The gang's name in its pods, or the name of its Gang object.
    """
    named = gangs_named(view, namespace, name)
    present = (_explain_gang(view, key) for key in named.present)
    return (*present, *map(explain_empty_gang, named.empty))


def explain_pod(view: PlannerView, namespace: str, name: str) -> UnitExplanation | None:
    """Explain a pod, together with its gang if it has one; None where there is no such pod."""
    pod = view.pods.get((namespace, name))
    if pod is None:
        return None
    info = pod_info(pod)
    if info.gang is not None:
        return _explain_gang(view, view.owners.key(info))
    explanation = _explain_single(view, info)
    return replace(
        explanation,
        reason=explanation.reason or unbound_reason([info]),
        unhealthy=_unhealthy(view, [info]),
        unplanned=_unplanned(view, [info]),
        unprepared=_unprepared(view, [info]),
    )


def _explain_gang(view: PlannerView, key: GangKey) -> UnitExplanation:
    members = members_of(view, key)
    kinds = (view.pods[pod.key].annotations.get(GANG_KIND) for pod in members)
    kind = next((kind for kind in kinds if kind in GANG_KINDS), None)
    explanation, gang = _explain_members(view, key, members), view.gang_object(key)
    status = gang.status if gang else GangStatus()
    unhealthy = _noted(_unhealthy(view, members), status.problem(GPUS_HEALTHY))
    is_faulty = bool(unhealthy or slower_gpus(members, *_account(view)))
    return replace(
        explanation,
        # Only the leader knows until when.
        reason=explanation.reason
        or unbound_reason(members)
        or (status.reason if status.reserved else None),
        reserved=status.reserved,
        membership=_membership(kind, key) if kind else None,
        unhealthy=unhealthy,
        unplanned=_noted(_unplanned(view, members), status.problem(GPUS_AS_PLANNED)),
        unprepared=_noted(_unprepared(view, members), status.problem(PREPARED)),
        evicted=evicted_text(gang),
        suggestions=(*explanation.suggestions, *(_move(key, members) if is_faulty else ())),
    )


def _move(key: GangKey, members: list[PodInfo]) -> Iterator[str]:
    """Yield how all members are placed again together, if their owner makes them again."""
    pods = running(members)
    if pods and all(pod.controller for pod in pods):
        command = shlex.join(["kubectl", "delete", "pod", "-n", key.namespace])
        names = shlex.join(sorted(pod.name for pod in pods))
        yield f"to place all its members again together: `{command} {names}`"


def unbound_reason(pods: Iterable[PodInfo]) -> str | None:
    """Return why kube-scheduler does not bind pods that have their GPUs; None: it says nothing."""
    answer = answer_of(pod for pod in pods if pod.settled and not pod.bound)
    return answer.waiting if answer else None


def _unhealthy(view: PlannerView, pods: list[PodInfo]) -> str:
    return unhealthy_gpus(pods, view.snapshot.ledger.nodes.get)


def _unplanned(view: PlannerView, pods: list[PodInfo]) -> str:
    return unplanned_gpus(pods, *_account(view))


def _unprepared(view: PlannerView, pods: list[PodInfo]) -> str:
    return unprepared_pods(pods, view.clock)


def _account(view: PlannerView) -> tuple[LedgerOf, Links]:
    snapshot = view.snapshot
    links = Links(snapshot.tables.get, snapshot.preferences.nic_bandwidth)
    return snapshot.ledger.nodes.get, links


def _noted(problem: str, message: str | None) -> str:
    """Return a problem as its condition states it.

    The leader alone knows why no gang is moved, and reads what kubelets say.
    """
    return printable(message) if problem and message and message.startswith(problem) else problem


def _membership(kind: str, key: GangKey) -> str:
    return (
        f"its pods are a gang because {kind} {key.name} owns them (policy gangs.kinds); to place "
        f'them one by one, create it again with label {GANG}: "false" in its pod templates'
    )


def _explain_members(view: PlannerView, key: GangKey, members: list[PodInfo]) -> UnitExplanation:
    for pod in members:
        if decision := view.decisions.get(pod.key):
            return _explain_decision(view, decision)
    members.sort(key=lambda pod: (*rank_order(view.pods[pod.key]), pod.name))
    if any(member.allocation for member in members):
        return explain_placed(view, "gang", key, members)
    running = next((pod for pod in members if pod.usage is not None), None)
    state = UnitState.WAITS if running else UnitState.ENDED
    reason = reason_unplaced(view, running) if running else ENDED
    pods = tuple(map(pod_placement, members))
    return UnitExplanation("gang", key.namespace, key.name, state, pods, reason)


def _explain_single(view: PlannerView, pod: PodInfo) -> UnitExplanation:
    if decision := view.decisions.get(pod.key):
        return _explain_decision(view, decision)
    usage = pod.usage
    if usage is not None and usage.places and pod.allocation:
        return explain_placed(view, "pod", view.owners.key(pod), [pod])
    suggestion, outcome = None, None
    others = gpus_of_others(view.pods[pod.key].spec, usage.family) if usage else None
    if usage is None:
        state, reason = UnitState.ENDED, ENDED
    elif others:
        delegated = view.pods[pod.key].annotations.get(LEFT_TO_SCHEDULER)
        why = f" ({printable(delegated)})" if delegated else ""
        is_shared = delegated is None or SHARED in delegated
        if is_shared and pod.lacks_devices and _has_claims_nodes(view):
            why = f"; {FENCED}"
        state, reason = UnitState.ALONE, f"it asks for {others}: Linkwise does not place it{why}"
    else:
        state, reason = UnitState.ALONE, reason_unplaced(view, pod)
        if usage.family is not None and not usage.node:
            members = [new_member(view.pods[pod.key], pod.namespace)]
            outcome = plan(view.snapshot, members)
            if not isinstance(outcome, Plan):
                state, reason = UnitState.WAITS, outcome.reason
                if never_fits(view.snapshot, members, Link.BEST):
                    state = UnitState.NEVER
                    suggestion = suggested_change(view.snapshot, members)
    return UnitExplanation(
        "pod",
        pod.namespace,
        pod.name,
        state,
        (pod_placement(pod),),
        reason,
        plan=outcome if isinstance(outcome, Plan) else None,
        suggestions=(suggestion,) if suggestion else (),
    )


def _has_claims_nodes(view: PlannerView) -> bool:
    return any(ledger.node.is_claims for ledger in view.snapshot.ledger.nodes.values())


def _explain_decision(view: PlannerView, decision: Decision) -> UnitExplanation:
    """Explain a unit that waits by the planner's decision for it."""
    unit, outcome, before, _ = decision
    planned = outcome if isinstance(outcome, Plan) else None
    bandwidth = planned.bandwidth if planned else UNDEFINED
    order = index_order(before, unit.members)
    placements = {each.member.name: each for each in planned.placements} if planned else {}
    gang = view.gang_object(unit.key)
    refusal = view.refusal(decision)
    never = refusal and not unit.blocked and never_fits(before, unit.least.members, unit.link)
    unplaced = UnitState.NEVER if never else UnitState.WAITS
    running = view.running() if refusal and not never else None
    best = UNDEFINED if unit.blocked else best_possible(before, unit.members, bandwidth, order)
    return UnitExplanation(
        kind="gang" if unit.is_gang else "pod",
        namespace=unit.key.namespace,
        name=unit.key.name,
        state=UnitState.FITS if planned else unplaced,
        pods=tuple(
            pod_placement(pod, placements.get(f"{pod.namespace}/{pod.name}"))
            for pod in (*unit.settled, *unit.waiting)
        ),
        reason=refusal or (gang.status.reason if gang else None) or None,
        plan=planned,
        snapshot=before,
        bandwidth=bandwidth,
        best_possible=best,
        index_order=order,
        suggestions=() if planned else tuple(suggestions(before, unit)),
        preempts=Preemptions(running).find(before, unit.least) if running else (),
    )


def reason_unplaced(view: PlannerView, pod: PodInfo) -> str:
    """Return why Linkwise did not choose a pod's GPUs."""
    usage = pod.usage
    if usage is None or usage.family is None:
        return "it asks for no GPU; kube-scheduler chooses its node"
    if usage.family is Family.NVIDIA:
        return "kube-scheduler chooses its node by count, and NVIDIA's plugin its GPUs"
    if not usage.node:
        return f"it has no scheduling gate {GANG}: Linkwise was not asked when it was created"
    ledger = view.snapshot.ledger.nodes.get(usage.node)
    unaccounted = ledger.unaccounted if ledger else None
    return unaccounted or f"it has GPUs of {usage.node}, but no {ALLOCATION}"
