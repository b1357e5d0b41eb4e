"""The audit of the node, with processes of this machine."""

import os
from dataclasses import replace

import pytest
from support.gpu_readings import reading
from support.prepared_claims import claim_of, state_of
from support.proc_files import UID, a_process

from agent.audit.process_audit import ProcessAudit
from agent.kubelet.call import KubeletError
from agent.kubelet.prepared_claims import STATE_FILE
from agent.mps.daemon import ControlDaemon, DaemonSettings
from agent.mps.isolation import Prober
from agent.mps.shares import MPSShares
from agent.settings import Settings
from linkwise.cluster.mode import NodeMode


class Driver:
    """This process uses GPU 0, unless others do."""

    def __init__(self):
        self.running = ((0, os.getpid()),)

    def processes(self):
        return self.running


class Containers:
    """No container has a GPU."""

    async def bindings(self):
        return ()


@pytest.fixture
def driver():
    return Driver()


@pytest.fixture
def paths(tmp_path):
    paths = Settings().paths
    return replace(paths, kubelet=tmp_path)


@pytest.fixture
def audit(paths, driver):
    mps = MPSShares(ControlDaemon(DaemonSettings()), Prober(""))
    return ProcessAudit("n1", "", paths, driver, Containers(), mps)


@pytest.fixture
def watched(paths, driver, tmp_path):
    """Returns the first audit of a claims node of two GPUs; a process of a pod uses GPU 1."""
    a_process(tmp_path / "proc", 7)
    driver.running = ((1, 7),)
    mps = MPSShares(ControlDaemon(DaemonSettings()), Prober(""))
    proc = replace(paths, proc=tmp_path / "proc")
    audit = ProcessAudit("n1", "", proc, driver, Containers(), mps)

    async def watch(state=None):
        if state is not None:
            (tmp_path / STATE_FILE).write_bytes(state)
        event = await audit.audit(reading(), NodeMode.TOPOLOGY, by_claims=True)
        return audit.report.busy, event

    return watch


async def test_a_mismatch_ends_when_the_node_has_no_mode_of_linkwise(audit):
    events = [await audit.audit(reading(), NodeMode.TOPOLOGY) for _ in range(3)]
    assert [event and event.reason for event in events] == [None, "GPUProcessMismatch", None]
    assert f"process {os.getpid()}" in audit.report.text

    event = await audit.audit(reading(), NodeMode.DEFAULT)
    assert event.reason == "GPUProcessMismatchResolved"
    assert audit.report.text is None


async def test_a_process_of_a_pod_that_has_the_gpu_by_its_claim_is_expected(watched):
    assert await watched(state_of(claim_of("gpu-1", pods=(UID,)))) == ({}, None)


@pytest.mark.parametrize(
    "claims",
    [
        pytest.param((), id="its claim is gone"),
        pytest.param((claim_of("gpu-1", pods=("next",)),), id="another pod has the GPU"),
        pytest.param((claim_of("gpu-0", pods=(UID,)),), id="its claim is for another GPU"),
    ],
)
async def test_a_gpu_of_a_claims_node_is_busy_at_the_first_audit_and_until_the_end(
    watched, driver, claims
):
    busy, event = await watched(state_of(*claims))
    assert busy == {1: f"process 7 of the pod with the uid {UID}"}
    assert (event.reason, event.message) == (
        "GPUProcessMismatch",
        "1 of the processes on GPU 1 contradict the claims of pods. No pods are placed on these "
        "GPUs meanwhile: end these processes, which `linkwise inspect n1` names",
    )

    driver.running = ()
    busy, event = await watched()
    assert (busy, event.reason) == ({}, "GPUProcessMismatchResolved")


async def test_a_process_that_ends_between_both_readings_is_none(watched, driver, monkeypatch):
    readings = iter([driver.running, ()])
    monkeypatch.setattr(driver, "processes", lambda: next(readings))
    assert await watched(state_of()) == ({}, None)


async def test_without_the_claims_nothing_changes(watched):
    busy, _ = await watched(state_of())
    with pytest.raises(KubeletError):
        await watched(b"{")
    assert (await watched(state_of()))[0] == busy
