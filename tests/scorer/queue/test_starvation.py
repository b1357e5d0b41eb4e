import pytest
from builders import a_seen
from hypothesis import given
from hypothesis import strategies as st

from cluster import keys
from scorer.gang.unit import Owners, units_of
from scorer.queue.starvation import LEAST, StarvationGuard

AGEING = 600.0


def a_unit(name, namespace="team"):
    labels = {keys.POD_GROUP_NAME: name, keys.POD_GROUP_MIN_AVAILABLE: "1"}
    (unit,) = units_of([a_seen(8, name, labels=labels, namespace=namespace)], Owners({}, {}))
    return unit


def reserved(ageing, units, now, length=AGEING):
    """Return for which of some units nodes are reserved: the first that may have them."""
    ageing.note(units, now, None)
    first = next((one for one in units if ageing.is_aged(one, now, length)), None)
    ageing.reserve(first, now, length)
    return first


def times(ageing, units, *, until, length=AGEING, step=50):
    return [now for now in range(0, until, step) if reserved(ageing, units, now, length)]


def test_nodes_are_reserved_after_the_ageing_time_for_as_long_and_then_ever_less_often():
    large = a_unit("large")

    found = times(StarvationGuard(), [large], until=10 * 600)

    # Others may pass for 600 s after the first time, for 1,200 s after the second.
    expected = [*range(600, 1200, 50), *range(1800, 2400, 50), *range(3600, 4200, 50)]
    assert found == expected


def test_many_units_of_a_namespace_have_no_more_than_one():
    many = [a_unit(f"large-{i}") for i in range(5)]

    assert times(StarvationGuard(), many, until=6000) == times(
        StarvationGuard(), many[:1], until=6000
    )


def test_a_unit_that_takes_the_place_of_another_goes_on_with_its_reservation():
    ageing, first, second = StarvationGuard(), a_unit("first"), a_unit("second")
    times(ageing, [first, second], until=1100)

    assert reserved(ageing, [second], 1150) is second
    assert reserved(ageing, [second], 1250) is None


def test_another_namespace_has_its_own():
    ageing, mine, theirs = StarvationGuard(), a_unit("mine"), a_unit("theirs", "other")
    times(ageing, [mine, theirs], until=1200)

    assert reserved(ageing, [mine, theirs], 1250) is theirs


def test_a_namespace_whose_unit_was_placed_starts_anew():
    ageing, first, second = StarvationGuard(), a_unit("first"), a_unit("second")
    times(ageing, [first, second], until=1100)

    ageing.placed(first.key)

    assert reserved(ageing, [second], 1250) is second


def test_who_is_placed_without_nodes_being_reserved_for_it_does_not_start_its_namespace_anew():
    ageing, first, second = StarvationGuard(), a_unit("first"), a_unit("second")
    times(ageing, [first, second], until=1100)

    ageing.placed(second.key)

    assert reserved(ageing, [first], 1250) is None


def test_a_unit_that_cannot_be_planned_for_a_while_waits_again_from_zero():
    ageing, large = StarvationGuard(), a_unit("large")
    times(ageing, [large], until=500)
    ageing.note([], 500, None)

    assert reserved(ageing, [large], 700) is None
    assert reserved(ageing, [large], 1300) is large


def test_however_short_the_ageing_is_a_reservation_lasts_some_time():
    ageing, large = StarvationGuard(), a_unit("large")

    assert reserved(ageing, [large], 0, 0) is large
    assert ageing.left(10) == LEAST - 10
    assert ageing.left(LEAST) is None


@pytest.mark.parametrize("reserves", [True, False])
def test_nothing_is_due_while_nothing_is_reserved(reserves):
    ageing, large = StarvationGuard(), a_unit("large")
    reserved(ageing, [large], 0)
    if reserves:
        reserved(ageing, [large], 700)

    assert (ageing.left(800) == 500) is reserves


@given(st.lists(st.tuples(st.integers(1, 5000), st.booleans()), max_size=40))
def test_in_the_long_run_others_may_pass_for_as_long_as_nodes_are_reserved(steps):
    ageing, large = StarvationGuard(), a_unit("large")
    now, kept = 0, 0
    for step, asks in steps:
        now += step
        if asks:
            first = reserved(ageing, [large], now)
            kept += AGEING if first and ageing.left(now) == AGEING else 0

    assert kept <= now / 2 + AGEING
