"""The GPUs that satisfy the constraints of claims, and their division among the requests."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkwise.cluster.cel.values import DeviceFacts, read_version
from linkwise.cluster.keys import DRA_GPU_DRIVER
from linkwise.cluster.requests.user_claims.claim_spec import ClaimedDevices
from linkwise.cluster.requests.user_claims.matching import (
    groups_of,
    matching_sets,
    read_constraints,
)
from linkwise.cluster.requests.user_claims.pod_claims import UserClaims

A, B, C = (f"{DRA_GPU_DRIVER}/{name}" for name in "abc")


def a_gpu(**attributes):
    return DeviceFacts(DRA_GPU_DRIVER, tuple(attributes.items()))


def matching(attribute, *requests):
    return {"matchAttribute": attribute, **({"requests": list(requests)} if requests else {})}


def claimed(amounts, *constraints):
    """Return what a claim asks for; None: its constraints are not evaluated."""
    found = read_constraints(list(constraints), frozenset(amounts))
    if isinstance(found, str):
        return None
    return ClaimedDevices(tuple(amounts.items()), constraints=found)


@pytest.mark.parametrize(
    ("first", "second", "are_equal"),
    [
        pytest.param({"a": "x"}, {"a": "x"}, True, id="texts"),
        pytest.param({"a": "x"}, {"a": "y"}, False, id="other text"),
        pytest.param({"a": "x"}, {"a": "X"}, False, id="other case"),
        pytest.param({"a": 1}, {"a": 1}, True, id="numbers"),
        pytest.param({"a": 1}, {"a": "1"}, False, id="a number and a text"),
        pytest.param({"a": 1}, {"a": True}, False, id="a number and a truth value"),
        pytest.param({"a": False}, {"a": False}, True, id="truth values"),
        pytest.param(
            {"a": read_version("1.2.3")}, {"a": read_version("1.2.3")}, True, id="versions"
        ),
        pytest.param(
            {"a": read_version("1.2.3+x")}, {"a": read_version("1.2.3+y")}, False, id="builds"
        ),
        pytest.param({"a": read_version("1.2.3")}, {"a": "1.2.3"}, False, id="version and text"),
        pytest.param({}, {}, False, id="no attribute"),
        pytest.param({"a": None}, {"a": None}, False, id="a kind that is not read"),
        pytest.param({"a": "x"}, {A: "x"}, True, id="the driver's domain may be left out"),
        pytest.param({"a": "y", A: "x"}, {A: "x"}, True, id="the full name comes first"),
        pytest.param({"other.example/a": "x"}, {"a": "x"}, False, id="another domain"),
    ],
)
def test_values_are_equal_with_their_types(first, second, are_equal):
    ((_, groups),) = groups_of(frozenset({A}), [a_gpu(**first), a_gpu(**second)])

    assert (groups == (0b11,)) is are_equal


def test_an_attribute_of_another_domain_needs_its_full_name():
    root = "resource.kubernetes.io/pcieRoot"
    gpus = [a_gpu(pcieRoot="x"), a_gpu(**{root: "x"}), a_gpu(**{root: "x"})]

    assert groups_of(frozenset({root}), gpus) == ((root, (0b110,)),)


@pytest.mark.parametrize(
    ("amounts", "constraints", "values", "sets"),
    [
        pytest.param({"r": 2}, [matching(A)], ["x", "x", "y", "y"], [0b0011, 0b1100], id="one"),
        pytest.param({"r": 1}, [matching(A)], ["x", None, "y", "y"], [1, 4, 8], id="of one GPU"),
        pytest.param(
            {"r": 1, "s": 1}, [matching(A)], ["x", "y", "x", "z"], [0b0101], id="two requests"
        ),
        pytest.param(
            {"r": 2, "s": 1}, [matching(A, "r")], ["x", "x", "y", "z"], [0b0111, 0b1011],
            id="one of two requests",
        ),
        pytest.param(
            {"r": 2, "s": 2}, [matching(A, "r"), matching(A, "s")], ["x", "y", "x", "y"], [0b1111],
            id="each of two requests",
        ),
        pytest.param({"r": 3}, [matching(A)], ["x", "x", "y", "y"], [], id="none"),
    ],
)  # fmt: skip
def test_such_sets_satisfy_the_constraints(amounts, constraints, values, sets):
    gpus = [a_gpu(a=value) for value in values]
    matched = UserClaims((("c", claimed(amounts, *constraints)),)).needs.matching

    found = matching_sets(matched, groups_of(matched.all_attributes, gpus), 0b1111)

    assert sorted(found) == sets


VALUES = st.sampled_from(["x", "y", None])
REQUESTS = st.dictionaries(st.sampled_from("rst"), st.integers(1, 2), min_size=1)


@st.composite
def claims_with_constraints(draw):
    """Return one or two claims, of which some have constraints that are evaluated."""
    found = []
    for reference in draw(st.sampled_from([["c"], ["c", "d"]])):
        amounts = draw(REQUESTS)
        names = st.lists(st.sampled_from(sorted(amounts)), unique=True)
        raw = draw(st.lists(st.tuples(st.sampled_from([A, B, C]), names), max_size=3))
        claim = claimed(amounts, *(matching(name, *some) for name, some in raw))
        found.append((reference, claim or ClaimedDevices(tuple(amounts.items()))))
    return UserClaims(tuple(found))


def holds(template, by_request, gpus):
    """Return whether the constraints hold, each looked at by itself."""
    for reference, devices in template.claims:
        for one in devices.constraints:
            names = one.requests or [name for name, _ in devices.amounts]
            attribute = one.match_attribute.rpartition("/")[2]
            values = {
                dict(gpus[i].attributes).get(attribute)
                for name in names
                for i in by_request[f"{reference}/{name}"]
            }
            if len(values) != 1 or None in values:
                return False
    return True


def divisions(template, count):
    """Yield all ways to give some GPUs to the requests, by trial."""
    for order in permutations(range(count), template.gpus):
        rest = iter(order)
        yield {name: [next(rest) for _ in range(number)] for name, number in template.amounts}


@given(
    template=claims_with_constraints().filter(lambda one: one.gpus <= 5),
    gpus=st.lists(st.builds(a_gpu, a=VALUES, b=VALUES, c=VALUES), min_size=1, max_size=5),
)
def test_a_set_is_found_exactly_where_trial_finds_one(template, gpus):
    tried = {
        frozenset(i for some in way.values() for i in some)
        for way in divisions(template, len(gpus))
        if holds(template, way, gpus)
    }
    matched = template.needs.matching
    if matched is not None:
        groups = groups_of(matched.all_attributes, gpus)
        masks = matching_sets(matched, groups, (1 << len(gpus)) - 1)
        assert {frozenset(order) for order in masks.values()} == tried
        assert all(mask == sum(1 << i for i in order) for mask, order in masks.items())
    if len(gpus) == template.gpus:
        divided = template.divided(gpus)
        assert (divided is not None) is bool(tried)
        assert divided is None or holds(template, divided, gpus)


def test_sixteen_equal_gpus_are_divided():
    """The largest number of ways that there may be."""
    amounts = dict.fromkeys("rstu", 4)
    template = UserClaims((("c", claimed(amounts, *(matching(A, one) for one in amounts))),))

    divided = template.divided([a_gpu(a="x")] * 16)

    assert sorted(i for some in divided.values() for i in some) == list(range(16))


def test_sets_depend_on_no_names_and_no_order():
    first, second = (
        UserClaims(((name, claimed(amounts, *(matching(A, one) for one in amounts))),))
        for name, amounts in (("c", {"r": 1, "s": 2, "t": 3}), ("d", {"x": 3, "y": 1, "z": 2}))
    )
    one, other = first.needs.matching, second.needs.matching
    groups = ((A, (0b11110000, 0b1111)),)

    assert one.shape == other.shape
    assert {*matching_sets(one, groups, 255)} == {*matching_sets(one.shape, groups, 255)}
