from dataclasses import replace
from itertools import count

from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_seen
from support.counting import calls

from linkwise.planning.cycle.cycle import in_turns
from linkwise.planning.cycle.scheduling_queue import SchedulingQueue
from linkwise.planning.gang.owners import Owners
from linkwise.planning.gang.unit import units_of


def a_unit(name, namespace="a", *, priority=0, age=0):
    created = f"2026-01-01T00:{(3599 - age) // 60:02}:{(3599 - age) % 60:02}Z"
    pod = a_seen(1, name, namespace=namespace, priority=priority, created=created)
    (unit,) = units_of([pod], Owners({}, {}))
    return unit


def a_queue(*units, last=()):
    queue = SchedulingQueue(lambda unit: unit.key.name in last)
    for unit in units:
        queue.add(unit)
    return queue


def names(queue, version=0, *, parks=True):
    """Run one cycle in which all units are refused; return their names in order."""
    queue.start(version)
    found = []
    while unit := queue.pop():
        found.append(unit.key.name)
        if parks:
            queue.park(unit, version)
    return found


def test_units_are_ordered_by_priority_turns_and_age():
    units = [
        a_unit("a-young", age=1),
        a_unit("a-old", age=9),
        a_unit("a-oldest", age=10),
        a_unit("b", "b"),
        a_unit("c", "c", age=11),
        a_unit("urgent", priority=1),
        a_unit("suspect", priority=2),
    ]

    ordered = names(a_queue(*units, last={"suspect"}))

    assert ordered == ["urgent", "c", "a-oldest", "b", "a-old", "a-young", "suspect"]


def test_units_that_repair_a_running_gang_are_before_others_of_their_priority():
    repair = replace(a_unit("repair", "b"), is_repair=True)
    units = [a_unit("old", age=9), repair, a_unit("urgent", priority=1)]

    queue = a_queue(*units)

    assert names(queue) == ["urgent", "repair", "old"]
    assert names(queue, 1) == ["urgent", "repair", "old"]
    assert [unit.key.name for unit in in_turns(units)] == ["urgent", "repair", "old"]


def test_a_parked_unit_is_planned_again_only_with_more_capacity():
    queue = a_queue(a_unit("one"), a_unit("two", age=1))
    assert names(queue) == ["two", "one"]
    assert names(queue) == []
    assert not queue.is_due(0)
    assert queue.is_due(1)

    assert names(queue, 1) == ["two", "one"]


def test_a_unit_that_comes_with_freed_capacity_is_planned_after_older_ones():
    queue = a_queue(a_unit("old", age=9))
    names(queue)
    queue.add(a_unit("new"))

    assert names(queue, 1) == ["old", "new"]


def test_a_unit_of_another_namespace_has_its_turn_beside_very_many():
    many = [a_unit(f"many-{i}", age=1000 - i) for i in range(1000)]
    queue = a_queue(*many, a_unit("other", "b"))
    queue.start(0)
    first = [queue.pop().key.name for _ in range(2)]
    assert first == ["many-0", "other"]
    queue.park(many[0], 0)
    queue.park(a_unit("other", "b"), 0)

    # Each freed GPU lets it be planned after one of the many, although these are not all planned.
    for version in range(1, 20):
        queue.start(version)
        turns = [queue.pop() for _ in range(3)]
        for unit in turns:
            queue.park(unit, version)
        assert "other" in [unit.key.name for unit in turns]


def test_units_that_are_planned_again_and_again_hold_up_no_lower_priority():
    high, low = a_unit("high", priority=1), [a_unit(f"low-{i}", age=9 - i) for i in range(3)]
    queue, seen = a_queue(high, *low), []
    for version in range(8):
        queue.start(version)
        unit = queue.pop()
        seen.append(unit.key.name)
        queue.park(unit, version)

    assert seen == ["high", "high", "low-0", "high", "low-1", "high", "low-2", "high"]


def test_freed_capacity_is_for_a_higher_priority_first_beside_many_namespaces():
    high, lows = a_unit("high", priority=1), [a_unit(f"low-{i}", f"b-{i}") for i in range(6)]
    queue = a_queue(high, *lows)
    queue.start(0)
    for unit in (high, lows[0]):
        assert queue.pop().key == unit.key
        queue.park(unit, 0)
    # It waits for no namespace of a lower priority; nor does one that comes meanwhile.
    queue.add(a_unit("new", priority=1))

    assert names(queue, 1)[:3] == ["high", "new", "low-1"]


@given(st.integers(1, 3), st.integers(2, 30))
def test_a_higher_priority_waits_for_one_cycle_of_lower_ones_at_most(turns, namespaces):
    high = a_unit("high", priority=1)
    queue = a_queue(high, *(a_unit(f"low-{i}", f"b-{i}") for i in range(namespaces)))
    missed = 0
    for version in range(3 * namespaces):
        queue.start(version)
        popped = [unit for _ in range(turns) if (unit := queue.pop())]
        for unit in popped:
            queue.park(unit, version)
        missed = 0 if high.key in {unit.key for unit in popped} else missed + 1
        assert missed <= (turns == 1)


def test_a_unit_that_is_put_back_first_is_planned_before_others_of_its_priority():
    first, other, urgent = a_unit("first"), a_unit("other", age=9), a_unit("urgent", priority=1)
    queue = a_queue(first)
    queue.start(0)
    queue.put_back(queue.pop(), is_first=True)
    queue.add(other)
    queue.add(urgent)

    assert names(queue) == ["urgent", "first", "other"]


def test_a_unit_that_is_gone_is_never_planned():
    queue = a_queue(a_unit("one"), a_unit("two"))
    queue.start(0)
    queue.put_back(queue.pop(), is_first=True)
    queue.start(0)
    for name in ("one", "two"):
        queue.remove(a_unit(name).key)

    assert names(queue) == []


def test_a_cycle_costs_nothing_for_units_that_were_refused():
    def work(number):
        queue = a_queue(*(a_unit(f"u-{i}") for i in range(number)))
        names(queue)
        return lambda: names(queue)

    few, many = work(10), work(1000)
    few()
    assert calls(many) <= calls(few) + 10


class Model:
    """A queue, and the units that are to be planned."""

    def __init__(self):
        self.queue, self.version = SchedulingQueue(lambda _: False), 0
        self.units, self.due, self.ages = {}, set(), count()

    def add(self, number):
        name, namespace = f"u-{number}", "abc"[number % 3]
        unit = a_unit(name, namespace, priority=number % 2, age=next(self.ages))
        self.units[name] = unit
        self.queue.add(unit)
        self.due.add(name)

    def remove(self, number):
        if unit := self.units.pop(f"u-{number}", None):
            self.queue.remove(unit.key)
            self.due.discard(unit.key.name)

    def free(self, _number):
        self.version += 1
        self.due |= self.units.keys()

    def activate(self, number):
        unit = self.units.get(f"u-{number}")
        if unit and self.queue.is_parked(unit):
            self.queue.activate(unit)
            self.due.add(unit.key.name)

    def refuse(self, number):
        for unit in self._popped(number):
            self.queue.park(unit, self.version)
            self.due.discard(unit.key.name)

    def back_off(self, number):
        for unit in self._popped(number):
            self.queue.put_back(unit)

    def _popped(self, number):
        self.queue.start(self.version)
        return [unit for _ in range(number) if (unit := self.queue.pop())]


STEPS = ("add", "remove", "free", "activate", "refuse", "back_off")


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 7)), max_size=60))
def test_every_unit_is_planned_exactly_once_after_each_change(steps):
    model = Model()
    for step, number in steps:
        getattr(model, step)(number)
    seen = [name for _ in range(20) for name in names(model.queue, model.version)]
    assert sorted(seen) == sorted(model.due)
    assert {unit.key.name for unit in model.queue.parked()} == model.units.keys()
    assert not model.queue.is_due(model.version)
