from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.builders import a_node, an_nvswitch_machine, dgx1_v100
from support.dashboard import placed_pod, waiting_pod

from linkwise.cluster import keys
from linkwise.cluster.account.ledger import Ledger
from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.account.slots import free_slots
from linkwise.cluster.allocations.gpus import Counted, Exact, GPUShare
from linkwise.dashboard.earlier import earlier_ledgers, earlier_node, earlier_unit
from linkwise.dashboard.gang_changes import Past
from linkwise.dashboard.history import History
from linkwise.dashboard.moment import Moment
from linkwise.dashboard.node_view import node_view
from linkwise.views.files.cluster_file import Cluster
from linkwise.views.files.current_cluster import CurrentCluster
from linkwise.views.files.policies import policy_snapshot

MACHINES = dgx1_v100(), an_nvswitch_machine(4, 2)
GANG = ("gang", "team", "vgg")


@st.composite
def ledgers(draw, name):
    """Return a node that offers whole GPUs, some of which pods have."""
    machine, gpus = draw(st.sampled_from(MACHINES)), st.integers(0, 3)
    closed = {"ready": draw(st.booleans()), "unschedulable": draw(st.booleans())}
    counted = draw(st.booleans())
    faults = {} if counted else {"unhealthy": draw(st.sets(gpus)), "cordoned": draw(st.sets(gpus))}
    node = a_node(name, machine, "default" if counted else "topology", **closed, **faults)
    ledger = NodeLedger.empty(node)
    for pod, held in enumerate(draw(st.lists(st.sets(gpus, min_size=1), max_size=3))):
        free = sorted(held & {i for i in range(4) if not ledger.taken[i].holders})
        exact = Exact(tuple(map(GPUShare, free)))
        amount = Counted(keys.NVIDIA_GPU, 1) if counted else exact
        if amount:
            gang = draw(st.sampled_from(("team/vgg", None)))
            ledger = ledger.hold(Holding(f"team/{name}-{pod}", f"{name}-{pod}", amount, gang=gang))
    return ledger


def moment_of(nodes):
    cluster = Cluster(Ledger({ledger.node.name: ledger for ledger in nodes}))
    return Moment(CurrentCluster(cluster, policy_snapshot(()), (), "default", "a test"), 0.0)


@given(st.tuples(ledgers("a"), ledgers("b"), ledgers("c")))
@settings(max_examples=60)
def test_free_sets_of_an_earlier_moment_are_those_that_were_computed_then(nodes):
    then = moment_of(nodes)
    now = {
        ledger.node.name: NodeLedger.empty(
            replace(
                ledger.node,
                ready=True,
                unschedulable=False,
                cards=tuple(
                    replace(card, healthy=True, cordoned=False) for card in ledger.node.cards
                ),
            )
        )
        for ledger in nodes
    }

    assert free_slots(earlier_ledgers(then.rows, now)) == then.slots


@given(ledgers("a"))
@settings(max_examples=30)
def test_an_earlier_node_is_drawn_as_it_was_then(ledger):
    for card, taken in zip(ledger.node.cards, ledger.taken, strict=True):
        # A row has one state for each GPU.
        assume((not card.healthy) + card.cordoned + bool(taken.holders) < 2)
    then = moment_of((ledger,))
    view = node_view(then, "a")
    empty = {"a": NodeLedger.empty(ledger.node)}

    earlier = earlier_node(then.rows["a"], empty)

    assert (earlier.drawing, earlier.units) == (view.drawing, view.units)


def test_nodes_that_are_gone_count_with_unknown_links(moment):
    then = moment(placed_pod("a", 0))

    (group,) = free_slots(earlier_ledgers(then.rows, {}))

    assert (group.nodes, group.free, group.model) == (2, 15, then.slots[0].model)
    assert [sets.total for sets in group.sets] == [sets.total for sets in then.slots[0].sets]
    assert [sets.fastest for sets in group.sets] == [1, None, None, 15]


def test_a_gang_is_shown_as_it_waited_as_it_had_gpus_and_as_it_was_gone(moment):
    history = History()
    on_another = placed_pod("vgg-0", 2, node="dgx-1"), placed_pod("vgg-1", 3)
    moments = (
        moment(waiting_pod("vgg", 4), at=1.0),
        moment(placed_pod("vgg-0", 0), placed_pod("vgg-1", 3), at=2.0),
        moment(*on_another, at=3.0),
        moment(at=4.0),
    )
    for each in moments:
        history.add(each)

    def at(time):
        past = Past(history.at(time), tuple(c for c in history.changes if c.at <= time))
        waited = next(iter(history.waiting_at(time)), None)
        return earlier_unit(past, waited, moments[-1].current.cluster.ledger.nodes, GANG)

    assert (at(1.0).waited.asks, at(1.0).pods, at(1.0).changes) == ("4 GPUs", (), ())
    assert at(2.0).waited is None
    assert [(pod.name, pod.node, pod.gpus) for pod in at(2.0).pods] == [
        ("vgg-0", "dgx-0", (0,)),
        ("vgg-1", "dgx-0", (3,)),
    ]
    assert [each.kind for each in at(2.0).changes] == ["allocated"]
    assert [node.name for node in at(3.0).nodes] == ["dgx-1", "dgx-0"]
    assert [each.kind for each in at(3.0).changes] == ["allocated", "moved"]
    assert "A0" in str(at(3.0).nodes[0].drawing)
    assert at(4.0) is None


def test_shares_of_gpus_are_listed_and_not_drawn_as_whole_ones(moment):
    then = moment()
    past = Past(then.rows, ())
    (pod,) = then.rows["share"].holders

    unit = earlier_unit(past, None, then.current.cluster.ledger.nodes, ("pod", *pod.pod.split("/")))

    assert [(each.node, each.amount) for each in unit.pods] == [("share", "3 GiB")]
    assert "tile placed" not in str(unit.nodes[0].drawing)
