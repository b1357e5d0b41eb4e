from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_machine, a_node

from linkwise.cluster.account.gpu_usage import LedgerError
from linkwise.cluster.account.ledger import Ledger
from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.allocations.gpus import Counted, Exact, GPUShare
from linkwise.cluster.keys import NVIDIA_GPU
from linkwise.cluster.nodes.node import Node
from linkwise.cluster.requests.demand import Demand, HostPort

FOUR = a_machine(4)


def holding(uid: str, *shares: GPUShare, **fields: object) -> Holding:
    return Holding(f"ns/{uid}", uid, Exact(shares), **fields)


def whole(uid: str, *gpus: int) -> Holding:
    return holding(uid, *(GPUShare(i) for i in gpus))


def part(uid: str, i: int, mem: int, core: int | None = None) -> Holding:
    return holding(uid, GPUShare(i, mem=mem, core=core))


def share_node(mode: str = "core_mem", **fields: object) -> Node:
    return a_node(machine=FOUR, mode=mode, card_memory=15, **fields)


def test_an_empty_node_has_everything_free():
    ledger = NodeLedger.empty(a_node(pods=3, resources={NVIDIA_GPU: 8}))

    assert ledger.free_mask == 0b11111111
    assert (ledger.cpu_free, ledger.memory_free_bytes, ledger.pods_free) == (96_000, 768 << 30, 3)
    assert ledger.counted_free(NVIDIA_GPU) == 8
    assert (ledger.sharing, ledger.unaccounted) == (None, None)


def test_a_node_without_gpus_has_none_free():
    assert NodeLedger.empty(a_node(machine=None, mode="default")).free_mask == 0


def test_unhealthy_and_cordoned_cards_are_not_free():
    ledger = NodeLedger.empty(share_node(unhealthy=(0,), cordoned=(2,)))

    assert ledger.free_mask == 0b1010
    assert [ledger.memory_free(i) for i in range(4)] == [0, 15, 0, 15]
    assert [ledger.core_free(i) for i in range(4)] == [0, 100, 0, 100]


def test_a_whole_gpu_is_taken_with_all_it_has():
    ledger = NodeLedger.empty(share_node()).hold(whole("a", 0, 2))

    assert ledger.free_mask == 0b1010
    assert (ledger.memory_free(0), ledger.core_free(0)) == (0, 0)
    assert ledger.sharing is None


def test_a_share_takes_its_memory_and_compute_and_leaves_the_rest():
    ledger = NodeLedger.empty(share_node()).hold(part("a", 1, 4, 30)).hold(part("b", 1, 11, 70))

    assert (ledger.memory_free(1), ledger.core_free(1)) == (0, 0)
    assert (ledger.memory_free(0), ledger.core_free(0)) == (15, 100)
    assert ledger.free_mask == 0b1101
    assert ledger.sharing == "compute"


@pytest.mark.parametrize(
    ("mode", "memory", "core", "replicas"),
    [
        ("topology", 0, 0, 0),
        ("default", 0, 0, 0),
        ("share", 15, 0, 0),
        ("cgpu", 15, 0, 0),
        ("core_mem", 15, 100, 0),
        ("mps", 15, 100, 0),
        ("timeslice", 0, 0, 4),
    ],
)
def test_a_node_gives_only_what_its_mode_offers(mode, memory, core, replicas):
    ledger = NodeLedger.empty(share_node(mode))

    assert ledger.memory_free(0) == memory
    assert ledger.core_free(0) == core
    assert ledger.replicas_free(0) == replicas


def test_a_card_of_unknown_memory_takes_no_share():
    node = a_node(machine=FOUR, mode="share")

    assert NodeLedger.empty(node).memory_free(0) == 0


def test_replicas_of_one_gpu_are_counted_one_by_one():
    node = a_node(machine=FOUR, mode="timeslice", unhealthy=(3,))
    ledger = NodeLedger.empty(node).hold(whole("a", 0, 1, 0)).hold(whole("b", 0, 0))

    assert [ledger.replicas_free(i) for i in range(4)] == [0, 3, 4, 0]
    assert ledger.free_mask == 0b0100
    assert ledger.release("a").replicas_free(0) == 2


def test_cpu_memory_ports_and_pods_may_be_overdrawn():
    port = HostPort("", "TCP", 22)
    node = a_node(machine=None, mode="default", cpu=1000, memory=10, pods=1)

    ledger = NodeLedger.empty(node)
    for uid in "ab":
        ledger = ledger.hold(holding(uid, demand=Demand(800, 8, frozenset({port}))))

    assert (ledger.cpu_free, ledger.memory_free_bytes, ledger.pods_free) == (-600, -6, -1)
    assert not ledger.takes_ports({HostPort("10.0.0.1", "TCP", 22)})
    assert ledger.takes_ports({HostPort("", "TCP", 23)})
    assert not ledger.release("a").takes_ports({port})
    assert ledger.release("a").release("b").takes_ports({port})


def test_gpus_asked_for_by_count_are_only_counted():
    node = a_node(mode="default")

    ledger = NodeLedger.empty(node).hold(Holding("ns/a", "a", Counted(NVIDIA_GPU, 3)))

    assert (ledger.counted_free(NVIDIA_GPU), ledger.free_mask) == (5, 0b11111111)


def test_a_card_that_became_unhealthy_keeps_what_it_has():
    ledger = NodeLedger.empty(a_node(unhealthy=(0,), cordoned=(1,))).hold(whole("a", 0, 1))

    assert ledger.free_mask == 0b11111100


@pytest.mark.parametrize(
    ("mode", "first", "second", "message"),
    [
        ("topology", whole("a", 0), whole("b", 0), "GPU0 of node-0 is taken already"),
        ("topology", whole("a", 0), whole("a", 1), "ns/a is on node-0 already"),
        ("topology", whole("a"), whole("b", 1, 1), "GPU1 of node-0 is taken already"),
        ("topology", whole("a"), whole("b", 4), "has GPU4 of node-0, which has 4"),
        ("topology", whole("a"), whole("b", -1), "has GPU-1 of node-0, which has 4"),
        ("core_mem", part("a", 0, 1, 5), whole("b", 0), "GPU0 of node-0 is taken already"),
        ("core_mem", whole("a", 0), part("b", 0, 1, 5), "^GPU0 of node-0 is taken whole$"),
        ("core_mem", part("a", 0, 10, 5), part("b", 0, 6, 5), "would give 16 of 15 GiB"),
        ("core_mem", part("a", 0, 1, 60), part("b", 0, 1, 45), "105 % of its compute"),
        ("core_mem", part("a", 0, 1, 60), part("b", 1, 1), "share node-0: ns/b"),
        ("core_mem", part("a", 0, 1), part("b", 1, 1, 60), "share node-0: ns/b"),
        (
            "core_mem",
            whole("a"),
            holding("b", GPUShare(0, mem=1), GPUShare(1, mem=1, core=5)),
            "share node-0: ns/b",
        ),
        ("timeslice", whole("a", 0, 0, 0), whole("b", 0, 0), "all 4 replicas of GPU0 of node-0"),
    ],
)
def test_no_gpu_is_given_twice(mode, first, second, message):
    ledger = NodeLedger.empty(share_node(mode)).hold(first)

    with pytest.raises(LedgerError, match=message):
        ledger.hold(second)


def test_a_gpu_that_was_exchanged_is_not_the_one_in_the_record():
    ledger = NodeLedger.empty(a_node(uuids=True))

    assert ledger.hold(holding("a", GPUShare(0, "GPU-node-0-0"))).free_mask == 0b11111110
    with pytest.raises(LedgerError, match="GPU0 of node-0 is GPU-node-0-0 now, not GPU-old"):
        ledger.hold(holding("a", GPUShare(0, "GPU-old")))


def test_releasing_an_unknown_pod_changes_nothing():
    ledger = NodeLedger.empty(a_node())

    assert ledger.release("unknown") is ledger
    cluster = Ledger({"node-0": ledger})
    assert cluster.release("unknown") is cluster


def test_memory_only_and_compute_pods_may_follow_each_other():
    ledger = NodeLedger.empty(share_node()).hold(part("a", 0, 1, 60)).release("a")

    assert ledger.hold(part("b", 0, 1)).sharing == "memory"


def test_the_ledger_of_a_cluster_changes_one_node_and_keeps_the_old_ledger():
    nodes = {name: NodeLedger.empty(a_node(name)) for name in ("node-0", "node-1")}
    before = Ledger(nodes)

    after = before.hold("node-1", whole("a", 0))

    assert after.nodes["node-1"].free_mask == 0b11111110
    assert after.nodes["node-0"] is nodes["node-0"]
    assert before.nodes["node-1"].free_mask == 0b11111111
    assert after.release("a") == before


def test_nothing_is_held_on_an_unknown_node():
    with pytest.raises(LedgerError, match="ns/a cannot be on node-9: there is no such node"):
        Ledger().hold("node-9", whole("a", 0))


holdings = st.builds(
    lambda uid, shares, cpu, port: holding(
        uid, *shares, demand=Demand(cpu, ports=frozenset({HostPort("", "TCP", port)}))
    ),
    st.sampled_from("abcdef"),
    st.lists(
        st.builds(
            lambda i, amount: GPUShare(i, mem=amount and amount[0], core=amount and amount[1]),
            st.integers(0, 4),
            st.none() | st.tuples(st.integers(1, 9), st.none() | st.sampled_from((25, 50, 100))),
        ),
        max_size=3,
    ),
    st.integers(0, 5000),
    st.integers(1, 3),
)


@given(
    st.sampled_from(("topology", "core_mem", "timeslice")),
    st.lists(holdings | st.sampled_from("abcdef"), max_size=12),
)
def test_whatever_is_held_and_released_the_account_is_right(mode, steps):
    node = share_node(mode, cordoned=(3,))
    ledger = NodeLedger.empty(node)
    for step in steps:
        before = ledger
        if isinstance(step, str):
            ledger = ledger.release(step)
            continue
        try:
            ledger = ledger.hold(step)
        except LedgerError:
            continue
        assert ledger.release(step.uid) == before

    held = [share for one in ledger.holdings.values() for share in one.gpus.shares]
    for i in range(4):
        here = [share for share in held if share.i == i]
        memory = sum(share.mem or 0 for share in here)
        core = sum(share.core or 0 for share in here)
        assert memory <= 15
        assert core <= 100
        assert (ledger.taken[i].holders, ledger.taken[i].memory) == (len(here), memory)
        assert ledger.taken[i].core == core
        wholes = [share for share in here if share.mem is None]
        assert not wholes or mode == "timeslice" or len(here) == 1
        assert len(wholes) <= 4
    taken = {share.i for share in held} | {3}
    assert ledger.free_mask == sum(1 << i for i in range(4) if i not in taken)
    assert len({bool(share.core) for share in held if share.mem}) <= 1
    assert ledger.cpu_free == node.cpu - sum(one.demand.cpu for one in ledger.holdings.values())
    taken = {port.port for one in ledger.holdings.values() for port in one.demand.ports}
    free = {port for port in range(1, 4) if ledger.takes_ports({HostPort("", "TCP", port)})}
    assert free == {1, 2, 3} - taken


def test_without_pods_empties_a_node():
    empty = NodeLedger.empty(a_node())

    assert empty.without_pods() is empty
    assert empty.hold(Holding("a/b", "u", Exact((GPUShare(0),)))).without_pods() == empty
    assert replace(empty, unaccounted="an unknown pod has GPUs").without_pods() == empty


def test_without_gpu_pods_keeps_other_pods():
    empty = NodeLedger.empty(a_node())
    ssh = HostPort("", "TCP", 22)
    agent = Holding("kube-system/agent", "agent", demand=Demand(100, 1 << 30, frozenset({ssh})))
    lasting = replace(empty.hold(agent), unaccounted="an unknown pod has GPUs")
    whole = Holding("ns/a", "a", Exact((GPUShare(0),)), Demand(8_000, 1 << 30))
    counted = Holding("ns/b", "b", Counted(NVIDIA_GPU, 2), Demand(8_000))

    for kept in (empty, lasting):
        assert kept.without_gpu_pods is kept
        assert kept.hold(whole).hold(counted).without_gpu_pods == kept


def test_free_gpus_are_counted_in_every_mode():
    node = a_node(machine=a_machine(4))
    empty = NodeLedger.empty(node)
    counted = NodeLedger.empty(a_node(mode="default", machine=a_machine(4)))
    asked = Holding("ns/a", "a", Counted(NVIDIA_GPU, 3))

    assert empty.gpus_free == 4
    assert empty.hold(Holding("ns/b", "b", Exact((GPUShare(0),)))).gpus_free == 3
    assert counted.hold(asked).gpus_free == 1
    assert replace(empty, unaccounted="an unknown pod").gpus_free == 0
