from builders import a_pod
from waiting import until

from cluster import keys

NODE = "/api/v1/nodes/gpu-0"
POD = "/api/v1/namespaces/team/pods/untold"


def a_node(cluster):
    body = {
        "metadata": {"name": "gpu-0", "labels": {keys.NODE_MODE: "topology"}},
        "status": {"allocatable": {keys.GPU_WHOLE: "8"}},
    }
    cluster.put(NODE, body)


def a_holder(cluster, limit=1):
    """Create a pod that runs with GPUs of which nobody wrote which they are."""
    cluster.put(POD, a_pod({keys.GPU_WHOLE: limit}, name="untold", nodeName="gpu-0"))


def events(cluster):
    return [one for one in cluster.all("/api/v1/events") if one["reason"] == "NodeUnaccounted"]


async def test_a_node_of_which_nobody_knows_what_is_free_is_named_at_that_node(scorer, cluster):
    a_node(cluster)
    a_holder(cluster)
    await until(lambda: events(cluster), within=20)

    (event,) = events(cluster)
    about = event["involvedObject"]
    assert (about["kind"], about["name"], about["namespace"]) == ("Node", "gpu-0", "")
    assert event["metadata"]["namespace"] == "default"
    assert "team/untold: it has GPUs of this node" in event["message"]
    assert "linkwise_unaccounted_nodes 1.0" in (await scorer.probe("/metrics"))[1]


async def test_what_could_not_be_told_is_told_again_and_only_once(scorer, cluster):
    refused = []

    def refuse(_method, path, _body):
        if path.endswith("/events") and not refused:
            refused.append(path)
            return 500, "not now"
        return None

    cluster.refuse = refuse
    a_node(cluster)
    a_holder(cluster)
    await until(lambda: events(cluster), within=20)

    assert [line["node"] for line in scorer.said("Could not make event")] == ["gpu-0"]
    assert len(events(cluster)) == 1
