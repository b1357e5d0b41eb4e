"""The audit of the node, with processes of this machine."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from fake_api import FakeAPI, status
from gpu_readings import reading
from waiting import until

from agent.mps.daemon import ControlDaemon, DaemonSettings
from agent.mps.isolation import Prober
from agent.mps_shares import MPSShares
from agent.node_events import NodeEvents
from agent.process_audit import ProcessAudit
from cluster.mode import NodeMode
from runtime.kube.client import Kube
from runtime.kube.event_recorder import EventRecorder


class Driver:
    """This process uses GPU 0."""

    def processes(self):
        return ((0, os.getpid()),)


class Containers:
    """No container has a GPU."""

    async def bindings(self):
        return ()


@pytest.fixture
async def api():
    async with FakeAPI() as api:
        yield api


@pytest.fixture
async def audited(api):
    """Return a function that audits once in a mode, and the audit."""
    mps = MPSShares(ControlDaemon(DaemonSettings()), Prober(""))
    audit = ProcessAudit("n1", None, Path("/proc"), Driver(), Containers(), mps)
    async with Kube(api.url) as kube:
        recorder = EventRecorder(kube, "linkwise-agent", "n1", lambda: 0.0)
        events = NodeEvents(recorder, "n1", float)
        task = asyncio.create_task(recorder.run())

        async def once(mode=NodeMode.TOPOLOGY):
            return await audit.audit(reading(), mode, events)

        yield once, audit
        task.cancel()


def reasons(api):
    return [json.loads(body)["reason"] for *_, body in api.calls]


async def test_a_mismatch_ends_when_the_node_has_no_mode_of_linkwise(api, audited):
    once, audit = audited
    assert [await once(), await once(), await once()] == [False, True, False]
    assert f"process {os.getpid()}" in audit.report.text

    await until(lambda: reasons(api))
    assert await once(NodeMode.DEFAULT)
    assert audit.report.text is None
    await until(lambda: len(reasons(api)) == 2)
    assert reasons(api) == ["GPUProcessMismatch", "GPUProcessMismatchResolved"]


async def test_an_event_that_cannot_be_created_does_not_hide_the_mismatch(api, audited):
    once, audit = audited
    api.faults["call"].append(status(503))
    await once()
    assert await once()
    assert audit.report.text
