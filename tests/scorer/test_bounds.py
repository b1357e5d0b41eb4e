"""The largest objects that an API server stores: reading and planning them stays linear.

docs/loop-bounds.md names these tests. Work is counted in calls of functions, Python's and C's: of
twice as much, at most some more than twice as many.
"""

import json
import sys
from pathlib import Path

import msgspec
import pytest
from support.builders import (
    a_held_pod,
    a_member,
    a_node,
    a_seen,
    a_snapshot,
    an_nvswitch_machine,
    exact,
)
from support.counting import calls

from linkwise.cluster import keys
from linkwise.cluster.account.accounting import account
from linkwise.cluster.account.node_ledger import Holding
from linkwise.cluster.account.pod_usage import pod_usage
from linkwise.cluster.nodes.node import Taint
from linkwise.cluster.nodes.node_resources import NodeObject
from linkwise.cluster.nodes.topology_configmap import read_published
from linkwise.cluster.objects.metadata import Owner
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.demand import HostPort, PortsTaken
from linkwise.cluster.requests.request_reader import read_request
from linkwise.planning.cycle.cycle import SchedulingCycle
from linkwise.planning.gang.crd import read_gang
from linkwise.planning.gang.crd_plan import GangPlan, PlannedPod
from linkwise.planning.gang.joint import joint_gangs
from linkwise.planning.gang.lost_members import lost_members
from linkwise.planning.gang.owners import Owners
from linkwise.planning.gang.patches import allocation_patch
from linkwise.planning.gang.pod_info import pod_info
from linkwise.planning.gang.unit import units_of
from linkwise.planning.placement.pods.group import new_group
from linkwise.planning.placement.preemption.search import Eviction, find_victims
from linkwise.planning.placement.preemption.victim import Disruptions, Victim, VictimPod
from linkwise.planning.placement.result import Refusal
from linkwise.planning.state.node_info import NodeConfigMap, build_node
from linkwise.policy.snapshot import PolicySnapshot
from linkwise.workloads.kinds.kubeflow import TF_JOB
from linkwise.workloads.members import declared
from linkwise.workloads.pod_group import PodGroup
from scorer.extender.wire import read_candidates

STORED = 1_500_000
"""The largest object that an API server stores [bytes]."""
NO_OWNERS = Owners({}, {})
DOCS = Path(__file__).parents[2] / "docs" / "loop-bounds.md"


def is_linear(half, whole):
    half()
    return calls(whole) <= 2.2 * calls(half) + 2000


def filled(part, full):
    """Return the number of parts of an object of the largest size, or of half of it."""
    return STORED // (len(json.dumps(part)) + 2) // (1 if full else 2)


def repeated(make, *, full):
    return [make(i) for i in range(filled(make(10_000), full))]


def of_keys(make, *, full):
    parts = filled([make(10_000), "v"], full)
    return {make(i): "v" for i in range(parts)}


def a_container(**fields):
    return {"name": "c", "resources": {"limits": {keys.GPU_WHOLE: 1}}, **fields}


def required(terms):
    selector = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": selector}


def expression(i):
    return {"matchExpressions": [{"key": f"k{i}", "operator": "In", "values": ["a"]}]}


PODS = {
    "tolerations": lambda full: {
        "tolerations": repeated(lambda i: {"key": f"k{i}", "operator": "Exists"}, full=full)
    },
    "node selector": lambda full: {"nodeSelector": of_keys(lambda i: f"k{i}", full=full)},
    "affinity terms": lambda full: {"affinity": required(repeated(expression, full=full))},
    "affinity values": lambda full: {
        "affinity": required(
            [
                {
                    "matchExpressions": [
                        {
                            "key": "k",
                            "operator": "NotIn",
                            "values": repeated(lambda i: f"v{i}", full=full),
                        }
                    ]
                }
            ]
        )
    },
    "host ports": lambda full: {
        "containers": [
            a_container(
                ports=repeated(lambda i: {"containerPort": 1, "hostPort": i % 65535}, full=full)
            )
        ]
    },
    "ports of the host's network": lambda full: {
        "hostNetwork": True,
        "containers": [
            a_container(ports=repeated(lambda i: {"containerPort": i % 65535}, full=full))
        ],
    },
    "containers": lambda full: {
        "containers": [
            a_container(),
            *repeated(lambda i: {"name": f"c{i}", "resources": {"limits": {"cpu": 1}}}, full=full),
        ]
    },
    "init containers": lambda full: {
        "initContainers": repeated(
            lambda i: {"name": f"c{i}", "restartPolicy": "Always"}, full=full
        ),
        "containers": [a_container()],
    },
    "containers with GPUs": lambda full: {
        "containers": repeated(lambda i: {**a_container(), "name": f"c{i}"}, full=full)
    },
    "env": lambda full: {
        "containers": [
            a_container(env=repeated(lambda i: {"name": f"v{i}", "value": "x"}, full=full))
        ]
    },
    "resource names": lambda full: {
        "containers": [a_container(resources={"limits": of_keys(lambda i: f"k{i}", full=full)})]
    },
    "volumes": lambda full: {
        "volumes": repeated(
            lambda i: {"name": f"v{i}", "persistentVolumeClaim": {"claimName": "c"}}, full=full
        )
    },
    "spread constraints": lambda full: {
        "topologySpreadConstraints": repeated(
            lambda i: {"maxSkew": 1, "topologyKey": f"k{i}"}, full=full
        )
    },
    "scheduling gates": lambda full: {
        "schedulingGates": [
            {"name": keys.GANG},
            *repeated(lambda i: {"name": f"example.com/{i}"}, full=full),
        ]
    },
    "labels": lambda full: {"labels": of_keys(lambda i: f"k{i}", full=full)},
    "annotations": lambda full: {"annotations": of_keys(lambda i: f"k{i}", full=full)},
    "owner references": lambda full: {
        "owners": repeated(
            lambda i: {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": f"u{i}"}, full=full
        )
    },
    "a record": lambda full: {
        "annotations": {
            keys.ALLOCATION: json.dumps(
                {
                    "v": 1,
                    "node": "node-0",
                    "gpus": [{"i": i % 8} for i in range(4000 if full else 2000)],
                }
            )
        }
    },
}


def the_pod(full, spec):
    owners, spec = spec(full).get("owners"), dict(spec(full))
    spec.pop("owners", None)
    raw = a_held_pod(1, "w", **spec)
    if "schedulingGates" in spec:
        raw["spec"]["schedulingGates"] = spec["schedulingGates"]
    if owners:
        raw["metadata"]["ownerReferences"] = owners
    return json.dumps(raw).encode()


@pytest.mark.no_cover
@pytest.mark.parametrize("spec", PODS.values(), ids=PODS)
def test_a_pod_is_read_and_planned_in_time_linear_in_its_size(spec):
    tainted = tuple(Taint(f"t{i}", "", "NoSchedule") for i in range(3))
    snapshot = a_snapshot(a_node("node-0", taints=tainted), a_node("node-1"))
    half, whole = the_pod(False, spec), the_pod(True, spec)

    def work(raw):
        def planned():
            pod = msgspec.json.decode(raw, type=Pod)
            units = units_of([pod_info(pod)], NO_OWNERS)
            cycle = SchedulingCycle(is_starving=lambda _: True)
            for unit in units:
                cycle.decide(snapshot, unit)
            if units:
                allocation_patch(pod, "node-0", {})

        return planned

    assert is_linear(work(half), work(whole))


@pytest.mark.parametrize(
    "spec",
    [PODS[name] for name in ("tolerations", "node selector", "affinity terms", "affinity values")],
    ids=["tolerations", "node selector", "affinity terms", "affinity values"],
)
def test_a_pod_with_oversized_node_terms_is_compared_with_no_node(spec):
    (unit,) = units_of([pod_info(msgspec.json.decode(the_pod(True, spec), type=Pod))], NO_OWNERS)

    outcome = SchedulingCycle(is_starving=lambda _: True).decide(a_snapshot(a_node()), unit)

    assert isinstance(outcome, Refusal)
    assert "it is too large to plan" in outcome.reason


def test_ports_of_many_pods_are_compared_in_time_linear_in_their_number():
    def work(number):
        ports = [HostPort(f"10.0.{i % 200}.1", "TCP", 1 + i) for i in range(number)]
        return lambda: PortsTaken(ports).conflict(ports[:1] * number)

    assert is_linear(work(10_000), work(20_000))


def a_worker(i, size):
    labels = {keys.POD_GROUP_NAME: "g", keys.POD_GROUP_MIN_AVAILABLE: str(size)}
    return msgspec.convert(a_held_pod(1, f"w-{i}", labels=labels), Pod)


def test_a_gang_is_assembled_in_time_linear_in_its_size():
    def work(size):
        pods = [a_worker(i, size) for i in range(size)]
        return lambda: new_group(units_of(map(pod_info, pods), NO_OWNERS)[0].members)

    assert is_linear(work(1000), work(2000))


def test_pod_of_a_gang_is_parsed_once_until_it_is_planned():
    parsed = []
    sys.setprofile(lambda frame, event, _: event == "call" and parsed.append(frame.f_code))
    try:
        pods = [pod_info(a_worker(i, 2)) for i in range(2)]
        assert [unit.blocked for unit in units_of(pods, NO_OWNERS)] == [None]
        units_of(pods, NO_OWNERS)
    finally:
        sys.setprofile(None)
    assert parsed.count(read_request.__code__) == 2


def test_a_node_is_accounted_in_time_linear_in_its_pods():
    def work(number):
        pods = [a_held_pod(0, f"p-{i}", gates=(), nodeName="node-0") for i in range(number)]
        claimants = [pod_usage(msgspec.convert(pod, Pod)) for pod in pods]
        return lambda: account(a_node(), claimants)

    assert is_linear(work(1000), work(2000))


def test_a_node_is_read_in_time_linear_in_its_labels_and_taints():
    def work(full):
        labels = of_keys(lambda i: f"k{i}", full=full)
        taints = [{"key": f"k{i}", "effect": "NoSchedule"} for i in range(1000 if full else 500)]
        raw = {
            "metadata": {"name": "n", "labels": {keys.NODE_MODE: "topology", **labels}},
            "spec": {"taints": taints},
            "status": {"allocatable": {keys.GPU_WHOLE: "8"}},
        }
        text = json.dumps(raw).encode()
        return lambda: build_node(msgspec.json.decode(text, type=NodeObject), {}, PolicySnapshot())

    assert is_linear(work(False), work(True))


@pytest.mark.parametrize(
    "data",
    [
        lambda n: {keys.TOPOLOGY_DEVICES: json.dumps({f"k{i}": "Healthy" for i in range(n)})},
        lambda n: {keys.TOPOLOGY_LINKS: json.dumps([["X"] * n])},
        lambda n: {keys.UNHEALTHY_KEY: ",".join(["9"] * n)},
    ],
    ids=["health", "links", "unhealthy"],
)
def test_config_maps_of_a_node_are_read_in_time_linear_in_their_size(data):
    def work(n):
        config_map = NodeConfigMap(data=data(n))
        return lambda: read_published(config_map.data)

    assert is_linear(work(20_000), work(40_000))


def test_owners_and_podgroups_are_read_in_time_linear_in_their_size():
    def work(full):
        roles = repeated(lambda i: {"replicas": i, "template": {"spec": {}}}, full=full)
        spec = {"tfReplicaSpecs": {f"r{i}": role for i, role in enumerate(roles)}}
        text = json.dumps({"metadata": {"uid": "u"}, "spec": spec}).encode()
        group = json.dumps({"spec": {"minMember": 1 << 62}}).encode()

        def read():
            declared(TF_JOB, TF_JOB.decoder.decode(text), "u")
            assert msgspec.json.decode(group, type=PodGroup).members == 1 << 62

        return read

    assert is_linear(work(False), work(True))


def test_of_a_chain_of_owners_a_few_are_followed():
    owners = Owners({str(i): Owner(kind="Job", uid=str(i + 1)) for i in range(10_000)}, {})

    assert owners.top(Owner(kind="Job", uid="0")).uid == "8"


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet"])
def test_owners_of_one_mark_are_compared_with_few_gangs(kind):
    def work(full):
        labels = {keys.POD_GROUP_NAME: "g", keys.POD_GROUP_MIN_AVAILABLE: "900"}
        pods = [
            a_seen(
                1,
                f"p-{i}",
                labels=labels,
                owner={"apiVersion": "apps/v1", "kind": kind, "name": f"a-{i}", "uid": f"u{i}"},
            )
            for i in range(600 if full else 300)
        ]
        owners = Owners({}, {}, totals={f"u{i}": 1 for i in range(600)})
        return lambda: joint_gangs(pods, owners)

    assert is_linear(work(False), work(True))


def test_a_gang_object_is_read_in_time_linear_in_its_members():
    def work(full):
        member = {"pod": "p", "uid": "u", "node": "n", "gpus": [1]}
        plan = {"id": "1-1", "exact": True, "members": [member] * filled(member, full)}
        text = json.dumps({"metadata": {}, "spec": {"gang": "g", "link": "best", "plan": plan}})
        return lambda: read_gang(text.encode())

    assert is_linear(work(False), work(True))


def test_lost_members_are_found_in_time_linear_in_their_number():
    def work(n):
        members = tuple(PlannedPod(f"w-{i}", f"w-{i}", "n", (0,)) for i in range(n))
        plan = GangPlan("1-1", exact=True, members=members)
        pods = [a_seen(1, f"w-{i}", nodeName="n") for i in range(n // 2)]
        return lambda: lost_members(plan, pods, n)

    assert is_linear(work(500), work(1000))


def test_an_extender_request_is_read_in_time_linear_in_its_names():
    def work(n):
        body = {"Pod": a_held_pod(1, "w"), "NodeNames": [f"node-{i}" for i in range(n)]}
        text = json.dumps(body).encode()
        return lambda: read_candidates(text)

    assert is_linear(work(20_000), work(40_000))


def test_the_table_names_existing_tests():
    lines = DOCS.read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.endswith("| test |")]
    tests = {part.strip("` ") for row in rows for part in row.split("|")[5].split(",")}

    missing = [name for name in tests if not _is_there(name)]
    assert (len(rows) > 20, missing) == (True, [])


def _is_there(name):
    path, _, test = name.partition("::")
    file = Path(__file__).parents[1] / f"{path}.py"
    return file.exists() and f"def {test}(" in file.read_text(encoding="utf-8")


def test_victims_are_searched_in_time_linear_in_the_number_of_pods():
    machine = an_nvswitch_machine(8, 12)

    def search(count):
        nodes = [a_node(f"n{i}", machine) for i in range(count)]
        pods = [
            VictimPod(node.name, Holding(f"o/{node.name}-{i}", f"{node.name}-{i}", exact(i)), 0.0)
            for node in nodes
            for i in range(8)
        ]
        units = [Victim(pod.holding.pod, 0, (pod,)) for pod in pods]
        snapshot = a_snapshot(*nodes).hold_all((pod.node, pod.holding) for pod in pods)
        found = find_victims(snapshot, [a_member(4, priority=1)], units, Disruptions(1.0))
        assert isinstance(found, Eviction)
        assert len(found.victims) == 4

    assert is_linear(lambda: search(150), lambda: search(300))
