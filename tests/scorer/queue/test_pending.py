import pytest
from prometheus_client import CollectorRegistry
from support.builders import a_seen

from linkwise.cluster import keys
from linkwise.cluster.objects.metadata import Owner
from linkwise.planning.gang.joint import joint_gangs
from linkwise.planning.gang.owners import Owners
from linkwise.planning.placement.result import Refusal
from linkwise.planning.state.cluster_state import ClusterState
from scorer.metrics import Metrics
from scorer.queue.fault_isolation import FaultIsolation
from scorer.queue.pending import ClosedNodes, PendingUnits

JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "bert", "uid": "job"}
LABELS = {keys.POD_GROUP_NAME: "bert", keys.POD_GROUP_MIN_AVAILABLE: "1"}
NO = Refusal("no")
A, B, NONE = frozenset({"a"}), frozenset({"b"}), frozenset()
OPEN = ClosedNodes()


class Pods:
    """A cluster state, its pending units, and the known owners."""

    def __init__(self):
        self.state, self.controllers = ClusterState(), {}
        faults = FaultIsolation(Metrics(CollectorRegistry()), lambda: None)
        self.pending = PendingUnits(self.state, Owners(self.controllers, {}), faults)

    def put(self, name, there=True, **pod):
        pod = a_seen(1, name, **pod) if there else None
        self.state.update_pod(("team", name), pod)

    def assemble(self, *reowned):
        return self.pending.assemble(self.state.groups.drain_dirty(), set(reowned))

    def units(self):
        return {unit.key.name: unit for unit in self.pending}


@pytest.fixture
def pods():
    return Pods()


def test_only_changed_groups_are_assembled_again(pods):
    pods.put("one")
    pods.put("two")
    pods.assemble()
    before = pods.units()
    pods.put("two", created="2026-01-02T00:00:00Z")
    pods.assemble()

    after = pods.units()
    assert after["one"] is before["one"]
    assert after["two"] is not before["two"]


def test_a_key_is_gone_once_it_has_no_pods(pods):
    for name in ("bert-0", "bert-1"):
        pods.put(name, labels=LABELS, owner=JOB)
    assert pods.assemble() == frozenset()
    pods.put("bert-0", there=False)
    assert pods.assemble() == frozenset()
    pods.put("bert-1", there=False)

    assert {key.name for key in pods.assemble()} == {"bert"}
    assert pods.assemble() == frozenset()
    assert pods.units() == {}


def test_a_key_is_gone_although_another_unit_has_its_name(pods):
    for uid in ("first", "second"):
        pods.put(f"bert-{uid}", labels=LABELS, owner={**JOB, "uid": uid})
    pods.put("alone", uid="first")
    assert pods.assemble() == frozenset()
    pods.put("bert-first", there=False)
    pods.put("alone", uid="second")

    assert {(key.name, key.owner) for key in pods.assemble()} == {
        ("bert", "first"),
        ("alone", "first"),
    }
    assert pods.assemble() == frozenset()
    pods.put("bert-second", there=False)
    assert {key.name for key in pods.assemble()} == {"bert"}


def test_a_gang_without_pending_pods_is_not_gone(pods):
    pods.put("bert-0", labels=LABELS, owner=JOB)
    pods.assemble()
    pods.put("bert-0", labels=LABELS, owner=JOB, gates=(), nodeName="node-0")

    assert pods.assemble() == frozenset()
    assert pods.units() == {}
    pods.put("bert-0", labels=LABELS, owner=JOB, gates=(), phase="Failed")
    assert pods.assemble() == frozenset()
    pods.put("bert-0", there=False)
    assert {key.name for key in pods.assemble()} == {"bert"}


def test_a_gang_has_another_key_once_the_owner_of_its_job_is_known(pods):
    pods.put("bert-0", labels=LABELS, owner=JOB)
    pods.put("alone")
    pods.assemble()
    alone = pods.units()["alone"]
    pods.controllers["job"] = Owner(kind="JobSet", name="set", uid="set")
    pods.assemble("another")
    assert pods.units()["bert"].key.owner == "job"

    assert {key.owner for key in pods.assemble("job")} == {"job"}

    assert pods.units()["bert"].key.owner == "set"
    assert pods.units()["alone"] is alone
    before = pods.units()["bert"]
    pods.assemble("set")
    assert pods.units()["bert"] is not before


@pytest.mark.parametrize(
    ("excluded", "holds"),
    [pytest.param(NONE, True, id="no node"), pytest.param(A, False, id="a node is excluded")],
)
def test_a_cached_refusal_holds_while_the_same_nodes_are_excluded(pods, excluded, holds):
    pods.put("one")
    pods.assemble()
    (unit,) = pods.pending
    pods.pending.refuse(unit, NO, OPEN)

    assert (pods.pending.cached_refusal(unit, ClosedNodes(excluded)) is NO) is holds


def test_only_units_that_came_changed_or_left_are_drained(pods):
    pods.put("one")
    pods.put("two")
    pods.assemble()
    came, left = pods.pending.drain()
    assert ({unit.key.name for unit in came}, left) == ({"one", "two"}, frozenset())
    pods.put("one", there=False)
    pods.put("two", priority=1)
    pods.assemble()

    came, left = pods.pending.drain()
    assert [unit.key.name for unit in came] == ["two"]
    assert {key.name for key in left} == {"one"}
    assert pods.pending.drain() == ((), frozenset())


def test_only_changed_members_of_a_gang_are_read_again(pods):
    pods.put("one", labels=LABELS, owner=JOB)
    pods.put("two", labels=LABELS, owner=JOB)
    pods.assemble()
    (before,) = pods.pending
    pods.put("two", labels=LABELS, owner=JOB, created="2026-01-02T00:00:00Z")
    pods.assemble()
    (after,) = pods.pending

    kept = [member in map(id, before.members) for member in map(id, after.members)]
    assert dict(zip([pod.name for pod in after.waiting], kept, strict=True)) == {
        "one": True,
        "two": False,
    }


@pytest.mark.parametrize(
    ("then", "now", "holds"),
    [
        pytest.param(NONE, A, True, id="nodes were reserved since"),
        pytest.param(A, A, True, id="same reservation"),
        pytest.param(A, B, False, id="other reservation"),
        pytest.param(A, NONE, False, id="reservation ended"),
    ],
)
def test_a_cached_refusal_holds_while_no_node_is_opened(pods, then, now, holds):
    pods.put("one")
    pods.assemble()
    (unit,) = pods.pending

    pods.pending.refuse(unit, NO, ClosedNodes(reserved=then))

    assert (pods.pending.cached_refusal(unit, ClosedNodes(reserved=now)) is NO) is holds


def test_a_cached_refusal_is_dropped_with_its_unit(pods):
    pods.put("one")
    pods.assemble()
    (unit,) = pods.pending
    pods.pending.refuse(unit, NO, OPEN)
    assert pods.pending.reason(unit) == "no"
    pods.put("one", priority=1)
    pods.assemble()
    (unit,) = pods.pending

    assert pods.pending.cached_refusal(unit, OPEN) is None
    pods.pending.accept(unit)
    assert pods.pending.reason(unit) == "queued"


def test_the_keys_of_owners_that_share_a_gang_are_gone_with_their_pods():
    several, joint = Pods(), {}
    several.pending = PendingUnits(
        several.state,
        Owners({}, {}, joint=joint),
        FaultIsolation(Metrics(CollectorRegistry()), lambda: None),
        lambda _: joint.update(joint_gangs(several.state.pods, Owners({}, {}))),
    )
    labels = {keys.POD_GROUP_NAME: "bert", keys.POD_GROUP_MIN_AVAILABLE: "2"}
    for name in ("ps", "worker"):
        several.put(name, labels=labels, owner={**JOB, "name": name, "uid": name})
    several.assemble()

    (unit,) = several.pending
    assert (unit.key.owner, len(unit.waiting), unit.blocked) == ("ps", 2, None)
    several.put("ps", there=False)
    several.put("worker", there=False)
    assert {key.owner for key in several.assemble()} == {"ps", "worker"}
