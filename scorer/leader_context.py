"""The components of one term of the Lease, and what they know together."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from linkwise.cluster.keys import NVIDIA_GPU
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.nodes.node import Node
from linkwise.planning.state.reserved_gpus import Purpose
from scorer.cache.informers import Informers
from scorer.device_fence import DeviceFence
from scorer.extender.bind import Binder
from scorer.extender.filter import Filter
from scorer.extender.preempt import Preemption
from scorer.extender.refusals import Refusals
from scorer.planner import Planner
from scorer.report.claim_problems import ClaimProblems
from scorer.report.claims_nodes import ClaimsNodes, ClaimsNodesReader
from scorer.report.leader_report import LeaderReport, NodesReport


@dataclass(frozen=True, slots=True)
class LeaderContext:
    """The components of one term of the Lease."""

    term: int
    informers: Informers
    planner: Planner
    filter: Filter
    preemption: Preemption
    refusals: Refusals
    binder: Binder
    device_fence: DeviceFence
    claim_problems: ClaimProblems
    _claims_nodes: ClaimsNodesReader = field(default_factory=ClaimsNodesReader)

    def missing(self) -> str | None:
        """Return what is not known yet; None once free GPUs are known."""
        if (why := self.informers.missing()) or self.planner.has_synced:
            return why
        return "the plans of the last leader are not restored yet"

    def report(self) -> LeaderReport:
        """Return what is known now. Cost: the nodes, and the gangs of which some members wait."""
        return LeaderReport(
            gangs=self.informers.gangs.values(),
            partial=self.planner.partial,
            faulty=self.planner.faulty,
            reserved_gpus={
                Purpose.REPLACEMENT.value: self.informers.replacements.gpus,
                Purpose.NOMINATION.value: self.informers.state.reserved.nominated,
            },
            claim_problems=self.claim_problems.counts,
            unplanned=self.informers.pods.left_out,
            watch_ages={name: age() for name, age in self.informers.ages().items()},
            nodes=None if self.informers.missing() else self._nodes_report(),
        )

    def _nodes_report(self) -> NodesReport:
        ledgers = self.informers.state.snapshot().nodes
        return NodesReport(ledgers, self.device_fence.unfenced(), self.device_fence.rules)

    @property
    def _nodes(self) -> list[Node]:
        return [ledger.node for ledger in self.informers.state.snapshot().nodes]

    def has_nvidia_nodes(self) -> bool:
        """Return whether Linkwise chooses `nvidia.com/gpu` on some node.

        It counts what nodes are to offer by their labels, not what they offer now.
        """
        return any(
            node.mode is NodeMode.TOPOLOGY
            and node.gpu_resource == NVIDIA_GPU
            and not node.is_claims
            for node in self._nodes
        )

    def claims_nodes(self) -> ClaimsNodes:
        """Return the claims nodes."""
        return self._claims_nodes.read(self._nodes)

    def refused_machines(self) -> Mapping[str, str]:
        """Return, by node, why its machine is not used."""
        return {node.name: node.machine_refused for node in self._nodes if node.machine_refused}

    def unfenced(self) -> Mapping[str, str]:
        """Return, by claims node, why claims of others may get its GPUs."""
        return self.device_fence.unfenced()
