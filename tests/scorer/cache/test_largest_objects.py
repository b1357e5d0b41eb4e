"""Memory that informers keep of the largest objects that an API server stores."""

import gc
import json
import tracemalloc

import pytest

from linkwise.cluster import keys, volume_keys
from linkwise.planning.state.workloads import read_job, read_stateful_set
from scorer.cache.claims.claim_informer import ClaimInformer, read_claim
from scorer.cache.nodes.node_informer import read_config_map, read_node
from scorer.cache.pods.partial_pod import read_pod
from scorer.cache.volumes.volume_informer import read_claim as read_volume_claim
from scorer.cache.volumes.volume_informer import read_class, read_limits, read_volume
from scorer.cache.workloads.budget_informer import read_budget

MIB = 1 << 20
OBJECTS = 20
KEPT = 16 << 10
"""The most that is kept of an object that tenants write, however large it is [bytes]."""
LARGE = 1 << 20
"""About the size of each object [bytes]; an API server stores 1.5 MiB."""


def labels():
    """Return labels of a megabyte."""
    return {f"example.com/{'x' * 40}-{number}": "y" * 60 for number in range(LARGE // 110)}


def values():
    return [f"{number:x>60}" for number in range(LARGE // 63)]


def large_metadata(name):
    text = "z" * (LARGE // 4)
    return {"name": name, "namespace": "team", "labels": labels(), "annotations": {"text": text}}


def budget(name):
    many = {"key": "app", "operator": "In", "values": values()}
    spec = {"selector": {"matchExpressions": [many]}}
    return {"metadata": {"name": name, "namespace": "team"}, "spec": spec}


def short_budget(name):
    """Return a budget with very many short values."""
    apps = [f"{number:x}" for number in range(LARGE // 8)]
    wanted = {"matchExpressions": [{"key": "app", "operator": "In", "values": apps}]}
    return {"metadata": large_metadata(name), "spec": {"selector": wanted}}


def short_labels(name):
    """Return a pod with GPUs that has very many short labels."""
    made = bound(name)
    made["metadata"]["labels"] = {f"{number:x}": "y" for number in range(LARGE // 12)}
    return made


def long_budget(name):
    apps = [f"{name}-{number:x>40}" for number in range(75)]
    wanted = {"matchExpressions": [{"key": "app", "operator": "In", "values": apps}]}
    return {"metadata": large_metadata(name), "spec": {"selector": wanted}}


def pod(name, **spec):
    limits = {"limits": {keys.GPU_WHOLE: "1"}}
    containers = [{"name": "main", "resources": limits}]
    return {"metadata": large_metadata(name), "spec": {"containers": containers, **spec}}


def waiting(name):
    return pod(name, schedulingGates=[{"name": keys.GANG}])


def bound(name):
    return pod(name, nodeName="gpu-0")


def of_others(name):
    """Return a pod without GPUs."""
    return {
        "metadata": large_metadata(name),
        "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
    }


def node(name):
    labels_ = {**labels(), keys.NODE_MODE: "topology"}
    metadata = {**large_metadata(name), "labels": labels_}
    taints = [{"key": f"k{i}", "value": "v" * 60, "effect": "NoSchedule"} for i in range(1000)]
    amounts = {f"example.com/{i:x>50}": "1" for i in range(2000)}
    return {"metadata": metadata, "spec": {"taints": taints}, "status": {"allocatable": amounts}}


def topology(name):
    metadata = {"name": name, "namespace": keys.TOPOLOGY_NAMESPACE}
    metadata["labels"] = {keys.NODE_MODE: "topology", keys.TOPOLOGY_NODE: name}
    return {"metadata": metadata, "data": {"devices": "x" * LARGE, "other": "y" * 1000}}


def workload(name):
    template = {"metadata": large_metadata(name), "spec": {"containers": []}}
    return {"metadata": large_metadata(name), "spec": {"template": template, "replicas": 2}}


def claim(name):
    results = [
        {"driver": keys.DRA_GPU_DRIVER, "pool": "x" * 60, "device": f"gpu-{i}", "request": "r" * 60}
        for i in range(32)
    ]
    status = {"allocation": {"devices": {"results": results}}}
    return {"metadata": large_metadata(name), "spec": {}, "status": status}


def naming_claims(name):
    """Return a placed pod that names very many claims."""
    named = [
        {"name": f"v{i}", "persistentVolumeClaim": {"claimName": f"{i:x>250}"}}
        for i in range(LARGE // 300)
    ]
    return pod(name, nodeName="gpu-0", volumes=named)


def volume_claim(name):
    long = "c" * (LARGE // 4)
    selector = {"matchExpressions": [{"key": "disk", "operator": "In", "values": values()}]}
    spec = {"volumeName": long, "storageClassName": long, "selector": selector}
    return {"metadata": large_metadata(name), "spec": {**spec, "accessModes": [long] * 3}}


def volume(name):
    """Return a volume with the largest choice of nodes that is kept, and very many labels."""
    hosts = [f"{name}-{i:x>40}" for i in range(300)]
    wanted = {"matchExpressions": [{"key": keys.HOSTNAME, "operator": "In", "values": hosts}]}
    csi = {"driver": "d" * LARGE, "volumeHandle": f"{name:h>100000}"}
    spec = {"csi": csi, "nodeAffinity": {"required": {"nodeSelectorTerms": [wanted]}}}
    return {"metadata": large_metadata(name), "spec": spec, "status": {"phase": "Available"}}


def storage_class(name):
    zones = [f"{name}-{i:x>40}" for i in range(300)]
    allowed = [{"matchLabelExpressions": [{"key": volume_keys.ZONE, "values": zones}]}]
    return {"metadata": large_metadata(name), "provisioner": "p", "allowedTopologies": allowed}


def csi_node(name):
    drivers = [
        {"name": f"{name}-{i:x>40}", "nodeID": name, "allocatable": {"count": 1}}
        for i in range(LARGE // 100)
    ]
    return {"metadata": large_metadata(name), "spec": {"drivers": drivers}}


def slices(name):
    def device(number):
        attributes = {f"{'x' * 80}-{i}": {"string": f"{name}-{number}-{i:y>40}"} for i in range(28)}
        texts = {"type": {"string": "gpu"}, "uuid": {"string": f"GPU-{name}-{number}"}}
        return {"name": f"gpu-{number}", "attributes": {**texts, **attributes}}

    devices = [device(number) for number in range(128)]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 32}
    spec = {"driver": keys.DRA_GPU_DRIVER, "nodeName": name, "pool": pool, "devices": devices}
    return {"metadata": large_metadata(name), "spec": spec}


@pytest.mark.parametrize(
    ("read", "make", "most"),
    [
        pytest.param(read_pod, waiting, KEPT, id="waiting pod"),
        pytest.param(read_pod, bound, KEPT, id="bound pod"),
        pytest.param(read_pod, of_others, KEPT, id="pod without GPUs"),
        pytest.param(read_job, workload, KEPT, id="job"),
        pytest.param(read_stateful_set, workload, KEPT, id="statefulset"),
        pytest.param(read_pod, short_labels, KEPT, id="bound pod with short labels"),
        pytest.param(read_budget, budget, KEPT, id="budget"),
        pytest.param(read_budget, short_budget, KEPT, id="budget of short values"),
        pytest.param(read_budget, long_budget, KEPT, id="budget within the limit"),
        pytest.param(read_claim, claim, KEPT, id="claim"),
        pytest.param(read_pod, naming_claims, KEPT, id="pod with claims"),
        pytest.param(read_volume_claim, volume_claim, KEPT, id="volume claim"),
        pytest.param(read_volume, volume, 4 * KEPT, id="volume"),
        pytest.param(read_class, storage_class, 4 * KEPT, id="class"),
        pytest.param(read_limits, csi_node, KEPT, id="limits of a node"),
        # A kubelet writes one Node, and slices of this size in all.
        pytest.param(read_node, node, 4 * MIB, id="node"),
        pytest.param(ClaimInformer(None, None).read_slice, slices, MIB, id="slice"),
    ],
)
def test_little_is_kept_of_large_objects(read, make, most):
    raws = [json.dumps(make(f"large-{number}")).encode() for number in range(OBJECTS)]
    read(raws[0])  # Caches of the first use do not count.
    tracemalloc.start()
    try:
        items = [read(raw) for raw in raws]
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert None not in items
    assert kept < OBJECTS * most


def test_a_topology_that_no_agent_would_publish_is_not_read():
    raw = json.dumps(topology("gpu-0")).encode()
    with pytest.raises(ValueError, match="at most 256 KiB"):
        read_config_map(raw)
