"""A claims node of a fake cluster, with pods that get their GPUs by claims."""

import re
from contextlib import asynccontextmanager

from linkwise.cluster import keys
from support.builders import a_claimed_pod, a_held_pod
from support.dra import a_claim, a_device, a_slice
from support.servers.leader_harness import JOB, Cluster

SLICE = "/apis/resource.k8s.io/v1/resourceslices/gpu-0-gpu"


@asynccontextmanager
async def claims_cluster():
    """Serve a fake cluster with the APIs of DRA and one claims node."""
    async with Cluster() as running:
        running.serves_claims, running.taint_rules = True, "v1"
        claims_node(running)
        yield running


def claims_node(cluster, order=range(8)):
    """Create a node whose device gpu-N is the GPU at place N of an order."""
    amounts = {"cpu": "96", "memory": "768Gi", "pods": "110"}
    labels = {keys.NODE_MODE: "topology", keys.HOSTNAME: "gpu-0"}
    status = {"allocatable": amounts, "capacity": amounts}
    cluster.put("/api/v1/nodes/gpu-0", {"metadata": {"labels": labels}, "status": status})
    publish(cluster, order)


def publish(cluster, order=range(8), path=SLICE, **fields):
    """Let the driver publish the GPUs under these names."""
    devices = [a_device(i, name=f"gpu-{minor}") for minor, i in enumerate(order)]
    cluster.put(path, a_slice(*devices, node="gpu-0", **fields))


def pod(cluster, name, gpus, *, gang=None, size=2, owner=JOB, uid=None, priority=0):
    """Create a gated pod with a claim, of a gang if one is named."""
    labels = {keys.POD_GROUP_NAME: gang, keys.POD_GROUP_MIN_AVAILABLE: str(size)} if gang else {}
    raw, claimed = (
        a_held_pod(0, name, labels=labels, owner=owner if gang else None, uid=uid),
        a_claimed_pod(gpus),
    )
    claim = f"lw-{name.encode().hex():0>32}"
    raw["spec"] |= {
        **claimed["spec"],
        "priority": priority,
        "resourceClaims": [{"name": keys.POD_CLAIM, "resourceClaimName": claim}],
    }
    raw["metadata"]["annotations"] = claimed["metadata"]["annotations"]
    cluster.put(f"/api/v1/namespaces/team/pods/{name}", raw)


def claim_path(name):
    return f"/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/lw-{name.encode().hex():0>32}"


def selected(cluster, name):
    """Return the UUIDs that the claim of a pod selects."""
    return re.findall(r"'(GPU-[^']*)'", str(cluster.get(claim_path(name))))


def allocate(cluster, name, *devices, **result):
    """Allocate devices to the claim of a pod, as kube-scheduler does."""
    claim = cluster.get(claim_path(name))
    status = a_claim(*devices, node="gpu-0", **result)["status"]
    status["reservedFor"] = [{"resource": "pods", "name": name, "uid": name}]
    cluster.put(claim_path(name), {**claim, "status": status})
