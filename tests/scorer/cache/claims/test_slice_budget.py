from hypothesis import given
from hypothesis import strategies as st

from scorer.cache.claims.slice_budget import NODE_MAX, SLICES_MAX, SliceBudget

NODES = ("a", "b")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "remove", "failed list"]), st.sampled_from(NODES), st.integers(0, 3)
    ),
    max_size=20,
)


def fill(budget, node, count, first=0):
    """Take slices as a watch does, each with its own change; return how many are kept."""
    names = [f"{node}-{number}" for number in range(first, first + count)]
    kept = [name for name in names if budget.take(node, name, 1)]
    budget.confirm((name, node) for name in kept)
    return len(kept)


@given(STEPS)
def test_a_node_has_room_for_what_the_watch_does_not_keep(steps):
    budget, kept = SliceBudget(), {}
    for step, node, number in steps:
        name = f"{node}-{number}"
        if step == "add" and budget.take(node, name, 1):
            kept[name] = node
            budget.confirm([(name, node)])
        elif step == "remove" and kept.pop(name, None):
            budget.confirm([(name, None)])
        elif step == "failed list":
            for other in range(2 * SLICES_MAX):
                budget.take(node, f"{node}-unread-{other}", 1)
            # The next list has what the watch keeps.
            assert all(budget.take(node, name, 1) for name in kept if kept[name] == node)
            budget.confirm([])
    for node in NODES:
        room = SLICES_MAX - sum(at == node for at in kept.values())
        assert fill(budget, node, SLICES_MAX + 5, first=100) == room


def test_a_slice_that_names_another_node_leaves_room_on_the_first():
    budget = SliceBudget()
    assert fill(budget, "a", SLICES_MAX + 1) == SLICES_MAX
    assert budget.take("b", "a-0", 1)
    budget.confirm([("a-0", "b")])
    assert fill(budget, "a", 2, first=100) == 1


def test_the_slices_of_a_node_have_a_size():
    budget = SliceBudget()
    assert budget.take("a", "first", NODE_MAX - 10)
    budget.confirm([("first", "a")])
    assert not budget.take("a", "second", 11)
    assert budget.take("b", "other", NODE_MAX)
    assert budget.take("a", "second", 10)
    assert not budget.take("a", "first", NODE_MAX - 9)
    assert budget.take("a", "first", 100)
    budget.confirm([("first", "a"), ("second", "a")])
    assert budget.take("a", "second", NODE_MAX - 100)


def test_a_slice_that_is_kept_stays_although_a_list_that_failed_has_taken_others():
    budget = SliceBudget()
    assert budget.take("a", "first", 100)
    budget.confirm([("first", "a")])
    assert budget.take("a", "unread", NODE_MAX - 100)
    assert budget.take("a", "first", 100)
