"""A real node is moved from a plugin in place of NVIDIA's to the agent and back, by the page."""

import pytest
from controlplane.gangs import delete_pods
from controlplane.node.agent import agent_of
from controlplane.node.chain import PATIENCE, Chain, container
from controlplane.node.gpus import StandInGPUs
from controlplane.node.machine import real_node
from controlplane.node.nvidia_plugin import plugin_of
from controlplane.page import Page
from controlplane.plugins import plugin_of_operator
from controlplane.pods import Pods, gates
from controlplane.process import wait_for, wait_until
from nvml.standin import compiler

from linkwise.cluster import keys

NODE = "real"
PODS = 5
DRAIN, TO_AGENT, WAIT, LIST, OPEN, DRAIN_AGAIN, TO_PLUGIN, OPEN_AGAIN, LIST_GATED = range(9)
GPU = {keys.NVIDIA_GPU: 1}


@pytest.fixture
def moved(placing, plane, programs_of_node, machine, namespace):
    """The node, whose plugin is NVIDIA's; the agent is not started.

    Pods of the DaemonSet stand for the plugin's, which is a process of this machine.
    """
    if compiler() is None:
        pytest.skip("needs gcc")
    labels = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.deploy.device-plugin": "true"}
    with real_node(plane, programs_of_node, NODE, labels) as node:
        gpus = StandInGPUs(node.root, machine)
        agent, plugin = agent_of(node, gpus), plugin_of(node, gpus)
        plane.processes.start(plugin)
        daemons = f"/apis/apps/v1/namespaces/{namespace}/daemonsets"
        plane.api.create(daemons, plugin_of_operator(container(name="plugin")))
        chain = Chain(Pods(plane.api, namespace), node, gpus, agent, placing)
        try:
            wait_until(lambda: chain.allocatable(keys.NVIDIA_GPU) == 8, "it offers", PATIENCE)
            yield chain, plugin
        finally:
            agent.stop()
            if plugin in plane.processes.running:
                plane.processes.stop(plugin)


def deploy(pods):
    """Create pods of one GPU each, which are created again after each eviction."""
    labels = {"app": "load"}
    spec = {"containers": [container(GPU)], "terminationGracePeriodSeconds": 1}
    template = {"metadata": {"labels": labels}, "spec": spec}
    body = {"replicas": PODS, "selector": {"matchLabels": labels}, "template": template}
    path = f"/apis/apps/v1/namespaces/{pods.namespace}/deployments"
    pods.api.create(path, {"metadata": {"name": "load"}, "spec": body})


def wait_until_all_run(chain):
    """Return the GPUs that each container sees, once all pods run."""

    def running():
        pods = {name for name in chain.pods.all() if name.startswith("load-")}
        found = pods & chain.running().keys()
        return found if len(pods) == len(found) == PODS else None

    return {name: chain.has(name) for name in wait_for(running, "they run", 180)}


def delete_listed(chain, printed, *, gated):
    """Delete the pods of the namespace that a printed list shows with our gate, or without one."""
    for row in printed.splitlines():
        namespace, name, *_, gate = row.split()
        if namespace == chain.pods.namespace and gate == (keys.GANG if gated else "<none>"):
            delete_pods(chain.pods, name)


def is_gated(pods):
    return gates(pods.create(GPU, name="probe", dryRun="All")) == [keys.GANG]


def test_a_real_node_is_moved_to_the_agent_and_back_while_pods_are_created_again(moved, plane):
    chain, plugin = moved
    page, pods = Page(plane, "docs/from-nvidia.md"), chain.pods
    deploy(pods)
    by_plugin = wait_until_all_run(chain)
    assert len(set().union(*by_plugin.values())) == PODS

    page.run(DRAIN, NODE=NODE)
    plane.processes.stop(plugin)
    page.run(TO_AGENT, NODE=NODE)
    chain.agent.start()
    page.run(WAIT, NODE=NODE)
    wait_until(lambda: is_gated(pods), "admission knows the node", PATIENCE)
    delete_listed(chain, page.run(LIST), gated=False)
    page.run(OPEN, NODE=NODE)

    by_agent = wait_until_all_run(chain)
    assert by_agent == {name: chain.recorded(name) for name in by_agent}
    assert len(set().union(*by_agent.values())) == PODS
    assert chain.wait_until_books_agree() == by_agent

    page.run(DRAIN_AGAIN, NODE=NODE)
    chain.agent.stop()
    page.run(TO_PLUGIN, NODE=NODE)
    plane.processes.start(plugin)
    page.run(OPEN_AGAIN, NODE=NODE)
    wait_until(lambda: not is_gated(pods), "admission knows that no exact node is left", PATIENCE)
    delete_listed(chain, page.run(LIST_GATED), gated=True)

    again = wait_until_all_run(chain)
    assert len(set().union(*again.values())) == PODS
    assert all(chain.recorded(name) == set() for name in again)
