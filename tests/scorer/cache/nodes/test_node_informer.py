from dataclasses import replace

import pytest
from structlog.testing import capture_logs
from support.builders import dgx1_v100, placed_pod
from support.servers.informers_harness import CONFIG_MAPS, node_in, watching
from support.waiting import until

from linkwise.cluster import keys
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.nodes.topology_configmap import PublishedTopology, write_published
from linkwise.topology.machine import GPU


def topology(cluster, name="gpu-0", **labels):
    found = PublishedTopology(dgx1_v100(), (True,) * 8)
    labels = labels or {keys.NODE_MODE: "topology", keys.TOPOLOGY_NODE: name}
    data = write_published(found, [[0.0] * 8] * 8)
    cluster.put(f"{CONFIG_MAPS}/{name}-topology", {"metadata": {"labels": labels}, "data": data})


async def test_a_node_that_never_was_valid_is_left_out_until_it_is(cluster):
    cluster.node(gpus="many")
    async with watching(cluster) as informers:
        assert node_in(informers) is None
        cluster.node()
        await until(lambda: node_in(informers))


async def test_a_node_that_became_invalid_is_left_out_until_it_is_valid(cluster):
    cluster.node()
    async with watching(cluster) as informers:
        await until(lambda: node_in(informers))
        cluster.put("/api/v1/nodes/gpu-0", {"metadata": {}, "status": {"conditions": "none"}})
        await until(lambda: node_in(informers) is None)
        cluster.node()
        await until(lambda: node_in(informers))


async def test_a_node_with_thousands_of_taints_and_conditions_is_read(cluster):
    taints = [{"key": f"taint-{i}", "effect": "NoSchedule"} for i in range(2000)]
    status = {"conditions": [{"type": f"c-{i}", "status": "True"} for i in range(500)]}
    body = {"metadata": {}, "spec": {"taints": taints}, "status": status}
    cluster.put("/api/v1/nodes/gpu-0", body)
    async with watching(cluster) as informers:
        assert len(node_in(informers).taints) == 2000


@pytest.mark.parametrize("first", ["node", "topology"])
async def test_a_node_has_its_published_topology_whichever_is_listed_first(cluster, first):
    async with watching(cluster) as informers:
        for put in (cluster.node, lambda: topology(cluster))[:: 1 if first == "node" else -1]:
            informers.changed.clear()
            put()
            await until(informers.changed.is_set)
        await until(lambda: node_in(informers) and node_in(informers).machine_known)
        cluster.put(f"{CONFIG_MAPS}/unhealthy-gpu-gpu-0", {"metadata": {}, "data": {"gpus": "3"}})
        await until(lambda: not node_in(informers).cards[3].healthy)
        cluster.remove(f"{CONFIG_MAPS}/gpu-0-topology")
        await until(lambda: not node_in(informers).machine_known)
        assert not node_in(informers).cards[3].healthy


async def test_a_gpu_that_only_a_record_names_is_lost_until_the_pod_is_gone(cluster):
    published = PublishedTopology(
        replace(dgx1_v100(), gpus=tuple(GPU(uuid=f"GPU-{i}") for i in range(8))), (True,) * 8
    )
    labels = {keys.NODE_MODE: "topology", keys.TOPOLOGY_NODE: "gpu-0"}
    data = write_published(published, [[0.0] * 8] * 8)
    cluster.put(f"{CONFIG_MAPS}/gpu-0-topology", {"metadata": {"labels": labels}, "data": data})
    cluster.node()
    async with watching(cluster) as informers:
        raw = placed_pod("solo", {keys.GPU_WHOLE: 1}, "gpu-0", GPUShare(2, "GPU-lost"))
        cluster.put("/api/v1/namespaces/team/pods/solo", raw)
        await until(lambda: len(node_in(informers).cards) == 9)
        node = node_in(informers)
        assert (node.cards[8].uuid, node.cards[8].faulty) == ("GPU-lost", True)
        # It closes its GPU, and not its node.
        ledger = informers.state.ledger("gpu-0")
        assert (ledger.unaccounted, ledger.free_mask) == (None, 0xFF)
        cluster.remove("/api/v1/namespaces/team/pods/solo")
        await until(lambda: len(node_in(informers).cards) == 8)


async def test_config_maps_without_a_node_change_nothing(cluster):
    cluster.node()
    async with watching(cluster) as informers:
        before = informers.state.snapshot()
        informers.changed.clear()
        topology(cluster, app="other")
        await until(informers.changed.is_set)

        assert informers.state.snapshot() is before


def warnings_in(logs):
    """Return what was logged of nodes, in order."""
    return [
        (one["node"], one["warnings"]) for one in logs if one["event"] == "Inconsistent node data"
    ]


HELD_BACK = "2 of 8 GPUs are not allocatable, and it is unknown which"


def held_back(cluster, **labels):
    """Let the kubelet of a node give out two GPUs less than there are."""
    labels = {keys.NODE_MODE: "topology", **labels}
    status = {"allocatable": {keys.GPU_WHOLE: "6"}, "capacity": {keys.GPU_WHOLE: "8"}}
    cluster.put("/api/v1/nodes/gpu-0", {"metadata": {"labels": labels}, "status": status})


def unhealthy(cluster, gpus):
    path = f"{CONFIG_MAPS}/unhealthy-gpu-gpu-0"
    cluster.put(path, {"metadata": {}, "data": {"gpus": gpus}})


async def test_warnings_of_a_node_are_logged_when_they_change(cluster):
    cluster.node("sound")
    held_back(cluster)
    with capture_logs() as logs:
        async with watching(cluster) as informers:
            await until(lambda: warnings_in(logs))
            assert warnings_in(logs) == [("gpu-0", [HELD_BACK])]
            held_back(cluster, rack="r2")
            await until(lambda: node_in(informers).labels.get("rack"))
            assert len(warnings_in(logs)) == 1

            unhealthy(cluster, "3,4,x")
            await until(lambda: not node_in(informers).cards[4].healthy)
            (listed,) = warnings_in(logs)[1][1]
            assert listed.startswith("ConfigMap unhealthy-gpu-gpu-0: 'x': not an index")
            unhealthy(cluster, "3,4")
            await until(lambda: not node_in(informers).warnings)
            assert len(warnings_in(logs)) == 2

            unhealthy(cluster, "")
            await until(lambda: node_in(informers).cards[4].healthy)
            assert warnings_in(logs)[2:] == [("gpu-0", [HELD_BACK])]


async def test_warnings_are_logged_once_everything_was_listed(cluster):
    held_back(cluster, **{keys.NODE_PLACEMENT: "spraed"})
    unhealthy(cluster, "3,4")
    cluster.policy("placement: {strategy: spread}\n")
    with capture_logs() as logs:
        async with watching(cluster):
            await until(lambda: warnings_in(logs))

    warning = f"{keys.NODE_PLACEMENT}=spraed is neither binpack nor spread: spread is taken"
    assert warnings_in(logs) == [("gpu-0", [warning])]


async def test_warnings_of_a_node_that_was_created_again_are_logged_again(cluster):
    with capture_logs() as logs:
        async with watching(cluster) as informers:
            for times in (1, 2):
                held_back(cluster)
                await until(lambda wanted=times: len(warnings_in(logs)) == wanted)
                cluster.remove("/api/v1/nodes/gpu-0")
                await until(lambda: not node_in(informers))
