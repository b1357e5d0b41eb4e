from hypothesis import given
from hypothesis import strategies as st

from linkwise.runtime.process.portions import SIZE, Portions


def test_few_items_are_one_portion_at_each_call():
    portions = Portions(lambda: range(SIZE))

    assert [len(portions.next(now)) for now in (0, 0, 0)] == [SIZE] * 3
    assert portions.time_left(0) is None


def test_many_items_are_passed_a_portion_at_a_time_and_once_more():
    portions = Portions(lambda: range(2 * SIZE))

    first, early = portions.next(0), portions.next(0.001)
    second = portions.next(0 + portions.time_left(0))
    rest = portions.next(1)

    assert (first + second, early, rest) == ([*range(2 * SIZE)], [], [])
    assert portions.time_left(1) > 0
    assert portions.next(1.1) == first


@given(st.lists(st.integers(0, 3 * SIZE), min_size=1, max_size=5))
def test_each_pass_has_all_items_once(sizes):
    left, now = list(sizes), 0.0
    portions = Portions(lambda: range(left.pop(0)))
    for size in sizes:
        found = portions.next(now)
        while portions.time_left(now) and len(found) < size:
            now += portions.time_left(now)
            found += portions.next(now)
        assert found == list(range(size))
        if size and size % SIZE == 0 and size > SIZE:
            # The pass ends with a portion that is empty.
            now += portions.time_left(now)
            assert portions.next(now) == []
