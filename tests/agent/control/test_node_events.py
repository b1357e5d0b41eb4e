import asyncio
import json

import pytest
from structlog.testing import capture_logs
from support.servers.fake_api import FakeAPI, status
from support.waiting import until

from agent.control.desired_state import Problem, ProblemReason
from agent.control.node_events import NodeEvents
from linkwise.runtime.kube import event_recorder
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.kube.event_recorder import EventRecorder
from linkwise.runtime.process.work_queue import Retry

LOST = Problem(ProblemReason.GPU_UNHEALTHY, "GPU 3 is lost")
WAITS = Problem(ProblemReason.MODE_NOT_SWITCHED, "mode share waits")


@pytest.fixture
async def api():
    async with FakeAPI() as api:
        yield api


@pytest.fixture
async def events(api, monkeypatch):
    monkeypatch.setattr(event_recorder, "_RETRY", Retry(0.01, 0.01))
    times = iter(range(100))
    async with Kube(api.url) as kube:
        recorder = EventRecorder(kube, "linkwise-agent", "n1", lambda: 0.0)
        task = asyncio.create_task(recorder.run())
        yield NodeEvents(recorder, "n1", lambda: float(next(times)))
        task.cancel()


def created(api):
    return [json.loads(body)["message"] for *_, body in api.calls]


async def test_each_problem_has_one_event_while_it_lasts(api, events):
    for problems in ([LOST], [LOST, WAITS], [LOST, WAITS]):
        events.report(problems)
    await until(lambda: len(created(api)) >= 2)

    assert created(api) == [LOST.message, WAITS.message]


async def test_a_problem_that_returns_has_another_event(api, events):
    events.report([LOST])
    await until(lambda: created(api))
    events.report([])
    events.report([LOST])
    await until(lambda: len(created(api)) == 2)

    names = {json.loads(body)["metadata"]["name"] for *_, body in api.calls}
    assert len(names) == 2


async def test_a_problem_that_ended_before_its_event_was_created_has_none(api, events):
    events.report([LOST])
    events.report([WAITS])
    await until(lambda: created(api))

    assert created(api) == [WAITS.message]


async def test_an_event_that_cannot_be_created_is_created_later_and_logged_once(api, events):
    api.faults["call"].extend([status(503)] * 3)
    with capture_logs() as logs:
        events.report([LOST])
        await until(lambda: len(api.calls) == 4)
        for _ in range(5):
            events.report([LOST])

    names = {json.loads(body)["metadata"]["name"] for *_, body in api.calls}
    assert (len(api.calls), len(names)) == (4, 1)
    assert [log["event"] for log in logs] == ["Problem of the node", "Could not create event"]
