"""Pods are placed where their volumes can be used, and wait for claims: kube-scheduler binds them.

No controller of volumes runs, so the tests bind claims themselves.
"""

import pytest
from controlplane.gangs import gang_labels, make_stateful_gang, wait_for_phase
from controlplane.nodes import NODES
from controlplane.pods import container
from controlplane.process import wait_until
from controlplane.volume_store import volume_store
from support.volumes import CLASSES, VOLUMES, a_storage_class, a_volume, a_volume_claim

from linkwise.cluster import keys

PATIENCE = 120
HOSTS = ("gpu-0", "gpu-1", "gpu-2")


@pytest.fixture
def hosts(plane, machines):
    for node in machines(len(HOSTS)):
        labels = {keys.HOSTNAME: node.name}
        plane.api.patch(f"{NODES}/{node.name}", {"metadata": {"labels": labels}})


@pytest.fixture
def store(pods):
    with volume_store(pods) as store:
        yield store


def naming(claim):
    return {
        "containers": [container({keys.GPU_WHOLE: 1})],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
    }


def nodes_of(pods):
    return {pod["spec"].get("nodeName") for pod in pods.all().values()}


def uids_of(pods):
    return {pod["metadata"]["uid"] for pod in pods.all().values()}


@pytest.mark.usefixtures("placing", "hosts")
def test_a_gang_is_bound_on_the_node_of_its_volume_at_the_first_try(pods, store):
    store.bound("data", f"pv-of-{pods.namespace}", hosts=["gpu-2"])
    make_stateful_gang(pods, "train", 2, naming("data"))
    wait_until(lambda: len(pods.all()) == 2, "its pods are there", PATIENCE)
    first = uids_of(pods)

    wait_until(lambda: len(pods.bound()) == 2, "all are bound", PATIENCE)
    assert nodes_of(pods) == {"gpu-2"}
    assert uids_of(pods) == first


@pytest.mark.usefixtures("placing", "hosts")
def test_a_gang_waits_for_its_claim_and_is_bound_once_it_is_there(pods, store):
    make_stateful_gang(pods, "train", 2, naming("data"))
    reason = f"PersistentVolumeClaim {pods.namespace}/data, which does not exist"
    wait_for_phase(pods, "train", "Assembling", reason, members="2/2")
    first = uids_of(pods)

    store.bound("data", f"pv-of-{pods.namespace}", hosts=["gpu-1"])

    wait_until(lambda: len(pods.bound()) == 2, "all are bound", PATIENCE)
    assert nodes_of(pods) == {"gpu-1"}
    assert uids_of(pods) == first


@pytest.mark.usefixtures("placing", "hosts")
def test_members_that_bind_local_volumes_get_a_node_each(pods, store):
    name = f"local-{pods.namespace}"
    store.create(CLASSES, a_storage_class(name))
    for i, host in enumerate(("gpu-0", "gpu-2")):
        local = a_volume(f"{name}-{i}", hosts=[host], storage_class=name, local={"path": "/x"})
        store.create(VOLUMES, local)
        pods.api.patch(f"{VOLUMES}/{name}-{i}/status", {"status": {"phase": "Available"}})
        store.create(store.claims, a_volume_claim(f"data-{i}", storage_class=name))
        pods.create(name=f"train-{i}", labels=gang_labels("train", 2), spec=naming(f"data-{i}"))

    def chosen():
        """Return the node that kube-scheduler has chosen for each claim, by its volume."""
        volumes = [pods.api.get(f"{VOLUMES}/{name}-{i}") for i in range(2)]
        return {volume["spec"].get("claimRef", {}).get("name") for volume in volumes}

    # kube-scheduler waits for the controller of volumes before it binds the pods.
    wait_until(lambda: chosen() == {"data-0", "data-1"}, "both claims have a volume", PATIENCE)
