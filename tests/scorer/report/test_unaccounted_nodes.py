import pytest
from builders import a_pod
from waiting import until

from cluster import keys

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


def events(cluster):
    return [one for one in cluster.all("/api/v1/events") if one["reason"] == "NodeUnaccounted"]


async def test_an_unaccounted_node_gets_an_event(scorer, cluster):
    a_node(cluster, "gpu-0")
    await until(lambda: events(cluster))

    (event,) = events(cluster)
    about = event["involvedObject"]
    assert (about["kind"], about["name"], about["namespace"]) == ("Node", "gpu-0", "")
    assert event["metadata"]["namespace"] == "default"
    assert "team/on-gpu-0: it has GPUs of this node" in event["message"]
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

    assert [line["node"] for line in scorer.logged("Could not create event")] == ["gpu-0"]


@pytest.mark.usefixtures("scorer")
async def test_an_unaccounted_node_is_reported_once(cluster):
    for count, name in enumerate(("gpu-0", "gpu-1"), 1):
        a_node(cluster, name)
        await until(lambda count=count: len(events(cluster)) == count)

    names = [body["involvedObject"]["name"] for _, path, body in cluster.writes if "events" in path]
    assert names == ["gpu-0", "gpu-1"]


@pytest.mark.usefixtures("scorer")
async def test_the_event_of_a_node_names_a_pod_that_cannot_be_read(cluster):
    status = {"allocatable": {keys.GPU_WHOLE: "8"}}
    cluster.put("/api/v1/nodes/gpu-0", {"metadata": {"labels": {}}, "status": status})
    pod = a_pod({keys.GPU_WHOLE: 1}, name="odd", nodeName="gpu-0", tolerations="all")
    cluster.put(f"{PODS}/odd", pod)
    await until(lambda: events(cluster))

    assert "team/odd: its object cannot be read" in events(cluster)[0]["message"]
