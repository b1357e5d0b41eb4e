"""Random clusters full of units under PodDisruptionBudgets, and all sets of them that may go."""

import random
from collections import Counter
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import msgspec

from linkwise.cluster.account.node_ledger import Holding
from linkwise.cluster.gang import Link
from linkwise.planning.placement.options import PlanOptions
from linkwise.planning.placement.preemption.search import EXACT_MAX, Eviction, find_victims
from linkwise.planning.placement.preemption.victim import Disruptions, Victim, VictimPod
from linkwise.planning.placement.result import Plan
from linkwise.planning.placement.schedule import plan
from support.builders import a_node, a_snapshot, an_nvswitch_machine, exact, workers

NOW = 1_000.0
PRIORITY = 3
BUDGETS = ("o/a", "o/b", "o/c")
MACHINE = an_nvswitch_machine(8, 12)


class Case(NamedTuple):
    """A full cluster, and the members that wait."""

    snapshot: object
    units: list
    members: list
    link: Link
    allowed: dict


def of_priority(members, priority):
    """Return members with this priority."""

    def with_priority(member):
        spec = msgspec.structs.replace(member.pod.spec, priority=priority)
        return replace(member, pod=msgspec.structs.replace(member.pod, spec=spec))

    return [with_priority(member) for member in members]


def draw(seed):
    """Return the case of a seed: more units than are searched exactly; None: it fits anyway."""
    rng = random.Random(seed)  # noqa: S311 (no secret)
    nodes = [a_node(f"n{i}", MACHINE) for i in range(rng.randint(2, 4))]
    number = rng.randint(EXACT_MAX + 1, EXACT_MAX + 4)
    gpus = [(node.name, i) for node in nodes for i in range(8)]
    rng.shuffle(gpus)
    held = {i: [gpus.pop()] for i in range(number)}
    for gpu in gpus:
        # Some units grow on their nodes, some over several, and some GPUs stay free.
        near = [i for i, own in held.items() if own[0][0] == gpu[0]]
        choices = near if near and rng.random() < 0.7 else range(number)
        if rng.random() < 0.9:
            held[rng.choice(choices)].append(gpu)
    units = [_unit(rng, name, own) for name, own in held.items()]
    snapshot = a_snapshot(*nodes).hold_all(
        (pod.node, pod.holding) for unit in units for pod in unit.pods
    )
    members = of_priority(workers(rng.randint(1, 3), rng.choice([1, 2, 3, 4, 6, 8])), PRIORITY)
    link = rng.choice(list(Link))
    if isinstance(plan(snapshot, members, PlanOptions(link)), Plan):
        return None
    allowed = {name: rng.choice([0, 1, 1, 2, 3, 4, 6]) for name in BUDGETS}
    return Case(snapshot, units, members, link, allowed)


def _unit(rng, name, gpus):
    """Return a unit: a pod on each node, or one for each GPU."""
    of_gpu = rng.random() < 0.5
    groups = {}
    for node, i in gpus:
        groups.setdefault((node, i if of_gpu else 0), []).append(i)
    kept = rng.choice([(), BUDGETS[:1], BUDGETS[1:2], BUDGETS])
    pods = tuple(
        VictimPod(
            node,
            Holding(f"o/{name}-{node}-{key}", f"{name}-{node}-{key}", exact(*sorted(own))),
            rng.choice([0.0, 900.0]),
            frozenset(rng.sample(kept, 1)) if kept else frozenset(),
        )
        for (node, key), own in sorted(groups.items())
    )
    spare = rng.randint(1, len(pods) - 1) if len(pods) > 2 and rng.random() < 0.2 else 0
    return Victim(f"o/{name}", rng.randint(0, PRIORITY), pods, spare=spare)


def permitted(case, victims):
    """Return whether the budgets allow to evict all of these."""
    counts = Counter(budget for unit in victims for pod in unit.pods for budget in pod.budgets)
    return all(count <= case.allowed[name] for name, count in counts.items())


def fits_without(case, victims):
    """Return whether the members have a plan once these are gone."""
    pods = [(pod.node, pod.holding) for unit in victims for pod in unit.pods]
    soon = case.snapshot.without_holdings(pods)
    return isinstance(plan(soon, case.members, PlanOptions(case.link)), Plan)


def is_possible(case):
    """Return whether any set of units that the budgets allow gives the members a plan.

    What a set makes possible, each larger one does, so that no part of a set that failed is tried.
    """
    able = [unit for unit in case.units if unit.priority < PRIORITY]
    parts = (
        [None, *(replace(u, pods=u.pods[-n:]) for n in range(1, u.spare + 1)), u] for u in able
    )
    sets = ([unit for unit in some if unit] for some in product(*parts))
    allowed = [some for some in sets if some and permitted(case, some)]
    named = [
        (frozenset(pod.holding.uid for unit in some for pod in unit.pods), some) for some in allowed
    ]
    named.sort(key=lambda pair: -len(pair[0]))
    failed = []
    for uids, some in named:
        if any(uids <= other for other in failed):
            continue
        if fits_without(case, some):
            return True
        failed.append(uids)
    return False


def check(seed):
    """Return what is wrong with the victims that are found for the case of a seed; None: nothing.

    Of 2,000 seeds more than half have a case, and of these about a third have victims.
    """
    case = draw(seed)
    if case is None:
        return None
    found = find_victims(
        case.snapshot,
        case.members,
        case.units,
        Disruptions(NOW, case.allowed),
        PlanOptions(case.link),
    )
    if not isinstance(found, Eviction):
        return f"{seed}: missed" if is_possible(case) else None
    if not permitted(case, found.victims):
        return f"{seed}: budgets do not allow it"
    return None if fits_without(case, found.victims) else f"{seed}: it does not fit"
