import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_seen

from linkwise.cluster import keys
from linkwise.planning.cycle.starvation import StarvationGuard
from linkwise.planning.gang.owners import Owners
from linkwise.planning.gang.unit import units_of

AGEING, MIN = 600.0, 60.0


def a_unit(name, namespace="team"):
    labels = {keys.POD_GROUP_NAME: name, keys.POD_GROUP_MIN_AVAILABLE: "1"}
    (unit,) = units_of([a_seen(8, name, labels=labels, namespace=namespace)], Owners({}, {}))
    return unit


def reserved(guard, units, now, length=AGEING):
    """Run one cycle; return the unit for which nodes are reserved: the first starving one."""
    guard.update(units, now, None)
    first = next((unit for unit in units if guard.is_starving(unit, now, length)), None)
    guard.reserve(first, now, length)
    return first


def times(guard, units, *, until, length=AGEING, step=50):
    return [now for now in range(0, until, step) if reserved(guard, units, now, length)]


def test_reservations_last_the_ageing_time_with_doubling_pauses():
    large = a_unit("large")

    reserved_at = times(StarvationGuard(MIN), [large], until=10 * 600)

    # The pauses are 600 s and 1,200 s.
    expected = [*range(600, 1200, 50), *range(1800, 2400, 50), *range(3600, 4200, 50)]
    assert reserved_at == expected


def test_many_units_of_a_namespace_share_its_reservations():
    many = [a_unit(f"large-{i}") for i in range(5)]

    assert times(StarvationGuard(MIN), many, until=6000) == times(
        StarvationGuard(MIN), many[:1], until=6000
    )


def test_the_next_unit_of_a_namespace_continues_its_reservation():
    guard, first, second = StarvationGuard(MIN), a_unit("first"), a_unit("second")
    times(guard, [first, second], until=1100)

    assert reserved(guard, [second], 1150) is second
    assert reserved(guard, [second], 1250) is None


def test_another_namespace_has_its_own_reservation():
    guard, mine, theirs = StarvationGuard(MIN), a_unit("mine"), a_unit("theirs", "other")
    times(guard, [mine, theirs], until=1200)

    assert reserved(guard, [mine, theirs], 1250) is theirs


def test_a_placed_unit_resets_its_namespace():
    guard, first, second = StarvationGuard(MIN), a_unit("first"), a_unit("second")
    times(guard, [first, second], until=1100)

    guard.placed(first.key)

    assert reserved(guard, [second], 1250) is second


def test_a_unit_placed_without_a_reservation_does_not_reset_its_namespace():
    guard, first, second = StarvationGuard(MIN), a_unit("first"), a_unit("second")
    times(guard, [first, second], until=1100)

    guard.placed(second.key)

    assert reserved(guard, [first], 1250) is None


def test_the_waiting_time_restarts_after_a_unit_could_not_be_planned():
    guard, large = StarvationGuard(MIN), a_unit("large")
    times(guard, [large], until=500)
    guard.forget(large.key)

    assert reserved(guard, [large], 700) is None
    assert reserved(guard, [large], 1300) is large


def test_a_reservation_lasts_the_minimum_if_ageing_is_shorter():
    guard, large = StarvationGuard(MIN), a_unit("large")

    assert reserved(guard, [large], 0, 0) is large
    assert guard.reservation_left(10) == MIN - 10
    assert guard.reservation_left(MIN) is None


@pytest.mark.parametrize("reserves", [True, False])
def test_no_time_is_left_without_a_reservation(reserves):
    guard, large = StarvationGuard(MIN), a_unit("large")
    reserved(guard, [large], 0)
    if reserves:
        reserved(guard, [large], 700)

    assert (guard.reservation_left(800) == 500) is reserves


@given(st.lists(st.tuples(st.integers(1, 5000), st.booleans()), max_size=40))
def test_nodes_are_reserved_for_at_most_half_of_the_time(steps):
    guard, large = StarvationGuard(MIN), a_unit("large")
    now, kept = 0, 0
    for step, asks in steps:
        now += step
        if asks:
            first = reserved(guard, [large], now)
            kept += AGEING if first and guard.reservation_left(now) == AGEING else 0

    assert kept <= now / 2 + AGEING
