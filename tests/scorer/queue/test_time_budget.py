from support import virtual_time
from support.builders import a_seen

from linkwise.planning.gang.owners import Owners
from linkwise.planning.gang.unit import units_of
from scorer.queue.time_budget import TimeBudget
from scorer.timings import Timings

TIMINGS = Timings()


def a_unit(gpus=1):
    (unit,) = units_of([a_seen(gpus, "bert")], Owners({}, {}))
    return unit


def test_a_slow_unit_has_a_longer_limit_after_a_growing_delay():
    async def tried():
        budget, unit = TimeBudget(TIMINGS, lambda: None), a_unit()
        before = unit in budget, budget.limit(unit), budget.is_backing_off(unit)
        rests = [budget.exceeded(unit) for _ in range(3)]
        after = unit in budget, budget.limit(unit), budget.is_backing_off(unit)
        return before, rests, after

    before, rests, after = virtual_time.run(tried())

    assert before == (False, TIMINGS.first_limit, False)
    assert rests == [
        TIMINGS.slow_unit_retry,
        2 * TIMINGS.slow_unit_retry,
        4 * TIMINGS.slow_unit_retry,
    ]
    assert after == (True, TIMINGS.retry_limit, True)


def test_a_unit_with_another_request_starts_from_the_first_limit():
    async def tried():
        budget, unit, other = TimeBudget(TIMINGS, lambda: None), a_unit(), a_unit(2)
        budget.exceeded(unit)
        budget.exceeded(unit)
        assert (unit.key, budget.is_backing_off(a_unit())) == (other.key, True)
        return other in budget, budget.is_backing_off(other), budget.exceeded(other), unit in budget

    assert virtual_time.run(tried()) == (False, False, TIMINGS.slow_unit_retry, False)


def test_a_reset_unit_is_not_slow():
    async def tried():
        budget, unit = TimeBudget(TIMINGS, lambda: None), a_unit()
        budget.exceeded(unit)
        budget.reset(unit.key)
        return unit in budget, budget.is_backing_off(unit), budget.exceeded(unit)

    assert virtual_time.run(tried()) == (False, False, TIMINGS.slow_unit_retry)


def test_a_namespace_is_slow_until_its_slow_units_are_reset():
    async def tried():
        budget, one, other = TimeBudget(TIMINGS, lambda: None), a_unit(), a_unit(2)
        before = budget.slow_namespaces
        budget.exceeded(one)
        during = budget.slow_namespaces
        budget.reset(other.key)
        return before, during, budget.slow_namespaces

    assert virtual_time.run(tried()) == (frozenset(), {"team"}, frozenset())
