"""Audits the processes on the GPUs of the node."""

import asyncio
from pathlib import Path

from agent.audit.audit import Auditor, AuditReport, Expected
from agent.audit.proc import read_processes
from agent.binding.binder import Binder
from agent.driver.reading import DriverReading, GPUDriver
from agent.mps_shares import MPSShares
from agent.node_events import NodeEvents
from cluster.mode import NodeMode


class ProcessAudit:
    """Compares the processes on the GPUs with the bindings of containers."""

    def __init__(
        self,
        node: str,
        pod_uid: str | None,
        proc: Path,
        driver: GPUDriver,
        binder: Binder,
        mps: MPSShares,
    ) -> None:
        """Audit nothing yet.

        Args:
            node: Name of the node.
            pod_uid: UID of the agent's pod, which measures the limits of MPS; None: it is no pod.
            proc: The node's `/proc`.
            driver: Lists the processes.
            binder: Knows which container has which GPUs.
            mps: Its servers may use any GPU.
        """
        self._node, self._pod_uid, self._proc = node, pod_uid, proc
        self._driver, self._binder, self._mps = driver, binder, mps
        self._auditor = Auditor()
        self.report = AuditReport()
        """The result of the last audit."""

    async def audit(self, reading: DriverReading, mode: NodeMode, events: NodeEvents) -> bool:
        """Audit once; return whether the result differs from the one before.

        On a node without a mode of Linkwise, nothing is a mismatch.

        Args:
            reading: The GPUs.
            mode: The mode in effect.
            events: Get an Event about a changed result.

        Raises:
            BindError: The bindings cannot be read.
            DriverError: The driver does not answer.

        Cost: three files of each process on a GPU.
        """
        before = self.report
        if mode.is_ours:
            running = await asyncio.to_thread(self._driver.processes)
            processes = await asyncio.to_thread(read_processes, running, self._proc)
            bindings = await self._binder.bindings()
            uuids = [gpu.uuid for gpu in reading.gpus]
            expected = Expected(self._mps.servers, self._pod_uid, mps=mode is NodeMode.MPS)
            self.report = self._auditor.audit(processes, bindings, uuids, expected)
        else:
            self._auditor, self.report = Auditor(), AuditReport()
        if (event := self.report.event(before, self._node)) is None:
            return False
        events.add(event)
        return True
