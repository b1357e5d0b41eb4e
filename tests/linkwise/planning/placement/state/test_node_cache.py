import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import a_member, a_node, a_snapshot, exact

from linkwise.planning.placement.result import Plan
from linkwise.planning.placement.schedule import plan
from linkwise.planning.placement.state import node_cache
from linkwise.planning.placement.state.generations import Generations, changed_nodes
from linkwise.planning.placement.state.node_cache import DeadlineExceeded, NodeCache


def nodes_of(*names):
    return a_snapshot(*(a_node(name) for name in names)).nodes


class Asking:
    """Answers with a node's number of free GPUs, and notes who was asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, node):
        self.asked.append(node.node.name)
        return (node.free_mask.bit_count(), len(node.node.name))


def held(node):
    return node.hold(a_member().holding(exact(0)))


A, B, C, D = nodes_of("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("now", "asked"),
    [
        pytest.param((A, B, C), [], id="the same"),
        pytest.param((A, held(B), C), ["b"], id="one has changed"),
        pytest.param((A, B, C, D), ["d"], id="one more"),
        pytest.param((A, B), [], id="one less"),
        pytest.param((B, C), [], id="the first is gone"),
        pytest.param((B, C, D), ["d"], id="one is gone and another came"),
        pytest.param((C, held(A), D), ["a", "d"], id="all is another"),
    ],
)
def test_only_new_nodes_are_computed(now, asked):
    known, asking = NodeCache(), Asking()
    known.get_or_compute("room", (A, B, C), asking, np.int64)
    asking.asked.clear()

    found = known.get_or_compute("room", now, asking, np.int64)

    assert sorted(asking.asked) == asked
    assert found.tolist() == [[node.free_mask.bit_count() for node in now], [1] * len(now)]


def test_what_was_answered_before_stays_as_it_was():
    known, asking = NodeCache(), Asking()
    before = known.get_or_compute("room", (A, B), asking, np.int64)

    known.get_or_compute("room", (A, held(B)), asking, np.int64)

    assert before.tolist() == [[8, 8], [1, 1]]


def test_most_recently_used_columns_are_kept(monkeypatch):
    monkeypatch.setattr(node_cache, "MAX_COLUMNS", 2)
    known, asking = NodeCache(), Asking()
    for question in ("one", "two", "one", "three", "one"):
        known.get_or_compute(question, (A,), asking, np.int64)
    assert asking.asked == ["a"] * 3

    known.get_or_compute("two", (A,), asking, np.int64)

    assert asking.asked == ["a"] * 4


def test_things_have_numbers_of_their_own_that_stay():
    known = NodeCache()

    assert [known.number(thing) for thing in ("x", "y", "x")] == [1, 2, 1]
    snapshot = a_snapshot(a_node())
    table = snapshot.tables["node-0"]
    assert [known.state(table, free) for free in (255, 1, 255)] == [0, 1, 0]
    assert known.states == [(table, 255), (table, 1)]


def test_changed_nodes_are_found_among_many():
    many = A, B, C, D
    row = many * 100
    now = list(row)
    for place in (0, 127, 128, 399):
        now[place] = held(row[place])

    assert changed_nodes(row, tuple(now)) == [0, 127, 128, 399]
    assert changed_nodes(row[:130], tuple(now)) == [0, 127, 128]


def test_fork_has_the_same_values_and_later_ones_of_its_own():
    ask, again = Asking(), Asking()
    first = NodeCache()
    first.get_or_compute("free", (A, B), ask, np.int64)
    first.number("a")

    copy = first.fork()

    assert copy.get_or_compute("free", (A, B), again, np.int64).tolist() == [[8, 8], [1, 1]]
    copy.get_or_compute("free", (A, B, C), again, np.int64)
    first.get_or_compute("free", (A, B, C), ask, np.int64)
    assert (again.asked, ask.asked) == (["c"], ["a", "b", "c"])
    assert (copy.number("b"), first.number("c"), copy.number("a")) == (2, 2, 1)


def test_forked_snapshot_shares_nodes_and_no_cache():
    before = a_snapshot(a_node("a"), a_node("b"), taken={"a": [0]})
    plan(before, [a_member()])
    empty = before.without_pods()

    apart = before.fork()

    assert apart.nodes == before.nodes
    assert apart.cache is not before.cache
    assert apart.without_pods() == empty
    assert apart.without_pods().cache is not empty.cache


@pytest.mark.parametrize(
    "look",
    [
        pytest.param(lambda snapshot: snapshot, id="as it is"),
        pytest.param(lambda snapshot: snapshot.without_pods(), id="with nothing running"),
        pytest.param(lambda snapshot: snapshot.only("a"), id="one node of it"),
        pytest.param(lambda snapshot: snapshot.without({"a"}), id="without one of them"),
    ],
)
@pytest.mark.parametrize("known", [False, True], ids=["new", "known"])
def test_nothing_is_computed_after_the_deadline(look, known):
    snapshot = a_snapshot(a_node("a"), a_node("b"))
    if known:
        plan(look(snapshot), [a_member()])

    with pytest.raises(DeadlineExceeded):
        plan(look(snapshot.fork(lambda: True)), [a_member()])
    assert isinstance(plan(look(snapshot), [a_member()]), Plan)


def test_deadline_is_checked_before_each_node():
    asking, is_over = Asking(), iter([False, False, False, True])

    with pytest.raises(DeadlineExceeded):
        NodeCache(lambda: next(is_over)).get_or_compute("free", (A, B, C, D), asking, np.int64)

    assert asking.asked == ["a", "b"]


def test_values_computed_before_the_deadline_are_kept():
    known, asking, again = NodeCache(), Asking(), Asking()
    is_over = iter([False, False, False, True])

    with known.deadline(lambda: next(is_over)), pytest.raises(DeadlineExceeded):
        known.get_or_compute("free", (A, B, C), asking, np.int64)

    assert known.get_or_compute("free", (A, B, C), again, np.int64).tolist() == [
        [8, 8, 8],
        [1, 1, 1],
    ]
    assert (asking.asked, again.asked) == (["a", "b"], ["c"])


def test_deadline_before_the_first_changed_node_keeps_the_other_values():
    known, asking, again = NodeCache(), Asking(), Asking()
    other, is_over = held(B), iter([False, True])
    known.get_or_compute("free", (A, B), Asking(), np.int64)

    with known.deadline(lambda: next(is_over)), pytest.raises(DeadlineExceeded):
        known.get_or_compute("free", (A, other, C), asking, np.int64)

    known.get_or_compute("free", (A, other, C), again, np.int64)
    assert (asking.asked, again.asked) == ([], ["b", "c"])


def test_deadline_holds_for_the_emptied_cluster_and_ends_with_its_block():
    snapshot = a_snapshot(a_node("a"), a_node("b"))
    plan(snapshot.without_pods(), [a_member()])

    with snapshot.cache.deadline(lambda: True), pytest.raises(DeadlineExceeded):
        plan(snapshot.without_pods(), [a_member()])

    assert isinstance(plan(snapshot.without_pods(), [a_member()]), Plan)


POOL = tuple(held(node) if i % 2 else node for i, node in enumerate((A, B, C, D) * 2))
ROWS = st.lists(st.sampled_from(POOL), min_size=1, max_size=5).map(tuple)


@settings(deadline=None)
@given(st.lists(st.tuples(ROWS, st.sampled_from(["one", "two", "three"])), max_size=12))
def test_columns_of_any_sequence_of_nodes_are_those_of_a_new_cache(questions):
    known = NodeCache()
    for number, (nodes, key) in enumerate(questions):
        # Some look at other nodes than the one before, and some at nodes of earlier questions.
        if number % 4 == 3:
            known = known.fork()
        found = known.get_or_compute(key, nodes, Asking(), np.int64)

        assert found.tolist() == NodeCache().get_or_compute(key, nodes, Asking(), np.int64).tolist()


@given(st.lists(ROWS, min_size=2, max_size=8), st.data())
def test_changes_since_a_generation_are_those_between_its_nodes_and_the_latest(states, data):
    generations = Generations()
    numbers = [generations.generation(nodes) for nodes in states]
    past = data.draw(st.integers(0, len(states) - 1))
    before, now = states[past], states[-1]

    def unequal(rows):
        # An equal node in another object may count as changed: its values are the same.
        return [row for row in rows if before[row] != now[row]]

    since = generations.since(numbers[past], before)
    assert unequal(since) == unequal(changed_nodes(before, now))
    assert all(before[row] is not now[row] for row in since)
