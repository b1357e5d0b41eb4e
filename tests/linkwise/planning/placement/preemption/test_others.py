"""Pods that Linkwise did not place as victims, compared with all sets of pods and gangs."""

from itertools import combinations, groupby
from typing import NamedTuple

import msgspec
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.builders import a_counted_node, a_pod, a_snapshot, gated_workers

from linkwise.cluster import keys
from linkwise.cluster.account.accounting import ledger_of
from linkwise.cluster.objects.pod import Pod
from linkwise.planning.gang.owners import Owners
from linkwise.planning.gang.placed_units import EvictionRules, placed_units
from linkwise.planning.gang.pod_info import pod_info
from linkwise.planning.placement.options import PlanOptions
from linkwise.planning.placement.pods.member import new_member
from linkwise.planning.placement.preemption.search import Eviction, find_victims
from linkwise.planning.placement.preemption.victim import Disruptions
from linkwise.planning.placement.result import Plan
from linkwise.planning.placement.schedule import plan
from linkwise.policy.gangs_section import Preemption

NOW = 1_767_225_600.0 + 3_600  # 2026-01-01T01:00:00Z
PRIORITY = 3
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}


class Held(NamedTuple):
    """A pod, and what a reader of the rules knows about it."""

    raw: dict
    unit: str | None
    """The unit with which it may be evicted; None: it may not."""
    is_of_others: bool


KINDS = {
    "single pod": {"ours": True},
    "gang": {"ours": True, "labels": {keys.POD_GROUP_NAME: "bert"}},
    "pod of others": {},
    "pod of a DaemonSet": {"owner": OWNER | {"kind": "DaemonSet"}, "stays": True},
    "mirror pod": {"owner": OWNER | {"kind": "Node"}, "stays": True},
    "bare pod": {"owner": None, "stays": True},
    "part of a gang of others": {"annotations": {"pod-group-name": "g"}, "stays": True},
    "young pod": {"started": "2026-01-01T00:59:59Z", "stays": True},
}


def held(name, kind, node, gpus, priority):
    made = KINDS[kind]
    record = f'{{"v":1,"node":"{node}","count":{gpus}}}'
    own = {keys.ALLOCATION: record} if "ours" in made else {}
    raw = a_pod(
        {keys.NVIDIA_GPU: gpus},
        name=name,
        nodeName=node,
        priority=priority,
        labels=made.get("labels"),
        annotations={**own, **made.get("annotations", {})},
    )
    owner = made.get("owner", OWNER)
    raw["metadata"] |= {"uid": name, "ownerReferences": [owner] if owner else []}
    started = made.get("started", "2026-01-01T00:00:00Z")
    unit = None if "stays" in made else "bert" if kind == "gang" else name
    return Held(raw | {"status": {"phase": "Running", "startTime": started}}, unit, not own)


@st.composite
def clusters(draw):
    """Two nodes of which NVIDIA's plugin chooses the GPUs, with pods of all kinds."""
    pods = []
    for node in ("n0", "n1"):
        for _ in range(4):
            kind = draw(st.sampled_from([*KINDS, *["pod of others"] * 4]))
            priority, gpus = draw(st.integers(-1, PRIORITY)), draw(st.integers(1, 2))
            pods.append(held(f"pod-{len(pods)}", kind, node, gpus, priority))
    return pods


def sets_of(pods, *, others):
    """Yield all sets of units that may be evicted, each as names of pods."""
    able = [pod for pod in pods if pod.unit and (others or not pod.is_of_others)]
    able.sort(key=lambda pod: pod.unit)
    units = [list(unit) for _, unit in groupby(able, key=lambda pod: pod.unit)]
    lower = [
        [pod.raw["metadata"]["name"] for pod in unit]
        for unit in units
        if max(pod.raw["spec"]["priority"] for pod in unit) < PRIORITY
    ]
    for count in range(1, len(lower) + 1):
        yield from combinations(lower, count)


@settings(max_examples=60, deadline=None)
@given(clusters(), st.integers(1, 3), st.sampled_from([2, 4, 8]), st.booleans())
def test_the_cheapest_units_and_pods_of_others_are_victims(held_pods, size, gpus, others):
    read = [msgspec.convert(pod.raw, Pod) for pod in held_pods]
    ledger = ledger_of([a_counted_node("n0"), a_counted_node("n1")], read)
    snapshot = a_snapshot(*(node.node for node in ledger.in_order))
    snapshot = snapshot.hold_all(
        (node.node.name, holding) for node in ledger.in_order for holding in node.holdings.values()
    )
    members = [
        new_member(
            msgspec.structs.replace(
                member.pod, spec=msgspec.structs.replace(member.pod.spec, priority=PRIORITY)
            ),
            "default",
        )
        for member in gated_workers(size, gpus)
    ]
    assume(not isinstance(plan(snapshot, members), Plan))
    policy = Preemption(others="lowerPriority" if others else "never")
    rules = EvictionRules(
        NOW, policy, frozenset(), lambda pod: pod.life.started, lambda _, __: frozenset()
    )
    units = placed_units(map(pod_info, read), Owners({}, {}), snapshot.ledger.nodes, rules)
    by_name = {pod.holding.uid: unit.victim for unit in units for pod in unit.victim.pods}
    places = {
        uid: (node.node.name, holding)
        for node in snapshot.nodes
        for uid, holding in node.holdings.items()
    }
    disruptions = Disruptions(NOW)

    def fits_without(names):
        rest = snapshot.without_holdings(places[name] for name in names)
        return isinstance(plan(rest, members, PlanOptions()), Plan)

    found = find_victims(
        snapshot, members, (unit.victim for unit in units), disruptions, PlanOptions()
    )

    sufficient = [
        disruptions.cost([by_name[unit[0]] for unit in some])
        for some in sets_of(held_pods, others=others)
        if fits_without([name for unit in some for name in unit])
    ]
    assert isinstance(found, Eviction) == bool(sufficient)
    if isinstance(found, Eviction):
        assert found.cost == min(sufficient)
