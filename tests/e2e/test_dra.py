"""GPUs that the stock scheduler gives to resource claims, on nodes of Linkwise."""

import json
from random import Random

import pytest
from controlplane.dra import (
    SLICES,
    claiming,
    claims_of,
    delete_claims,
    device_slice,
    gpus_by_claims,
    make_claim,
)
from controlplane.gangs import delete_pods, make_gang, wait_for_phase, wait_until_placed, where
from controlplane.pods import gates
from controlplane.process import wait_until
from controlplane.soak import often
from support.builders import with_gpus

from linkwise.cluster import keys
from linkwise.cluster.nodes.topology_configmap import PublishedTopology, write_published
from linkwise.topology import catalogue
from linkwise.topology.table import table_of

NODE, COUNTED, HOSTILE = "gpu-0", "counted", "hostile"
UUIDS = tuple(f"GPU-0000000{i}-1111-2222-3333-444444444444" for i in range(8))
MACHINE = with_gpus(catalogue.entry("dgx1-v100").machine, uuid=UUIDS)
SLICED = often(8, 200)
"""Slices that a hostile node publishes."""
ON_NODE = {keys.HOSTNAME: NODE}
PATIENCE = 120


@pytest.fixture
def node(plane, machines, placing):
    """A node of mode topology whose agent publishes the UUIDs of its GPUs."""
    del placing
    machines(1)
    table = table_of(MACHINE)
    n = range(MACHINE.n)
    pairs = [[table.bandwidth(1 << i | 1 << j) if i != j else 0.0 for j in n] for i in n]
    data = write_published(PublishedTopology(MACHINE, (True,) * MACHINE.n), pairs)
    maps = f"/api/v1/namespaces/{keys.TOPOLOGY_NAMESPACE}/configmaps"
    plane.api.patch(f"{maps}/{keys.TOPOLOGY_NAME_PREFIX}{NODE}", {"data": data})


@pytest.fixture
def by_claims(plane, node, pods):
    """The same GPUs, as devices of NVIDIA's driver, too."""
    del node
    with gpus_by_claims(plane.api, NODE, UUIDS, keys.NVIDIA_GPU):
        yield
        pods.clear()
        delete_claims(plane.api, pods.namespace)


def claimed(pods):
    """Return the indices of the GPUs that claims of a namespace hold."""
    allocations = [
        claim.get("status", {}).get("allocation")
        for claim in pods.api.get(claims_of(pods.namespace))["items"]
    ]
    return {
        int(result["device"].removeprefix("gpu-"))
        for allocation in allocations
        if allocation
        for result in allocation["devices"]["results"]
    }


def closed(placing):
    """Return the indices of the GPUs on which no pod of Linkwise is placed."""
    return {gpu["i"] for gpu in seen(placing, NODE)["gpus"] if gpu["cordoned"]}


def seen(placing, name):
    """Return a node as the scorer sees it."""
    return next(node for node in placing.look("/v1/nodes")["nodes"] if node["name"] == name)


@pytest.mark.usefixtures("by_claims")
def test_gpus_of_a_claim_are_free_for_no_gang_until_it_ends(plane, pods, placing):
    make_claim(plane.api, pods.namespace, "notebook", 2)
    made = pods.create(name="notebook", spec=claiming("notebook"))
    assert gates(made) == []
    wait_until(lambda: pods.all()["notebook"]["spec"].get("nodeName") == NODE, "bound", PATIENCE)
    held = claimed(pods)
    assert len(held) == 2
    wait_until(lambda: closed(placing) == held, "they are known", PATIENCE)

    make_gang(pods, "large", 8, 1)
    wait_for_phase(pods, "large", "Waiting", "6 of 8")
    make_gang(pods, "small", 6, 1)
    members = wait_until_placed(pods, "small", 6)
    assert {index for gpus in members.values() for _, index in gpus} == set(range(8)) - held
    assert where(pods, "large") == {}

    delete_pods(pods, "notebook", *(f"small-{i}" for i in range(6)))
    delete_claims(plane.api, pods.namespace)
    wait_until_placed(pods, "large", 8)


@pytest.mark.usefixtures("by_claims")
def test_gpus_behind_an_extended_resource_of_dra_are_not_free_either(pods, placing):
    pods.create({keys.NVIDIA_GPU: 1}, name="extended")
    wait_until(lambda: pods.all()["extended"]["spec"].get("nodeName") == NODE, "bound", PATIENCE)
    held = claimed(pods)
    assert len(held) == 1
    wait_until(lambda: closed(placing) == held, "it is known", PATIENCE)

    make_gang(pods, "pair", 7, 1)

    members = wait_until_placed(pods, "pair", 7)
    assert {index for gpus in members.values() for _, index in gpus} == set(range(8)) - held


@pytest.fixture
def hostile(plane, nodes, pods):
    """Publishes slices of another node, with the rights of its kubelet; removes them at the end."""
    nodes({"name": HOSTILE, "machine": "dgx1-v100", "cpu": 96, "memory": "768Gi"})
    who = (f"--as=system:node:{HOSTILE}", "--as-group=system:nodes", "--as-group=system:masters")

    def publish(body):
        created = plane.kubectl("create", *who, "--filename=-", stdin=json.dumps(body))
        assert created.returncode == 0, created.stderr

    del pods
    yield publish
    plane.api.delete(SLICES, fieldSelector=f"spec.nodeName={HOSTILE}")


def a_hostile_slice(number):
    """Return a slice of a node that says something about the pool of another node."""
    random = Random(number)  # noqa: S311 - a slice of tests.
    uuids = random.sample(UUIDS, random.choice((1, 8)))
    return device_slice(
        HOSTILE,
        random.choice((uuids, [f"GPU-{number}"] * len(uuids), [""])),
        name=f"{HOSTILE}-{number}",
        pool=NODE,
        generation=random.choice((1, 2, 10 + number)),
        count=random.choice((1, 2)),
    )


@pytest.mark.usefixtures("by_claims")
def test_slices_of_another_node_free_no_gpu_and_close_no_node(plane, pods, placing, hostile):
    make_claim(plane.api, pods.namespace, "notebook", 2)
    pods.create(name="notebook", spec={**claiming("notebook"), "nodeSelector": ON_NODE})
    wait_until(lambda: pods.all()["notebook"]["spec"].get("nodeName") == NODE, "bound", PATIENCE)
    held = claimed(pods)
    wait_until(lambda: closed(placing) == held, "they are known", PATIENCE)

    states = set()
    for number in range(SLICED):
        hostile(a_hostile_slice(number))
        states.add(frozenset(closed(placing)))

    make_gang(pods, "large", 7, 1, spec={"nodeSelector": ON_NODE})
    wait_for_phase(pods, "large", "Waiting", "6 of 7")
    assert states == {frozenset(held)}
    make_gang(pods, "small", 6, 1, spec={"nodeSelector": ON_NODE})
    members = wait_until_placed(pods, "small", 6)
    assert {index for gpus in members.values() for _, index in gpus} == set(range(8)) - held


@pytest.fixture
def counted(plane, nodes, pods, placing):
    """A node of NVIDIA's plugin, whose GPUs are devices of NVIDIA's driver, too."""
    del placing
    nodes({"name": COUNTED, "machine": "dgx1-v100", "cpu": 96, "memory": "768Gi"})
    with gpus_by_claims(plane.api, COUNTED, UUIDS):
        yield
        pods.clear()
        delete_claims(plane.api, pods.namespace)


def free_on(placing, name):
    return seen(placing, name)["gpus_free"]


@pytest.mark.usefixtures("counted")
def test_gpus_of_a_claim_are_not_counted_free_on_a_node_of_nvidias_plugin(plane, pods, placing):
    make_claim(plane.api, pods.namespace, "notebook", 2)
    pods.create(name="notebook", spec=claiming("notebook"))
    wait_until(lambda: pods.all()["notebook"]["spec"].get("nodeName") == COUNTED, "bound", PATIENCE)
    assert len(claimed(pods)) == 2
    wait_until(lambda: free_on(placing, COUNTED) == 6, "they are known", PATIENCE)

    make_gang(pods, "large", 7, 1, resource=keys.NVIDIA_GPU)
    wait_for_phase(pods, "large", "Waiting", "6 of 7")
    make_gang(pods, "small", 6, 1, resource=keys.NVIDIA_GPU)
    placed = wait_for_phase(pods, "small", "Placed")
    assert [(held["node"], held["count"]) for held in placed["status"]["held"]] == [(COUNTED, 6)]
    assert gates(pods.all()["large-0"]) == [keys.GANG]

    delete_pods(pods, "notebook")
    delete_claims(plane.api, pods.namespace)
    wait_until(lambda: free_on(placing, COUNTED) == 2, "the claim has ended", PATIENCE)
    delete_pods(pods, *(f"small-{i}" for i in range(6)))
    wait_for_phase(pods, "large", "Placed")


def test_a_gang_of_claims_is_left_to_the_scheduler_with_a_warning(pods, by_claims):
    del by_claims
    labels = {keys.POD_GROUP_NAME: "claims", keys.POD_GROUP_MIN_AVAILABLE: "2"}
    spec = claiming("absent")

    made = pods.create(name="claims-0", labels=labels, spec=spec)

    assert gates(made) == []
