import asyncio
import re
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count

import pytest
from structlog.testing import capture_logs
from support.servers.fake_cluster import FakeCluster
from support.waiting import until

from linkwise.runtime.kube import event_recorder
from linkwise.runtime.kube.client import ApiError, Kube
from linkwise.runtime.kube.event_recorder import Event, EventRecorder, ObjectReference
from linkwise.runtime.process import work_queue
from linkwise.runtime.process.work_queue import Retry

JOB = ObjectReference("kubeflow.org/v1", "MPIJob", "bert", "7f3c", "team")
NODE = ObjectReference("v1", "Node", "gpu-0", "gpu-0")
MAP = ObjectReference("v1", "ConfigMap", "acs-profile", "c1", "kube-system", "7")
EVENT = Event(JOB, "GangWaiting", "Gang bert waits", "new")
VALID = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


async def recorded(*events, refuse=None, instance="a"):
    """Return the Events that the API server stores."""
    async with FakeCluster() as cluster, Kube(cluster.url) as kube:
        cluster.refuse = lambda *_: refuse
        recorder = EventRecorder(kube, "scorer", instance, lambda: 1_767_323_045.9)
        for event in events:
            await recorder.create(event)
        return cluster.all("/api/v1/events")


async def test_an_event_has_the_fields_of_both_event_apis():
    (event,) = await recorded(EVENT)

    metadata = event.pop("metadata")
    assert (metadata["name"], metadata["namespace"]) == (EVENT.name, "team")
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {
            "apiVersion": "kubeflow.org/v1",
            "kind": "MPIJob",
            "name": "bert",
            "namespace": "team",
            "uid": "7f3c",
        },
        "type": "Warning",
        "reason": "GangWaiting",
        "message": "Gang bert waits",
        "source": {"component": "scorer", "host": "a"},
        "reportingComponent": "scorer",
        "reportingInstance": "a",
        "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T03:04:05Z",
        "count": 1,
    }


async def test_an_event_without_a_warning_is_normal():
    (event,) = await recorded(replace(EVENT, is_warning=False))
    assert event["type"] == "Normal"


@pytest.mark.parametrize(
    ("about", "namespace"), [(MAP, "kube-system"), (NODE, "default")], ids=["ConfigMap", "node"]
)
async def test_an_event_is_created_where_kubectl_looks_for_it(about, namespace):
    (event,) = await recorded(replace(EVENT, about=about))

    assert event["metadata"]["namespace"] == namespace
    assert event["involvedObject"]["namespace"] == about.namespace
    assert event["involvedObject"].get("resourceVersion") == about.resource_version


async def test_one_change_is_recorded_once_by_all_replicas():
    assert len(await recorded(EVENT, replace(EVENT, message="Gang bert still waits"))) == 1


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(EVENT, change="1-1"), id="change"),
        pytest.param(replace(EVENT, reason="GangPlaced"), id="reason"),
        pytest.param(replace(EVENT, about=replace(JOB, uid="7f3d")), id="uid"),
    ],
)
async def test_another_change_is_another_event(other):
    assert len(await recorded(EVENT, other)) == 2


async def test_an_event_that_is_refused_raises():
    with pytest.raises(ApiError, match="quota"):
        await recorded(EVENT, refuse=(403, "quota"))


@pytest.mark.parametrize("name", ["x" * 253, "x" * 235 + "." + "y" * 17, "a"])
def test_the_name_of_an_event_is_valid_for_every_object_name(name):
    found = replace(EVENT, about=replace(JOB, name=name)).name

    assert len(found) <= 253
    assert VALID.fullmatch(found)


async def test_message_is_truncated_to_the_limit_of_the_api_server():
    (event,) = await recorded(replace(EVENT, message="x" * 2000))
    assert event["message"] == "x" * 1023 + "…"


@asynccontextmanager
async def recording(cluster):
    """Create Events in the background."""
    async with Kube(cluster.url) as kube:
        recorder = EventRecorder(kube, "scorer", "a", lambda: 0.0)
        task = asyncio.create_task(recorder.run())
        yield recorder
        task.cancel()


def about(namespace, change):
    return replace(EVENT, about=replace(JOB, namespace=namespace), change=change)


def created(cluster):
    return [event["metadata"]["namespace"] for event in cluster.all("/api/v1/events")]


def test_an_event_is_tried_again_for_about_17_minutes(monkeypatch):
    monkeypatch.setattr(work_queue, "_JITTER", (1, 1))

    delays = list(iter(map(event_recorder._RETRY.delay, count(1)).__next__, None))

    assert sum(delays) == pytest.approx(17 * 60, rel=0.05)


async def test_an_event_that_is_refused_is_tried_again_and_delays_no_other(monkeypatch):
    monkeypatch.setattr(event_recorder, "_RETRY", Retry(0.01, 0.01))
    refused = []

    def refuse(_method, path, _body):
        if "/team/" in path and len(refused) < 3:
            refused.append(path)
            return 403, "quota"
        return None

    with capture_logs() as logs:
        async with FakeCluster() as cluster, recording(cluster) as recorder:
            cluster.refuse = refuse
            recorder.record(EVENT)
            recorder.record(about("other", "1"))
            await until(lambda: sorted(created(cluster)) == ["other", "team"])

    assert len(refused) == 3
    assert [line["reason"] for line in logs if line["event"] == "Could not create event"]


async def test_an_event_that_is_always_refused_is_given_up(monkeypatch):
    monkeypatch.setattr(event_recorder, "_RETRY", Retry(0.01, 0.01, attempts=3))
    refused = []
    with capture_logs() as logs:
        async with FakeCluster() as cluster, recording(cluster) as recorder:
            cluster.refuse = lambda _method, path, _body: refused.append(path) or (403, "no")
            recorder.record(EVENT)
            await until(lambda: logs and logs[-1].get("retry_after", "") is None)

    assert len(refused) == 3


async def test_very_many_events_of_a_namespace_are_dropped_and_delay_no_other():
    async with FakeCluster() as cluster, recording(cluster) as recorder:
        taken = [recorder.record(about("other", str(number))) for number in range(10_000)]
        assert recorder.record(EVENT)
        await until(lambda: "team" in created(cluster))
        assert len(created(cluster)) < 20
    assert sum(taken) == 256
