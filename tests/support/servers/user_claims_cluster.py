"""Pods of a fake cluster that bring claims, or templates from which these are made."""

import json

from linkwise.cluster import keys
from support.builders import a_held_pod
from support.servers.leader_harness import JOB

GPU = "gpu.nvidia.com"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims"
CLASS = f"/apis/resource.k8s.io/v1/deviceclasses/{GPU}"
EVERY = f"device.driver == '{GPU}' && device.attributes['{GPU}'].type == 'gpu'"


def a_gpu_class(*expressions, **spec):
    selectors = [{"cel": {"expression": text}} for text in expressions or (EVERY,)]
    return {"metadata": {"name": GPU}, "spec": {"selectors": selectors, **spec}}


def a_claim_spec(count=1, **exactly):
    request = {"deviceClassName": GPU, "allocationMode": "ExactCount", "count": count, **exactly}
    return {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}


def a_templated_pod(
    name, gpus, *, gang=None, size=2, selectors=(), references=("gpus",), entries=None, claim=None
):
    """Return a gated pod as admission leaves it, of a gang if one is named.

    `entries` replace those that the annotation has for GPUs and references. It names `claim`, or a
    template.
    """
    labels = {keys.POD_GROUP_NAME: gang, keys.POD_GROUP_MIN_AVAILABLE: str(size)} if gang else {}
    raw = a_held_pod(0, name, labels=labels, owner=JOB if gang else None)
    entries = entries or {f"{reference}/gpu": gpus for reference in references}
    entries |= {"selectors": selectors} if selectors else {}
    raw["metadata"]["annotations"] = {keys.CLAIMED_GPUS: json.dumps(entries)}
    source = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": "template"}
    raw["spec"]["resourceClaims"] = [{"name": reference, **source} for reference in references]
    claims = [{"name": reference} for reference in references]
    raw["spec"]["containers"][0]["resources"] = {"claims": claims}
    return raw


def pod(cluster, name, gpus, **options):
    """Create such a pod, whose claim is not made yet."""
    cluster.put(f"/api/v1/namespaces/team/pods/{name}", a_templated_pod(name, gpus, **options))


def claim_path(name, reference="gpus"):
    return f"{CLAIMS}/{name}-{reference}-x7k2p"


def make_claim(cluster, name, spec=None, *, owner=None, gpus=1, status=None, reference="gpus"):
    """Create the claim of a pod, and name it in the status of the pod."""
    uid = owner or name
    owned_by = {"apiVersion": "v1", "kind": "Pod", "name": uid, "uid": uid, "controller": True}
    metadata = {
        "ownerReferences": [owned_by],
        "annotations": {"resource.kubernetes.io/pod-claim-name": reference},
    }
    cluster.put(
        claim_path(name, reference),
        {"metadata": metadata, "spec": spec or a_claim_spec(gpus), "status": status or {}},
    )
    name_claim(cluster, name, reference)


def name_claim(cluster, name, reference="gpus"):
    made = {
        "name": reference,
        "resourceClaimName": claim_path(name, reference).rpartition("/")[2],
    }
    waiting = cluster[name]
    before = waiting.get("status", {}).get("resourceClaimStatuses", ())
    statuses = [*(one for one in before if one["name"] != reference), made]
    status = {**waiting.get("status", {}), "resourceClaimStatuses": statuses}
    cluster.put(f"/api/v1/namespaces/team/pods/{name}", {**waiting, "status": status})


def an_allocation(*devices, node="gpu-0", request="gpu"):
    """Return an allocation of devices of a node."""
    selected = {"key": "metadata.name", "operator": "In", "values": [node]}
    results = [
        {"request": request, "driver": GPU, "pool": node, "device": device} for device in devices
    ]
    return {
        "devices": {"results": results},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [selected]}]},
    }


def reserved(name):
    return [{"resource": "pods", "name": name, "uid": name}]


def devices(cluster, name, reference="gpus"):
    """Return the devices of a claim of a pod; None: it is not allocated."""
    allocation = cluster.get(claim_path(name, reference)).get("status", {}).get("allocation")
    return allocation and [result["device"] for result in allocation["devices"]["results"]]
