"""What one node offers: its mode, its cards, and what links them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from cluster.amounts import MEMORY_MAX
from cluster.keys import CORDON, GPU_MEM, UNHEALTHY_NAME_PREFIX
from cluster.mode import Mode, Placement, read_placement
from cluster.node_resources import NodeError, NodeObject, NodeResources, read_node_resources
from cluster.topology_configmap import PublishedTopology, read_indices
from topology.machine import MAX_GPUS, Level, Machine

__all__ = [
    "Card",
    "Mode",
    "Node",
    "NodeError",
    "NodeObject",
    "Placement",
    "Taint",
    "read_node",
    "uniform_machine",
]

DEFAULT_PODS = 110
"""How many pods a node takes where it does not say: the kubelet's default."""


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
    """Memory [GiB]; None where nothing tells it."""
    uuid: str | None = None
    """The driver's name for it; None where no agent publishes it."""
    healthy: bool = True
    cordoned: bool = False
    """Drained by an administrator: what runs stays, nothing new comes."""

    @property
    def usable(self) -> bool:
        """Something new may be placed here."""
        return self.healthy and not self.cordoned


@dataclass(frozen=True, slots=True)
class Node:
    """One node, with everything that placement asks about it."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    mode: Mode = Mode.DEFAULT
    placement: Placement = Placement.BINPACK
    machine: Machine | None = None
    """What links the cards; None exactly where there are none."""
    machine_known: bool = False
    """False where all GPUs count as equal because nothing tells how they are linked."""
    cards: tuple[Card, ...] = ()
    """By GPU index; as many as the machine has GPUs."""
    cpu: int = 0
    """Allocatable CPU [millicores]."""
    memory: int = 0
    """Allocatable memory [bytes]."""
    pods: int = DEFAULT_PODS
    """How many pods the node takes."""
    resources: Mapping[str, int] = field(default_factory=dict)
    """Allocatable extended resources (those with a domain in their name)."""
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    """False only where a Ready condition says so."""
    replicas: int = 0
    """Pods that may share one GPU of a time-sliced node; 0 in every other mode."""
    warnings: tuple[str, ...] = ()
    """What was guessed or left out, for people."""
    usable_mask: int = field(init=False, repr=False, compare=False)
    """The cards on which something new may be placed."""

    def __post_init__(self) -> None:
        if len(self.cards) != (self.machine.n if self.machine else 0):
            raise NodeError(f"node {self.name}: one card for each GPU of its machine is expected")
        mask = sum(1 << i for i, card in enumerate(self.cards) if card.usable)
        object.__setattr__(self, "usable_mask", mask)


def read_node(
    raw: NodeObject,
    *,
    published: PublishedTopology | None = None,
    machine: Machine | None = None,
    unhealthy: str = "",
    placement: Placement = Placement.BINPACK,
) -> Node:
    """Return what a Node object says, and what is known of its GPUs from elsewhere.

    A node has GPUs when its mode's resource counts some, healthy or not. Where its agent publishes
    a machine, that one is taken, however many GPUs the resource counts. A machine that the policy
    maps is taken when it has as many; else all GPUs count as equal. What cannot be read of a list
    of GPUs stands for none, and is warned of.

    Args:
        raw: The Node.
        published: What the node's agent says.
        machine: What the policy's mapping says, by the node's labels.
        unhealthy: What the ConfigMap of unhealthy GPUs lists.
        placement: What the policy says of shares; the node's label goes before it.

    Raises:
        NodeError: an amount is no Kubernetes quantity.
    """
    said = published or PublishedTopology(None, ())
    offer = read_node_resources(raw, said.machine.n if said.machine else 0)
    linked, known, doubt = _read_machine(offer, said.machine, machine)
    layout, misspelt = read_placement(offer.labels, placement)
    n = linked.n if linked else 0
    listed, unlisted = read_indices(unhealthy, n)
    ill = listed | said.unhealthy
    cordoned, undrained = read_indices(offer.annotations.get(CORDON, ""), n)
    cards = tuple(
        replace(card, healthy=card.healthy and i not in ill, cordoned=i in cordoned)
        for i, card in enumerate(_read_cards(offer, linked, is_published=linked is said.machine))
    )
    problems = (
        misspelt,
        *(f"published topology: {problem}" for problem in _doubts(said)),
        doubt,
        f"ConfigMap {UNHEALTHY_NAME_PREFIX}{raw.metadata.name}: {unlisted}" if unlisted else None,
        f"{CORDON}: {undrained}" if undrained else None,
        _missing(offer, cards),
        _unit(cards),
    )
    return Node(
        name=raw.metadata.name,
        labels=offer.labels,
        mode=offer.mode,
        placement=layout,
        machine=linked,
        machine_known=known,
        cards=cards,
        cpu=offer.allocatable.get("cpu", 0),
        memory=offer.allocatable.get("memory", 0),
        pods=offer.allocatable.get("pods", DEFAULT_PODS),
        resources={name: amount for name, amount in offer.allocatable.items() if "/" in name},
        taints=tuple(Taint(t.key, t.value, t.effect) for t in raw.spec.taints or ()),
        unschedulable=bool(raw.spec.unschedulable),
        ready=all(c.status == "True" for c in raw.status.conditions or () if c.type == "Ready"),
        replicas=offer.replicas if linked else 0,
        warnings=(*offer.warnings, *(problem for problem in problems if problem)),
    )


@cache
def uniform_machine(n: int) -> Machine:
    """Return a machine whose n GPUs all count as equal, since nothing tells how they are linked."""
    return Machine(links=((0,) * n,) * n, levels=((Level.UNKNOWN,) * n,) * n, numa=(0,) * n)


def _doubts(published: PublishedTopology) -> tuple[str, ...]:
    """Say what could not be read of a published topology, and what was guessed of its machine."""
    guessed = published.machine.warnings if published.machine else ()
    return (*published.warnings, *guessed)


def _read_machine(
    offer: NodeResources, published: Machine | None, mapped: Machine | None
) -> tuple[Machine | None, bool, str | None]:
    """Return the machine, whether it is known, and a warning."""
    n = offer.count
    if not n:
        return None, False, None
    if published:
        differ = f"the agent publishes {published.n} GPUs, but the kubelet counts {n}"
        return published, True, None if published.n == n else differ
    if n > MAX_GPUS:
        return None, False, f"{n} GPUs: at most {MAX_GPUS} on a node are placed, so none is"
    if mapped and mapped.n == n:
        return mapped, True, None
    doubt = f"the policy says a machine of {mapped.n} GPUs, the kubelet {n}" if mapped else None
    return uniform_machine(n), False, doubt


def _read_cards(
    offer: NodeResources, machine: Machine | None, *, is_published: bool
) -> Iterator[Card]:
    if machine is None:
        return
    # The kubelet says how many GPUs it gives out, not which; but none is none of them.
    some_usable = offer.usable > 0 or not offer.mode.is_ours
    for i in range(machine.n):
        yield Card(
            memory=_read_memory(offer, machine, i, is_published=is_published),
            uuid=machine.uuids[i] if is_published and machine.uuids else None,
            healthy=some_usable,
        )


def _read_memory(
    offer: NodeResources, machine: Machine, i: int, *, is_published: bool
) -> int | None:
    """Return the memory of one card [GiB]: as published, else its part of the registered sum."""
    if machine.memory and (is_published or not offer.mode.shares_memory):
        return machine.memory[i]
    return offer.shared_memory // offer.count or None if offer.mode.shares_memory else None


def _missing(offer: NodeResources, cards: tuple[Card, ...]) -> str | None:
    """Say how many GPUs the kubelet holds back, where nothing tells which they are."""
    missing = offer.count - offer.usable
    if not offer.mode.is_ours or missing <= sum(not card.healthy for card in cards):
        return None
    return f"{missing} of {offer.count} GPUs are not allocatable, and nothing tells which"


def _unit(cards: tuple[Card, ...]) -> str | None:
    """Say that memory was counted in another unit, where no card can have as much."""
    most = max((card.memory or 0 for card in cards), default=0)
    if most <= MEMORY_MAX:
        return None
    return (
        f"{most} GiB on one card cannot be: {GPU_MEM} counts GiB, so let the device plugin count "
        "GiB (gpushare's: --memory-unit=GiB)"
    )
