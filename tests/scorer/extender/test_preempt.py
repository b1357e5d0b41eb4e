from itertools import count
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.builders import TIMESLICED, a_machine, a_node, a_pod, placed_pod

from linkwise.cluster import keys
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.objects.pod import Pod
from linkwise.planning.gang.owners import Owners
from linkwise.planning.gang.pod_info import pod_info
from linkwise.planning.state.cluster_state import ClusterState
from scorer.extender.filter import Filter
from scorer.extender.preempt import Preemption
from scorer.extender.wire import MetaPod, MetaVictims

NO_OWNERS = Owners({}, {})
AMOUNTS = {keys.GPU_MEM: 60, keys.GPU_COUNT: 4, keys.GPU_CORE: 400}


class Node:
    """A node of four cards of 15 GiB, with pods of low priority on them."""

    def __init__(self, mode="share", **fields):
        self.state = ClusterState()
        self.numbers = count()
        resources = {**AMOUNTS, keys.GPU_WHOLE: 4, keys.NVIDIA_GPU_SHARED: 8}
        made = {"card_memory": 15, "resources": resources, **fields}
        self.state.update_node("a", a_node("a", a_machine(4), mode, **made))

    def put(self, raw):
        """Create a pod; the later, the younger."""
        uid = raw["metadata"]["name"]
        age = f"2026-01-01T00:00:{next(self.numbers):02}Z"
        raw["metadata"] |= {"uid": uid, "creationTimestamp": age}
        found = pod_info(msgspec.convert(raw, Pod))
        self.state.update_pod(found.key, found)

    def share(self, name, card, memory=5, core=None, **pod):
        amounts = {keys.GPU_MEM: memory} | ({keys.GPU_CORE: core} if core else {})
        self.put(placed_pod(name, amounts, "a", GPUShare(card, None, memory, core), **pod))

    def whole(self, name, *gpus, **pod):
        limits = {keys.GPU_WHOLE: len(gpus)}
        self.put(placed_pod(name, limits, "a", *map(GPUShare, gpus), **pod))

    def replicas(self, name, *gpus, **pod):
        limits = {keys.NVIDIA_GPU_SHARED: len(gpus)}
        self.put(placed_pod(name, limits, "a", *map(GPUShare, gpus), **pod))

    def full(self):
        """Put three pods on each card: c0-0, c0-1, c0-2, c1-0 and so on."""
        for card in range(4):
            for i in range(3):
                self.share(f"c{card}-{i}", card)
        return self


def asking(limits, priority=100, **spec):
    raw = a_pod(limits, priority=priority, **spec)
    raw["metadata"]["uid"] = "asking"
    return msgspec.convert(raw, Pod)


def victims(*uids, violations=0):
    return MetaVictims(list(map(MetaPod, uids)), violations)


def preemption_of(state):
    return Preemption(state, lambda: NO_OWNERS, lambda: 1000.0)


def evicted(node, pod, *proposed):
    """Return the pods to evict from the node; None where eviction does not help."""
    found = preemption_of(node.state).run(pod, {"a": victims(*proposed)})
    return {one.uid for one in found["a"].pods} if found else None


def fits_without(state, pod, uids):
    for key, one in list(state._pods.items()):
        if one.uid in uids:
            state.update_pod(key, None)
    return Filter(state).run(pod, ["a"]).names == ["a"]


TEN = {keys.GPU_MEM: 10}


def test_victims_are_on_one_card_instead_of_several():
    node = Node().full()

    gone = evicted(node, asking(TEN), "c0-2", "c3-2")

    assert len(gone) == 2
    assert len({uid[:2] for uid in gone}) == 1
    assert gone & {"c0-2", "c3-2"}
    assert fits_without(node.state, asking(TEN), gone)


@pytest.fixture
def clock():
    """A clock that the test moves."""
    return SimpleNamespace(now=1000.0)


def ending(clock, node=None, proposed=("c0-2", "c3-2")):
    """Return a full node and the victims of a preemptor there, and how it asks again."""
    node = node or Node().full()
    preemption = Preemption(node.state, lambda: NO_OWNERS, lambda: clock.now)

    def ask(*proposed):
        found = preemption.run(asking(TEN), {"a": victims(*proposed)})
        return [one.uid for one in found["a"].pods] if found else None

    return node, ask(*proposed), ask


def test_a_preemptor_that_asks_again_while_its_victims_end_gets_no_others(clock):
    # kube-scheduler does so when it does not see the end of the last one yet.
    node, (first, second), ask = ending(clock)

    assert ask("c1-0", "c1-1") is None
    node.state.update_pod(("default", first), None)
    assert ask("c1-0") is None
    # It fits, and what the scheduler proposes is as late as before.
    node.state.update_pod(("default", second), None)
    assert ask("c1-0") is None


def test_a_preemptor_whose_gpus_another_pod_took_gets_other_victims(clock):
    node, gone, ask = ending(clock)
    for uid in gone:
        node.state.update_pod(("default", uid), None)
    node.share("urgent", int(gone[0][1]), 10, priority=200)

    found = ask("c1-0")

    assert not set(found) & set(gone)
    assert fits_without(node.state, asking(TEN), found)


@pytest.fixture
def two_nodes(clock):
    """Nodes `a` and `b`, full, of which a preemptor got victims on both."""
    node = Node().full()
    other = a_node("b", a_machine(4), "share", card_memory=15, resources=AMOUNTS)
    node.state.update_node("b", other)
    for card in range(4):
        for i in range(3):
            share = GPUShare(card, None, 5, None)
            node.put(placed_pod(f"b{card}-{i}", {keys.GPU_MEM: 5}, "b", share))
    preemption = Preemption(node.state, lambda: NO_OWNERS, lambda: clock.now)
    proposed = {"a": victims("c0-2", "c3-2"), "b": victims("b0-2", "b3-2")}
    found = preemption.run(asking(TEN), proposed)
    gone = {name: [one.uid for one in found[name].pods] for name in ("a", "b")}
    return node, gone, lambda: preemption.run(asking(TEN), proposed)


def test_pods_that_end_on_another_node_do_not_cause_more_evictions(two_nodes):
    node, gone, ask = two_nodes
    # The scheduler deletes those on `a`; those on `b` end by themselves, and another has its GPUs.
    for uid in gone["a"]:
        raw = placed_pod(uid, {keys.GPU_MEM: 5}, "a", GPUShare(int(uid[1]), None, 5, None))
        raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:59Z"
        node.put(raw)
    for uid in gone["b"]:
        node.state.update_pod(("default", uid), None)
    share = GPUShare(int(gone["b"][0][1]), None, 10, None)
    node.put(placed_pod("urgent", {keys.GPU_MEM: 10}, "b", share, priority=200))

    assert ask() == {}


def test_a_node_that_was_deleted_does_not_cause_more_evictions(two_nodes):
    node, _, ask = two_nodes
    node.state.update_node("b", None)
    assert ask() == {}


def test_a_preemptor_whose_victims_do_not_end_gets_victims_again(clock):
    _, chosen, ask = ending(clock)
    clock.now += 9
    assert ask("c0-2", "c3-2") is None
    clock.now += 2
    assert ask("c0-2", "c3-2") == chosen


def test_few_preemptors_are_remembered():
    preemption, proposed = preemption_of(Node().full().state), {"a": victims("c0-2", "c3-2")}
    for number in range(300):
        pod = asking(TEN)
        preemption.run(replace(pod, metadata=replace(pod.metadata, uid=f"{number}")), proposed)

    assert len(preemption._choices) == 64


def test_sufficient_proposed_victims_are_kept():
    assert evicted(Node().full(), asking(TEN), "c1-0", "c1-1") == {"c1-0", "c1-1"}


def test_more_pods_of_a_card_are_evicted_if_the_proposed_do_not_suffice():
    node = Node()
    node.share("large", 0, 11)
    for card in (1, 2, 3):
        for i in range(2):
            node.share(f"c{card}-{i}", card, 7)

    assert evicted(node, asking({keys.GPU_MEM: 14}), "c2-0") == {"c2-0", "c2-1"}


def test_a_pod_that_fits_on_no_empty_card_has_no_victims():
    node = Node()
    for card in range(4):
        node.share(f"keep-{card}", card, 6, priority=100)
        node.share(f"low-{card}", card, 9)

    assert evicted(node, asking(TEN), "low-0", "low-1") is None


def test_pods_of_equal_or_higher_priority_are_no_victims():
    node = Node()
    for card, priority in enumerate((100, 200, 5, 100)):
        for i in range(3):
            node.share(f"c{card}-{i}", card, priority=priority)

    gone = evicted(node, asking(TEN), "c2-0", "c2-1")

    assert gone == {"c2-0", "c2-1"}
    assert evicted(node, asking(TEN, priority=5), "c2-0") is None


def test_victims_are_the_least_important_pods_of_a_card():
    node = Node()
    for priority in (3, 1, 2):
        node.share(f"p{priority}", 0, priority=priority)
    for card in (1, 2, 3):
        node.share(f"keep-{card}", card, 15, priority=100)

    assert evicted(node, asking(TEN), "p1") == {"p1", "p2"}


def test_the_most_important_victim_is_first():
    node = Node("topology")
    for card, priority in enumerate((3, 7, 7, 1)):
        node.whole(f"p{card}", card, priority=priority)

    found = preemption_of(node.state).run(
        asking({keys.GPU_WHOLE: 4}), {"a": victims("p0", "p2", "p3", "p1")}
    )

    assert [one.uid for one in found["a"].pods] == ["p1", "p2", "p0", "p3"]


def test_additional_victims_are_no_gang_members_if_another_card_suffices():
    node = Node()
    labels = {keys.POD_GROUP_NAME: "g", keys.POD_GROUP_MIN_AVAILABLE: "3"}
    for i in range(3):
        node.share(f"gang-{i}", 0, priority=1, labels=labels)
        node.share(f"alone-{i}", 1, priority=2)
    for card in (2, 3):
        node.share(f"keep-{card}", card, 15, priority=100)

    assert evicted(node, asking(TEN), "gone-already") == {"alone-1", "alone-2", "gone-already"}


def a_gang_of_four(elsewhere=False, priorities=(0, 0, 0, 0)):
    """Return a node full of a gang's members; one of them may be on another node."""
    node = Node("topology")
    node.state.update_node("b", a_node("b", a_machine(4), "topology"))
    labels = {keys.POD_GROUP_NAME: "g", keys.POD_GROUP_MIN_AVAILABLE: "4"}
    for i, priority in enumerate(priorities):
        node.whole(f"g-{i}", i, labels=labels, priority=priority)
    if elsewhere:
        limits = {keys.GPU_WHOLE: 1}
        node.put(placed_pod("g-4", limits, "b", GPUShare(0), labels=labels))
    return node


def test_no_node_is_offered_on_which_a_gang_would_lose_a_part():
    """The victims that a scheduler proposes for a single pod are half of a gang."""
    pod = asking({keys.GPU_WHOLE: 2})

    assert evicted(a_gang_of_four(elsewhere=True), pod, "g-0", "g-1") is None
    assert evicted(a_gang_of_four(priorities=(0, 0, 0, 100)), pod, "g-0", "g-1") is None


def test_a_gang_on_one_node_is_evicted_as_a_whole():
    gone = evicted(a_gang_of_four(), asking({keys.GPU_WHOLE: 2}), "g-0", "g-1")

    assert gone == {"g-0", "g-1", "g-2", "g-3"}


def test_single_pods_are_evicted_rather_than_a_gang_that_a_scheduler_proposes():
    node = Node("topology")
    labels = {keys.POD_GROUP_NAME: "g", keys.POD_GROUP_MIN_AVAILABLE: "2"}
    node.whole("g-0", 0, labels=labels)
    node.put(placed_pod("g-1", {keys.GPU_WHOLE: 1}, "b", GPUShare(0), labels=labels))
    for gpu in (1, 2):
        node.whole(f"single-{gpu}", gpu, priority=1)
    node.whole("keep", 3, priority=100)

    assert evicted(node, asking({keys.GPU_WHOLE: 2}), "g-0", "single-1") == {"single-1", "single-2"}
    assert evicted(node, asking({keys.GPU_WHOLE: 3}), "g-0", "single-1", "single-2") is None


@pytest.mark.parametrize(
    ("elsewhere", "gone"), [(True, None), (False, {"web", "g-0", "g-1", "g-2", "g-3"})]
)
def test_a_member_that_is_proposed_for_an_uncounted_resource_goes_with_its_gang_or_not_at_all(
    elsewhere, gone
):
    node = a_gang_of_four(elsewhere)
    node.put(a_pod({"cpu": 1}, name="web", nodeName="a"))

    assert evicted(node, asking({"cpu": 1}), "g-0", "web") == gone


def test_gangs_of_one_name_are_distinguished_by_their_owners():
    node = Node("topology")
    labels = {keys.POD_GROUP_NAME: "g", keys.POD_GROUP_MIN_AVAILABLE: "1"}
    for gpu in range(4):
        raw = placed_pod(f"g-{gpu}", {keys.GPU_WHOLE: 1}, "a", GPUShare(gpu), labels=labels)
        owner = {"kind": "Job", "name": "g", "uid": f"job-{gpu}", "controller": True}
        raw["metadata"]["ownerReferences"] = [owner]
        node.put(raw)

    assert evicted(node, asking({keys.GPU_WHOLE: 1}), "g-2") == {"g-2"}


@settings(max_examples=60)
@given(
    gangs=st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 2)), max_size=8),
    gpus=st.integers(1, 4),
    proposed=st.sets(st.integers(0, 7)),
)
def test_of_each_gang_all_or_none_are_victims(gangs, gpus, proposed):
    """Pods of gangs 0 to 2 and single pods, on two nodes."""
    node, free, members = Node("topology"), {"a": [0, 1, 2, 3], "b": [0, 1, 2, 3]}, {}
    node.state.update_node("b", a_node("b", a_machine(4), "topology"))
    for number, (gang, on_a, priority) in enumerate(gangs):
        where = "a" if on_a else "b"
        if not free[where]:
            continue
        labels = {keys.POD_GROUP_NAME: f"g{gang}", keys.POD_GROUP_MIN_AVAILABLE: "1"}
        raw = placed_pod(
            f"p{number}",
            {keys.GPU_WHOLE: 1},
            where,
            GPUShare(free[where].pop()),
            labels=labels if gang < 3 else {},
            priority=priority,
        )
        node.put(raw)
        members.setdefault(gang if gang < 3 else f"single-{number}", []).append((number, on_a))
    uids = [f"p{n}" for n in sorted(proposed) if (f"default/p{n}") in _names_on(node, "a")]

    gone = evicted(node, asking({keys.GPU_WHOLE: gpus}, priority=2), *uids)

    for unit in members.values():
        lost = {number for number, _ in unit if f"p{number}" in (gone or ())}
        assert not lost or all(on_a for _, on_a in unit)
        assert len(lost) in (0, len(unit))


def _names_on(node, name):
    return {usage.name for usage in node.state.usages.on(name)}


def test_victims_for_whole_gpus_have_whole_gpus():
    node = Node("topology")
    node.whole("pair", 0, 1)
    node.whole("other", 2)
    node.whole("keep", 3, priority=100)

    assert evicted(node, asking({keys.GPU_WHOLE: 2}), "pair") == {"pair"}
    assert evicted(node, asking({keys.GPU_WHOLE: 3}), "other") == {"other", "pair"}
    assert evicted(node, asking({keys.GPU_WHOLE: 4}), "other", "pair") is None


def test_victims_for_replicas_have_replicas_of_usable_gpus():
    node = Node("timeslice", cordoned=(3,), replicas=2)
    for gpu in range(4):
        node.replicas(f"first-{gpu}", gpu)
        node.replicas(f"second-{gpu}", gpu, priority=gpu)
    one = asking({keys.NVIDIA_GPU_SHARED: 1}, **TIMESLICED)

    # The scheduler counts those of the cordoned GPU, too.
    assert evicted(node, one, "first-3") == {"first-2"}
    assert evicted(node, one, "second-2") == {"second-2"}
    assert evicted(node, asking({keys.NVIDIA_GPU_SHARED: 7}, **TIMESLICED), "first-0") is None


def test_all_pods_of_one_kind_of_share_are_victims_for_the_other():
    node = Node("core_mem")
    for card in range(3):
        node.share(f"c{card}", card, 1)

    gone = evicted(node, asking({keys.GPU_MEM: 1, keys.GPU_CORE: 5}), "c0")

    assert gone == {"c0", "c1", "c2"}


def test_a_victim_for_an_uncounted_resource_stays_a_victim():
    node = Node()
    node.put(a_pod({"cpu": 1}, name="web", nodeName="a"))
    for card in range(4):
        node.share(f"c{card}", card, 15)

    gone = evicted(node, asking(TEN), "web", "unknown", "c0")

    assert gone == {"web", "unknown", "c0"}


def test_a_victim_for_cpu_is_reprieved_if_another_frees_enough():
    node = Node(cpu=4000)
    node.put(a_pod({"cpu": 2}, name="web", nodeName="a"))
    node.share("small", 0, 15)
    node.put(placed_pod("large", {keys.GPU_MEM: 15, "cpu": 2}, "a", GPUShare(1, None, 15)))
    for card in (2, 3):
        node.share(f"keep-{card}", card, 15, priority=100)
    pod = asking({keys.GPU_MEM: 10, "cpu": 2})

    assert evicted(node, pod, "web", "small") == {"web", "small"}
    assert evicted(node, pod, "large") == {"large"}


def test_amounts_include_unhealthy_cards_in_use():
    node = Node(unhealthy=(3,), resources={keys.GPU_MEM: 45})
    for i in range(3):
        node.share(f"broken-{i}", 3)
    for card in range(3):
        node.share(f"c{card}", card, 10)

    gone = evicted(node, asking(TEN), "c0")

    assert sum(10 if uid.startswith("c") else 5 for uid in gone) >= 10
    assert any(uid.startswith("c") for uid in gone)


def test_violated_budgets_are_those_that_the_scheduler_counted():
    proposed = {"a": victims("c0-0", "c0-1", violations=2), "gone": victims("x")}

    found = preemption_of(Node().full().state).run(asking(TEN), proposed)

    assert found.keys() == {"a"}
    assert found["a"].num_pdb_violations == 2


def test_victims_for_a_pod_without_placed_resources_are_unchanged():
    proposed = {"a": victims("c0-0"), "b": victims("x")}

    assert preemption_of(Node().full().state).run(asking({"cpu": 1}), proposed) == proposed


def test_request_changes_nothing():
    state = Node().full().state
    before = state.snapshot().ledger

    assert preemption_of(state).run(asking(TEN), {"a": victims("c0-2", "c3-2")})

    assert state.snapshot().ledger is before


def test_a_pod_with_gpus_has_victims_on_their_node_only():
    node = Node("topology")
    raw = placed_pod("asking", {keys.GPU_WHOLE: 2}, "a", GPUShare(0), GPUShare(1), bound=False)
    node.put(raw)
    proposed = {"a": victims("x"), "b": victims("y")}

    assert preemption_of(node.state).run(msgspec.convert(raw, Pod), proposed) == {"a": victims("x")}


@pytest.mark.parametrize(
    "limits", [{keys.GPU_MEM: 5, keys.GPU_CORE: 7}, {keys.GPU_WHOLE: 1}], ids=["rule", "mode"]
)
def test_an_infeasible_pod_has_no_victims(limits):
    assert evicted(Node().full(), asking(limits), "c0-0") is None


@settings(max_examples=60)
@given(
    pods=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 8), st.integers(0, 3)), max_size=12),
    memory=st.integers(1, 16),
    cards=st.integers(1, 2),
    proposed=st.sets(st.integers(0, 11)),
)
def test_victims_are_sufficient_and_minimal(pods, memory, cards, proposed):
    node, left = Node(), [15] * 4
    for number, (card, size, priority) in enumerate(pods):
        if left[card] >= size:
            left[card] -= size
            node.share(f"p{number}", card, size, priority=priority)
    labels = {keys.GPU_COUNT: str(cards)}
    pod = asking({keys.GPU_MEM: memory * cards}, priority=2)
    pod = msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels)
    )
    there = {one.uid: one.priority for one in node.state.usages.on("a")}
    uids = [f"p{n}" for n in sorted(proposed) if there.get(f"p{n}", 9) < 2]
    before = dict(node.state._pods)

    gone = evicted(node, pod, *uids)

    if gone is None:
        # Evicting all candidates does not help, or no eviction is needed.
        low = {uid for uid, priority in there.items() if priority < 2}
        assert not fits_without(node.state, pod, low) or _fits_again(node, before, pod, set())
        return
    assert all(there[uid] < 2 for uid in gone)
    assert _fits_again(node, before, pod, gone)
    for uid in gone - set(uids):
        assert not _fits_again(node, before, pod, gone - {uid})


def _fits_again(node, pods, pod, uids):
    for key, one in pods.items():
        node.state.update_pod(key, one)
    return fits_without(node.state, pod, uids)
