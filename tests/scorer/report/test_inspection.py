from dataclasses import replace

import msgspec
import pytest
from support.builders import a_counted_node, a_node, a_snapshot, workers

from linkwise.cluster.account.ledger import Ledger
from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.allocations.gpus import Counted, Exact, GPUShare
from linkwise.cluster.gang import GangKey, Link
from linkwise.cluster.keys import NVIDIA_GPU
from linkwise.cluster.nodes.device_pool import NO_SLICES
from linkwise.cluster.nodes.node import DevicePool
from linkwise.planning.gang.crd import Gang, GangMetadata, GangSpec, GangStatus, Phase
from linkwise.planning.gang.crd_plan import GangPlan, PlannedPod
from linkwise.planning.gang.pod_info import pod_info
from linkwise.planning.gang.unit import Unit
from linkwise.planning.placement.state.snapshot import snapshot_of
from scorer.report.inspection import view_gangs, view_nodes


def shown(view):
    return msgspec.json.decode(msgspec.json.encode(view))


def a_unit(name="bert", namespace="team", **given):
    members = tuple(workers(2))
    plain = {
        "key": GangKey(namespace, name, "7f3c"),
        "group": (namespace, name),
        "is_gang": True,
        "waiting": tuple(pod_info(member.pod) for member in members),
        "members": members,
        "settled": (),
        "needed": 4,
        "link": Link.BEST,
        "owner": None,
        "blocked": None,
    }
    return Unit(**{**plain, **given})


def a_gang(namespace, plan=None, **status):
    spec = GangSpec("bert", Link.BEST, 4, plan=plan)
    return Gang(GangMetadata("bert-1", namespace), spec, GangStatus(**status))


def test_a_gpu_has_its_holders():
    node = a_node("gpu-0", mode="core_mem", card_memory=16, uuids=True, cordoned=(7,))
    shares = (GPUShare(0, mem=4, core=20), GPUShare(3, mem=4, core=20))
    ledger = NodeLedger.empty(node).hold(Holding("team/a", "u1", Exact(shares), gang="team/bert"))

    view = shown(view_nodes(snapshot_of(Ledger({"gpu-0": ledger})), 3))

    assert view["term"] == 3
    (found,) = view["nodes"]
    assert (found["name"], found["mode"], found["unaccounted"]) == ("gpu-0", "core_mem", None)
    holder = {"pod": "team/a", "uid": "u1", "gang": "team/bert", "mem": 4, "core": 20}
    assert [gpu["holders"] for gpu in found["gpus"][:4]] == [[holder], [], [], [holder]]
    last = found["gpus"][7]
    assert (last["i"], last["uuid"], last["healthy"]) == (7, "GPU-gpu-0-7", True)
    assert last["cordoned"] is True


def test_pods_whose_gpus_nvidias_plugin_chooses_are_counted():
    held = Holding("team/a", "u1", Counted(NVIDIA_GPU, 2))
    ledger = NodeLedger.empty(a_counted_node("node-0")).hold(held)

    (found,) = shown(view_nodes(snapshot_of(Ledger({"node-0": ledger})), 1))["nodes"]

    assert found["gpus_free"] == 6
    assert found["counted"] == [{"pod": "team/a", "gpus": 2}]


@pytest.mark.parametrize("missing", [None, NO_SLICES])
def test_a_claims_node_has_the_name_of_its_pool_and_what_is_missing(missing):
    pool = DevicePool("pool-0", tuple(f"gpu-{i}" for i in range(8)), missing=missing)
    node = replace(a_node("gpu-0"), pool=pool)

    claims, exact = shown(view_nodes(a_snapshot(node, a_node("gpu-1")), 1))["nodes"]

    assert (claims["pool"], claims["missing"]) == ("pool-0", missing)
    assert (exact["pool"], exact["missing"]) == (None, None)


def test_nodes_with_gpus_are_shown_or_one_node_by_name():
    snapshot = a_snapshot(a_node("a"), a_node("b"), a_node("c", machine=None))

    assert [node["name"] for node in shown(view_nodes(snapshot, 1))["nodes"]] == ["a", "b"]
    assert [node["name"] for node in shown(view_nodes(snapshot, 1, "b"))["nodes"]] == ["b"]


def test_a_gang_has_its_phase_and_its_plan():
    plan = GangPlan("1-1", True, (PlannedPod("p", "u", "gpu-0", (0,)),), best_possible=55.2)
    gang = a_gang("team", plan, phase=Phase.WAITING, members="3/4", reason="3 of 4 members")

    (found,) = shown(view_gangs([gang, a_gang("other")], (), 1, "team"))["gangs"]

    assert (found["name"], found["object"]) == ("bert", "bert-1")
    assert (found["phase"], found["members"]) == ("Waiting", "3/4")
    assert found["reason"] == "3 of 4 members"
    assert found["plan"]["bestPossible"] == 55.2


def test_a_gang_without_a_status_is_assembling():
    (found,) = shown(view_gangs([a_gang("team")], (), 1))["gangs"]
    assert found["phase"] == "Assembling"


def test_a_waiting_unit_has_its_pods_and_its_reason():
    waiting = [(a_unit(), "2 of 4 members"), (a_unit(namespace="other"), "x")]

    (found,) = shown(view_gangs((), waiting, 1, "team"))["waiting"]

    assert (found["namespace"], found["name"], found["gang"]) == ("team", "bert", True)
    assert found["pods"] == ["worker-0", "worker-1"]
    assert (found["present"], found["needed"], found["reason"]) == (2, 4, "2 of 4 members")
    assert len(shown(view_gangs((), waiting, 1))["waiting"]) == 2
