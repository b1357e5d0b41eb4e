import asyncio
from contextlib import asynccontextmanager

from aiohttp import web
from structlog.testing import capture_logs
from support.servers.fake_api import status, text
from support.waiting import until

from linkwise.cluster import keys
from linkwise.cluster.scorer_lease import LEASE
from linkwise.policy.active_config import PROFILES
from linkwise.runtime.kube import event_recorder
from linkwise.runtime.kube.client import Kube
from webhook.informers import Informers

NODES = "/api/v1/nodes"
PROFILE_MAPS = f"/api/v1/namespaces/{keys.PROFILE_NAMESPACE}/configmaps"
TOPOLOGY = {keys.NODE_MODE: "topology"}


@asynccontextmanager
async def watching(cluster):
    async with Kube(cluster.url) as kube:
        informers = Informers(kube, instance="replica-0", clock=lambda: 0.0, interval=0)
        task = asyncio.create_task(informers.run())
        try:
            yield informers
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_labels_of_namespaces_follow_the_cluster(cluster):
    async with watching(cluster) as informers:
        await until(lambda: informers.not_ready_reason() is None)
        cluster.namespace("team", a="b")
        await until(lambda: "team" in informers.namespaces)

        assert dict(informers.namespaces) == {"default": {}, "team": {"a": "b"}}
        assert len(informers.namespaces) == 2
        assert informers.namespaces.get("other") is None


async def test_failed_list_is_the_not_ready_reason(cluster):
    cluster.collections["/api/v1/namespaces"].faults["list"].append(status(403, message="no"))
    async with watching(cluster) as informers:
        assert "the list is in progress" in informers.not_ready_reason()
        assert all(age() is None for age in informers.watch_ages().values())
        await until(lambda: "no (status 403)" in (informers.not_ready_reason() or ""))
        await until(lambda: informers.not_ready_reason() is None)


def a_lease(gpus, kinds=""):
    """Return an answer: the Lease of a scorer that knows claims nodes of so many GPUs."""

    async def answer(_request):
        annotations = {keys.CLAIMS_NODES: gpus, keys.GPU_KINDS: kinds}
        return web.json_response({"metadata": {"annotations": annotations}, "spec": {}})

    return answer


async def test_no_pod_is_admitted_before_it_is_known_whether_there_are_claims_nodes(cluster):
    answers = cluster.collections[LEASE].faults["list"]
    answers.extend([status(503)] * 10_000)
    async with watching(cluster) as informers:
        await until(lambda: "Lease" in (informers.not_ready_reason() or ""))
        answers.clear()
        await until(lambda: informers.not_ready_reason() is None)


async def test_without_a_lease_pods_are_admitted(cluster):
    cluster.collections[LEASE].faults["list"].extend([status(404)] * 10_000)
    async with watching(cluster) as informers:
        await until(lambda: informers.not_ready_reason() is None)


async def test_claims_nodes_are_those_without_resources_while_the_scorer_knows_some(cluster):
    cluster.node("claims", TOPOLOGY)
    cluster.node("agent", TOPOLOGY, **{keys.GPU_WHOLE: 4})
    answers = cluster.collections[LEASE].faults["list"]
    async with watching(cluster) as informers:
        await until(lambda: informers.capacity.nodes == 2)
        assert informers.capacity.claims == ()
        answers.append(a_lease("8"))
        answers.extend([status(503)] * 10_000)
        await until(lambda: informers.capacity.claims)
        assert [(node.name, node.gpus) for node in informers.capacity.claims] == [("claims", 8)]

        cluster.node("more", TOPOLOGY)
        await until(lambda: len(informers.capacity.claims) == 2)
        assert not informers.capacity.gpu_kinds
        answers.clear()
        answers.append(a_lease("8", '[{"capacity": {"memory": {"value": "80Gi"}}}]'))
        answers.extend([status(503)] * 10_000)
        await until(lambda: informers.capacity.gpu_kinds)
        answers.clear()
        answers.append(a_lease(""))
        await until(lambda: informers.capacity.claims == ())


async def test_capacity_follows_nodes_and_skips_invalid_ones(cluster):
    cluster.node("a", TOPOLOGY, **{keys.GPU_WHOLE: 4})
    cluster.node("b", TOPOLOGY, **{keys.GPU_WHOLE: "many"})
    async with watching(cluster) as informers:
        await until(lambda: informers.capacity.whole == 4)
        assert informers.capacity.nodes == 1
        for number in range(60):
            cluster.node(f"more-{number}", TOPOLOGY, **{keys.GPU_WHOLE: 8})
        await until(lambda: (informers.capacity.nodes, informers.capacity.whole) == (61, 8))
        cluster.collections[NODES].remove("a")
        await until(lambda: informers.capacity.nodes == 60)


async def test_failed_event_is_tried_again_and_does_not_block_later_ones(cluster):
    cluster.faults["call"].extend([status(409, "AlreadyExists"), text(500, "broken")])
    async with watching(cluster):
        for wrong in ("[1]", "[2]", "[3]"):
            cluster.profiles(text=wrong)
            await until(lambda text=wrong: _events_about(cluster, text))
        await until(lambda: len(cluster.events()) == 4)

        assert len(_names(cluster)) == 3
        assert [event["firstTimestamp"] for event in cluster.events()] == [
            "1970-01-01T00:00:00Z"
        ] * 4
        assert {event["reportingInstance"] for event in cluster.events()} == {"replica-0"}


async def test_an_event_that_raises_does_not_end_the_informers(cluster, monkeypatch):
    rfc3339 = event_recorder.rfc3339
    moments = iter([None])
    monkeypatch.setattr(event_recorder, "rfc3339", lambda now: rfc3339(next(moments, now)))
    with capture_logs() as logs:
        async with watching(cluster):
            cluster.profiles(text="[1]")
            await until(lambda: logged(logs, "Could not create event"))
            cluster.profiles(text="[2]")
            await until(cluster.events)

    (line,) = logged(logs, "Could not create event")
    assert isinstance(line["exc_info"], TypeError)


def logged(logs, event):
    return [line for line in logs if line["event"] == event]


async def test_each_invalid_content_gets_one_event(cluster):
    async with watching(cluster) as informers:
        cluster.profiles(text="[1]")
        await until(cluster.events)
        cluster.profiles(text="[1]")
        await until(lambda: _seen(informers) == cluster.collections[PROFILE_MAPS].version)
        cluster.profiles(text='[{"name": ""}]')
        await until(lambda: _seen(informers) == cluster.collections[PROFILE_MAPS].version)
        await until(lambda: len(cluster.events()) > 1)
        first, second = cluster.events()

    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert first["message"] != second["message"]


def _seen(informers):
    """Return the version of the profiles that the watch has shown."""
    (config_map,) = informers._config_maps[PROFILES].items.values()
    return int(config_map.metadata.resource_version)


async def test_watch_ages_count_from_the_last_event(cluster):
    async with watching(cluster) as informers:
        await cluster.watched()
        ages = informers.watch_ages()

        assert ages.keys() == {"namespaces", "nodes", keys.POLICY_NAME, keys.PROFILE_NAME}
        assert all(0 <= age() < 5 for age in ages.values())
        assert 0 <= informers.policy_age() < 5


def _names(cluster):
    return {event["metadata"]["name"] for event in cluster.events()}


def _events_about(cluster, wrong):
    return len(_names(cluster)) == int(wrong[1])
