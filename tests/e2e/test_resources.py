"""Nodes are chosen by all that a pod requests and tolerates: kube-scheduler binds it there."""

import pytest
from controlplane.gangs import gang_labels, make_gang, make_stateful_gang, wait_for_phase
from controlplane.history import gpus
from controlplane.nodes import NODES
from controlplane.pods import container, gates, requirement
from controlplane.process import wait_until

from linkwise.cluster import keys

RDMA = "rdma/hca"
PATIENCE = 120


@pytest.fixture
def offer(plane):
    """Let a node offer so many RDMA devices, as a device plugin would."""

    def add(node, number):
        amounts = {RDMA: str(number)}
        status = {"allocatable": amounts, "capacity": amounts}
        plane.api.patch(f"{NODES}/{node}/status", {"status": status})

    return add


def nodes_of(pods):
    """Return the node of each bound pod, by its name."""
    return {name: pod["spec"].get("nodeName") for name, pod in pods.all().items()}


@pytest.mark.usefixtures("placing", "history")
def test_a_gang_with_rdma_is_bound_at_the_first_try(pods, machines, offer):
    machines(3)
    offer("gpu-0", 1)
    offer("gpu-1", 1)
    spec = {"containers": [container({keys.GPU_WHOLE: 1, RDMA: 1})]}
    make_stateful_gang(pods, "train", 4, spec)
    wait_for_phase(pods, "train", "Waiting", f"on the others: too little {RDMA} (1)", members="4/4")
    assert not pods.bound()

    offer("gpu-2", 8)

    wait_until(lambda: len(pods.bound()) == 4, "all are bound", PATIENCE)
    assert set(nodes_of(pods).values()) == {"gpu-2"}
    first = {pod["metadata"]["uid"] for pod in pods.all().values()}
    make_gang(pods, "more", 3, 1, spec={"containers": spec["containers"]})
    wait_for_phase(pods, "more", "Placed")
    assert nodes_of(pods)["more-0"] == "gpu-2"
    assert first <= {pod["metadata"]["uid"] for pod in pods.all().values()}


@pytest.mark.usefixtures("placing", "history")
def test_what_pods_request_themselves_is_counted(pods, nodes):
    nodes(
        {
            "name": "small",
            "count": 2,
            "machine": "dgx1-v100",
            "mode": "topology",
            "cpu": 8,
            "memory": "64Gi",
        }
    )
    for index in range(2):
        pods.create(
            {keys.GPU_WHOLE: 1},
            name=f"train-{index}",
            labels=gang_labels("train", 2),
            spec={"resources": {"requests": {"cpu": "6"}, "limits": {"cpu": "6"}}},
        )

    wait_until(lambda: len(pods.bound()) == 2, "both are bound", PATIENCE)
    assert set(nodes_of(pods).values()) == {"small-0", "small-1"}
    assert all(map(gpus, pods.all().values()))


@pytest.mark.usefixtures("placing", "history")
def test_a_pod_that_tolerates_a_cordon_is_bound_on_a_cordoned_node(pods, machines):
    machines(2)
    pods.api.patch(f"{NODES}/gpu-1", {"spec": {"unschedulable": True}})
    tolerated = [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]
    on_node = {"kubernetes.io/hostname": "gpu-1"}
    for name, tolerations in (("closed", []), ("burn-in", tolerated)):
        spec = {"nodeSelector": on_node, "tolerations": tolerations}
        pods.create({keys.GPU_WHOLE: 1}, name=name, spec=spec)

    wait_until(lambda: pods.bound() == {"burn-in"}, "it is bound", PATIENCE)
    assert gates(pods.all()["closed"]) == [keys.GANG]
    pods.create({keys.GPU_WHOLE: 1}, name="train", spec={"tolerations": tolerated})
    wait_until(lambda: len(pods.bound()) == 2, "a pod that may go anywhere is bound", PATIENCE)
    assert nodes_of(pods)["train"] == "gpu-0"


@pytest.mark.usefixtures("placing", "history")
def test_a_gang_goes_where_its_claim_has_devices(pods, machines):
    """The claim of another driver is shared by its members, and was allocated before."""
    machines(3)
    path = f"/apis/resource.k8s.io/v1/namespaces/{pods.namespace}/resourceclaims"
    request = {"name": "nic", "exactly": {"deviceClassName": "nics.example"}}
    claim = {"metadata": {"name": "nic"}, "spec": {"devices": {"requests": [request]}}}
    pods.api.create(path, claim)
    result = {"request": "nic", "driver": "nics.example", "pool": "gpu-2", "device": "nic-0"}
    terms = [{"matchFields": [requirement("metadata.name", "In", "gpu-2")]}]
    allocation = {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": terms},
        "allocationTimestamp": "2026-01-01T00:00:00Z",
    }
    pods.api.patch(f"{path}/nic/status", {"status": {"allocation": allocation}})
    spec = {
        "containers": [container({keys.GPU_WHOLE: 1})],
        "resourceClaims": [{"name": "nic", "resourceClaimName": "nic"}],
    }

    make_stateful_gang(pods, "train", 2, spec)

    wait_until(lambda: len(pods.bound()) == 2, "both are bound", PATIENCE)
    assert set(nodes_of(pods).values()) == {"gpu-2"}
