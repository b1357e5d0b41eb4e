"""No number in an object ends the leader, or the planning of others.

The integers are found in the types that decode the objects, so that a new field is among them.
"""

import json
from contextlib import asynccontextmanager

import msgspec
import pytest
from structlog.testing import capture_logs
from support.builders import a_container, a_held_pod
from support.dra import a_device, a_slice
from support.integers import VALUES, integers, with_number
from support.servers.claims_cluster import claims_cluster
from support.servers.claims_cluster import pod as claimed_pod
from support.servers.leader_harness import Clock, Cluster, leading
from support.waiting import until

from linkwise.cluster import keys
from linkwise.cluster.gang import GangKey
from linkwise.cluster.nodes.node_resources import NodeObject
from linkwise.cluster.nodes.resource_slice import SliceObject
from linkwise.cluster.objects.disruption_budget import DisruptionBudget
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.scorer_lease import LEASE
from linkwise.planning.gang import compact_pod
from linkwise.planning.gang.crd import Gang, name_of
from linkwise.planning.gang.owners import Owners
from linkwise.planning.gang.pod_info import pod_info
from linkwise.planning.gang.unit import units_of
from linkwise.workloads.members import declared
from linkwise.workloads.pod_group import PodGroup
from linkwise.workloads.registry import KINDS
from scorer.preemption.record import Record

OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web"}
PODS = "/api/v1/namespaces/team/pods"
GANGS_OF_TEAM = "/apis/linkwise.dev/v1alpha1/namespaces/team/gangs"
EVERY = pytest.mark.parametrize("number", VALUES)


def changed(raw, number):
    """Return a pod for each place of a number, which stands there; also of those in texts."""
    pods = [with_number(raw, place, number) for place in integers(Pod)]
    for part, known in (("labels", compact_pod._LABELS), ("annotations", compact_pod._ANNOTATIONS)):
        for key in known:
            texts = {**(raw["metadata"].get(part) or {}), key: str(number)}
            pods.append({**raw, "metadata": {**raw["metadata"], part: texts}})
    return pods


def a_running(name, node, gpus=8):
    """Return a pod that runs on the first GPUs of a node, by our record."""
    record = {"v": 1, "node": node, "gpus": [{"i": i} for i in range(gpus)]}
    annotations = {keys.ALLOCATION: json.dumps(record), keys.TERM: "6"}
    fields = {"nodeName": node, "priority": -5, "gates": (), "phase": "Running"}
    return a_held_pod(gpus, name, owner=OWNER, annotations=annotations, **fields)


def faults(logs):
    """Return what was logged with an exception."""
    return [line for line in logs if line.get("exc_info")]


@asynccontextmanager
async def served(cluster, term=7, clock=None):
    """Lead while the block runs; then a pod that comes is placed, and nothing was a fault."""
    before = (cluster.get(LEASE) or {}).get("metadata", {})
    cluster.put(LEASE, {"metadata": before, "spec": {"leaseTransitions": term}})
    with capture_logs() as logs:
        async with leading(cluster, term=term, clock=clock) as leader:
            yield leader
            cluster.node("free", 8, sign="free")
            cluster.pod("sign", 8, nodeSelector={"sign": "free"}, priority=100, uid=None)
            await until(lambda: leader.task.done() or cluster.allocated("sign"))
            assert not leader.task.done()
            cluster.delete("sign")
            cluster.remove("/api/v1/nodes/free")
    assert faults(logs) == []


@EVERY
async def test_no_number_of_a_pod_ends_the_leader(number):
    async with Cluster() as cluster:
        cluster.policy("gangs: {preemption: {minRunMinutes: 0}}")
        plain = a_held_pod(1, "x", owner=OWNER)
        for at, raw in enumerate(changed(plain, number)):
            cluster.put(
                f"{PODS}/waits-{at}", raw | {"metadata": raw["metadata"] | {"uid": f"waits-{at}"}}
            )
        for at in range(len(changed(plain, number))):
            node = f"gpu-{at}"
            cluster.node(node, pinned=node)
            raw = changed(a_running(f"victim-{at}", node), number)[at]
            cluster.put(f"{PODS}/victim-{at}", raw)
            cluster.pod(f"high-{at}", 8, priority=1000, nodeSelector={"pinned": node})
        grace = [place[-1] for place in integers(Pod)].index("terminationGracePeriodSeconds")
        async with served(cluster) as leader:
            await until(lambda: leader.task.done() or cluster.allocated(f"high-{grace}"))
        # The next leader reads the same objects, and what this one recorded.
        async with served(cluster, term=8):
            pass


@EVERY
async def test_no_number_of_a_budget_ends_the_leader(number):
    async with Cluster() as cluster:
        cluster.policy("gangs: {preemption: {minRunMinutes: 0}}")
        for at, place in enumerate(integers(DisruptionBudget)):
            cluster.node(f"gpu-{at}")
            raw = a_running(f"victim-{at}", f"gpu-{at}")
            raw["metadata"]["labels"] = {"app": f"a{at}"}
            cluster.put(f"{PODS}/victim-{at}", raw)
            spec = {"selector": {"matchLabels": {"app": f"a{at}"}}}
            path = f"/apis/policy/v1/namespaces/team/poddisruptionbudgets/b{at}"
            cluster.put(path, with_number({"metadata": {}, "spec": spec}, place, number))
        cluster.pod("high", 8, priority=10)
        async with served(cluster) as leader:
            await until(lambda: leader.task.done() or cluster.events())


@EVERY
async def test_no_number_of_a_node_ends_the_leader(number):
    labels = (keys.GFD_COUNT, keys.GFD_MEMORY, keys.GFD_REPLICAS)
    async with Cluster() as cluster:
        cluster.node("plain")
        plain = cluster.get("/api/v1/nodes/plain")
        for at, place in enumerate(integers(NodeObject)):
            raw = with_number(plain, place, number)
            cluster.put(f"/api/v1/nodes/int-{at}", raw)
            text = json.loads(json.dumps(raw).replace(f": {number}", f': "{number}"'))
            cluster.put(f"/api/v1/nodes/text-{at}", text)
        for at, label in enumerate(labels):
            cluster.node(f"label-{at}", **{label: str(number), keys.NODE_MODE: "timeslice"})
            cluster.node(f"share-{at}", **{label: str(number), keys.NODE_MODE: "core_mem"})
        for at in range(1, 20):
            cluster.pod(f"waits-{at}", at)
        async with served(cluster):
            pass


@EVERY
async def test_no_number_of_a_slice_ends_the_leader(number):
    devices = [a_device(i) for i in range(8)]
    async with claims_cluster() as cluster:
        for at, place in enumerate(integers(SliceObject)):
            node = f"gpu-{at + 1}"
            cluster.put(f"/api/v1/nodes/{node}", cluster.get("/api/v1/nodes/gpu-0"))
            path = f"/apis/resource.k8s.io/v1/resourceslices/{node}"
            cluster.put(path, with_number(a_slice(*devices, node=node), place, number))
            claimed_pod(cluster, f"claimed-{at}", 8)
        async with served(cluster) as leader:
            await until(lambda: leader.task.done() or cluster.allocated("claimed-0"))


HEALING = "gangs: {onFault: evict, onFaultSeconds: 1, maxConcurrentMoves: 100}"


def a_gang(at):
    """Return a gang of two, with a plan for the first half of a node, and its pod there."""
    raw, uid, node = a_running(f"g{at}-0", f"gpu-{at}", 4), f"job-{at}", f"gpu-{at}"
    record = json.loads(raw["metadata"]["annotations"][keys.ALLOCATION]) | {"plan": "6-1"}
    raw["metadata"]["annotations"][keys.ALLOCATION] = json.dumps(record)
    raw["metadata"]["labels"] = {keys.POD_GROUP_NAME: f"g{at}", keys.POD_GROUP_MIN_AVAILABLE: "2"}
    owner = {**OWNER, "uid": uid, "name": f"g{at}"}
    raw["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    members = [
        {"pod": f"g{at}-{i}", "uid": f"g{at}-{i}", "node": node, "gpus": [4 * i]} for i in range(2)
    ]
    plan = {"id": "6-1", "exact": True, "members": members}
    spec = {"gang": f"g{at}", "link": "best", "size": 2, "owner": uid, "plan": plan}
    held = [{"node": node, "gpus": [0]}]
    status = {"phase": "Waiting", "held": held, "reserved": held}
    path = f"{GANGS_OF_TEAM}/{name_of(GangKey('team', f'g{at}', uid))}"
    return raw, owner, path, {"metadata": {}, "spec": spec, "status": status}


def a_faulty_node(cluster, name):
    """Add a node whose first GPU is not healthy."""
    cluster.node(name)
    namespace, faults = keys.TOPOLOGY_NAMESPACE, f"{keys.UNHEALTHY_NAME_PREFIX}{name}"
    body = {"metadata": {"name": faults, "namespace": namespace}, "data": {keys.UNHEALTHY_KEY: "0"}}
    cluster.put(f"/api/v1/namespaces/{namespace}/configmaps/{faults}", body)


@EVERY
async def test_no_number_of_a_gang_ends_the_leader_also_while_it_leaves_a_broken_gpu(number):
    async with Cluster() as cluster:
        cluster.policy(HEALING)
        for at, place in enumerate(integers(Gang)):
            a_faulty_node(cluster, f"gpu-{at}")
            raw, owner, path, gang = a_gang(at)
            cluster.put(f"{PODS}/g{at}-0", raw)
            cluster.pod(f"g{at}-1", 4, gang=f"g{at}", owner=owner)
            cluster.put(path, with_number(gang, place, number))
        async with served(cluster):
            pass


@EVERY
async def test_no_number_of_a_pod_ends_the_healing_of_its_gang(number):
    clock = Clock()
    async with Cluster() as cluster:
        cluster.policy(HEALING)
        count = len(changed(a_gang(0)[0], number))
        for at in range(count + 1):
            a_faulty_node(cluster, f"gpu-{at}")
            raw, _, path, gang = a_gang(at)
            cluster.put(f"{PODS}/g{at}-0", changed(raw, number)[at] if at < count else raw)
            other = a_running(f"g{at}-1", f"gpu-{at}", 4)
            for part in ("labels", "ownerReferences"):
                other["metadata"][part] = raw["metadata"][part]
            cluster.put(f"{PODS}/g{at}-1", other)
            cluster.put(path, gang)
        async with served(cluster, clock=clock) as leader:
            clock.now += 60
            evicted = f"{PODS}/g{count}-0/eviction"
            await until(
                lambda: leader.task.done() or any(path == evicted for _, path, _ in cluster.writes)
            )


@EVERY
async def test_no_number_in_the_record_of_the_last_leader_ends_the_next_one(number):
    async with Cluster() as cluster:
        cluster.node()
        cluster.node("gpu-1")
        cluster.put(f"{PODS}/victim", a_running("victim", "gpu-0"))
        cluster.put(f"{PODS}/other", a_running("other", "gpu-1"))
        cluster.pod("high", 8, priority=10)
        member = {"pod": "high", "uid": "high", "node": "gpu-0", "gpus": [0]}
        plain = {
            "unit": ["team", "high", "high"],
            "members": [member],
            "victims": [["victim"]],
            "until": 2_000_000_000,
        }
        for place in [("until",), *integers(Record)]:
            records = json.dumps([with_number(plain, place, number)])
            cluster.put(LEASE, {"metadata": {"annotations": {keys.NOMINATIONS: records}}})
            async with served(cluster):
                pass


TEMPLATE = {"spec": {"containers": [a_container({keys.GPU_WHOLE: 1})]}}
SETS = {"Worker": {"replicas": 2, "template": TEMPLATE}}
JOB = {"spec": {"parallelism": 2, "completions": 2, "template": TEMPLATE}}
WORKLOAD = {
    "metadata": {"name": "w", "uid": "w"},
    "spec": {
        **JOB["spec"],
        **{f"{kind}ReplicaSpecs": SETS for kind in ("mpi", "pytorch", "tf")},
        "replicas": 2,
        "replicatedJobs": [{"name": "w", "replicas": 2, "template": JOB}],
        "leaderWorkerTemplate": {"size": 2, "workerTemplate": TEMPLATE},
        "tasks": [{"name": "w", "replicas": 2, "template": TEMPLATE}],
        "jobTemplate": JOB,
    },
}
"""The fields of all kinds at once: each reads its own."""
SIZED = [
    pytest.param(kind, place, id=f"{kind.group}/{kind.name}:{place}")
    for kind in KINDS
    for place in integers(kind.shape)
]


@pytest.mark.parametrize(("kind", "place"), SIZED)
def test_no_number_of_an_owner_is_a_fault(kind, place):
    for number in VALUES:
        raw = with_number(WORKLOAD, place, number)
        try:
            workload = msgspec.convert(raw, kind.shape)
        except msgspec.ValidationError:
            continue
        found = declared(kind, workload, "w")
        owners = Owners({}, {"w": found.members}, {"w": found.expected})
        mark = {keys.POD_GROUP_NAME: "w"}
        owner = {"apiVersion": f"{kind.group}/v1", "kind": kind.name, "name": "w", "uid": "w"}
        pod = pod_info(msgspec.convert(a_held_pod(1, "w-0", labels=mark, owner=owner), Pod))
        (unit,) = units_of([pod], owners)
        assert unit.members


@EVERY
def test_no_number_of_a_pod_group_is_a_fault(number):
    for place in integers(PodGroup):
        try:
            group = msgspec.convert(with_number({}, place, number), PodGroup)
        except msgspec.ValidationError:
            continue
        assert group.members is None or group.members > 0
