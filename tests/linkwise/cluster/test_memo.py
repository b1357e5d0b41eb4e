import pytest

from linkwise.cluster.memo import Memo


class Doubled:
    """A function that notes its calls."""

    def __init__(self):
        self.calls = []

    def __call__(self, *arguments):
        self.calls.append(arguments)
        return list(arguments) * 2


ONE, TWO, SAME = ["one"], ["two"], ["one"]


def test_a_function_is_called_again_only_for_other_objects():
    function = Doubled()
    memo = Memo(function)

    first, _ = memo.map([(ONE,), (TWO,)])
    again, equal = memo.map([(ONE,), (SAME,)])

    assert again is first
    assert equal == first
    assert function.calls == [(ONE,), (TWO,), (SAME,)]


def test_items_of_tuples_are_compared_too():
    function = Doubled()
    memo = Memo(function)
    calls = [((ONE, TWO), 1), ((ONE,), 1), ((TWO, ONE), 1), ((ONE, TWO), 2), ((), 1)]

    results = memo.map(calls)

    assert memo.map([((*items,), number) for items, number in calls]) == results
    assert function.calls == calls


def test_only_results_of_the_last_calls_are_kept():
    function = Doubled()
    memo = Memo(function)

    for calls in ([(ONE,)], [(TWO,)], [(ONE,)]):
        memo.map(calls)

    assert function.calls == [(ONE,), (TWO,), (ONE,)]


def test_a_failure_forgets_nothing():
    def fail_on_two(each):
        if each is TWO:
            raise ValueError("two")
        return [each]

    memo = Memo(fail_on_two)
    (first,) = memo.map([(ONE,)])
    with pytest.raises(ValueError, match="two"):
        memo.map([(TWO,)])

    assert memo.map([(ONE,)])[0] is first
