"""A node: its mode, its cards, and the links between them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from linkwise.cluster.allocations.record import Isolation
from linkwise.cluster.cel.values import DeviceFacts
from linkwise.cluster.keys import GFD_PRODUCT, NODE_POOLS, NVIDIA_GPU
from linkwise.cluster.mode import NodeMode, PackingStrategy, counting_resource
from linkwise.cluster.nodes.gpu_parts import GPUParts
from linkwise.cluster.nodes.kubelet_policy import UNKNOWN_POLICY, KubeletPolicy
from linkwise.cluster.nodes.node_resources import NodeError
from linkwise.cluster.volumes.csi_node import AttachLimits
from linkwise.topology.machine import Machine

DEFAULT_PODS = 110
"""Maximum number of pods of a node; the default of the kubelet."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU of a node."""

    memory: int | None = None
    """Memory [GiB]; None if unknown."""
    uuid: str | None = None
    """UUID of the driver; None if not published."""
    healthy: bool = True
    cordoned: bool = False
    """Cordoned, by an administrator or since it has just recovered: running pods stay, no new
    ones."""
    faulty: bool = False
    """It is reported as unhealthy. A GPU that is only not offered, as while its agent restarts, is
    not healthy either, but its pods run on."""
    claimed: bool = False
    """A ResourceClaim holds it, or a part of it."""

    @property
    def is_closed(self) -> bool:
        """It takes no new pods, for another reason than a fault."""
        return self.cordoned or self.claimed

    @property
    def usable(self) -> bool:
        """New pods may be placed here."""
        return self.healthy and not self.is_closed


@dataclass(frozen=True, slots=True)
class DevicePool:
    """The pool in which NVIDIA's DRA driver offers the GPUs of a claims node."""

    name: str
    devices: tuple[str, ...]
    """Name of the device of each GPU, by GPU index; GPUs are in the order of their bus ids."""
    others: int = 0
    """Other devices of the pool, such as MIG devices, that Linkwise does not place."""
    missing: str | None = None
    """Why nothing new is placed here, such as "the driver's slices are missing"; None: complete."""
    unmanaged: frozenset[str] = frozenset()
    """Names of GPUs that Linkwise leaves alone, since claims may share them, or their partitions
    are not planned."""
    facts: tuple[DeviceFacts, ...] = ()
    """What selectors of claims read of each GPU, by GPU index; empty: it is not known."""
    lost: frozenset[str] = frozenset()
    """Names of GPUs that the complete pool lacks."""
    busy: frozenset[str] = frozenset()
    """Names of GPUs on which a process of no pod that has them runs, as the agent publishes it."""


class MachineSource(StrEnum):
    """The source of the links of a node's GPUs."""

    AGENT = "agent"
    """The agent of the node publishes them."""
    CAPTURED = "captured"
    """A ConfigMap of the node has a captured machine; there is no agent."""
    POLICY = "policy"
    """A rule of the policy names the machine."""
    FEATURE_DISCOVERY = "gpu-feature-discovery"
    """Labels of GPU feature discovery identify the machine."""
    CATALOGUE = "catalogue"
    """The product and number of GPUs in ResourceSlices identify the machine."""
    RESOURCE_SLICES = "resource-slices"
    """ResourceSlices have PCIe roots and NUMA nodes; NVLinks are unknown."""
    FILE = "cluster-file"
    """A short form in a cluster file names the machine."""
    UNKNOWN = "unknown"
    """All GPUs count as equal."""

    @property
    def words(self) -> str:
        """The source for people, who read it after "the links of its GPUs are"."""
        return _SOURCE_WORDS[self]


_SOURCE_WORDS = {
    MachineSource.AGENT: "published by the agent of the node",
    MachineSource.CAPTURED: "captured in a ConfigMap of the node",
    MachineSource.POLICY: "named by the policy",
    MachineSource.FEATURE_DISCOVERY: "identified by labels of GPU feature discovery",
    MachineSource.CATALOGUE: "identified by the product and number of GPUs in ResourceSlices",
    MachineSource.RESOURCE_SLICES: "those of PCIe and NUMA in ResourceSlices: NVLinks are unknown",
    MachineSource.FILE: "named by the cluster file",
    MachineSource.UNKNOWN: "unknown: all GPUs count as equal",
}


@dataclass(frozen=True, slots=True)
class Node:
    """A node with everything that placement needs."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    mode: NodeMode = NodeMode.DEFAULT
    placement: PackingStrategy = PackingStrategy.BINPACK
    machine: Machine | None = None
    """Links of the cards; None if there are no cards."""
    machine_source: MachineSource = MachineSource.UNKNOWN
    preparing: bool = False
    """Tables of its machine are still being built; Linkwise places nothing on it until then."""
    machine_refused: str | None = None
    """Why no tables of its machine are built, so that nothing is placed on it; None: they are."""
    cards: tuple[Card, ...] = ()
    """By GPU index; as many as the machine has GPUs."""
    cpu: int = 0
    """Allocatable CPU [millicores]."""
    memory: int = 0
    """Allocatable memory [bytes]."""
    pods: int = DEFAULT_PODS
    """Maximum number of pods."""
    resources: Mapping[str, int] = field(default_factory=dict)
    """Every other allocatable resource: extended ones (with a domain in their names), ephemeral
    storage [bytes] and huge pages [bytes]."""
    attach_limits: AttachLimits = ()
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    """False only with a Ready condition that is not True."""
    pool: DevicePool | None = None
    """The devices of its GPUs, if this is a claims node."""
    replicas: int = 0
    """Replicas per GPU of a time-sliced node; 0 in every other mode."""
    parts: GPUParts | None = None
    """What its `nvidia.com/gpu` are if NVIDIA's plugin offers no whole GPUs under this name."""
    isolation: Isolation | None = None
    """What its agent saw to keep shares within their limits; None: no agent reports it."""
    mismatch: str | None = None
    """How the processes on its GPUs contradict the records of pods, as its agent publishes it."""
    kubelet: KubeletPolicy = UNKNOWN_POLICY
    """The policies of its kubelet, as its agent publishes them."""
    warnings: tuple[str, ...] = ()
    """Warnings about guessed or ignored data, for users."""
    selected: int | None = None
    """Mask of the cards that satisfy the claims for which a plan is made; None: every card does."""
    usable_mask: int = field(init=False, repr=False, compare=False)
    """Cards on which new pods may be placed."""
    gpu_resource: str = field(init=False, repr=False, compare=False)
    """The resource that counts its GPUs or replicas, such as `aliyun.com/gpu`."""

    @property
    def is_counted(self) -> bool:
        """NVIDIA's plugin offers GPUs here, or `parts`, and chooses those of each pod."""
        return self.mode is NodeMode.DEFAULT and NVIDIA_GPU in self.resources

    @property
    def is_claims(self) -> bool:
        """NVIDIA's DRA driver offers whole GPUs here, and Linkwise chooses those of each pod."""
        return self.pool is not None

    @property
    def awaits_slices(self) -> bool:
        """Slices of NVIDIA's DRA driver may be missing, so GPUs that it lacks are not gone."""
        is_empty = self.mode is NodeMode.TOPOLOGY and not self.cards
        return bool(self.pool.missing) if self.pool else is_empty

    @property
    def machine_known(self) -> bool:
        """False if all GPUs count as equal because their links are unknown."""
        return self.machine_source is not MachineSource.UNKNOWN

    @property
    def model(self) -> str | None:
        """The product name of its GPUs, by its machine or the label of GPU feature discovery."""
        return (self.machine.model if self.machine else None) or self.labels.get(GFD_PRODUCT)

    @property
    def node_pool(self) -> str | None:
        """The name of its pool, by the label of the provider; None without one."""
        return next((self.labels[key] for key in NODE_POOLS if key in self.labels), None)

    def __post_init__(self) -> None:
        if len(self.cards) != (self.machine.n if self.machine else 0):
            raise NodeError(f"node {self.name}: one card for each GPU of its machine is expected")
        mask = sum(1 << i for i, card in enumerate(self.cards) if card.usable)
        mask &= mask if self.selected is None else self.selected
        object.__setattr__(self, "usable_mask", mask)
        resource = NVIDIA_GPU if self.pool else counting_resource(self.mode, self.labels)
        object.__setattr__(self, "gpu_resource", resource)
