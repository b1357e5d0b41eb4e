"""Nodes under GPU Operator: as they are, and moved to the agent and back by the documented way."""

import pytest
from controlplane.gangs import delete_pods, gang_labels, wait_until_placed
from controlplane.history import History, gpus
from controlplane.manifests import ROOT
from controlplane.page import Page
from controlplane.plugins import (
    DEPLOY_PLUGIN,
    GPUS,
    OPERATOR_TOLERATION,
    Plugins,
    delete_nodes,
    operator_node,
    plugin_of_operator,
)
from controlplane.pods import container, gates
from controlplane.process import wait_until

from linkwise.cluster import keys

NODES = ("dgx-0", "dgx-1")
PATIENCE = 300
OPERATOR = "gpu-operator"


@pytest.fixture(scope="module")
def operator(plane, placing):
    """Two nodes of 8 GPUs under GPU Operator; the agent is installed and runs nowhere yet."""
    del placing
    agent = str(ROOT / "manifests/agent")
    assert plane.kubectl("apply", "-k", agent).returncode == 0
    plane.api.create("/api/v1/namespaces", {"metadata": {"name": OPERATOR}})
    plane.api.create(f"/apis/apps/v1/namespaces/{OPERATOR}/daemonsets", plugin_of_operator())
    for name in NODES:
        plane.api.create("/api/v1/nodes", operator_node(name))
    with Plugins(plane.api, NODES) as plugins:
        yield plugins
    delete_nodes(plane.api, *NODES)
    plane.api.delete(f"/api/v1/namespaces/{OPERATOR}")
    plane.kubectl("delete", "--wait=false", "-k", agent)


@pytest.fixture
def page(plane):
    return Page(plane, "docs/from-nvidia.md")


DRAIN, TO_AGENT, WAIT, LIST, OPEN, DRAIN_AGAIN, TO_PLUGIN, OPEN_AGAIN, LIST_GATED = range(9)


def template(labels, count):
    spec = {"containers": [container({keys.NVIDIA_GPU: count})]}
    spec["tolerations"] = [OPERATOR_TOLERATION]
    return {"metadata": {"labels": labels}, "spec": spec}


def deploy(pods, replicas):
    """Create single pods of one GPU each, which are created again after each eviction."""
    labels = {"app": "singles"}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}}
    body = {"metadata": {"name": "singles"}, "spec": {**spec, "template": template(labels, 1)}}
    pods.api.create(f"/apis/apps/v1/namespaces/{pods.namespace}/deployments", body)


def make_ring(pods):
    """Create a gang of two workers of four GPUs each."""
    labels = {"app": "ring", **gang_labels("ring", 2)}
    spec = {"replicas": 2, "podManagementPolicy": "Parallel", "serviceName": "ring"}
    spec |= {"selector": {"matchLabels": {"app": "ring"}}, "template": template(labels, 4)}
    body = {"metadata": {"name": "ring"}, "spec": spec}
    pods.api.create(f"/apis/apps/v1/namespaces/{pods.namespace}/statefulsets", body)


def bound(pods):
    """Return the nodes of the pods that are bound and stay, by pod."""
    return {
        name: pod["spec"]["nodeName"]
        for name, pod in pods.all().items()
        if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
    }


def is_gated(pods):
    """Return whether Linkwise would place a new pod that requests GPUs."""
    spec = {"tolerations": [OPERATOR_TOLERATION]}
    made = pods.create({keys.NVIDIA_GPU: 1}, name="probe", spec=spec, dryRun="All")
    return gates(made) == [keys.GANG]


def test_pods_of_a_node_of_gpu_operator_run_with_its_labels_and_taint(pods, operator):
    # Without a controller, which would create them again while they are deleted.
    for number in range(6):
        spec = {"tolerations": [OPERATOR_TOLERATION]}
        pods.create({keys.NVIDIA_GPU: 1}, name=f"single-{number}", spec=spec)

    wait_until(lambda: len(bound(pods)) == 6, "they run", PATIENCE)

    assert all(gpus(pod) == () for pod in pods.all().values())
    assert operator.faults == []
    pods.clear()


@pytest.mark.timeout(1800)
def test_nodes_are_moved_to_the_agent_and_back_under_load(plane, pods, operator, page):
    with History(plane.api) as history:
        # First: whether a gang fits beside them depends on where single pods happen to run.
        make_ring(pods)
        wait_until(lambda: len(bound(pods)) == 2, "the gang runs", PATIENCE)
        deploy(pods, 6)
        wait_until(lambda: len(bound(pods)) == 8, "all run with NVIDIA's plugin", PATIENCE)

        for node in NODES:
            page.run(DRAIN, NODE=node)
            page.run(TO_AGENT, NODE=node)
            page.run(WAIT, NODE=node)
            wait_until(lambda: is_gated(pods), "admission knows the node")
            for row in page.run(LIST).splitlines():
                namespace, name, count, gated = row.split()
                if namespace == pods.namespace and count != "<none>" and gated == "<none>":
                    delete_pods(pods, name)
            page.run(OPEN, NODE=node)
        wait_until(lambda: len(bound(pods)) == 8, "all run with the agent", PATIENCE)
        made = pods.all()
        held = [gpu for pod in made.values() for gpu in gpus(pod)]
        assert len(held) == len(set(held)) == 14
        assert set(bound(pods).values()) == set(NODES)
        assert {len(found) for found in wait_until_placed(pods, "ring", 2).values()} == {4}

        for node in NODES:
            page.run(DRAIN_AGAIN, NODE=node)
            page.run(TO_PLUGIN, NODE=node)
            page.run(OPEN_AGAIN, NODE=node)
        wait_until(lambda: not is_gated(pods), "admission knows that no exact node is left")
        for row in page.run(LIST_GATED).splitlines():
            namespace, name, gated = row.split()
            if namespace == pods.namespace and gated == keys.GANG:
                delete_pods(pods, name)
        wait_until(lambda: len(bound(pods)) == 8, "all run with NVIDIA's plugin", PATIENCE)
        assert all(gpus(pod) == () for pod in pods.all().values())
        history.catch_up()

    assert (history.lost, history.held_twice(), history.overbooked(GPUS)) == ("", [], [])
    assert operator.faults == []
    for node in NODES:
        labels = plane.api.get(f"/api/v1/nodes/{node}")["metadata"]["labels"]
        assert labels[DEPLOY_PLUGIN] == "true"
        assert keys.NODE_MODE not in labels
