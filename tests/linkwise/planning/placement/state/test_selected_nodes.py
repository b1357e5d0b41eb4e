"""GPUs that do not satisfy the selectors and constraints of a claim are not planned for it."""

from collections import Counter
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_gated_member, a_machine, a_node, a_snapshot

from linkwise.cluster.allocations.gpus import Exact, GPUShare
from linkwise.cluster.allocations.record import Allocation
from linkwise.cluster.cel.values import DeviceFacts
from linkwise.cluster.gang import Link
from linkwise.cluster.keys import DRA_GPU_DRIVER
from linkwise.cluster.nodes.node import DevicePool
from linkwise.cluster.requests.request import user_claims_request
from linkwise.cluster.requests.user_claims.claim_spec import ClaimedDevices
from linkwise.cluster.requests.user_claims.matching import Constraint
from linkwise.cluster.requests.user_claims.pod_claims import DeviceNeeds, UserClaims
from linkwise.planning.placement.baselines import index_order, never_fits
from linkwise.planning.placement.explain import explain_plan
from linkwise.planning.placement.options import PlanOptions
from linkwise.planning.placement.result import Plan, Refusal
from linkwise.planning.placement.schedule import feasible_nodes, plan
from linkwise.planning.placement.siblings import plan_with_siblings
from linkwise.planning.placement.state.selected_nodes import selected_by
from linkwise.topology.choice import ChoiceMode
from linkwise.topology.machine import gpus_of

ATTRIBUTES = f"device.attributes['{DRA_GPU_DRIVER}']"
SIZE = 4


def product(name):
    return f"{ATTRIBUTES}.productName.startsWith('{name}')"


def facts(name, index):
    attributes = (("type", "gpu"), ("productName", f"{name}-PCIE"), ("index", index))
    return DeviceFacts(DRA_GPU_DRIVER, attributes)


def claims_node(name, products, *, machine=None, **fields):
    """Return a claims node with one GPU of each of some products."""
    devices = tuple(f"gpu-{i}" for i in range(len(products)))
    known = tuple(facts(one, i) for i, one in enumerate(products))
    node = a_node(name, machine or a_machine(len(products)), uuids=True, **fields)
    return replace(node, pool=DevicePool(name, devices, facts=known))


def a_claiming(gpus, *selectors, equal=()):
    """Return a pod that gets so many GPUs by a template.

    Args:
        gpus: Their number, or that of each request.
        selectors: The expressions of the template.
        equal: Attributes of the driver in which all of them are equal, or with names of requests.
    """
    amounts = gpus if isinstance(gpus, dict) else {"gpu": gpus}
    pairs = [(one, None) if isinstance(one, str) else one for one in equal]
    constraints = tuple(Constraint(f"{DRA_GPU_DRIVER}/{name}", some) for name, some in pairs)
    devices = ClaimedDevices(tuple(amounts.items()), selectors, constraints)
    request = user_claims_request(UserClaims((("gpus", devices),)))
    return replace(a_gated_member(devices.gpus), request=request)


def gang(*members):
    return [replace(member, name=f"default/worker-{i}") for i, member in enumerate(members)]


def gpus(planned):
    """Return the node and the GPUs of each member of a plan."""
    return [(one.node, [share.i for share in one.gpus.shares]) for one in planned.placements]


MIXED = claims_node("mixed", ["A100", "A100", "H100", "H100"])
SMALL = claims_node("small", ["T4"] * 4)


def test_a_pod_gets_gpus_that_satisfy_its_selectors_also_on_a_node_of_mixed_ones():
    snapshot = a_snapshot(MIXED, SMALL)

    assert gpus(plan(snapshot, [a_claiming(2, product("H100"))])) == [("mixed", [2, 3])]
    assert gpus(plan(snapshot, [a_claiming(2, product("A100"))])) == [("mixed", [0, 1])]
    assert gpus(plan(snapshot, [a_claiming(4, product("T4"))])) == [("small", [0, 1, 2, 3])]


def test_a_refusal_says_that_no_gpu_satisfies_the_selectors():
    found = plan(a_snapshot(MIXED, SMALL), [a_claiming(2, product("L40S"))])

    assert isinstance(found, Refusal)
    assert "no GPU for which the selectors of the claim hold (2)" in found.reason


def test_nodes_with_too_few_such_gpus_are_too_small():
    found = plan(a_snapshot(MIXED, SMALL), [a_claiming(3, product("H100"))])

    assert isinstance(found, Refusal)
    assert "too few free GPUs (1)" in found.reason


def test_a_selector_that_fails_for_one_gpu_excludes_its_node():
    known = (facts("A100", 0), DeviceFacts(DRA_GPU_DRIVER, (("type", "gpu"),)))
    half = claims_node("half", ["A100", "A100"])
    half = replace(half, pool=replace(half.pool, facts=known))

    assert isinstance(plan(a_snapshot(half), [a_claiming(1, product("A100"))]), Refusal)
    assert isinstance(plan(a_snapshot(half), [a_claiming(1)]), Plan)


def test_nothing_is_selected_where_the_attributes_are_not_known():
    node = replace(MIXED, pool=replace(MIXED.pool, facts=()))

    assert isinstance(plan(a_snapshot(node), [a_claiming(1, product("A100"))]), Refusal)


def test_members_with_different_selectors_get_their_own_gpus():
    members = gang(
        *(a_claiming(1, product("H100")) for _ in range(2)),
        a_claiming(2, product("T4")),
        a_claiming(1),
    )
    found = plan(a_snapshot(MIXED, SMALL), members)

    assert isinstance(found, Plan)
    assert sorted(gpus(found)[:2]) == [("mixed", [2]), ("mixed", [3])]
    assert gpus(found)[2][0] == "small"
    together = plan(a_snapshot(MIXED, SMALL), members[:2] + members[3:], PlanOptions(Link.ONE_NODE))
    assert [node for node, _ in gpus(together)] == ["mixed"] * 3


def test_only_nodes_with_such_gpus_are_feasible():
    snapshot = a_snapshot(MIXED, SMALL)

    assert feasible_nodes(snapshot, [a_claiming(1, product("T4"))]) == {"small"}
    assert feasible_nodes(snapshot, [a_claiming(1)]) == {"mixed", "small"}


def test_a_plan_is_explained_among_the_gpus_that_satisfy_the_selectors():
    snapshot = a_snapshot(MIXED)
    found = plan(snapshot, [a_claiming(2, product("A100"))])

    assert explain_plan(snapshot, found).gpus["mixed"].chosen.gpus == (0, 1)


def test_a_later_snapshot_keeps_what_was_computed_of_nodes_that_did_not_change():
    snapshot = a_snapshot(MIXED, SMALL)
    needs = DeviceNeeds((product("A100"),))
    first = selected_by(snapshot, needs)
    member = a_claiming(1, product("A100"))
    held = member.holding(plan(snapshot, [member]).placements[0].gpus)
    later = selected_by(snapshot.hold_all([("mixed", held)]), needs)

    assert later.nodes[1] is first.nodes[1]
    assert (first.nodes[0].free_mask, later.nodes[0].free_mask) == (0b11, 0b10)
    assert selected_by(later, needs) is later


def test_where_every_gpu_is_selected_the_snapshot_stays_as_it_is():
    snapshot = a_snapshot(SMALL, a_node("other"))

    assert selected_by(snapshot, DeviceNeeds((product("T4"),))) is snapshot


def test_few_sets_of_selectors_are_kept():
    snapshot = a_snapshot(MIXED)
    for index in range(50):
        text = f"{ATTRIBUTES}.index != {index % 4} && {index} == {index}"
        selected_by(snapshot, DeviceNeeds((text,)))

    assert len(snapshot.cache._selected) == 8
    assert len(snapshot.cache.fork()._selected) == 0


PRODUCTS = st.lists(st.sampled_from(["A100", "H100", "T4"]), min_size=SIZE, max_size=SIZE)


@given(
    nodes=st.lists(st.tuples(PRODUCTS, st.integers(0, 2**SIZE - 1)), min_size=1, max_size=3),
    count=st.integers(1, 4),
    each=st.integers(1, 3),
    wanted=st.sampled_from(["A100", "H100"]),
)
def test_a_gang_has_a_plan_exactly_where_enough_free_gpus_satisfy_its_selectors(
    nodes, count, each, wanted
):
    made = {f"n{i}": claims_node(f"n{i}", products) for i, (products, _) in enumerate(nodes)}
    taken = {
        f"n{i}": [gpu for gpu in range(SIZE) if mask >> gpu & 1]
        for i, (_, mask) in enumerate(nodes)
        if mask
    }
    free = {
        (f"n{i}", gpu)
        for i, (products, mask) in enumerate(nodes)
        for gpu in range(SIZE)
        if products[gpu] == wanted and not mask >> gpu & 1
    }
    fits = sum(number // each for number in Counter(node for node, _ in free).values())
    snapshot = a_snapshot(*made.values(), taken=taken)

    found = plan(snapshot, gang(*(a_claiming(each, product(wanted)) for _ in range(count))))

    assert isinstance(found, Plan) is (fits >= count)
    if isinstance(found, Plan):
        used = [(node, i) for node, chosen in gpus(found) for i in chosen]
        assert len(set(used)) == len(used) == count * each
        assert set(used) <= free


@pytest.mark.parametrize("size", [1, 4])
def test_the_plan_is_the_same_as_of_nodes_without_the_other_gpus(size):
    whole = plan(a_snapshot(SMALL), [a_claiming(size)])

    assert gpus(plan(a_snapshot(SMALL, MIXED), [a_claiming(size, product("T4"))])) == gpus(whole)


def test_a_pod_gets_gpus_that_are_equal_in_an_attribute():
    mixed = claims_node("mixed", ["A100", "H100", "H100", "A100"])
    snapshot = a_snapshot(mixed, taken={"mixed": [3]})

    assert gpus(plan(snapshot, [a_claiming(2)])) == [("mixed", [0, 1])]
    found = plan(snapshot, [a_claiming(2, equal=["productName"])])
    assert gpus(found) == [("mixed", [1, 2])]
    assert explain_plan(snapshot, found).gpus["mixed"].chosen.gpus == (1, 2)
    assert index_order(snapshot, [a_claiming(2, equal=["productName"])]) is None


def test_of_the_sets_of_equal_gpus_the_best_is_chosen():
    """The fastest pair of all has different products; of the equal ones, one has an NVLink."""
    machine = a_machine(6, {(0, 1): 4, (2, 3): 2})
    node = claims_node("mixed", ["A100", "H100", "H100", "H100", "A100", "A100"], machine=machine)

    assert gpus(plan(a_snapshot(node), [a_claiming(2)])) == [("mixed", [0, 1])]
    matched = a_claiming(2, equal=["productName"])
    assert gpus(plan(a_snapshot(node), [matched])) == [("mixed", [2, 3])]
    both = plan(a_snapshot(node), gang(matched, matched))
    assert gpus(both) == [("mixed", [2, 3]), ("mixed", [4, 5])]


def test_a_gang_with_constraints_is_planned_as_a_whole():
    """On one node, although the first one has equal GPUs for one of its members."""
    first = claims_node("first", ["A100", "A100", "H100", "T4"])
    whole = claims_node("whole", ["A100", "H100", "A100", "H100"])
    members = gang(*(a_claiming(2, equal=["productName"]) for _ in range(2)))

    found = plan(a_snapshot(first, whole), members)

    assert sorted(gpus(found)) == [("whole", [0, 2]), ("whole", [1, 3])]
    assert found.nodes_considered == 1
    assert feasible_nodes(a_snapshot(first, SMALL), [a_claiming(3, equal=["productName"])]) == {
        "small"
    }


@pytest.mark.parametrize("count", [1, 2])
def test_a_refusal_says_that_the_constraints_hold_for_no_set(count):
    members = gang(*(a_claiming(3, equal=["productName"]) for _ in range(count)))
    found = plan(a_snapshot(MIXED), members)

    assert isinstance(found, Refusal)
    assert "no free set for which the constraints of the claim hold (1)" in found.reason
    assert never_fits(a_snapshot(MIXED), members, Link.BEST)


def test_members_with_different_constraints_get_their_own_gpus():
    members = gang(a_claiming(2, equal=["productName"]), a_claiming(2, equal=["index"]))

    refused = plan(a_snapshot(MIXED), members)
    placed = plan(a_snapshot(MIXED), gang(members[0], a_claiming(1, equal=["index"])))

    assert "no free set for which the constraints" in refused.reason
    assert [len(chosen) for _, chosen in gpus(placed)] == [2, 1]


def test_constraints_and_nvlink_hold_together():
    machine = a_machine(4, {(0, 2): 1, (1, 2): 1})
    snapshot = a_snapshot(claims_node("mixed", ["A100", "A100", "A100", "H100"], machine=machine))
    matched = a_claiming(2, equal=["productName"])

    assert gpus(plan(snapshot, [matched], PlanOptions(Link.NVLINK)))[0][1] in ([0, 2], [1, 2])
    four = gang(*[a_claiming(2, equal=["productName"])] * 2)
    assert isinstance(plan(snapshot, four, PlanOptions(Link.NVLINK)), Refusal)


def test_later_members_of_a_gang_get_equal_gpus_beside_the_others():
    """Theirs are not compared with those of the others: each pod has a claim of its own."""
    node = claims_node("mixed", ["T4", "H100", "A100", "A100"])
    snapshot = a_snapshot(node, taken={"mixed": [0]})
    sibling = Allocation("mixed", Exact((GPUShare(0),)))

    found = plan_with_siblings(snapshot, [a_claiming(2, equal=["productName"])], [sibling])

    assert gpus(found) == [("mixed", [2, 3])]


def test_tables_of_nodes_that_did_not_change_are_kept():
    node = claims_node("other", ["A100", "A100", "H100", "H100"])
    snapshot, needs = a_snapshot(MIXED, node), a_claiming(2, equal=["productName"]).needs
    first = selected_by(snapshot, needs)
    held = a_claiming(1).holding(Exact((GPUShare(0),)))
    changed = replace(node, pool=replace(node.pool, facts=node.pool.facts[::2] * 2))
    later = selected_by(snapshot.hold_all([("mixed", held)]), needs)
    after = selected_by(replace(snapshot, ledger=a_snapshot(MIXED, changed).ledger), needs)

    assert first.tables["mixed"] is first.tables["other"] is later.tables["mixed"]
    assert first.tables["mixed"] is not snapshot.tables["mixed"]
    assert after.tables["other"] is not first.tables["other"]
    # Where every set is allowed, the tables are those of the machine.
    assert selected_by(snapshot, a_claiming(2, equal=["type"]).needs).tables == snapshot.tables


VALUES = st.lists(st.sampled_from("xy-"), min_size=SIZE, max_size=SIZE)
SHAPES = st.sampled_from(
    [
        ({"r": 1}, ["a"]),
        ({"r": 2}, ["a"]),
        ({"r": 2}, ["a", "b"]),
        ({"r": 1, "s": 1}, ["b"]),
        ({"r": 2, "s": 1}, [("a", ("r",))]),
        ({"r": 1, "s": 1, "t": 1}, ["a", ("b", ("r", "s"))]),
    ]
)


@given(
    nodes=st.lists(st.tuples(VALUES, VALUES, st.integers(0, 2**SIZE - 1)), min_size=1, max_size=3),
    shape=SHAPES,
    count=st.integers(1, 4),
    mode=st.sampled_from(ChoiceMode),
)
def test_a_gang_has_a_plan_exactly_where_trial_finds_sets_for_its_constraints(
    nodes, shape, count, mode
):
    amounts, equal = shape
    member = a_claiming(amounts, equal=equal)
    made, taken, facts_of = [], {}, {}
    for i, (a, b, mask) in enumerate(nodes):
        known = tuple(
            DeviceFacts(DRA_GPU_DRIVER, tuple(p for p in (("a", x), ("b", y)) if p[1] != "-"))
            for x, y in zip(a, b, strict=True)
        )
        node = claims_node(f"n{i}", ["T4"] * SIZE)
        made.append(replace(node, pool=replace(node.pool, facts=known)))
        taken[f"n{i}"], facts_of[f"n{i}"] = list(gpus_of(mask)), known
    brought = member.request.user_claims

    def most(node, free):
        """Return the most members that some free GPUs of a node can hold."""
        fits = (
            some
            for some in combinations(free, brought.gpus)
            if brought.divided([facts_of[node][i] for i in some]) is not None
        )
        return max((1 + most(node, [*{*free} - {*some}]) for some in fits), default=0)

    possible = sum(most(name, sorted({*range(SIZE)} - {*taken[name]})) for name in taken)

    found = plan(a_snapshot(*made, taken=taken, mode=mode), gang(*[member] * count))

    assert isinstance(found, Plan) is (possible >= count)
    if isinstance(found, Plan):
        used = [(node, i) for node, chosen in gpus(found) for i in chosen]
        assert len({*used}) == len(used) == count * brought.gpus
        for node, chosen in gpus(found):
            assert not {*chosen} & {*taken[node]}
            assert brought.divided([facts_of[node][i] for i in chosen]) is not None
