import msgspec
import pytest
from support.builders import a_node, a_pod, a_snapshot
from support.fleet_map import the_map

from linkwise.admission.decide.outcome import Outcome, Verdict
from linkwise.cluster import keys
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.request_reader import read_request
from linkwise.views.analysis.pending import FITS, pending_units
from linkwise.views.analysis.planner_view import planner_view
from linkwise.views.analysis.simulation import AdmittedPod, simulate
from linkwise.views.live.kubeconfig import Access
from linkwise.views.live.load import load_cluster

CLUSTER = """
apiVersion: linkwise.dev/v1alpha1
kind: Cluster
nodes:
  - {name: dgx, machine: dgx1-v100, mode: topology, cpu: 96, memory: 768Gi, used: [{gpu: 0}]}
"""
POD = """
---
apiVersion: v1
kind: Pod
metadata:
  name: NAME
  namespace: team
  creationTimestamp: "2026-11-22T10:00:00Z"
  annotations: {linkwise.dev/gang: NAME, linkwise.dev/gang-size: "SIZE"}
spec:
  schedulingGates: [{name: linkwise.dev/gang}]
  containers: [{name: c, resources: {limits: {aliyun.com/gpu: GPUS}}}]
"""


@pytest.fixture
def waiting(write):
    def units(*pods: tuple[str, int, int]):
        text = CLUSTER
        for name, size, gpus in pods:
            text += POD.replace("NAME", name).replace("SIZE", str(size)).replace("GPUS", str(gpus))
        file = write("cluster.yaml", text)
        return {
            one.name: one
            for one in pending_units(planner_view(load_cluster(Access(), str(file)), 0))
        }

    return units


def test_pending_units_have_reason_and_never_flag(waiting):
    waiting_units = waiting(("small", 1, 2), ("full", 1, 8), ("huge", 1, 64), ("alone", 2, 1))

    assert waiting_units["small"].reason == FITS
    assert "8 GPUs on one node" in waiting_units["full"].reason
    assert waiting_units["alone"].reason == "1 of 2 members"
    assert {name for name, one in waiting_units.items() if one.never} == {"huge"}
    assert waiting_units["full"].since == "2026-11-22T10:00:00Z"


def test_no_pending_units_without_waiting_pods(waiting):
    assert waiting() == {}


def test_the_page_of_inspect_names_nodes_holders_and_what_waits(linkwise, write):
    text = POD.replace("NAME", "full").replace("SIZE", "1").replace("GPUS", "8")
    write("cluster.yaml", CLUSTER + text)

    ran = linkwise("inspect", "--cluster", "cluster.yaml", "-o", "html", "--to", "page.html")

    assert (ran.code, ran.out, ran.err) == (0, "", "")
    page = (write("x", "").parent / "page.html").read_text()
    assert "<h1>7 of 8 GPUs free, 1 gang waiting</h1>" in page
    assert "linkwise inspect --cluster cluster.yaml" in page
    assert [row[0] for row in the_map(page)["rows"]] == ["dgx"]
    assert "<bdi>others</bdi>" in page
    assert "8 GPUs on one node" in page


def test_the_page_of_a_cluster_without_gpus_says_so(linkwise, write):
    write("cluster.yaml", "{apiVersion: v1, kind: Node, metadata: {name: plain}}")

    ran = linkwise("inspect", "--cluster", "cluster.yaml", "-o", "html")

    assert "<h1>No node of this cluster has GPUs</h1>" in ran.out


def test_results_keep_only_the_nodes_of_their_plan():
    nodes = [a_node(f"n-{i}", "dgx1-v100") for i in range(3)]
    pods = [
        msgspec.convert(a_pod({keys.GPU_WHOLE: gpus}, name=f"p-{place}"), Pod)
        for place, gpus in enumerate((8, 8, 8, 8, 8, 16))
    ]
    outcomes = [Outcome(Verdict.ALLOWED, request=read_request(pod)[0]) for pod in pods]

    result = simulate(
        a_snapshot(*nodes),
        [AdmittedPod(pod, "default", one) for pod, one in zip(pods, outcomes, strict=True)],
    )

    placed = [unit for unit in result.units if unit.plan]
    assert [list(unit.seen.ledger.nodes) for unit in placed] == [["n-0"], ["n-1"], ["n-2"]]
    left = [unit for unit in result.units if not unit.plan]
    assert all(unit.seen is result.before for unit in left)
    assert [unit.never for unit in left] == [False, False, True]
    assert left[0].reason == left[1].reason
    assert left[1].reason != left[2].reason
