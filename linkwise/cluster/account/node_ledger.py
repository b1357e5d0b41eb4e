"""The account of the GPUs of one node."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from linkwise.cluster.account.gpu_usage import GPUUsage, LedgerError
from linkwise.cluster.allocations.gpus import NO_GPUS, Counted, GPUs, number_counted
from linkwise.cluster.keys import NVIDIA_GPU, NVIDIA_GPU_SHARED
from linkwise.cluster.nodes.node import Node
from linkwise.cluster.requests.amounts import CORE_MAX
from linkwise.cluster.requests.demand import NO_DEMAND, Demand, HostPort, PortsTaken, total_demand
from linkwise.cluster.requests.neighbors.neighbor import NO_NEIGHBOR, Neighbor
from linkwise.cluster.volumes.pod_volumes import NO_VOLUMES, HeldVolumes

Sharing: TypeAlias = Literal["memory", "compute"]
"""Kind of share pods on a node: memory only, or memory and compute."""


@dataclass(frozen=True, slots=True)
class Holding:
    """Resources of one pod on a node."""

    pod: str
    """`namespace/name`."""
    uid: str
    gpus: GPUs = NO_GPUS
    demand: Demand = NO_DEMAND
    gang: str | None = None
    """`namespace/name` of its gang, or None."""
    stays: bool = False
    """It lives as long as its node: a pod of a DaemonSet, or a static pod."""
    neighbor: Neighbor = NO_NEIGHBOR
    """What affinity and topology spread of other pods see of it."""
    volumes: HeldVolumes = NO_VOLUMES


class FreeShare(NamedTuple):
    """Free memory and compute of one GPU for shares; 0 if shares are not allowed."""

    memory: int
    """[GiB]"""
    core: int
    """[%]"""
    i: int
    """GPU index."""


@dataclass(frozen=True)
class NodeLedger:
    """Account of one node; `hold` and `release` return a new ledger.

    GPUs are never allocated twice. CPU, memory, pods and ports may be overcommitted, as on real
    nodes (static pods); a free amount is then negative.
    """

    node: Node
    taken: tuple[GPUUsage, ...]
    """By GPU index."""
    holdings: Mapping[str, Holding]
    """By pod uid."""
    cpu_free: int
    """[millicores]"""
    memory_free_bytes: int
    """[bytes]"""
    others_held: Mapping[str, int] = field(default_factory=dict)
    """Amounts of other resources that pods here hold, by name; none is 0."""
    unaccounted: str | None = None
    """Why the allocation of the GPUs of this node is unknown, so that nothing is placed there; or
    None."""
    unaccounted_pod: tuple[str, str] | None = None
    """Uid and `namespace/name` of the pod whose GPUs are unknown; None: no pod is the reason."""
    free_mask: int = field(init=False, compare=False)
    """Unallocated GPUs, healthy and not cordoned."""
    sharing: Sharing | None = field(init=False, compare=False)
    """Kind of the share pods here, which a new one must match; None without any."""

    def __post_init__(self) -> None:
        mask, memory, core = 0, 0, 0
        for i, taken in enumerate(self.taken):
            mask |= (not taken.holders) << i
            memory |= taken.memory
            core |= taken.core
        object.__setattr__(self, "free_mask", mask & self.node.usable_mask)
        object.__setattr__(self, "sharing", "compute" if core else "memory" if memory else None)

    @classmethod
    def empty(cls, node: Node) -> "NodeLedger":
        """Return the ledger of an empty node."""
        return cls(node, (GPUUsage(),) * len(node.cards), {}, node.cpu, node.memory)

    def without_pods(self) -> "NodeLedger":
        """Return the ledger of the same node without pods and claims."""
        node = self._without_claims.node
        is_same = node is self.node and not (self.holdings or self.unaccounted)
        return self if is_same else NodeLedger.empty(node)

    @property
    def _without_claims(self) -> "NodeLedger":
        """The ledger of the same node on which claims hold no GPUs."""
        cards = self.node.cards
        if not any(card.claimed for card in cards):
            return self
        free = tuple(replace(card, claimed=False) for card in cards)
        return replace(self, node=replace(self.node, cards=free))

    @cached_property
    def without_gpu_pods(self) -> "NodeLedger":
        """The ledger of the same node without claims, and pods with GPUs, except those that stay.

        Pods without GPUs remain, since no unit waits for them, and so does `unaccounted`.
        """
        ledger = self._without_claims
        for uid, held in self.holdings.items():
            if held.gpus and not held.stays:
                ledger = ledger.release(uid)
        return ledger

    @cached_property
    def ignoring_unhealthy(self) -> "NodeLedger":
        """The ledger of the same node with every card healthy and not cordoned."""
        cards = self.node.cards
        if self.node.usable_mask == (1 << len(cards)) - 1:
            return self
        usable = tuple(replace(card, healthy=True, cordoned=False) for card in cards)
        return replace(self, node=replace(self.node, cards=usable))

    def amount_free(self, resource: str) -> int:
        """Return the free amount of a resource besides CPU, memory and GPUs; 0 if it has none."""
        return self.node.resources.get(resource, 0) - self.others_held.get(resource, 0)

    @property
    def pods_free(self) -> int:
        """Number of pods that the node can still take."""
        return self.node.pods - len(self.holdings)

    def memory_free(self, i: int) -> int:
        """Return the free memory of GPU i for shares [GiB]."""
        return self.shares_free[i].memory

    def core_free(self, i: int) -> int:
        """Return the free compute of GPU i for shares [%]."""
        return self.shares_free[i].core

    def replicas_free(self, i: int) -> int:
        """Return the free replicas of GPU i; 0 if the node is not time-sliced."""
        if not self.node.usable_mask >> i & 1 or self.taken[i].whole:
            return 0
        return self.node.replicas - self.taken[i].holders if self.node.replicas else 0

    @cached_property
    def shares_free(self) -> tuple[FreeShare, ...]:
        """Free memory and compute for shares, by GPU index.

        Cached, since placement reads every node for every pod, and each pod changes one of them.
        """
        mode, usable = self.node.mode, self.node.usable_mask
        free: list[FreeShare] = []
        for i, (card, taken) in enumerate(zip(self.node.cards, self.taken, strict=True)):
            takes = mode.shares_memory and usable >> i & 1 and not taken.whole
            memory = card.memory - taken.memory if takes and card.memory is not None else 0
            core = CORE_MAX - taken.core if takes and mode.shares_compute else 0
            free.append(FreeShare(memory, core, i))
        return tuple(free)

    @cached_property
    def shares_in_order(self) -> tuple[FreeShare, ...]:
        """The same, those with the least free memory first, then with the least compute."""
        return tuple(sorted(self.shares_free))

    @cached_property
    def _ports(self) -> PortsTaken:
        return PortsTaken(port for held in self.holdings.values() for port in held.demand.ports)

    def takes_ports(self, ports: Collection[HostPort]) -> bool:
        """Return whether none of these host ports conflicts with one in use."""
        return not self._ports.conflict(ports)

    def hold(self, holding: Holding) -> "NodeLedger":
        """Return the ledger with another pod.

        Unhealthy or cordoned cards are accepted, since pods there keep them.

        Raises:
            LedgerError: The pod is here already, one of its GPUs is taken or unknown, or
            memory-only
                and memory-and-compute pods would share the node.
        """
        if holding.uid in self.holdings:
            raise LedgerError(f"{holding.pod} is on {self.node.name} already")
        gpus = list(self.taken)
        for share in holding.gpus.shares:
            if not 0 <= share.i < len(gpus):
                held = f"it has GPU{share.i} of {self.node.name}"
                raise LedgerError(f"{held}, which has {len(gpus)}")
            gpus[share.i] = gpus[share.i].more(share, self.node)
        self._check_sharing(holding)
        return replace(
            self,
            taken=tuple(gpus),
            holdings={**self.holdings, holding.uid: holding},
            cpu_free=self.cpu_free - holding.demand.cpu,
            memory_free_bytes=self.memory_free_bytes - holding.demand.memory,
            others_held=holding.demand.added_to(self.others_held),
        )

    def hold_others(self, holdings: Iterable[Holding]) -> "NodeLedger":
        """Return the ledger with more pods that have no GPUs here.

        Pods that are here already are skipped. Cost: linear.
        """
        new = {one.uid: one for one in holdings if one.uid not in self.holdings}
        total = total_demand([one.demand for one in new.values()])
        return replace(
            self,
            holdings={**self.holdings, **new},
            cpu_free=self.cpu_free - total.cpu,
            memory_free_bytes=self.memory_free_bytes - total.memory,
            others_held=total.added_to(self.others_held),
        )

    def _check_sharing(self, holding: Holding) -> None:
        kinds: set[Sharing] = {
            "compute" if share.core else "memory" for share in holding.gpus.shares if share.mem
        }
        if self.sharing:
            kinds.add(self.sharing)
        if len(kinds) > 1:
            raise LedgerError(
                f"memory-only and memory-and-compute pods share {self.node.name}: {holding.pod}"
            )

    def release(self, uid: str) -> "NodeLedger":
        """Return the ledger without a pod; itself if the pod is not here."""
        gone = self.holdings.get(uid)
        if gone is None:
            return self
        rest = {key: holding for key, holding in self.holdings.items() if key != uid}
        gpus = list(self.taken)
        for share in gone.gpus.shares:
            gpus[share.i] = gpus[share.i].less(share)
        return replace(
            self,
            taken=tuple(gpus),
            holdings=rest,
            cpu_free=self.cpu_free + gone.demand.cpu,
            memory_free_bytes=self.memory_free_bytes + gone.demand.memory,
            others_held=gone.demand.added_to(self.others_held, -1),
        )

    def without(self, holding: Holding) -> "NodeLedger":
        """Return the ledger without this very entry; itself if the pod has another one, or none."""
        is_here = self.holdings.get(holding.uid) is holding
        return self.release(holding.uid) if is_here else self

    @property
    def has_gpus(self) -> bool:
        """The node has GPUs, or pods with GPUs although it offers none (any more)."""
        is_missing = self.node.pool and self.node.pool.missing
        some = self.node.cards or self.node.parts or self.replicas_counted
        return bool(some or self.unaccounted or is_missing)

    @property
    def replicas_counted(self) -> int:
        """Replicas of GPUs that NVIDIA's plugin allocates here under a name of their own."""
        return 0 if self.node.mode.is_ours else self.node.resources.get(NVIDIA_GPU_SHARED, 0)

    @property
    def gpus_free(self) -> int:
        """Number of free GPUs, chosen by Linkwise or by NVIDIA's plugin; 0 if it is not known."""
        if self.unaccounted or (self.node.pool and self.node.pool.missing):
            return 0
        whole = self.free_mask.bit_count()
        if self.node.parts:
            # Each part that a pod has may be of another GPU.
            whole += self.counted_free(NVIDIA_GPU) - self.node.resources.get(NVIDIA_GPU, 0)
        elif self.is_counted or self.has_counted_pods:
            whole = min(whole, self.counted_free(NVIDIA_GPU))
        return max(0, whole)

    @property
    def has_counted_pods(self) -> bool:
        """NVIDIA's plugin chose GPUs here, so it is not known which are free."""
        return any(isinstance(holding.gpus, Counted) for holding in self.holdings.values())

    @property
    def is_counted(self) -> bool:
        """NVIDIA's plugin chooses the GPUs of this node: it is only known how many are free."""
        return self.node.is_counted

    def counted_free(self, resource: str) -> int:
        """Return the free amount of a resource that NVIDIA's plugin allocates.

        As in kube-scheduler it is negative where pods have more than is allocatable now: GPUs
        became unhealthy, or the plugin restarts.
        """
        taken = sum(number_counted(held.gpus, resource) for held in self.holdings.values())
        return self.node.resources.get(resource, 0) - taken
