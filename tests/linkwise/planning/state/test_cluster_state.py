import gc
import weakref
from dataclasses import replace
from itertools import chain

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.builders import a_member, a_node, a_pod, an_nvswitch_machine

from linkwise.cluster.account.accounting import ledger_of
from linkwise.cluster.allocations.gpus import Exact, GPUShare
from linkwise.cluster.allocations.record import Allocation, Isolation, format_record
from linkwise.cluster.keys import GANG, GPU_WHOLE, NVIDIA_GPU
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.request_reader import read_request
from linkwise.planning.gang.pod_info import pod_info
from linkwise.planning.placement.schedule import plan
from linkwise.planning.state.cluster_state import ClusterState
from linkwise.topology.table import CACHE_MAX, table_bytes

NODES = ("a", "b")
GPUS = st.integers(0, 3)


def recorded(name, uid, node="", gpus=(), phase="Pending", priority=0):
    raw = a_pod({GPU_WHOLE: len(gpus) or 1}, name=name, nodeName=node, priority=priority)
    raw["metadata"]["uid"] = uid
    raw["status"] = {"phase": phase}
    if gpus:
        given = Allocation(node or "a", Exact(tuple(GPUShare(i) for i in gpus)))
        raw["metadata"]["annotations"] = format_record(
            given,
            request=read_request(msgspec.convert(raw, Pod))[0],
            term=1,
            isolation=Isolation.NONE,
            now_ns=0,
            node_card_memory=None,
        )
    else:
        raw["spec"]["schedulingGates"] = [{"name": GANG}]
    return msgspec.convert(raw, Pod)


def allocation(node, *gpus):
    return Allocation(node, Exact(tuple(GPUShare(i) for i in gpus)))


class Writing(RuleBasedStateMachine):
    """Whatever comes in whatever order, the account is that of the pods and of our own writes."""

    def __init__(self):
        super().__init__()
        self.state = ClusterState()
        self.nodes, self.pods, self.ours = {}, {}, {}
        self.uids = 0
        self.before = {}

    @rule(name=st.sampled_from(NODES), there=st.booleans(), cordoned=st.booleans())
    def node(self, name, there, cordoned):
        node = a_node(name, cordoned=(0,) if cordoned else ()) if there else None
        self.state.update_node(name, node)
        self.nodes.pop(name, None)
        if node:
            self.nodes[name] = node

    @rule(
        name=st.sampled_from("xyz"),
        node=st.sampled_from(("", *NODES)),
        gpu=GPUS,
        again=st.booleans(),
        settled=st.booleans(),
        phase=st.sampled_from(("Running", "Failed")),
        priority=st.integers(-1, 1),
    )
    def pod(self, name, node, gpu, again, settled, phase, priority):  # noqa: PLR0917
        before = self.pods.get(name)
        if before is None or again:
            self.uids += 1
        uid = before.metadata.uid if before and not again else f"u{self.uids}"
        gpus = (gpu,) if settled else ()
        pod = recorded(name, uid, node if settled else "", gpus, phase, priority)
        if before and before.metadata.uid != uid:
            self.ours.pop(before.metadata.uid, None)
        if settled or phase == "Failed":
            self.ours.pop(uid, None)
        self.pods[name] = pod
        self.state.update_pod(("default", name), pod_info(pod))

    @rule(name=st.sampled_from("xyz"), node=st.sampled_from(NODES), priority=st.integers(-2, 1))
    def pod_of_others(self, name, node, priority):
        before = self.pods.get(name)
        if before is not None:
            self.ours.pop(before.metadata.uid, None)
        self.uids += 1
        raw = a_pod({NVIDIA_GPU: 1}, name=name, nodeName=node, priority=priority)
        raw["metadata"]["uid"] = f"u{self.uids}"
        self.pods[name] = pod = msgspec.convert(raw, Pod)
        self.state.update_pod(("default", name), pod_info(pod))

    @rule(name=st.sampled_from("xyz"))
    def delete(self, name):
        gone = self.pods.pop(name, None)
        self.state.update_pod(("default", name), None)
        if gone:
            self.ours.pop(gone.metadata.uid, None)

    @rule(name=st.sampled_from("xyz"), node=st.sampled_from(NODES), gpu=GPUS)
    def assume(self, name, node, gpu):
        pod = self.pods.get(name)
        if pod and pod_info(pod).waiting:
            self.state.assume(pod_info(pod), allocation(node, gpu))
            self.ours[pod.metadata.uid] = (node, gpu)

    @rule(name=st.sampled_from("xyz"))
    def forget(self, name):
        pod = self.pods.get(name)
        if pod:
            self.state.forget(pod_info(pod))
            self.ours.pop(pod.metadata.uid, None)

    @invariant()
    def accounts(self):
        pods = []
        for pod in self.pods.values():
            ours = self.ours.get(pod.metadata.uid)
            if ours:
                record = recorded(pod.metadata.name, pod.metadata.uid, ours[0], (ours[1],))
                spec = replace_node_name(record)
                pods.append(spec)
            else:
                pods.append(pod)
        expected = ledger_of(self.nodes.values(), pods)
        alone = {name: self.state.ledger(name) for name in NODES}
        conflicts = self.state.conflicts
        found = self.state.snapshot().ledger
        assert conflicts == found.conflicts
        assert alone == {name: found.nodes.get(name) for name in NODES}
        assert {n: x.node for n, x in found.nodes.items()} == self.nodes
        assert {n: x.taken for n, x in found.nodes.items()} == {
            n: x.taken for n, x in expected.nodes.items()
        }
        assert {n: x.holdings for n, x in found.nodes.items()} == {
            n: x.holdings for n, x in expected.nodes.items()
        }
        assert {n: x.unaccounted for n, x in found.nodes.items()} == {
            n: x.unaccounted for n, x in expected.nodes.items()
        }
        assert {one.pod for one in found.conflicts} == {one.pod for one in expected.conflicts}
        for name in set(NODES) - self.state.drain_dirty_nodes():
            assert alone[name] == self.before.get(name)
        self.before = alone
        assert self.state.snapshot().tables.keys() == self.nodes.keys()

    @invariant()
    def the_lowest_priority_is_that_of_the_pods_with_gpus(self):
        usages = list(chain.from_iterable(map(self.state.usages.on, NODES)))
        priorities = [usage.priority for usage in usages if usage.allocation]
        assert self.state.usages.lowest_priority(others=False) == min(priorities, default=None)
        others = [usage.priority for usage in usages if usage.is_of_others]
        lowest = min([*priorities, *others], default=None)
        assert self.state.usages.lowest_priority(others=True) == lowest


def replace_node_name(pod):
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))


TestWriting = Writing.TestCase
TestWriting.settings = settings(max_examples=60, stateful_step_count=30)


def test_the_snapshot_is_reused_while_nothing_changes():
    state = ClusterState()
    state.update_node("a", a_node("a"))
    first = state.snapshot()
    pod = pod_info(recorded("x", "1", "a", (1,)))
    state.update_pod(("default", "x"), pod)
    second = state.snapshot()

    state.update_pod(("default", "x"), replace(pod, created="later"))
    state.update_node("a", a_node("a"))

    assert state.snapshot() is second is not first


@pytest.mark.parametrize("node", ["a", ""], ids=["bound", "not bound yet"])
def test_a_node_is_accounted_again_once_a_duplicate_claim_is_deleted(node):
    state = ClusterState()
    state.update_node("a", a_node("a"))
    state.update_pod(("default", "x"), pod_info(recorded("x", "1", "a", (1,))))
    alone = state.ledger("a")
    state.update_pod(("default", "y"), pod_info(recorded("y", "2", node, (1, 2))))
    both = state.ledger("a"), state.snapshot().ledger.conflicts

    state.update_pod(("default", "y"), None)

    assert bool(both[0].unaccounted) == (node == "a")
    assert bool(both[1]) == (node == "")
    assert state.ledger("a") == alone
    assert state.snapshot().ledger.conflicts == ()


def test_a_conflicting_pod_is_accounted_once_the_other_is_deleted():
    state = ClusterState()
    state.update_node("a", a_node("a"))
    state.update_pod(("default", "x"), pod_info(recorded("x", "1", "a", (1,))))
    state.update_pod(("default", "y"), pod_info(recorded("y", "2", "", (1, 2))))
    assert "2" not in state.ledger("a").holdings

    state.update_pod(("default", "x"), None)

    assert "2" in state.ledger("a").holdings
    assert state.snapshot().ledger.conflicts == ()


def test_pods_that_name_unknown_nodes_leave_nothing_behind():
    state = ClusterState()
    for node in NODES:
        state.update_pod(("default", node), pod_info(recorded(node, node, node, (1,))))

    assert state.drain_dirty_nodes() == frozenset()
    assert [usage.uid for usage in state.usages.on("a")] == ["a"]
    for node in NODES:
        state.update_pod(("default", node), None)
    assert state.usages._by_node == {}


def test_deleted_node_is_dirty():
    state = ClusterState()
    state.update_node("a", a_node("a"))
    state.drain_dirty_nodes()

    state.update_node("a", None)

    assert state.drain_dirty_nodes() == {"a"}


def test_tables_of_machines_that_no_node_has_any_more_are_freed():
    state, seen = ClusterState(), []
    for links in range(1, 13):
        state.update_node("a", a_node("a", an_nvswitch_machine(16, links)))
        plan(state.snapshot(), [a_member(2), a_member(2)])
        seen.append(weakref.ref(state.table("a")))
    gc.collect()

    assert sum(one() is not None for one in seen) <= CACHE_MAX // table_bytes(16) + 1


def test_numbers_of_labels_that_nodes_had_are_not_kept(monkeypatch):
    monkeypatch.setattr("linkwise.planning.placement.state.node_cache.MAX_NUMBERS", 100)
    state = ClusterState()
    member = a_member(1, nodeSelector={"zone": "1"})
    for zone in range(300):
        state.update_node("a", replace(a_node("a"), labels={"zone": str(zone)}))
        plan(state.snapshot(), [member])

    assert len(state.snapshot().cache._numbers) <= 110


def test_other_gpus_of_an_unbound_pod_stay_assumed_until_the_watch_shows_them():
    state, key = ClusterState(), ("default", "x")
    state.update_node("a", a_node("a"))
    before = pod_info(recorded("x", "u", gpus=(0,)))
    state.update_pod(key, before)

    state.assume(before, allocation("a", 3))
    state.update_pod(key, pod_info(recorded("x", "u", gpus=(0,))))
    assert state.ledger("a").holdings["u"].gpus.indices == (3,)
    assert state.is_assumed(before)

    state.update_pod(key, pod_info(recorded("x", "u", gpus=(3,))))
    assert state.ledger("a").holdings["u"].gpus.indices == (3,)
    assert not state.is_assumed(before)


def waiting_with(rule):
    """Return a pod behind our gate with a rule about the pods of the app `db`."""
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}}
    affinity = {rule: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    gates = [{"name": GANG}]
    raw = a_pod({GPU_WHOLE: 1}, name="train", affinity=affinity, schedulingGates=gates)
    return pod_info(msgspec.convert(raw, Pod))


@pytest.mark.parametrize("is_ruled", [False, True])
def test_new_labels_of_a_running_pod_free_nothing_unless_a_pod_waits_for_them(is_ruled):
    """A tenant may change them several times a second."""
    state = ClusterState()
    state.update_node("a", a_node("a"))
    if is_ruled:
        waiting = waiting_with("podAntiAffinity")
        state.update_pod(waiting.key, waiting)
    versions = []
    for app in ("db", "web"):
        raw = a_pod({}, name="other", labels={"app": app}, nodeName="a")
        running = pod_info(msgspec.convert(raw, Pod))
        state.update_pod(running.key, running)
        versions.append(state.capacity_version)
    assert (versions[1] > versions[0]) is is_ruled


def test_pod_that_comes_may_let_one_fit_that_follows_it():
    state = ClusterState()
    state.update_node("a", a_node("a"))
    came = pod_info(recorded("db", "1", node="a", gpus=(0,)))
    state.update_pod(came.key, came)
    version = state.capacity_version
    follower = waiting_with("podAffinity")
    state.update_pod(follower.key, follower)
    assert state.capacity_version == version

    other = pod_info(recorded("other", "2", node="a", gpus=(1,)))
    state.update_pod(other.key, other)

    assert state.capacity_version > version
