"""A node that starts without one of its GPUs: claims and records of its pods still name it."""

import json

import pytest
from support.builders import a_claimed_pod
from support.dra import a_claim, a_device, a_slice

from linkwise.cluster import keys

NODE = "node-a"
PODS = {"ring-0": (4, 7), "ring-1": (5, 6), "wide": (0, 2, 3), "one": (1,)}
LOST = 3


def running(name, gpus):
    """Return a pod with a claim for these GPUs, and the claim."""
    raw = a_claimed_pod(len(gpus))
    record = {
        "v": 1,
        "node": NODE,
        "gpus": [{"i": i, "uuid": f"GPU-{i}"} for i in gpus],
        "plan": "0-1",
    }
    annotations = {**raw["metadata"]["annotations"], keys.ALLOCATION: json.dumps(record)}
    gang = {keys.POD_GROUP_NAME: "ring", keys.POD_GROUP_MIN_AVAILABLE: "2"}
    claim = a_claim(*(f"gpu-{i}" for i in gpus), node=NODE, name=f"lw-{name}", owner=name)
    reference = {"name": keys.POD_CLAIM, "resourceClaimName": f"lw-{name}"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": name,
            "annotations": annotations,
            "labels": gang if name.startswith("ring") else {},
        },
        "spec": {**raw["spec"], "nodeName": NODE, "resourceClaims": [reference]},
        "status": {"phase": "Running"},
    }
    return [pod, claim]


@pytest.fixture
def cluster(write):
    metadata = {"name": NODE, "labels": {keys.NODE_MODE: "topology"}}
    amounts = {"cpu": "96", "memory": "768Gi", "pods": "110"}
    node = {"metadata": metadata, "status": {"allocatable": amounts, "capacity": amounts}}
    objects = [
        {"apiVersion": "v1", "kind": "Node", **node},
        a_slice(*(a_device(i) for i in range(8) if i != LOST), node=NODE),
        *(one for name, gpus in PODS.items() for one in running(name, gpus)),
    ]
    return write("cluster.yaml", "\n---\n".join(map(json.dumps, objects)))


def test_the_gang_beside_it_is_explained_with_its_links(linkwise, cluster):
    text = linkwise("explain", "gang", "team/ring", "--cluster", str(cluster)).out
    assert "placed gang team/ring on node-a" in text
    assert "GB/s modelled all-reduce bandwidth" in text
    assert "unhealthy" not in text


def test_the_pod_that_has_it_is_unhealthy(linkwise, cluster):
    text = linkwise("explain", "pod", "team/wide", "--cluster", str(cluster)).out
    assert "It has unhealthy GPUs: 3 of node-a (pod wide)" in text


def test_it_is_closed_and_its_node_is_not(linkwise, cluster):
    shown = linkwise("inspect", "--cluster", str(cluster))
    assert "0 of 8 GPUs free" in shown.out
    assert "unaccounted" not in shown.out
    assert "GPU3: the driver's slices do not have gpu-3 now" in shown.err


def test_others_do_not_get_it(linkwise, cluster, write):
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "late", "namespace": "team"}}
    container = {"name": "c", "image": "x", "resources": {"limits": {keys.NVIDIA_GPU: 1}}}
    file = write("pod.yaml", json.dumps({**pod, "spec": {"containers": [container]}}))
    shown = linkwise("simulate", str(file), "--cluster", str(cluster))
    assert "too few free GPUs" in shown.out
