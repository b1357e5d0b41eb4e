import json

import pytest
from support.builders import a_pod, an_nvswitch_machine, with_gpus
from support.servers.informers_harness import CONFIG_MAPS
from support.waiting import until, until_true

from linkwise.cluster import keys
from linkwise.cluster.nodes.topology_configmap import PublishedTopology, write_published
from linkwise.cluster.scorer_lease import LEASE

PODS = "/api/v1/namespaces/team/pods"


def a_node(cluster, name):
    """Create a node with a running pod whose GPUs are not recorded."""
    body = {
        "metadata": {"name": name, "labels": {keys.NODE_MODE: "topology"}},
        "status": {"allocatable": {keys.GPU_WHOLE: "8"}},
    }
    cluster.put(f"/api/v1/nodes/{name}", body)
    pod = a_pod({keys.GPU_WHOLE: 1}, name=f"on-{name}", nodeName=name)
    cluster.put(f"{PODS}/on-{name}", pod)


def events(cluster, reason="NodeUnaccounted", kind="Node"):
    return [
        one
        for one in cluster.all("/api/v1/events")
        if (one["reason"], one["involvedObject"]["kind"]) == (reason, kind)
    ]


async def test_an_unaccounted_node_gets_an_event(scorer, cluster):
    a_node(cluster, "gpu-0")
    await until(lambda: events(cluster))

    (event,) = events(cluster)
    about = event["involvedObject"]
    assert (about["kind"], about["name"], about["namespace"]) == ("Node", "gpu-0", "")
    assert event["metadata"]["namespace"] == "default"
    assert "`linkwise inspect gpu-0` states the reason" in event["message"]
    assert "on-gpu-0" not in json.dumps(event)
    await until(lambda: events(cluster, kind="Pod"))
    (event,) = events(cluster, kind="Pod")
    about = event["involvedObject"]
    assert (about["kind"], about["name"], about["namespace"]) == ("Pod", "on-gpu-0", "team")
    assert event["metadata"]["namespace"] == "team"
    assert "it has GPUs of this node" in event["message"]
    assert "linkwise_unaccounted_nodes 1.0" in (await scorer.probe("/metrics"))[1]


async def test_a_refused_event_is_retried(scorer, cluster):
    refused = []

    def refuse(_method, path, _body):
        if path.endswith("/events") and not refused:
            refused.append(path)
            return 500, "not now"
        return None

    cluster.refuse = refuse
    a_node(cluster, "gpu-0")
    await until(lambda: events(cluster))

    assert [line["about"] for line in scorer.logged("Could not create event")] == ["Node /gpu-0"]


@pytest.mark.usefixtures("scorer")
async def test_an_unaccounted_node_is_reported_once(cluster):
    for count, name in enumerate(("gpu-0", "gpu-1"), 1):
        a_node(cluster, name)
        await until(lambda count=count: len(events(cluster)) == count)

    about = [body["involvedObject"] for _, path, body in cluster.writes if "events" in path]
    assert [one["name"] for one in about if one["kind"] == "Node"] == ["gpu-0", "gpu-1"]


@pytest.mark.usefixtures("scorer")
async def test_a_pod_that_cannot_be_read_has_an_event(cluster):
    status = {"allocatable": {keys.GPU_WHOLE: "8"}}
    cluster.put("/api/v1/nodes/gpu-0", {"metadata": {"labels": {}}, "status": status})
    pod = a_pod({keys.GPU_WHOLE: 1}, name="odd", nodeName="gpu-0", tolerations="all")
    cluster.put(f"{PODS}/odd", pod)
    await until(lambda: events(cluster, kind="Pod"))

    assert "team/odd: its object cannot be read" in events(cluster, kind="Pod")[0]["message"]


async def test_a_node_whose_machine_changes_often_has_a_reason_wherever_people_look(
    scorer, cluster
):
    async def view():
        (node,) = json.loads((await scorer.look("/v1/nodes"))[1])["nodes"]
        return node

    status = {"allocatable": {keys.GPU_WHOLE: "8"}}
    metadata = {"name": "gpu-0", "labels": {keys.NODE_MODE: "topology"}}
    cluster.put("/api/v1/nodes/gpu-0", {"metadata": metadata, "status": status})
    for links in range(1, 5):
        uuids = tuple(f"GPU-{links}-{i}" for i in range(8))
        machine = with_gpus(an_nvswitch_machine(8, links), uuid=uuids)
        data = write_published(PublishedTopology(machine, (True,) * 8), [[0.0] * 8] * 8)
        labels = {keys.NODE_MODE: "topology", keys.TOPOLOGY_NODE: "gpu-0"}
        config_map = {"metadata": {"labels": labels}, "data": data}
        cluster.put(f"{CONFIG_MAPS}/gpu-0-topology", config_map)

        async def is_seen(first=uuids[0]):
            return first in (await scorer.look("/v1/nodes"))[1]

        await until_true(is_seen)
    await until(lambda: events(cluster, "NodeMachineRefused"))

    why = "its agent or driver published another machine 3 times in 10 minutes"
    assert why in (await view())["unaccounted"]
    assert why in events(cluster, "NodeMachineRefused")[0]["message"]
    annotation = keys.REFUSED_MACHINES
    await until(lambda: cluster.get(LEASE)["metadata"]["annotations"].get(annotation))
    refused = json.loads(cluster.get(LEASE)["metadata"]["annotations"][annotation])
    assert why in refused["gpu-0"]
