"""GPUs that do not satisfy the selectors of a claim are not planned for it."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_gated_member, a_machine, a_node, a_snapshot

from cluster.cel.values import DeviceFacts
from cluster.gang import Link
from cluster.keys import DRA_GPU_DRIVER
from cluster.nodes.node import DevicePool
from cluster.requests.request import template_request
from cluster.requests.templates.claim_spec import ClaimedDevices
from cluster.requests.templates.template_claim import TemplateClaims
from scorer.placement.explain import explain_plan
from scorer.placement.options import PlanOptions
from scorer.placement.result import Plan, Refusal
from scorer.placement.schedule import feasible_nodes, plan
from scorer.placement.state.selected_nodes import selected_by

ATTRIBUTES = f"device.attributes['{DRA_GPU_DRIVER}']"
SIZE = 4


def product(name):
    return f"{ATTRIBUTES}.productName.startsWith('{name}')"


def facts(name, index):
    attributes = (("type", "gpu"), ("productName", f"{name}-PCIE"), ("index", index))
    return DeviceFacts(DRA_GPU_DRIVER, attributes)


def claims_node(name, products, **fields):
    """Return a claims node with one GPU of each of some products."""
    devices = tuple(f"gpu-{i}" for i in range(len(products)))
    known = tuple(facts(one, i) for i, one in enumerate(products))
    node = a_node(name, a_machine(len(products)), uuids=True, **fields)
    return replace(node, pool=DevicePool(name, devices, facts=known))


def a_claiming(gpus, *selectors):
    """Return a pod that gets so many GPUs by a template with these selectors."""
    member = a_gated_member(gpus)
    claims = TemplateClaims((("gpus", ClaimedDevices((("gpu", gpus),), selectors)),))
    return replace(member, request=template_request(claims))


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
    first = selected_by(snapshot, (product("A100"),))
    member = a_claiming(1, product("A100"))
    held = member.holding(plan(snapshot, [member]).placements[0].gpus)
    later = selected_by(snapshot.hold_all([("mixed", held)]), (product("A100"),))

    assert later.nodes[1] is first.nodes[1]
    assert (first.nodes[0].free_mask, later.nodes[0].free_mask) == (0b11, 0b10)
    assert selected_by(later, (product("A100"),)) is later


def test_where_every_gpu_is_selected_the_snapshot_stays_as_it_is():
    snapshot = a_snapshot(SMALL, a_node("other"))

    assert selected_by(snapshot, (product("T4"),)) is snapshot


def test_few_sets_of_selectors_are_kept():
    snapshot = a_snapshot(MIXED)
    for index in range(50):
        selected_by(snapshot, (f"{ATTRIBUTES}.index != {index % 4} && {index} == {index}",))

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
