import msgspec
import pytest
from support.builders import dgx1_v100, topology_map

from agent.publish.topology import ATTEMPTS, publish_topology, topology_config_map
from linkwise.cluster import keys
from linkwise.cluster.nodes.topology_configmap import (
    PublishedError,
    PublishedTopology,
    read_published,
)
from linkwise.planning.state.node_info import NodeConfigMap
from linkwise.runtime.kube.client import ApiError, Kube

ZEROS = [[0.0] * 8] * 8
COLLECTION = "/api/v1/namespaces/kube-system/configmaps"
PATH = f"{COLLECTION}/topology-gpu-0"


def a_topology(*unhealthy, mismatch=None):
    healthy = tuple(i not in unhealthy for i in range(8))
    return PublishedTopology(dgx1_v100(), healthy, "535.161.08", mismatch=mismatch)


def desired(*unhealthy, uid="uid-1", **fields):
    return topology_config_map("gpu-0", uid, a_topology(*unhealthy, **fields), ZEROS)


async def publish(server, config_map):
    async with Kube(server.url) as kube:
        return await publish_topology(kube, config_map)


def stored(server):
    return msgspec.convert(server.objects[PATH], NodeConfigMap)


def test_config_map_belongs_to_the_node_and_is_read_back():
    raw = msgspec.to_builtins(desired(3, mismatch="PID 7"))

    assert raw["metadata"] == {
        "name": "topology-gpu-0",
        "labels": {keys.NODE_MODE: "topology", keys.TOPOLOGY_NODE: "gpu-0"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "gpu-0", "uid": "uid-1"}],
    }
    config_map = msgspec.convert(raw, NodeConfigMap)
    assert (config_map.node, config_map.lists_unhealthy) == ("gpu-0", False)
    assert read_published(config_map.data) == a_topology(3, mismatch="PID 7")


def test_topology_without_a_machine_cannot_be_published():
    with pytest.raises(PublishedError):
        topology_config_map("gpu-0", "uid-1", PublishedTopology(None, ()), [])


async def test_topology_is_created_once_and_then_only_read(server):
    assert await publish(server, desired())
    for _ in range(3):
        assert not await publish(server, desired())

    assert [write[:2] for write in server.writes] == [("POST", PATH)]
    assert len(server.reads) == 4


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(desired(3), id="health"),
        pytest.param(desired(mismatch="PID 7"), id="mismatch"),
        pytest.param(desired(uid="uid-2"), id="node registered again"),
    ],
)
async def test_changed_topology_replaces_that_of_the_same_version(server, change):
    await publish(server, desired())
    version = server.objects[PATH]["metadata"]["resourceVersion"]

    assert await publish(server, change)

    method, path, _, body = server.writes[-1]
    assert (method, path, body["metadata"]["resourceVersion"]) == ("PUT", PATH, version)
    assert not await publish(server, change)


async def test_foreign_content_is_replaced(server):
    server.put(PATH, topology_map("other", a_topology(1)))

    assert await publish(server, desired())

    assert stored(server).node == "gpu-0"
    assert read_published(stored(server).data) == a_topology()


def created(server):
    server.put(PATH, msgspec.to_builtins(desired(1)))


def deleted(server):
    del server.objects[PATH]


@pytest.mark.parametrize(
    ("exists", "concurrently"),
    [
        pytest.param(False, created, id="created"),
        pytest.param(True, created, id="changed"),
        pytest.param(True, deleted, id="deleted by the garbage collector"),
    ],
)
async def test_concurrent_change_is_read_and_written_again(server, exists, concurrently):
    if exists:
        await publish(server, desired())
    server.before_write.append(lambda: concurrently(server))

    assert await publish(server, desired(3))

    assert read_published(stored(server).data) == a_topology(3)


async def test_config_map_that_changes_all_the_time_is_an_error(server):
    created(server)
    server.before_write += [lambda: created(server)] * (ATTEMPTS + 1)

    with pytest.raises(ApiError) as caught:
        await publish(server, desired(3))

    assert caught.value.status == 409
    assert len(server.before_write) == 1


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_refusal_is_raised(server, method):
    server.refuses[method, PATH if method == "GET" else COLLECTION] = 403

    with pytest.raises(ApiError):
        await publish(server, desired())
