import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from support.builders import dgx1_v100
from support.waiting import until

from agent.publish.publisher import Publication, Publisher
from linkwise.cluster import keys
from linkwise.cluster.nodes.topology_configmap import PublishedTopology, read_published
from linkwise.runtime.kube.client import Kube

PATH = "/api/v1/namespaces/kube-system/configmaps/topology-gpu-0"
NODE = "/api/v1/nodes/gpu-0"
HEALTHY = PublishedTopology(dgx1_v100(), (True,) * 8)
LOST = replace(HEALTHY, healthy=(False,) + (True,) * 7)
ZEROS = [[0.0] * 8] * 8


@asynccontextmanager
async def publishing(server, **options):
    async with Kube(server.url) as kube:
        publisher = Publisher(kube, "gpu-0", **options)
        task = asyncio.create_task(publisher.run())
        yield publisher
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def published(server):
    return PATH in server.objects and read_published(server.objects[PATH]["data"])


async def test_each_change_is_published_and_nothing_else_is_written(server):
    server.put_node()
    async with publishing(server) as publisher:
        publisher.set(Publication(HEALTHY, ZEROS))
        await until(lambda: published(server) == HEALTHY)
        publisher.set(Publication(HEALTHY, ZEROS))
        publisher.set(Publication(LOST, ZEROS))
        await until(lambda: published(server) == LOST)

    assert [write[0] for write in server.writes] == ["POST", "PUT"]
    assert publisher.error is None


async def test_labels_are_published_with_the_topology(server):
    server.put_node()
    async with publishing(server) as publisher:
        publisher.set(Publication(HEALTHY, ZEROS, {keys.GFD_COUNT: "8"}))
        await until(lambda: len(server.writes) == 2)

    assert [write[:2] for write in server.writes] == [("POST", PATH), ("PATCH", NODE)]


async def test_labels_are_removed_and_the_topology_stays_without_gpus(server):
    ours = {"f:metadata": {"f:labels": {f"f:{keys.GFD_COUNT}": {}}}}
    entry = {"manager": "linkwise-agent", "operation": "Apply", "fieldsV1": ours}
    server.put_node(labels={keys.GFD_COUNT: "8"}, managed=[entry])
    async with publishing(server) as publisher:
        publisher.set(Publication(HEALTHY, ZEROS, {keys.GFD_COUNT: "8"}))
        await until(lambda: published(server))
        publisher.set(Publication())
        await until(lambda: len(server.writes) == 2)

    assert [write[:2] for write in server.writes] == [("POST", PATH), ("PATCH", NODE)]
    assert server.writes[1][3]["metadata"]["labels"] == {}


async def test_the_mode_in_use_is_written_where_it_differs(server):
    server.put_node()
    async with publishing(server) as publisher:
        publisher.set(Publication(mode_in_use="topology"))
        await until(lambda: server.writes)
        server.put_node(annotations={keys.MODE_IN_USE: "none"})
        publisher.set(Publication(HEALTHY, ZEROS, mode_in_use="none"))
        await until(lambda: published(server))
        # Not known: what is stored stays.
        publisher.set(Publication(LOST, ZEROS))
        await until(lambda: published(server) == LOST)

    [(method, path, _, body)] = [write for write in server.writes if write[0] == "PATCH"]
    assert (method, path) == ("PATCH", NODE)
    annotations = {keys.MODE_IN_USE: "topology"}
    assert body == {"metadata": {"uid": "uid-1", "annotations": annotations}}


async def test_what_others_delete_is_published_again_after_the_interval(server):
    server.put_node()
    async with publishing(server, interval=0.05) as publisher:
        publisher.set(Publication(HEALTHY, ZEROS))
        await until(lambda: published(server))
        del server.objects[PATH]
        await until(lambda: published(server))
        reads = len(server.reads)
        await until(lambda: len(server.reads) > reads + 4)

    assert [write[0] for write in server.writes] == ["POST", "POST"]


async def test_failure_is_retried(server):
    async with publishing(server, max_backoff=0.05) as publisher:
        publisher.set(Publication(HEALTHY, ZEROS))
        await until(lambda: publisher.error is not None)
        server.put_node()
        await until(lambda: published(server) == HEALTHY)
        await until(lambda: publisher.error is None)


async def test_nodes_check_at_different_intervals():
    kube = Kube("http://127.0.0.1:1")
    intervals = {Publisher(kube, f"gpu-{i}", interval=600)._interval for i in range(100)}

    assert len(intervals) == 100
    assert 480 <= min(intervals) < 500
    assert 700 < max(intervals) <= 720
