"""Who has which GPU: an immutable account of every node, per GPU."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from cluster.amounts import CORE_MAX
from cluster.demand import HostPort, PortsTaken
from cluster.gpu_usage import GPUUsage, LedgerError
from cluster.keys import NVIDIA_GPU
from cluster.node import Node
from cluster.record import GPUShare

Sharing: TypeAlias = Literal["memory", "compute"]
"""What the share pods of a node ask for: memory alone, or memory and compute."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What one pod has of a node."""

    pod: str
    """`namespace/name`."""
    uid: str
    shares: tuple[GPUShare, ...] = ()
    """What it has of each GPU; on a time-sliced node one entry a replica, so a GPU may repeat."""
    cpu: int = 0
    """Requested CPU [millicores]."""
    memory: int = 0
    """Requested memory [bytes]."""
    ports: frozenset[HostPort] = frozenset()
    gang: str | None = None
    """`namespace/name` of its gang, or None."""
    nvidia: int = 0
    """GPUs, or replicas of GPUs, asked for by count: NVIDIA's plugin chooses which."""
    counted: str = NVIDIA_GPU
    """The resource that `nvidia` counts: `nvidia.com/gpu` or `nvidia.com/gpu.shared`."""

    stays: bool = False
    """It is there for as long as its node: a DaemonSet's pod, or one of the kubelet's own."""

    @property
    def has_gpus(self) -> bool:
        """Whether it has any, as far as that can be told."""
        return bool(self.shares or self.nvidia)


class FreeShare(NamedTuple):
    """What shares may still take of one GPU; nothing where none may come."""

    memory: int
    """[GiB]"""
    core: int
    """[%]"""
    i: int
    """GPU index."""


@dataclass(frozen=True)
class NodeLedger:
    """What is taken of one node; `hold` and `release` return a new ledger.

    GPUs are never given twice. CPU, memory, pods and ports may be overdrawn, as they are on real
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
    unaccounted: str | None = None
    """Why nobody knows what is taken of this node's GPUs: nothing may be placed there. Or None."""
    free_mask: int = field(init=False, compare=False)
    """GPUs of which nothing is taken, healthy and not cordoned."""
    sharing: Sharing | None = field(init=False, compare=False)
    """What the share pods here ask for, which a new one must ask for too; None without any."""

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
        """Return the ledger of a node on which nothing runs."""
        return cls(node, (GPUUsage(),) * len(node.cards), {}, node.cpu, node.memory)

    def emptied(self) -> "NodeLedger":
        """Return the ledger of the same node when nothing runs there; itself where nothing does."""
        return NodeLedger.empty(self.node) if self.holdings or self.unaccounted else self

    @cached_property
    def freed(self) -> "NodeLedger":
        """The ledger of the same node when every pod with GPUs that can end is gone; or itself.

        Pods without GPUs stay, since no unit waits for their end, and so does the reason that makes
        the node unaccounted.
        """
        ledger = self
        for uid, held in self.holdings.items():
            if held.has_gpus and not held.stays:
                ledger = ledger.release(uid)
        return ledger

    @cached_property
    def mended(self) -> "NodeLedger":
        """The ledger of the same node when every card is healthy and not cordoned; or itself."""
        cards = self.node.cards
        if self.node.usable_mask == (1 << len(cards)) - 1:
            return self
        usable = tuple(replace(card, healthy=True, cordoned=False) for card in cards)
        return replace(self, node=replace(self.node, cards=usable))

    @property
    def pods_free(self) -> int:
        """How many more pods the node takes."""
        return self.node.pods - len(self.holdings)

    def memory_free(self, i: int) -> int:
        """Return the memory that shares may still take of GPU i [GiB]; 0 where none may come."""
        return self.shares_free[i].memory

    def core_free(self, i: int) -> int:
        """Return the compute that shares may still take of GPU i [%]; 0 where none may come."""
        return self.shares_free[i].core

    def replicas_free(self, i: int) -> int:
        """Return how many replicas of GPU i are left; 0 where the node is not time-sliced."""
        if not self.node.usable_mask >> i & 1 or self.taken[i].whole:
            return 0
        return self.node.replicas - self.taken[i].holders if self.node.replicas else 0

    @cached_property
    def shares_free(self) -> tuple[FreeShare, ...]:
        """What shares may still take, by GPU index.

        Kept, since placement asks every node for every pod, and each pod changes one of them.
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
    def _ports(self) -> PortsTaken:
        return PortsTaken(port for held in self.holdings.values() for port in held.ports)

    def takes_ports(self, ports: Collection[HostPort]) -> bool:
        """Say whether none of these host ports conflicts with one that is taken."""
        return not self._ports.conflict(ports)

    def hold(self, holding: Holding) -> "NodeLedger":
        """Return the ledger with one pod more.

        A card that is unhealthy or cordoned keeps what it has, so it may be held here too.

        Raises:
            LedgerError: the pod is held already, or one of its GPUs is taken or unknown, or
                memory-only and memory-and-compute pods would meet on the node.
        """
        if holding.uid in self.holdings:
            raise LedgerError(f"{holding.pod} is on {self.node.name} already")
        gpus = list(self.taken)
        for share in holding.shares:
            if not 0 <= share.i < len(gpus):
                held = f"it has GPU{share.i} of {self.node.name}"
                raise LedgerError(f"{held}, which has {len(gpus)}")
            gpus[share.i] = gpus[share.i].more(share, self.node)
        self._check_sharing(holding)
        return replace(
            self,
            taken=tuple(gpus),
            holdings={**self.holdings, holding.uid: holding},
            cpu_free=self.cpu_free - holding.cpu,
            memory_free_bytes=self.memory_free_bytes - holding.memory,
        )

    def hold_others(self, holdings: Iterable[Holding]) -> "NodeLedger":
        """Return the ledger with pods more that have no GPUs of their own here.

        Those that are held already are left as they are. Cost: linear, however many there are.
        """
        new = {one.uid: one for one in holdings if one.uid not in self.holdings}
        return replace(
            self,
            holdings={**self.holdings, **new},
            cpu_free=self.cpu_free - sum(one.cpu for one in new.values()),
            memory_free_bytes=self.memory_free_bytes - sum(one.memory for one in new.values()),
        )

    def _check_sharing(self, holding: Holding) -> None:
        kinds: set[Sharing] = {
            "compute" if share.core else "memory" for share in holding.shares if share.mem
        }
        if self.sharing:
            kinds.add(self.sharing)
        if len(kinds) > 1:
            raise LedgerError(
                f"memory-only and memory-and-compute pods share {self.node.name}: {holding.pod}"
            )

    def release(self, uid: str) -> "NodeLedger":
        """Return the ledger without a pod; the same one where it has nothing here."""
        gone = self.holdings.get(uid)
        if gone is None:
            return self
        rest = {key: holding for key, holding in self.holdings.items() if key != uid}
        gpus = list(self.taken)
        for share in gone.shares:
            gpus[share.i] = gpus[share.i].less(share)
        return replace(
            self,
            taken=tuple(gpus),
            holdings=rest,
            cpu_free=self.cpu_free + gone.cpu,
            memory_free_bytes=self.memory_free_bytes + gone.memory,
        )

    @property
    def has_gpus(self) -> bool:
        """GPUs are here, or pods with GPUs are, and the node offers none (any more)."""
        return bool(self.node.cards or self.unaccounted)

    @property
    def gpus_free(self) -> int:
        """GPUs of which nobody has anything, whoever chooses them; 0 where nobody knows."""
        if self.unaccounted:
            return 0
        whole = self.free_mask.bit_count()
        by_count = any(holding.nvidia for holding in self.holdings.values())
        return max(0, min(whole, self.counted_free(NVIDIA_GPU))) if by_count else whole

    def counted_free(self, resource: str) -> int:
        """Return how many of a resource may still be asked for, chosen by NVIDIA's plugin."""
        holdings = self.holdings.values()
        taken = sum(holding.nvidia for holding in holdings if holding.counted == resource)
        return self.node.resources.get(resource, 0) - taken


@dataclass(frozen=True, slots=True)
class Conflict:
    """A pod that is not bound yet and whose record cannot be honoured: it must go."""

    pod: str
    uid: str
    node: str | None
    """The node that its record names; None where the record cannot be read."""
    reason: str


@dataclass(frozen=True, slots=True)
class Ledger:
    """What is taken of every node; `hold` and `release` return a new ledger.

    Cost: one copy of the mapping of nodes.
    """

    nodes: Mapping[str, NodeLedger] = field(default_factory=dict)
    """By node name."""
    conflicts: tuple[Conflict, ...] = ()

    def hold(self, node: str, holding: Holding) -> "Ledger":
        """Return the ledger with one pod more on a node.

        Raises:
            LedgerError: there is no such node, or see `NodeLedger.hold`.
        """
        return self.hold_all([(node, holding)])

    def hold_all(self, holdings: Iterable[tuple[str, Holding]]) -> "Ledger":
        """Return the ledger with several pods more, each on the node named beside it.

        Raises:
            LedgerError: there is no such node, or see `NodeLedger.hold`; nothing is held then.
        """
        changed: dict[str, NodeLedger] = {}
        for node, holding in holdings:
            if node not in self.nodes:
                raise LedgerError(f"{holding.pod} cannot be on {node}: there is no such node")
            changed[node] = changed.get(node, self.nodes[node]).hold(holding)
        return replace(self, nodes={**self.nodes, **changed})

    def release(self, uid: str) -> "Ledger":
        """Return the ledger without a pod; the same one where it has nothing anywhere."""
        for ledger in self.nodes.values():
            if uid in ledger.holdings:
                rest = {**self.nodes, ledger.node.name: ledger.release(uid)}
                return replace(self, nodes=rest)
        return self
