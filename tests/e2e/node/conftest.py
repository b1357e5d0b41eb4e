"""A real node beside the control plane: containerd, kubelet, agent and containers."""

from contextlib import suppress

import pytest
from controlplane.api import ApiError
from controlplane.gangs import jobs_of
from controlplane.node.agent import agent_of
from controlplane.node.chain import Chain
from controlplane.node.gpus import StandInGPUs
from controlplane.node.machine import real_node
from controlplane.pods import Pods
from controlplane.process import wait_until
from nvml.standin import compiler

from linkwise.cluster import keys
from linkwise.topology import catalogue

NODE = "real"
_LOST_XID = 79


@pytest.fixture(scope="session")
def plane(plane_of_real_nodes):
    return plane_of_real_nodes


@pytest.fixture(scope="module")
def labels():
    """Labels of the node; a module may have its own."""
    return {keys.NODE_MODE: "topology"}


@pytest.fixture(scope="module")
def machine():
    """The GPUs of the node; a module may have its own."""
    return catalogue.entry("dgx1-v100").machine


@pytest.fixture(scope="module")
def running(placing, plane, programs_of_node, labels, machine):
    """Webhook, scorer, kubelet, containerd and agent, for the tests of a module."""
    if compiler() is None:
        pytest.skip("needs gcc")
    with real_node(plane, programs_of_node, NODE, labels) as node:
        gpus = StandInGPUs(node.root, machine)
        agent = agent_of(node, gpus)
        try:
            agent.start()
            yield Chain(Pods(plane.api, "default"), node, gpus, agent, placing)
        finally:
            agent.stop()


@pytest.fixture
def chain(running, namespace):
    """The chain for the pods of one test; afterwards the kubelet has ended them."""
    chain = running
    chain.pods = Pods(chain.pods.api, namespace)
    yield chain
    for jobs in (f"/apis/batch/v1/namespaces/{namespace}/jobs", jobs_of(namespace)):
        # There may be no MPIJobs.
        with suppress(ApiError):
            chain.pods.api.delete(jobs, propagationPolicy="Background")
    chain.delete(*chain.pods.all())


@pytest.fixture
def lose(chain):
    """Loses a GPU; at the end the driver is loaded again, after which the agent trusts it again."""
    lost = []

    def lose(gpu):
        lost.append(gpu)
        chain.gpus.nvml.lose(gpu)
        chain.gpus.nvml.xid(gpu, _LOST_XID)

    yield lose
    chain.gpus.nvml.events.clear()
    for gpu in lost:
        chain.gpus.nvml.restore(gpu)
    chain.gpus.nvml.load_driver()
    wait_until(lambda: chain.allocatable(keys.GPU_WHOLE) == 8, "the node offers all GPUs", 60)
