from dataclasses import replace
from itertools import combinations, product

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.builders import (
    a_counted_node,
    a_machine,
    a_member,
    a_node,
    a_snapshot,
    an_nvswitch_machine,
    exact,
    gated_workers,
    workers,
)
from support.strategies import clusters, gangs

from linkwise.cluster import keys
from linkwise.cluster.account.node_ledger import Holding
from linkwise.cluster.allocations.gpus import Counted, Exact, GPUShare
from linkwise.cluster.gang import Link
from linkwise.cluster.requests.demand import Demand
from linkwise.planning.placement.options import PlanOptions
from linkwise.planning.placement.preemption.search import (
    EXACT_MAX,
    NODES_MIN,
    Eviction,
    NoEviction,
    find_victims,
)
from linkwise.planning.placement.preemption.victim import Disruptions, Victim, VictimPod
from linkwise.planning.placement.result import Plan
from linkwise.planning.placement.schedule import plan

NOW = 1_000.0


def fill(snapshot, draw_unit):
    """Put a pod on each free GPU or two, each of the unit whose number is drawn."""
    pods, held = {}, []
    for node in snapshot.nodes:
        name = node.node.name
        for i, gpus in enumerate(single_gpus(node)):
            number = draw_unit()
            if number is None:
                continue
            holding = Holding(f"o/{name}-{i}", f"{name}-{i}", gpus)
            held.append((name, holding))
            pods.setdefault(number, []).append((name, holding))
    return snapshot.hold_all(held), pods


def single_gpus(node):
    """Return each free GPU of a node, also where NVIDIA's plugin chooses."""
    if node.is_counted:
        return [Counted(keys.NVIDIA_GPU, 1)] * node.counted_free(keys.NVIDIA_GPU)
    return [exact(i) for i in range(len(node.node.cards)) if node.free_mask >> i & 1]


@st.composite
def counted_clusters(draw):
    """Return one to three nodes, on most of which NVIDIA's plugin chooses the GPUs."""
    kinds = draw(st.lists(st.sampled_from([a_counted_node, a_counted_node, a_node]), max_size=2))
    nodes = [
        make(f"n{i}", machine=a_machine(draw(st.sampled_from([2, 4]))))
        for i, make in enumerate([a_counted_node, *kinds])
    ]
    return a_snapshot(*nodes)


def members_of_gangs():
    return gangs() | st.builds(gated_workers, st.integers(1, 4), st.integers(1, 3))


@st.composite
def full_clusters(draw, most_units=4, most_spare=2):
    snapshot, pods = fill(
        draw(clusters(most=3) | counted_clusters()),
        lambda: draw(st.sampled_from([None, *range(most_units)] * 2)),
    )
    budgets = st.sets(st.sampled_from(["o/a", "o/b"]), max_size=1).map(frozenset)
    units = [
        Victim(
            name=f"o/{number}",
            priority=draw(st.integers(-1, 3)),
            protected=draw(st.sampled_from([None] * 5 + ["it started a moment ago"])),
            pods=tuple(
                VictimPod(node, holding, draw(st.sampled_from([0.0, 900.0])), draw(budgets))
                for node, holding in members
            ),
            spare=draw(st.integers(0, min(len(members) - 1, most_spare))),
        )
        for number, members in sorted(pods.items())
    ]
    return snapshot, units


def of_priority(members, priority, **spec):
    def with_priority(member):
        own = msgspec.structs.replace(member.pod.spec, priority=priority, **spec)
        return replace(member, pod=msgspec.structs.replace(member.pod, spec=own))

    return [with_priority(member) for member in members]


def plan_without(snapshot, members, units, link):
    pods = [(pod.node, pod.holding) for unit in units for pod in unit.pods]
    found = plan(snapshot.without_holdings(pods), members, PlanOptions(link))
    return found if isinstance(found, Plan) else None


def damage_of(snapshot, units, made):
    """Return how much less the free GPUs of all nodes are worth after a plan."""
    pods = [(pod.node, pod.holding) for unit in units for pod in unit.pods]
    before = snapshot.without_holdings(pods)

    def worth(moment):
        return sum(
            moment.tables[node.node.name].remainder(node.free_mask)
            for node in moment.nodes
            if node.node.name in moment.tables
        )

    return round(worth(before) - worth(made.applied_to(before)), 4)


def choices(unit):
    """Return what may be evicted of a unit: nothing, all, or some of its last pods if elastic."""
    parts = [replace(unit, pods=unit.pods[-count:]) for count in range(1, unit.spare + 1)]
    return [None, *parts, unit]


def sufficient(snapshot, members, units, link, disruptions):
    """Return every set of units that may be evicted and whose eviction gives a plan."""
    able = [unit for unit in units if unit.priority < 3 and not unit.protected]
    sets = ([unit for unit in some if unit] for some in product(*map(choices, able)))
    return [
        (some, made)
        for some in sets
        if some and not disruptions.excess(some)
        if (made := plan_without(snapshot, members, some, link))
    ]


allowed = st.fixed_dictionaries({"o/a": st.integers(0, 3), "o/b": st.integers(0, 3)})


@settings(max_examples=60, deadline=None)
@given(full_clusters(), members_of_gangs(), st.sampled_from(Link), allowed)
def test_the_best_of_all_sets_is_found_where_there_are_few_units(full, members, link, limits):
    snapshot, units = full
    members = of_priority(members, 3)
    assume(not isinstance(plan(snapshot, members, PlanOptions(link)), Plan))
    disruptions = Disruptions(NOW, limits)
    every = sufficient(snapshot, members, units, link, disruptions)

    found = find_victims(snapshot, members, units, disruptions, PlanOptions(link))

    if not every:
        assert isinstance(found, NoEviction)
        return
    assert isinstance(found, Eviction)
    best = min(
        (disruptions.cost(some), -(made.bandwidth.value or 0), damage_of(snapshot, some, made))
        for some, made in every
    )
    assert (found.cost, -(found.plan.bandwidth.value or 0)) == best[:2]
    assert found.damage == pytest.approx(best[2], abs=1e-3)
    assert found.exact


@settings(max_examples=40, deadline=None)
@given(full_clusters(most_units=14), members_of_gangs(), st.sampled_from(Link), allowed)
def test_units_of_a_lower_priority_are_evicted_whole_and_none_without_need(
    full, members, link, limits
):
    snapshot, units = full
    members = of_priority(members, 3)
    assume(not isinstance(plan(snapshot, members, PlanOptions(link)), Plan))

    found = find_victims(snapshot, members, units, Disruptions(NOW, limits), PlanOptions(link))

    if isinstance(found, NoEviction):
        return
    victims = list(found.victims)
    assert all((unit.whole or unit) in units for unit in victims)
    assert all(unit.priority < 3 and not unit.protected for unit in victims)
    assert found.plan == plan_without(snapshot, members, victims, link)
    for i, unit in enumerate(victims):
        others = victims[:i] + victims[i + 1 :]
        assert not plan_without(snapshot, members, others, link)
        whole = unit.whole or unit
        assert unit is whole or unit.pods == whole.pods[-len(unit.pods) :]
        most = len(unit.pods) - 1 if unit.whole else whole.spare
        assert most <= whole.spare
        fewer = [replace(whole, pods=whole.pods[-most:])] if most else []
        assert not (fewer and plan_without(snapshot, members, [*others, *fewer], link))


@settings(max_examples=40, deadline=None)
@given(full_clusters(most_units=14), members_of_gangs())
def test_many_units_are_searched_until_a_plan_is_found(full, members):
    snapshot, units = full
    members = of_priority(members, 3)
    assume(not isinstance(plan(snapshot, members), Plan))
    able = [unit for unit in units if unit.priority < 3 and not unit.protected]

    without_limit = {"o/a": 99, "o/b": 99}
    found = find_victims(snapshot, members, units, Disruptions(NOW, without_limit))

    assert isinstance(found, Eviction) == bool(plan_without(snapshot, members, able, Link.BEST))


@st.composite
def many_units(draw):
    """Return three full nodes with more units of a lower priority than are searched exactly."""
    members = [(f"n{n}", (i,)) for n in range(3) for i in range(8)]
    numbers = draw(st.lists(st.integers(0, 15), min_size=24, max_size=24))
    assume(len(set(numbers)) > EXACT_MAX)
    units = [
        a_unit(
            f"{number}",
            *(pod for pod, own in zip(members, numbers, strict=True) if own == number),
            priority=draw(st.integers(-1, 2)),
            started=draw(st.sampled_from([0.0, 900.0])),
            budgets=draw(st.sets(st.sampled_from(["o/a", "o/b"]), max_size=1)),
        )
        for number in sorted(set(numbers))
    ]
    snapshot = a_snapshot(*(a_node(f"n{n}") for n in range(3)))
    return snapshot.hold_all((pod.node, pod.holding) for unit in units for pod in unit.pods), units


@settings(max_examples=40, deadline=None)
@given(many_units(), st.integers(1, 3), st.integers(1, 4), st.sampled_from(Link), allowed)
def test_no_part_of_the_victims_among_many_units_would_do(full, size, gpus, link, limits):
    snapshot, units = full
    members = of_priority(workers(size, gpus), 3)

    found = find_victims(snapshot, members, units, Disruptions(NOW, limits), PlanOptions(link))

    assume(isinstance(found, Eviction) and len(found.victims) <= 8)
    assert not found.exact
    parts = (
        part for count in range(len(found.victims)) for part in combinations(found.victims, count)
    )
    assert not any(plan_without(snapshot, members, part, link) for part in parts)


# ---- Each criterion, with few units and with many.

EIGHT = an_nvswitch_machine(8, 12)


def a_unit(name, *pods, priority=0, started=0.0, budgets=(), protected=None, spare=0, grace=30):
    """Return a unit whose pods each have some GPUs of a node."""
    held = tuple(
        VictimPod(
            node,
            Holding(f"o/{name}-{i}", f"{name}-{i}", exact(*gpus)),
            started,
            frozenset(budgets),
            grace,
        )
        for i, (node, gpus) in enumerate(pods)
    )
    return Victim(f"o/{name}", priority, held, protected, spare)


def find(units, members, *, nodes=4, others=0, limits=None, full=False, **spec):
    """Search on full nodes; `others` are more nodes, each full of single pods that cost more.

    Where `full`, nodes without units are, of pods that may not be evicted.
    """
    fillers = [
        a_unit(f"other-{n}-{i}", (f"z{n}", (i,)), priority=5)
        for n in range(others)
        for i in range(8)
    ]
    names = [*(f"n{i}" for i in range(nodes)), *(f"z{n}" for n in range(others))]
    held = {pod.node for unit in units for pod in unit.pods}
    rest = [name for name in names if full and name[0] == "n" and name not in held]
    blockers = [a_unit(f"rest-{name}", (name, ALL), priority=9) for name in rest]
    every = [*units, *fillers, *blockers]
    snapshot = a_snapshot(*(a_node(name, EIGHT) for name in names))
    snapshot = snapshot.hold_all((pod.node, pod.holding) for unit in every for pod in unit.pods)
    members = of_priority(members, 9, **spec)
    return find_victims(snapshot, members, every, Disruptions(NOW, limits or {}))


def names_of(found):
    assert isinstance(found, Eviction), found
    return [unit.name.removeprefix("o/") for unit in found.victims]


ALL = tuple(range(8))
HALVES = ((0, 1, 2, 3), (4, 5, 6, 7))

CASES = {
    "not what a budget protects, rather a higher priority": (
        [
            a_unit("guarded", ("n0", ALL), budgets=["o/a"]),
            a_unit("higher", ("n1", ALL), priority=3),
        ],
        ["higher"],
    ),
    "a lower priority rather than fewer units": (
        [
            a_unit("left", ("n0", HALVES[0])),
            a_unit("right", ("n0", HALVES[1])),
            a_unit("one", ("n1", ALL), priority=1),
        ],
        ["left", "right"],
    ),
    "a lower priority rather than a short grace period": (
        [
            a_unit("slow", ("n0", ALL), grace=10**12),
            a_unit("higher", ("n1", ALL), priority=1),
        ],
        ["slow"],
    ),
    "a short grace period rather than fewer units": (
        [
            a_unit("left", ("n0", HALVES[0])),
            a_unit("right", ("n0", HALVES[1]), grace=299),
            a_unit("slow", ("n1", ALL), grace=300),
        ],
        ["left", "right"],
    ),
    "fewer units rather than fewer pods": (
        [
            a_unit("left", ("n0", HALVES[0])),
            a_unit("right", ("n0", HALVES[1])),
            a_unit("gang", *(("n1", (i,)) for i in ALL)),
        ],
        ["gang"],
    ),
    "fewer pods rather than less time": (
        [
            a_unit("new", *(("n0", (i,)) for i in ALL), started=NOW),
            a_unit("old", ("n1", ALL)),
        ],
        ["old"],
    ),
    "less time rather than the first name": (
        [a_unit("a", ("n0", ALL)), a_unit("b", ("n1", ALL), started=900.0)],
        ["b"],
    ),
    "the first name, of equal units": (
        [a_unit("b", ("n1", ALL)), a_unit("a", ("n0", ALL))],
        ["a"],
    ),
    "not a protected unit": (
        [a_unit("young", ("n0", ALL), protected="young"), a_unit("old", ("n1", ALL), priority=4)],
        ["old"],
    ),
}


@pytest.mark.parametrize("others", [0, 4], ids=["few units", "many units"])
@pytest.mark.parametrize("case", CASES)
def test_the_cheapest_units_are_evicted(case, others):
    units, victims = CASES[case]

    found = find(units, workers(1, 8), nodes=2, others=others)

    assert names_of(found) == victims


ELASTIC = {
    "only as many as are needed": ([a_unit("gang", *(("n0", (i,)) for i in ALL), spare=6)], 2, 2),
    "all spare pods": ([a_unit("gang", *(("n0", (i,)) for i in ALL), spare=2)], 2, 2),
    "all where the spare ones do not do": (
        [a_unit("gang", *(("n0", (i,)) for i in ALL), spare=2)],
        3,
        8,
    ),
    "some of an elastic gang rather than a smaller gang": (
        [
            a_unit("elastic", *(("n0", (i,)) for i in ALL), spare=3),
            a_unit("small", *(("n1", (i,)) for i in HALVES[0])),
            a_unit("rest", ("n1", HALVES[1]), priority=9),
        ],
        1,
        1,
    ),
}


@pytest.mark.parametrize("others", [0, 4], ids=["few units", "many units"])
@pytest.mark.parametrize("case", ELASTIC)
def test_an_elastic_gang_keeps_what_it_can(case, others):
    units, gpus, evicted = ELASTIC[case]

    found = find(units, workers(1, gpus), nodes=2, others=others, full=True)

    assert [unit.whole or unit for unit in found.victims] == units[:1]
    assert [pod for unit in found.victims for pod in unit.pods] == [*units[0].pods[-evicted:]]
    assert found.cost.pods == evicted


@pytest.mark.parametrize("others", [0, 4], ids=["few units", "many units"])
def test_a_budget_is_counted_over_all_victims(others):
    units = [
        *(a_unit(f"guarded-{i}", (f"n{i}", ALL), budgets=["o/a"]) for i in range(3)),
        a_unit("higher", ("n3", ALL), priority=3),
    ]

    found = find(units, workers(2, 8), others=others, limits={"o/a": 1})

    assert names_of(found) == ["guarded-0", "higher"]


@pytest.mark.parametrize("others", [0, 4], ids=["few units", "many units"])
def test_one_gang_on_several_nodes_is_evicted_rather_than_several_pods(others):
    gang = a_unit("gang", ("n2", ALL), ("n3", ALL))
    units = [a_unit("a", ("n0", ALL)), a_unit("b", ("n1", ALL)), gang]

    found = find(units, workers(2, 8), others=others)

    assert names_of(found) == ["gang"]
    assert list(found.plan.gpus) == ["n2", "n3"]


@pytest.mark.parametrize("others", [0, 4], ids=["few units", "many units"])
def test_free_gpus_are_used_besides(others):
    units = [
        a_unit("small", ("n0", (0, 1))),
        a_unit("rest", ("n0", (2, 3, 4)), priority=8),
        a_unit("large", ("n1", ALL)),
    ]

    found = find(units, workers(1, 5), nodes=2, others=others)

    assert names_of(found) == ["small"]


def test_of_units_of_equal_cost_those_go_after_which_the_plan_destroys_the_least():
    """Two of two free GPUs are less of a loss than two of four."""
    units = [
        a_unit("a", ("n0", (1, 2, 3)), started=NOW),
        a_unit("rest-0", ("n0", (4, 5, 6, 7)), priority=9),
        a_unit("b", ("n1", (1,)), started=NOW),
        a_unit("rest-1", ("n1", (2, 3, 4, 5, 6, 7)), priority=9),
    ]

    found = find(units, workers(1, 2), nodes=2)

    assert names_of(found) == ["b"]


@pytest.mark.parametrize(
    ("units", "spec", "reason"),
    [
        pytest.param(
            [a_unit("a", ("n0", ALL))],
            {"preemption_policy": "Never"},
            "its pods have preemptionPolicy Never",
            id="a policy of the pods",
        ),
        pytest.param(
            [a_unit("a", ("n0", ALL), priority=9)],
            {},
            "nothing with a priority below 9 may be evicted for it",
            id="equal priority",
        ),
        pytest.param(
            [a_unit("a", ("n0", ALL), protected="Job a would count it as a failure")],
            {},
            "nothing with a priority below 9 may be evicted for it; 1 more must not be evicted, "
            "such as o/a: Job a would count it as a failure",
            id="a protected unit",
        ),
        pytest.param(
            [a_unit("a", ("n0", (0, 1))), a_unit("b", ("n0", tuple(range(2, 8))), priority=9)],
            {},
            "no units were found whose eviction gives it a plan, among 1 with a priority below 9",
            id="too little",
        ),
    ],
)
def test_the_reason_is_given_where_nothing_is_evicted(units, spec, reason):
    found = find(units, workers(1, 8), nodes=1, **spec)

    assert found == NoEviction(reason)


@settings(max_examples=10, deadline=None)
@given(st.permutations(range(NODES_MIN + 16)), st.integers(1, 4))
def test_of_more_nodes_than_are_looked_at_those_of_the_lowest_priorities_are_emptied(
    priorities, size
):
    units = [a_unit(f"pod-{i}", (f"n{i}", ALL), priority=p - 80) for i, p in enumerate(priorities)]

    found = find(units, workers(size, 8), nodes=len(units))

    assert sorted(unit.priority for unit in found.victims) == list(range(-80, size - 80))


def test_more_nodes_are_looked_at_where_the_cheapest_ones_do_not_do():
    """On these the CPU is held by pods of an equal priority, which GPUs alone do not show."""
    count = NODES_MIN + 16
    short = [a_unit(f"short-{i}", (f"n{i}", ALL), priority=0) for i in range(count - 2)]
    large = [a_unit(f"large-{i}", (f"n{count - 1 - i}", ALL), priority=8) for i in range(2)]
    free = a_snapshot(*(a_node(f"n{i}", EIGHT) for i in range(count)))
    cpu = [
        (f"n{i}", Holding(f"o/cpu-{i}", f"cpu-{i}", demand=Demand(free.nodes[0].node.cpu)))
        for i in range(count - 2)
    ]
    pods = [(pod.node, pod.holding) for unit in (*short, *large) for pod in unit.pods]
    members = of_priority(workers(2, 8, limits={"cpu": "1"}), 9)

    found = find_victims(free.hold_all([*cpu, *pods]), members, [*short, *large], Disruptions(NOW))

    assert names_of(found) == ["large-0", "large-1"]


def test_nobody_is_evicted_from_a_cordoned_node_for_a_pod_that_tolerates_it():
    unit = a_unit("pod", ("n0", ALL))
    snapshot = a_snapshot(a_node("n0", EIGHT, unschedulable=True))
    snapshot = snapshot.hold_all((pod.node, pod.holding) for pod in unit.pods)
    members = of_priority(workers(1, 8, tolerations=[{"operator": "Exists"}]), 9)

    assert isinstance(find_victims(snapshot, members, [unit], Disruptions(NOW)), NoEviction)


def test_only_where_a_node_has_the_resources_is_anybody_evicted():
    """Many units, so that nodes are chosen by what is free there."""
    count = NODES_MIN + 16
    units = [a_unit(f"pod-{i}", (f"n{i}", ALL), priority=i - count) for i in range(count)]
    nodes = [
        a_node(f"n{i}", EIGHT, resources={"rdma/hca": 1} if i > count - 3 else {})
        for i in range(count)
    ]
    pods = [(pod.node, pod.holding) for unit in units for pod in unit.pods]
    snapshot = a_snapshot(*nodes).hold_all(pods)

    def find(size):
        members = of_priority(workers(size, 8, limits={"rdma/hca": 1}), 9)
        return find_victims(snapshot, members, units, Disruptions(NOW))

    assert names_of(find(2)) == [f"pod-{count - 2}", f"pod-{count - 1}"]
    assert isinstance(find(3), NoEviction)


def test_nobody_is_evicted_where_another_pod_keeps_the_unit_away():
    """Of two full nodes, one also has a pod to which the unit has anti-affinity."""
    units = [a_unit("cheap", ("n0", ALL), priority=-1), a_unit("dear", ("n1", ALL))]
    host = {"labels": {keys.HOSTNAME: "n0"}}, {"labels": {keys.HOSTNAME: "n1"}}
    nodes = [a_node(f"n{i}", EIGHT, **labels) for i, labels in enumerate(host)]
    database = a_member(0, "db", labels={"app": "db"}).holding(exact())
    held = [(pod.node, pod.holding) for unit in units for pod in unit.pods]
    snapshot = a_snapshot(*nodes).hold_all([*held, ("n0", database)])
    term = {"topologyKey": keys.HOSTNAME, "labelSelector": {"matchLabels": {"app": "db"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    def find(size):
        members = of_priority(workers(size, 8, affinity=apart), 9)
        return find_victims(snapshot, members, units, Disruptions(NOW))

    assert names_of(find(1)) == ["dear"]
    assert isinstance(find(2), NoEviction)


def test_very_many_units_are_not_evicted_for_one():
    units = [a_unit(f"pod-{n}-{i}", (f"n{n}", (i,))) for n in range(65) for i in range(8)]

    assert isinstance(find(units, workers(65, 8), nodes=65), NoEviction)
    assert len(names_of(find(units, workers(64, 8), nodes=65))) == 512


# ---- Shares, and nodes where NVIDIA's plugin chooses the GPUs, among many units.


def find_among(nodes, units, members):
    snapshot = a_snapshot(*nodes)
    snapshot = snapshot.hold_all((pod.node, pod.holding) for unit in units for pod in unit.pods)
    return find_victims(snapshot, of_priority(members, 9), units, Disruptions(NOW))


def a_pod_with(gpus, node, name):
    """Return a single pod on node `n<number>`, whose priority is this number."""
    pod = VictimPod(f"n{node}", Holding(f"o/{name}", name, gpus), 0.0)
    return Victim(pod.holding.pod, node, (pod,))


def test_of_many_shares_no_more_are_evicted_than_one_card_needs():
    nodes = [a_node(f"n{n}", a_machine(4), "core_mem", card_memory=16) for n in range(3)]
    units = [
        a_pod_with(Exact((GPUShare(i, mem=8),)), n, f"pod-{n}-{i}-{half}")
        for n in range(3)
        for i in range(4)
        for half in range(2)
    ]

    found = find_among(nodes, units, [a_member(0, limits={keys.GPU_MEM: 12})])

    assert isinstance(found, Eviction)
    cards = {unit.pods[0].holding.gpus.indices for unit in found.victims}
    assert [unit.priority for unit in found.victims] == [0, 0]
    assert len(cards) == 1


def test_of_many_counted_pods_those_of_the_lowest_priority_are_evicted():
    nodes = [a_counted_node(f"n{n}") for n in range(4)]
    units = [
        a_pod_with(Counted(keys.NVIDIA_GPU, 2), n, f"pod-{n}-{i}")
        for n in range(4)
        for i in range(4)
    ]

    found = find_among(nodes, units, gated_workers(2, 8))

    assert isinstance(found, Eviction)
    assert [unit.priority for unit in found.victims] == [0] * 4 + [1] * 4
