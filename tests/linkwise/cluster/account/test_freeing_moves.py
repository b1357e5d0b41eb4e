from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_node, an_nvswitch_machine

from linkwise.cluster.account.freeing_moves import MOVES_MAX, FreedNode, Move, freed_nodes
from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.allocations.gpus import Exact, GPUShare

GPUS = 8
MACHINE = an_nvswitch_machine(GPUS, 12)


def a_ledger(name, *sizes, gang=None, **node):
    """Return a node whose pods have so many GPUs each."""
    ledger, first = NodeLedger.empty(a_node(name, MACHINE, **node)), 0
    for number, size in enumerate(sizes):
        held = Exact(tuple(map(GPUShare, range(first, first + size))))
        pod = f"team/{name}-{number}"
        ledger = ledger.hold(Holding(pod, pod, held, gang=gang))
        first += size
    return ledger


def test_the_node_that_the_fewest_moved_gpus_make_whole_comes_first():
    ledgers = [a_ledger("a", 2), a_ledger("b", 4), a_ledger("c", 6), a_ledger("whole")]

    assert freed_nodes(ledgers, GPUS) == (
        FreedNode("a", 2, (Move("team/a-0", 2, "c"),)),
        FreedNode("b", 4, (Move("team/b-0", 4, "a"),)),
        FreedNode("c", 6, (Move("team/c-0", 6, "a"),)),
    )


def test_units_of_one_node_may_move_to_several():
    (freed, *_) = freed_nodes([a_ledger("a", 2, 1), a_ledger("b", 6), a_ledger("c", 7)], GPUS)

    assert freed == FreedNode("a", 3, (Move("team/a-0", 2, "b"), Move("team/a-1", 1, "c")))


def test_nothing_moves_that_would_free_no_node():
    gang = [a_ledger(name, 2, gang="team/bert") for name in "ab"]
    assert freed_nodes([*gang, a_ledger("c", 4)], GPUS) == (
        FreedNode("c", 4, (Move("team/c-0", 4, "a"),)),
    )
    broken = a_ledger("a", 2, unhealthy=(7,))
    assert [freed.name for freed in freed_nodes([broken, a_ledger("b", 4)], GPUS)] == ["b"]
    assert freed_nodes([a_ledger("a", 6), a_ledger("b", 7)], GPUS) == ()


@given(st.lists(st.lists(st.integers(1, 4), max_size=3), max_size=40))
def test_moves_make_the_node_whole_and_fit_where_they_lead(sizes):
    ledgers = {f"n{i}": a_ledger(f"n{i}", *each) for i, each in enumerate(sizes) if sum(each) <= 8}

    found = freed_nodes([*ledgers.values()], GPUS)

    assert len(found) <= MOVES_MAX
    assert [freed.gpus for freed in found] == sorted(freed.gpus for freed in found)
    for freed in found:
        assert sum(move.gpus for move in freed.moves) == GPUS - ledgers[freed.name].gpus_free
        for move in freed.moves:
            given_there = sum(each.gpus for each in freed.moves if each.to == move.to)
            assert given_there <= ledgers[move.to].gpus_free < GPUS
            assert move.to != freed.name
