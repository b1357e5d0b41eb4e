import json

import pytest
from fake_api import FakeAPI, status
from structlog.testing import capture_logs

from agent.control.desired_state import Problem, ProblemReason
from agent.control.node_events import NodeEvents
from runtime.kube.client import Kube
from runtime.kube.event_recorder import EventRecorder

LOST = Problem(ProblemReason.GPU_UNHEALTHY, "GPU 3 is lost")
WAITS = Problem(ProblemReason.MODE_NOT_SWITCHED, "mode share waits")


@pytest.fixture
async def api():
    async with FakeAPI() as api:
        yield api


@pytest.fixture
async def events(api):
    times = iter(range(100))
    async with Kube(api.url) as kube:
        recorder = EventRecorder(kube, "linkwise-agent", "n1", lambda: 0.0)
        yield NodeEvents(recorder, "n1", lambda: float(next(times)))


def created(api):
    return [json.loads(body)["message"] for *_, body in api.calls]


async def test_each_problem_has_one_event_while_it_lasts(api, events):
    for problems in ([LOST], [LOST, WAITS], [LOST, WAITS]):
        await events.report(problems)

    assert created(api) == [LOST.message, WAITS.message]


async def test_a_problem_that_returns_has_another_event(api, events):
    for problems in ([LOST], [], [LOST]):
        await events.report(problems)

    names = {json.loads(body)["metadata"]["name"] for *_, body in api.calls}
    assert len(names) == 2


async def test_an_event_that_cannot_be_created_is_created_later_and_logged_once(api, events):
    api.faults["call"].extend([status(503)] * 3)
    with capture_logs() as logs:
        for _ in range(5):
            await events.report([LOST])

    names = {json.loads(body)["metadata"]["name"] for *_, body in api.calls}
    assert (len(api.calls), len(names)) == (4, 1)
    assert [log["event"] for log in logs] == ["Problem of the node", "Could not create event"]
