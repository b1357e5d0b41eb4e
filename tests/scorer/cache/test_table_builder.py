import threading
from contextlib import asynccontextmanager

import msgspec
import pytest_asyncio
from builders import a_member, a_pod, an_nvswitch_machine
from informers_harness import CONFIG_MAPS, node_in, watching
from waiting import until

from cluster import keys
from cluster.pod import Pod
from cluster.topology_configmap import PublishedTopology, write_published
from scorer.extender.filter import Filter
from scorer.placement.reasons import Reason
from scorer.placement.result import Plan
from scorer.placement.schedule import plan
from topology.table import table_of


@asynccontextmanager
async def informing(cluster, build):
    async with watching(cluster, build) as informers:
        try:
            yield informers
        finally:
            build.gate.set()


class GatedBuild:
    """Builds the tables of 16 GPUs only once the gate is open."""

    def __init__(self):
        self.gate = threading.Event()
        self.started = []
        """The number of links of each machine with 16 GPUs."""

    def __call__(self, machine):
        if machine.n == 16:
            self.started.append(machine.links[0][1])
            self.gate.wait(60)
        return table_of(machine)


@pytest_asyncio.fixture
async def gated(cluster):
    """Return informers of nodes gpu-8 and gpu-16, and what builds the tables of gpu-16."""
    build = GatedBuild()
    cluster.node("gpu-8")
    publish(cluster, an_nvswitch_machine(16, 6))
    async with informing(cluster, build) as informers:
        await until(lambda: build.started)
        yield informers, build


def publish(cluster, machine, name="gpu-16"):
    data = write_published(
        PublishedTopology(machine, (True,) * machine.n), [[0.0] * machine.n] * machine.n
    )
    labels = {keys.NODE_MODE: "topology", keys.TOPOLOGY_NODE: name}
    cluster.put(f"{CONFIG_MAPS}/{name}-topology", {"metadata": {"labels": labels}, "data": data})
    cluster.node(name, gpus=machine.n)


def planned(informers, gpus):
    """Return the node that one pod is planned on, or why there is none."""
    outcome = plan(informers.state.snapshot(), [a_member(gpus)])
    return outcome.placements[0].node if isinstance(outcome, Plan) else outcome.reason


async def test_other_nodes_are_planned_while_the_tables_of_one_are_built(gated):
    informers, build = gated

    assert planned(informers, 8) == "gpu-8"
    assert planned(informers, 16) == (
        "needs 16 GPUs on one node; the freest suitable node has 8; of 2 nodes: "
        "tables of its GPU links still being computed (1), too few free GPUs (1)"
    )
    informers.changed.clear()
    build.gate.set()
    await until(lambda: planned(informers, 16) == "gpu-16")
    assert informers.changed.is_set()


async def test_extender_filter_refuses_a_node_whose_tables_are_being_built(gated):
    informers, _ = gated
    pod = msgspec.convert(a_pod({keys.GPU_WHOLE: 1}), Pod)

    found = Filter(informers.state).run(pod, ["gpu-8", "gpu-16"])

    assert (found.names, found.unresolvable) == (["gpu-8"], {"gpu-16": Reason.PREPARING})


async def test_node_whose_machine_changes_while_its_tables_are_built_gets_the_new_ones(
    cluster, gated
):
    informers, build = gated
    changed = an_nvswitch_machine(16, 12)
    publish(cluster, changed)
    await until(lambda: node_in(informers, "gpu-16").machine.links == changed.links)

    assert node_in(informers, "gpu-16").preparing
    build.gate.set()
    await until(lambda: not node_in(informers, "gpu-16").preparing)

    assert build.started.count(12) == 1
    assert informers.state.table("gpu-16") is table_of(changed)
    assert planned(informers, 16) == "gpu-16"


async def test_node_that_goes_while_its_tables_are_built_stays_away(cluster, gated):
    informers, build = gated
    cluster.remove("/api/v1/nodes/gpu-16")
    await until(lambda: node_in(informers, "gpu-16") is None)
    build.gate.set()
    publish(cluster, an_nvswitch_machine(16, 12), "other")
    await until(lambda: node_in(informers, "other") and not node_in(informers, "other").preparing)

    assert node_in(informers, "gpu-16") is None


async def test_known_class_of_machines_is_usable_as_soon_as_its_node_is_seen(cluster, gated):
    informers, build = gated
    build.gate.set()
    await until(lambda: not node_in(informers, "gpu-16").preparing)
    publish(cluster, an_nvswitch_machine(16, 6), "other")
    await until(lambda: node_in(informers, "other") and node_in(informers, "other").machine_known)

    assert not node_in(informers, "other").preparing
    assert build.started.count(6) == 1
