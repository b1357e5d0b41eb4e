"""Records of other machines: what explains, inspects or draws a cluster survives each of them."""

import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from support.any_input import is_told, ran
from support.dra import a_claim, a_device, a_slice

from linkwise.cluster import keys
from linkwise.cluster.nodes.topology_configmap import PublishedTopology, write_published
from linkwise.dashboard.moment import Moment
from linkwise.dashboard.node_view import node_view
from linkwise.manifest.objects import objects_in
from linkwise.planning.gang.health import Links, fault_text, faults_of, slower_gpus, unplanned_gpus
from linkwise.planning.gang.pod_info import pod_info
from linkwise.planning.state.cluster_state import ClusterState
from linkwise.topology.catalogue import entry
from linkwise.topology.machine import GPU
from linkwise.views.files.cluster_file import collect_objects
from linkwise.views.files.current_cluster import current_cluster
from scorer.report.inspection import view_nodes

AGENT = entry("v100x4-p3").machine
NODES = st.sampled_from(["claims", "agent", "short", "gone"])
UUIDS = st.integers(0, 11).map("GPU-{}".format) | st.none()
GPUS = st.lists(st.tuples(st.integers(0, 15), UUIDS), min_size=1, max_size=4)
MODES = {"topology": keys.GPU_WHOLE, "share": keys.GPU_MEM}


@st.composite
def a_pod(draw, index):
    name, node = f"p-{index}", draw(NODES)
    shares = draw(GPUS)
    mem = draw(st.none() | st.integers(1, 64))
    gpus = [
        {"i": i} | ({"uuid": uuid} if uuid else {}) | ({"mem": mem} if mem else {})
        for i, uuid in shares
    ]
    count = draw(st.integers(1, 9)) if draw(st.booleans()) else None
    record = {"v": 1, "node": node, "plan": "1-1"}
    record |= {"gpus": None, "count": count} if count else {"gpus": gpus}
    by_claim = draw(st.booleans())
    resource = keys.GPU_MEM if mem else keys.GPU_WHOLE
    container = {"name": "c", "resources": {"limits": {resource: len(shares)}}}
    claims = {}
    annotations = {keys.ALLOCATION: json.dumps(record)}
    if by_claim:
        container["resources"] = {"claims": [{"name": "linkwise", "request": "container-0"}]}
        claims = {"resourceClaims": [{"name": "linkwise", "resourceClaimName": f"lw-{index}"}]}
        annotations[keys.CLAIMED_GPUS] = json.dumps({"container-0": len(shares)})
    if draw(st.booleans()):
        annotations |= {keys.GANG: "ring", keys.GANG_SIZE: "2"}
    bound = {"nodeName": draw(NODES) if draw(st.booleans()) else node}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "uid": name, "annotations": annotations},
        "spec": {"containers": [container], **claims, **(bound if draw(st.booleans()) else {})},
        "status": {"phase": "Running"},
    }
    devices = [f"gpu-{i}" for i in draw(st.sets(st.integers(0, 11), max_size=4))]
    claim = a_claim(*devices, node="claims", name=f"lw-{index}", owner=name)
    return [pod, claim] if by_claim and devices else [pod]


@st.composite
def clusters(draw):
    """Objects of a cluster: three nodes with some GPUs, and pods with records of any machine."""
    present = draw(st.sets(st.integers(0, 8), max_size=8))
    labels = {keys.NODE_MODE: "topology"}
    published = PublishedTopology(
        replace(AGENT, gpus=tuple(GPU(uuid=f"GPU-{i}") for i in range(4))), (True,) * 4
    )
    objects = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        for name in ("claims", "agent")
    ]
    objects[1]["status"] = {"capacity": {keys.GPU_WHOLE: "4"}}
    objects += [
        a_slice(*(a_device(i) for i in present), node="claims"),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "agent-topology",
                "namespace": "kube-system",
                "labels": {**labels, keys.TOPOLOGY_NODE: "agent"},
            },
            "data": write_published(published, [[0.0] * 4] * 4),
        },
        {
            "apiVersion": "linkwise.dev/v1alpha1",
            "kind": "Cluster",
            "nodes": [
                {
                    "name": "short",
                    "machine": draw(st.sampled_from(["t4x4", "dgx1-v100"])),
                    "mode": draw(st.sampled_from(["topology", "share", "default"])),
                    "gpuMemory": 15,
                }
            ],
        },
    ]
    for index in range(draw(st.integers(1, 4))):
        objects += draw(a_pod(index))
    return objects


@settings(max_examples=50)
@given(clusters())
def test_any_record_is_explained_and_inspected(objects):
    text = "\n---\n".join(map(json.dumps, objects))
    pods = [one for one in objects if one["kind"] == "Pod"]
    gangs = any(keys.GANG in pod["metadata"]["annotations"] for pod in pods)
    units = [("pod", f"team/{pod['metadata']['name']}") for pod in pods]
    for kind, name in [*units, *([("gang", "team/ring")] if gangs else [])]:
        is_told(*ran("explain", kind, name, "--cluster", "-", "-o", "json", stdin=text))
        assert "internal error" not in ran("explain", kind, name, "--cluster", "-", stdin=text)[2]
    is_told(*ran("inspect", "--cluster", "-", "-o", "json", stdin=text))
    for options in (["-d"], ["--slots"], ["--format", "gpushare", "-d"], ["-o", "html"]):
        assert "internal error" not in ran("inspect", "--cluster", "-", *options, stdin=text)[2]


@settings(max_examples=50)
@given(clusters())
def test_any_record_is_drawn_on_the_page_and_reported_by_the_scorer(objects):
    text = "\n---\n".join(map(json.dumps, objects))
    collected = collect_objects(objects_in(text, "c.yaml"), "c.yaml")
    current = current_cluster(collected, "default", "c.yaml")
    moment = Moment(current, 0.0)
    for name in current.cluster.ledger.nodes:
        view = node_view(moment, name)
        assert view is None or view.report.name == name
    assert moment.rows.keys() <= current.cluster.ledger.nodes.keys()

    state = ClusterState()
    for pod in current.cluster.pods:
        info = pod_info(pod)
        state.update_pod(info.key, info)
    for node in current.cluster.nodes:
        state.update_node(node.name, node)
    snapshot = state.snapshot()
    with_gpus = {node.node.name for node in snapshot.nodes if node.has_gpus}
    assert {node.name for node in view_nodes(snapshot, 0).nodes} == with_gpus
    pods = state.pods
    links = Links(snapshot.tables.get, None)
    faults = faults_of(pods, state.ledger) | slower_gpus(pods, state.ledger, links)
    assert all(fault.gpu is None or fault.gpu < 16 for fault in faults)
    assert isinstance(fault_text(pods, state.ledger), str)
    assert isinstance(unplanned_gpus(pods, state.ledger, links), str)
