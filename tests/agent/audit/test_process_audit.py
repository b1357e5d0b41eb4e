"""The audit of the node, with processes of this machine."""

import os
from pathlib import Path

import pytest
from support.gpu_readings import reading

from agent.audit.process_audit import ProcessAudit
from agent.mps.daemon import ControlDaemon, DaemonSettings
from agent.mps.isolation import Prober
from agent.mps.shares import MPSShares
from cluster.mode import NodeMode


class Driver:
    """This process uses GPU 0."""

    def processes(self):
        return ((0, os.getpid()),)


class Containers:
    """No container has a GPU."""

    async def bindings(self):
        return ()


@pytest.fixture
def audit():
    mps = MPSShares(ControlDaemon(DaemonSettings()), Prober(""))
    return ProcessAudit("n1", "", Path("/proc"), Driver(), Containers(), mps)


async def test_a_mismatch_ends_when_the_node_has_no_mode_of_linkwise(audit):
    events = [await audit.audit(reading(), NodeMode.TOPOLOGY) for _ in range(3)]
    assert [event and event.reason for event in events] == [None, "GPUProcessMismatch", None]
    assert f"process {os.getpid()}" in audit.report.text

    event = await audit.audit(reading(), NodeMode.DEFAULT)
    assert event.reason == "GPUProcessMismatchResolved"
    assert audit.report.text is None
