import pytest
from support.servers.leader_harness import leading
from support.waiting import until


def grow(pod, part):
    """Add more items of one kind to a pod than is stored."""
    metadata, spec = pod["metadata"], pod["spec"]
    match part:
        case "tolerations":
            spec["tolerations"] = [{"key": "a", "operator": "Exists"}] * 1100
        case "owners":
            metadata["ownerReferences"] = [{"kind": "Job", "name": "a", "uid": "a"}] * 300
        case "labels":
            metadata["labels"] = {f"label-{i}": "" for i in range(5000)}
        case "annotation":
            metadata["annotations"]["note"] = "x" * 300_000
        case "env":
            spec["containers"][0]["env"] = [{"name": "A", "value": "x" * 300_000}]
        case "containers":
            spec["containers"] += [{"name": f"c-{i}"} for i in range(1100)]


@pytest.mark.parametrize(
    "part", ["tolerations", "owners", "labels", "annotation", "env", "containers"]
)
async def test_gpus_of_a_pod_are_not_allocated_again_whatever_its_size(cluster, part):
    cluster.node(gpus=2)
    async with leading(cluster):
        cluster.pod("first")
        await until(lambda: cluster.allocated("first"))
    cluster.bind("first")
    pod = cluster["first"]
    grow(pod, part)
    cluster.put("/api/v1/namespaces/team/pods/first", pod)
    cluster.pod("second")

    async with leading(cluster, term=8):
        await until(lambda: cluster.allocated("second"))

    given = [gpu["i"] for name in ("first", "second") for gpu in cluster.record(name)["gpus"]]
    assert sorted(given) == [0, 1]
