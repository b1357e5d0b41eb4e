"""Audits the processes on the GPUs of the node."""

import asyncio
from collections.abc import Sequence

from agent.audit.audit import Auditor, AuditReport, Expected, Holder
from agent.audit.proc import read_processes
from agent.binding.binder import Binder
from agent.binding.spec_files import read_file
from agent.driver.reading import DriverReading, GPUDriver
from agent.kubelet.prepared_claims import STATE_FILE, pods_with_claims
from agent.mps.shares import MPSShares
from agent.settings import Paths
from linkwise.cluster.mode import NodeMode
from linkwise.runtime.kube.event_recorder import Event


class ProcessAudit:
    """Compares the processes on the GPUs with the bindings of containers, or the claims of pods."""

    def __init__(
        self,
        node: str,
        pod_uid: str,
        paths: Paths,
        driver: GPUDriver,
        binder: Binder,
        mps: MPSShares,
    ) -> None:
        """Audit nothing yet.

        Args:
            node: Name of the node.
            pod_uid: UID of the agent's pod, which measures the limits of MPS; empty: it is no pod.
            paths: Folders of the node: its `/proc`, and the state of the kubelet.
            driver: Lists the processes.
            binder: Knows which container has which GPUs.
            mps: Its servers may use any GPU.
        """
        self._node, self._pod_uid, self._proc = node, pod_uid, paths.proc
        self._claims = paths.kubelet / STATE_FILE
        self._driver, self._binder, self._mps = driver, binder, mps
        self._auditor = Auditor()
        self.report = AuditReport()
        """The result of the last audit."""

    async def audit(
        self, reading: DriverReading, mode: NodeMode, *, by_claims: bool = False
    ) -> Event | None:
        """Audit once; return an Event if the result differs from the one before.

        On a node without a mode of Linkwise, nothing is a mismatch.

        Args:
            reading: The GPUs.
            mode: The mode in effect.
            by_claims: Claims give out the GPUs.

        Raises:
            BindError: The bindings cannot be read.
            DriverError: The driver does not answer.
            KubeletError: The claims of pods cannot be read.
            OSError: The same.

        Cost: three files of each process on a GPU.
        """
        before = self.report
        if not mode.is_ours:
            self._auditor, self.report = Auditor(), AuditReport()
            return self.report.event(before, self._node)
        await self._compare(reading, mode, by_claims=by_claims)
        if by_claims:
            # A kubelet forgets the claim of a pod, unless the pod vanished, only after its
            # containers have ended: a second reading at once does not find their processes.
            await self._compare(reading, mode, by_claims=True)
        return self.report.event(before, self._node)

    async def _compare(self, reading: DriverReading, mode: NodeMode, *, by_claims: bool) -> None:
        """Compare one reading of the processes with the GPUs that pods have."""
        running = await asyncio.to_thread(self._driver.processes)
        processes = await asyncio.to_thread(read_processes, running, self._proc)
        holders: Sequence[Holder] = await self._binder.bindings()
        if by_claims:
            state = await asyncio.to_thread(read_file, self._claims)
            holders = (*holders, *pods_with_claims(state, reading.gpus))
        uuids = [gpu.uuid for gpu in reading.gpus]
        expected = Expected(self._mps.servers, self._pod_uid, mps=mode is NodeMode.MPS)
        self.report = self._auditor.audit(processes, holders, uuids, expected, by_claims=by_claims)
