import asyncio
import threading
from collections import Counter
from contextlib import asynccontextmanager

import msgspec
import pytest
import pytest_asyncio
from structlog.testing import capture_logs
from support.builders import a_member, a_pod, an_nvswitch_machine
from support.servers.informers_harness import CONFIG_MAPS, node_in, watching
from support.waiting import until

from linkwise.cluster import keys
from linkwise.cluster.nodes.topology_configmap import PublishedTopology, write_published
from linkwise.cluster.objects.pod import Pod
from linkwise.planning.placement.filtering.reasons import Reason
from linkwise.planning.placement.result import Plan
from linkwise.planning.placement.schedule import plan
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.process.work_queue import Retry
from linkwise.topology.table import machine_class, table_bytes, table_of
from scorer.cache.informers import Informers
from scorer.cache.nodes.table_builder import TableBuilder
from scorer.extender.filter import Filter


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


async def test_node_whose_tables_were_built_is_not_parsed_again(gated):
    informers, build = gated
    before = node_in(informers, "gpu-16")

    build.gate.set()
    await until(lambda: not node_in(informers, "gpu-16").preparing)

    assert node_in(informers, "gpu-16").machine is before.machine


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


@pytest.mark.parametrize("gpus", [4, 8, 16])
async def test_machine_whose_build_fails_is_tried_again_and_other_nodes_are_planned(
    cluster, monkeypatch, gpus
):
    monkeypatch.setattr("scorer.cache.nodes.table_builder._RETRY", Retry(0.01, 600))
    monkeypatch.setattr("linkwise.runtime.process.work_queue._JITTER", (1, 1))
    broken = True

    def build(machine):
        if machine.n == gpus and broken:
            raise IndexError("no such link")
        return table_of(machine)

    cluster.node("other", gpus=2)
    publish(cluster, an_nvswitch_machine(gpus, 6), "gpu-0")
    with capture_logs() as logs:
        async with watching(cluster, build) as informers:
            await until(lambda: 0.02 in failed_builds(logs))
            await until(lambda: node_in(informers).machine_refused)
            assert not node_in(informers).preparing
            assert planned(informers, 2) == "other"
            broken = False
            await until(lambda: planned(informers, gpus) == "gpu-0")
            assert node_in(informers).machine_refused is None

    assert failed_builds(logs)[0] == 0.01


def failed_builds(logs):
    """Return the delay after each failed build [s]."""
    return [log["retry_after"] for log in logs if log["event"] == "Could not build tables"]


async def test_missing_names_the_tables_of_small_machines_until_they_are_built(cluster):
    gate = threading.Event()

    def build(machine):
        gate.wait(60)
        return table_of(machine)

    publish(cluster, an_nvswitch_machine(8, 6), "gpu-8")
    async with Kube(cluster.url) as kube:
        informers = Informers(kube, build)
        task = asyncio.create_task(informers.run())
        await until(lambda: informers.missing() == "link tables of 1 node are being computed")
        gate.set()
        await until(lambda: informers.missing() is None)
        task.cancel()
        await asyncio.wait((task,))


async def test_deleted_node_is_not_waited_for():
    builder = TableBuilder(lambda *_: None, lambda _: None)
    builder.table("gpu-8", an_nvswitch_machine(8, 6))
    waiting = asyncio.create_task(builder.small_built())
    await asyncio.sleep(0)

    builder.table("gpu-8", None)

    await asyncio.wait_for(waiting, 10)


async def test_other_tasks_run_while_many_nodes_of_a_class_are_updated():
    updated, seen = [], set()

    def on_built(node, _table):
        updated.append(node)
        asyncio.get_running_loop().call_soon(lambda: seen.add(len(updated)))

    builder = TableBuilder(on_built, lambda _: None, table_of)
    for number in range(120):
        builder.table(f"gpu-{number}", an_nvswitch_machine(8, 6))
    task = asyncio.create_task(builder.run())
    await until(lambda: 120 in seen)
    task.cancel()

    assert seen == {50, 100, 120}
    assert len(set(updated)) == 120


async def test_node_that_changes_while_its_class_is_updated_does_not_get_the_old_table():
    updated, missing = [], []

    def on_built(node, table):
        updated.append((node, table.machine))
        if len(updated) == 1:
            asyncio.get_running_loop().call_soon(replace_the_others)

    def replace_the_others():
        missing.append(builder.small_missing)
        for node in nodes.difference(node for node, _ in updated):
            builder.table(node, an_nvswitch_machine(8, 12))

    builder = TableBuilder(on_built, lambda _: None, table_of)
    nodes = {f"gpu-{number}" for number in range(120)}
    for node in nodes:
        builder.table(node, an_nvswitch_machine(8, 6))
    task = asyncio.create_task(builder.run())
    await until(lambda: len({node for node, _ in updated}) == 120)
    task.cancel()

    assert missing == [70]
    assert Counter(machine for _, machine in updated) == {
        machine_class(an_nvswitch_machine(8, 6)): 50,
        machine_class(an_nvswitch_machine(8, 12)): 70,
    }


async def test_machine_is_refused_if_the_tables_of_all_nodes_would_exceed_their_limit(
    cluster, monkeypatch
):
    monkeypatch.setattr("scorer.cache.nodes.table_builder._RETRY", Retry(0.01, 600))
    monkeypatch.setattr("scorer.cache.nodes.table_builder.TABLES_MAX", 2 * table_bytes(8))
    for links in (1, 2, 3):
        publish(cluster, an_nvswitch_machine(8, links), f"gpu-{links}")
    async with watching(cluster, table_of) as informers:
        nodes = {name: node_in(informers, name) for name in ("gpu-1", "gpu-2", "gpu-3")}
        await until(lambda: sum(bool(node.machine_refused) for node in nodes_of(informers)) == 1)
        (refused,) = (node for node in nodes_of(informers) if node.machine_refused)
        usable = sorted(nodes.keys() - {refused.name})
        assert refused.machine_refused.startswith("the tables of all machines would exceed")
        assert planned(informers, 8) in usable

        cluster.remove(f"/api/v1/nodes/{usable[0]}")
        await until(lambda: node_in(informers, refused.name).machine_refused is None)


def nodes_of(informers):
    return [ledger.node for ledger in informers.state.snapshot().nodes]


async def test_node_whose_machine_changes_often_is_refused_without_building_tables(cluster):
    built = []

    def build(machine):
        built.append(machine.links[0][1])
        return table_of(machine)

    cluster.node("other", gpus=2)
    publish(cluster, an_nvswitch_machine(8, 1), "gpu-0")
    async with watching(cluster, build) as informers:
        for links in (2, 3, 4, 5):
            publish(cluster, an_nvswitch_machine(8, links), "gpu-0")
            await until(lambda links=links: node_in(informers).machine.links[0][1] == links)
            await until(lambda: not node_in(informers).preparing)

        assert built[-1] == 3
        assert (
            "published another machine 3 times in 10 minutes" in node_in(informers).machine_refused
        )
        assert planned(informers, 8) == (
            "needs 8 GPUs on one node; the freest suitable node has 2; of 2 nodes: "
            "links of its GPUs are not used, see linkwise inspect (1), too few free GPUs (1)"
        )


async def test_node_is_used_again_once_its_machine_stays_the_same(cluster, monkeypatch):
    monkeypatch.setattr("scorer.cache.nodes.machine_changes.WINDOW", 1.0)
    publish(cluster, an_nvswitch_machine(8, 1), "gpu-0")
    async with watching(cluster, table_of) as informers:
        for links in (2, 3, 4):
            publish(cluster, an_nvswitch_machine(8, links), "gpu-0")
            await until(lambda links=links: node_in(informers).machine.links[0][1] == links)
        await until(lambda: planned(informers, 8) == "gpu-0")
