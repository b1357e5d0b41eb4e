"""Publication and metrics of the GPUs of this node, from a reading of the driver."""

from collections.abc import Iterable

from agent.audit.process_audit import ProcessAudit
from agent.binding.container_spec import Binding
from agent.driver.machine import machine_of, pair_bandwidth
from agent.driver.modules import has_open_modules
from agent.driver.nics import read_nics
from agent.driver.reading import DriverReading
from agent.metrics import GPUSample, HolderSample, Metrics
from agent.mps.shares import MPSShares
from agent.publish.kubelet_policy import read_kubelet_policy
from agent.publish.node_labels import gpu_labels
from agent.publish.publisher import Publication, Publisher
from agent.settings import Paths
from linkwise.cluster.nodes.topology_configmap import PublishedTopology
from linkwise.topology.machine import NIC, Machine


class NodeReport:
    """Publishes and measures the GPUs of one node."""

    def __init__(
        self,
        paths: Paths,
        publisher: Publisher,
        audit: ProcessAudit,
        mps: MPSShares,
        metrics: Metrics,
    ) -> None:
        """Publish nothing yet."""
        self._paths, self._publisher, self._audit = paths, publisher, audit
        self._mps, self._metrics = mps, metrics
        self._nics: dict[tuple[str, ...], tuple[NIC, ...]] = {}
        """By the bus ids of the GPUs."""

    def machine(self, reading: DriverReading) -> Machine:
        """Return the machine; its network cards are read once for each set of GPUs.

        A network card that fails would otherwise change the class of the machine.
        """
        bus_ids = tuple(gpu.bus_id for gpu in reading.gpus)
        if bus_ids not in self._nics:
            self._nics = {bus_ids: read_nics(self._paths.sys, reading.gpus)}
        return machine_of(reading, self._nics[bus_ids])

    def publish(
        self, reading: DriverReading, machine: Machine, uid: str, mode_in_use: str | None
    ) -> None:
        """Publish a reading soon.

        Args:
            reading: Of the driver.
            machine: As `machine` returns it.
            uid: Of the Node.
            mode_in_use: As in `DesiredState`; None before the first observation.
        """
        audited = self._audit.report
        topology = PublishedTopology(
            machine,
            tuple(gpu.usable for gpu in reading.gpus),
            reading.driver,
            mismatch=None if audited.by_claims else audited.text,
            isolation=self._mps.isolation,
            kubelet=read_kubelet_policy(self._paths.kubelet),
            busy={gpu.uuid: audited.busy[gpu.i] for gpu in reading.gpus if gpu.i in audited.busy},
        )
        labels = gpu_labels(reading, open_modules=has_open_modules(self._paths.proc))
        bandwidth = pair_bandwidth(machine)
        self._publisher.set(Publication(topology, bandwidth, labels, uid, mode_in_use))

    def measure(self, reading: DriverReading, bindings: Iterable[Binding]) -> None:
        """Show the GPUs, and the containers that have them, as metrics."""
        counts = self._audit.report.counts(len(reading.gpus))
        self._metrics.gpus = tuple(
            GPUSample(gpu.i, gpu.uuid, gpu.model, gpu.usable, counts[i])
            for i, gpu in enumerate(reading.gpus)
        )
        self._metrics.holders = tuple(
            dict.fromkeys(
                HolderSample(each.uid, gpu.i, gpu.uuid or "")
                for each in bindings
                for gpu in each.gpus
            )
        )
