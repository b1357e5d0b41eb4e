"""The policies by which a kubelet chooses CPUs, and where these do not regard the GPUs of a pod."""

from dataclasses import dataclass
from enum import StrEnum


class CPUManager(StrEnum):
    """The policy of the kubelet's CPU manager."""

    NONE = "none"
    STATIC = "static"
    """A container of a Guaranteed pod with a whole number of CPUs has them for itself."""


class TopologyManager(StrEnum):
    """The policy of the kubelet's Topology Manager."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


_EXTENTS = {
    TopologyManager.RESTRICTED: "the fewest NUMA nodes",
    TopologyManager.SINGLE_NUMA_NODE: "one NUMA node",
}
"""By policy that refuses pods: to what their resources must be aligned."""


@dataclass(frozen=True, slots=True)
class KubeletPolicy:
    """The policies of a kubelet; None where they are unknown."""

    cpu_manager: CPUManager | None = None
    topology_manager: TopologyManager | None = None

    @property
    def may_pin_cpus(self) -> bool:
        """Containers may have exclusive CPUs, as far as is known."""
        return self.cpu_manager is not CPUManager.NONE

    @property
    def numa_note(self) -> str | None:
        """What they mean for pods whose GPUs Linkwise chooses; None: nothing.

        The agent gives the kubelet no NUMA hints, which the Topology Manager takes for "no
        preference": it neither aligns to these GPUs nor refuses a pod because of them.
        """
        policies = (
            f"(CPU manager policy {self.cpu_manager or 'unknown'}, "
            f"Topology Manager policy {self.topology_manager or 'unknown'})"
        )
        if self.topology_manager in _EXTENTS:
            return (
                "the kubelet refuses a pod (TopologyAffinityError) whose exclusive CPUs, memory or "
                f"other devices cannot be aligned to {_EXTENTS[self.topology_manager]} {policies}; "
                "they may be on another socket than its GPUs, for which it gets no NUMA hints"
            )
        if self.cpu_manager is CPUManager.STATIC:
            return (
                "the exclusive CPUs of a Guaranteed pod may be on another socket than its GPUs: "
                f"the kubelet gets no NUMA hints for GPUs that Linkwise chooses {policies}"
            )
        return None


UNKNOWN_POLICY = KubeletPolicy()
