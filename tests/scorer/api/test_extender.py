import json

import pytest
from support.builders import a_pod
from support.waiting import until, until_true

from linkwise.cluster import keys
from linkwise.planning.placement.filtering.reasons import Reason
from scorer.timings import Timings

NODE = {"status": {"allocatable": {keys.GPU_WHOLE: "8", "cpu": "96", "pods": "110"}}}
LABELS = {keys.NODE_MODE: "topology"}
NOT_LEADING = "this scorer does not lead"


@pytest.fixture
def beside():
    return "replica-0_scheduler"


def asking(cluster, gpus=8, name="train", **fields):
    """Create a pod; return the body of a scheduler's requests about it."""
    path = f"/api/v1/namespaces/default/pods/{name}"
    pod = cluster.put(path, a_pod({keys.GPU_WHOLE: gpus}, name=name))
    return {"Pod": pod, **fields}


def binding(pod, node="gpu-0"):
    metadata = pod["metadata"]
    return {
        "PodName": metadata["name"],
        "PodNamespace": metadata["namespace"],
        "PodUID": metadata["uid"],
        "Node": node,
    }


@pytest.fixture
def nodes(cluster):
    for name in ("gpu-0", "gpu-1"):
        cluster.put(f"/api/v1/nodes/{name}", {"metadata": {"labels": LABELS}, **NODE})


async def send(scorer, verb, body):
    status, text = await scorer.ask(verb, json.dumps(body))
    return status, json.loads(text) if status == 200 else text


async def bound(scorer, pod, node="gpu-0"):
    """Bind the pod once the watch has shown it; return the error, or an empty text."""
    errors = []

    async def known():
        errors.append((await send(scorer, "bind", binding(pod, node)))[1]["Error"])
        return "does not show this pod yet" not in errors[-1]

    await until_true(known)
    return errors[-1]


@pytest.mark.usefixtures("nodes")
async def test_a_scheduler_filters_prioritizes_and_binds_a_pod(scorer, cluster):
    body = asking(cluster, NodeNames=["gpu-0", "gpu-1", "web"])

    assert await send(scorer, "filter", body) == (
        200,
        {
            "NodeNames": ["gpu-0", "gpu-1"],
            "FailedNodes": {},
            "FailedAndUnresolvableNodes": {"web": Reason.UNKNOWN},
            "Error": "",
        },
    )
    assert await send(scorer, "prioritize", body | {"NodeNames": ["gpu-0", "web"]}) == (
        200,
        [{"Host": "gpu-0", "Score": 10}, {"Host": "web", "Score": 0}],
    )
    assert await bound(scorer, body["Pod"]) == ""
    assert cluster.get("/api/v1/namespaces/default/pods/train")["spec"]["nodeName"] == "gpu-0"

    late = asking(cluster, name="late", NodeNames=["gpu-0"])
    assert (await send(scorer, "filter", late))[1]["FailedNodes"] == {"gpu-0": Reason.GPUS}
    assert await bound(scorer, late["Pod"]) == Reason.GPUS

    urgent = asking(cluster, name="urgent")
    urgent["Pod"]["spec"]["priority"] = 100
    victims = {"Pods": [{"UID": body["Pod"]["metadata"]["uid"]}], "NumPDBViolations": 1}
    urgent["NodeNameToMetaVictims"] = {"gpu-0": victims, "web": victims}
    assert await send(scorer, "preempt", urgent) == (
        200,
        {"NodeNameToMetaVictims": {"gpu-0": victims}},
    )


PODS = "/api/v1/namespaces/default/pods"


def requeued(cluster):
    """Return the pods that were changed so that their scheduler tries them again."""
    pods = (cluster.get(f"{PODS}/{name}") for name in ("late", "apart", "first"))
    return [
        pod["metadata"]["name"]
        for pod in pods
        if pod and keys.REQUEUED in pod["metadata"].get("annotations", {})
    ]


@pytest.mark.parametrize("timings", [Timings(requeue_interval=0.05)])
@pytest.mark.usefixtures("nodes")
async def test_a_pod_that_fits_since_it_was_refused_is_requeued(scorer, cluster):
    for name, node in (("train", "gpu-0"), ("serve", "gpu-1")):
        assert await bound(scorer, asking(cluster, name=name)["Pod"], node) == ""
    late, apart = asking(cluster, name="late"), asking(cluster, name="apart")
    for body, node in ((late, "gpu-0"), (apart, "gpu-1")):
        answer = await send(scorer, "filter", body | {"NodeNames": [node]})
        assert answer[1]["FailedNodes"] == {node: Reason.GPUS}

    # Its scheduler has seen the end already, and tries the pod again by itself only after minutes.
    cluster.remove(f"{PODS}/train")
    await until(lambda: requeued(cluster))

    # The other one may be on a node alone that is still full.
    assert requeued(cluster) == ["late"]
    # The log follows the answer to the write.
    await until(lambda: scorer.logged("Requeued pod"))
    assert [line["pod"] for line in scorer.logged("Requeued pod")] == ["default/late"]
    # Whenever it is refused anew.
    assert await bound(scorer, asking(cluster, name="train")["Pod"]) == ""
    await send(scorer, "filter", late | {"NodeNames": ["gpu-0"]})
    cluster.remove(f"{PODS}/train")
    await until(lambda: len(scorer.logged("Requeued pod")) == 2)


@pytest.mark.parametrize("timings", [Timings(requeue_interval=0.05)])
@pytest.mark.usefixtures("nodes")
async def test_a_pod_that_does_not_wait_any_more_is_not_requeued(scorer, cluster):
    assert await bound(scorer, asking(cluster)["Pod"]) == ""
    first, apart = asking(cluster, name="first"), asking(cluster, name="apart")
    late = asking(cluster, name="late")
    for body in (first, apart, late):
        await send(scorer, "filter", body | {"NodeNames": ["gpu-0"]})
    # One is found a node, one is replaced.
    await send(scorer, "filter", first | {"NodeNames": ["gpu-1"]})
    cluster.remove(f"{PODS}/apart")
    asking(cluster, name="apart")

    cluster.remove(f"{PODS}/train")
    await until(lambda: requeued(cluster))

    assert requeued(cluster) == ["late"]


@pytest.mark.usefixtures("nodes")
async def test_responses_are_logged_and_counted(scorer, cluster):
    body = asking(cluster, NodeNames=["gpu-0", "web"])
    await send(scorer, "filter", body)
    await send(scorer, "filter", body | {"NodeNames": ["web"]})
    await send(scorer, "filter", {})
    await bound(scorer, body["Pod"])

    _, metrics = await scorer.probe("/metrics")
    for verb, result in [("filter", "fits"), ("filter", "fits nowhere"), ("filter", "failed")]:
        sample = f'linkwise_extender_responses_total{{result="{result}",verb="{verb}"}} 1.0'
        assert sample in metrics
    assert 'linkwise_extender_responses_total{result="bound",verb="bind"} 1.0' in metrics
    assert 'linkwise_http_request_duration_seconds_count{path="/filter"} 3.0' in metrics
    [line] = [
        one
        for one in scorer.logged("Answered request")
        if one["path"] == "/bind" and one["result"] == "bound"
    ]
    assert (line["pod"], line["node"]) == ("default/train", "gpu-0")


@pytest.mark.parametrize(
    ("body", "errors"),
    [
        ({"Pod": a_pod({}), "Nodes": {"items": []}}, "set nodeCacheCapable to true"),
        ({"NodeNames": []}, "no Pod"),
    ],
    ids=["whole nodes", "no pod"],
)
async def test_an_invalid_request_has_an_error_for_the_scheduler(scorer, body, errors):
    status, answer = await send(scorer, "filter", body)
    assert (status, errors in answer["Error"], answer["NodeNames"]) == (200, True, [])
    status, answer = await send(scorer, "bind", body)
    assert (status, "PodName" in answer["Error"]) == (200, True)
    status, text = await send(scorer, "prioritize", body)
    assert (status, errors in text) == (503, True)


@pytest.mark.parametrize("beside", ["replica-1_scheduler"])
@pytest.mark.usefixtures("nodes")
async def test_a_replica_that_does_not_lead_lets_the_scheduler_retry(started, cluster):
    body = asking(cluster, NodeNames=["gpu-0"])

    assert (await send(started, "filter", body))[1]["Error"] == NOT_LEADING
    assert await bound(started, body["Pod"]) == NOT_LEADING
    for verb in ("prioritize", "preempt"):
        assert await send(started, verb, body) == (503, f"{NOT_LEADING}\n")


@pytest.mark.parametrize("started", [{"write_seconds": 60}], indirect=True)
async def test_a_leader_that_is_not_synced_says_so(started, cluster):
    async def leads():
        return "linkwise_leader 1.0" in (await started.probe("/metrics"))[1]

    await until_true(leads)
    body = asking(cluster, NodeNames=["gpu-0"])

    assert "not listed yet" in (await send(started, "filter", body))[1]["Error"]
    assert "not listed yet" in await bound(started, body["Pod"])


async def test_it_leads_under_the_term_of_its_scheduler(scorer):
    assert [line["term"] for line in scorer.logged("Leading")] == [3]


@pytest.mark.parametrize("beside", [""])
async def test_a_scorer_without_a_scheduler_leads(scorer):
    assert scorer.logged("Acquired Lease")
    assert (await scorer.look("/filter"))[0] == 404
