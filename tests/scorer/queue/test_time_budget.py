import virtual_time
from builders import a_seen

from scorer.gang.unit import Owners, units_of
from scorer.queue.time_budget import FIRST, LONG, SOON, TimeBudget


def a_unit(gpus=1):
    (unit,) = units_of([a_seen(gpus, "bert")], Owners({}, {}))
    return unit


def test_who_was_late_gets_more_time_after_a_rest_that_grows():
    async def tried():
        late, unit = TimeBudget(lambda: None), a_unit()
        before = unit in late, late.time(unit), late.is_resting(unit)
        rests = [late.note(unit) for _ in range(3)]
        after = unit in late, late.time(unit), late.is_resting(unit)
        return before, rests, after

    before, rests, after = virtual_time.run(tried())

    assert before == (False, SOON, False)
    assert rests == [FIRST, 2 * FIRST, 4 * FIRST]
    assert after == (True, LONG, True)


def test_who_asks_for_something_else_now_begins_anew():
    async def tried():
        late, unit, other = TimeBudget(lambda: None), a_unit(), a_unit(2)
        late.note(unit)
        late.note(unit)
        assert (unit.key, late.is_resting(a_unit())) == (other.key, True)
        return other in late, late.is_resting(other), late.note(other), unit in late

    assert virtual_time.run(tried()) == (False, False, FIRST, False)


def test_who_is_forgotten_was_never_late():
    async def tried():
        late, unit = TimeBudget(lambda: None), a_unit()
        late.note(unit)
        late.forget(unit.key)
        return unit in late, late.is_resting(unit), late.note(unit)

    assert virtual_time.run(tried()) == (False, False, FIRST)


def test_all_of_a_namespace_comes_last_until_none_of_it_was_late():
    async def tried():
        late, one, other = TimeBudget(lambda: None), a_unit(), a_unit(2)
        before = late.namespaces
        late.note(one)
        during = late.namespaces
        late.forget(other.key)
        return before, during, late.namespaces

    assert virtual_time.run(tried()) == (frozenset(), {"team"}, frozenset())
