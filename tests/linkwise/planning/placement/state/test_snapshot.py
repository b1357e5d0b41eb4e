from dataclasses import replace

from support.builders import a_machine, a_member, a_node, a_snapshot, exact

from linkwise.cluster.account.ledger import Ledger
from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.planning.placement.options import Preferences
from linkwise.planning.placement.state.snapshot import snapshot_of


def test_nodes_come_by_name():
    snapshot = a_snapshot(a_node("b"), a_node("a"))

    assert [node.node.name for node in snapshot.nodes] == ["a", "b"]


def test_emptied_cluster_keeps_faulty_gpus_and_no_pods():
    snapshot = a_snapshot(a_node("a", unhealthy=(0,)), taken={"a": (1, 2)}, domains=("rack",))

    empty = snapshot.without_pods()

    assert empty.nodes[0].free_mask == 0b11111110
    assert empty.preferences.domains == ("rack",)


def test_only_one_node_of_the_same_moment():
    snapshot = a_snapshot(a_node("a"), a_node("b"), taken={"b": (0,)}, nic_bandwidth=3.0)

    alone = snapshot.only("b")

    assert [node.node.name for node in alone.nodes] == ["b"]
    assert alone.nodes[0].free_mask == 0b11111110
    assert alone.preferences.nic_bandwidth == 3.0


def test_tables_are_shared_by_nodes_alike_and_taken_over_where_known():
    ledgers = [a_node("a"), a_node("b"), a_node("c", None, "default")]
    ledger = Ledger({node.name: NodeLedger.empty(node) for node in ledgers})
    other = snapshot_of(Ledger({"x": NodeLedger.empty(a_node("x", a_machine(2)))})).tables["x"]

    snapshot = snapshot_of(ledger, {"b": other})

    assert snapshot.tables.keys() == {"a", "b"}
    assert snapshot.tables["b"] is other
    assert snapshot_of(ledger).tables["a"] is snapshot_of(ledger).tables["b"]


def test_emptied_nodes_are_computed_once_for_the_same_nodes():
    snapshot = a_snapshot(a_node("a"), a_node("b"), taken={"a": (1, 2)})
    later = snapshot.hold_all([("b", a_member().holding(exact(0)))])

    assert later.without_pods().nodes is snapshot.without_pods().nodes
    assert later.without_pods().cache is snapshot.without_pods().cache
    assert [node.free_mask for node in later.without_pods().nodes] == [255, 255]


def test_the_emptied_cluster_follows_its_nodes_and_preferences():
    snapshot = a_snapshot(a_node("a"), a_node("b"))
    empty = snapshot.without_pods()
    cordoned = NodeLedger.empty(a_node("a", cordoned=(0,)))

    other = replace(
        snapshot, ledger=Ledger({**snapshot.ledger.nodes, "a": cordoned})
    ).without_pods()
    preferences = Preferences(nic_bandwidth=3.0)
    preferring = replace(snapshot, preferences=preferences).without_pods()

    assert [node.free_mask for node in other.nodes] == [254, 255]
    assert other.nodes[1] is empty.nodes[1]
    assert preferring.preferences == preferences
    assert len(snapshot.without({"b"}).without_pods().nodes) == 1
