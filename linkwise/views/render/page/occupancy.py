"""The holders of every GPU after a simulation."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.allocations.gpus import Counted, GPUShare
from linkwise.cluster.nodes.node import Card, Node
from linkwise.topology.table import table_of
from linkwise.views.analysis.simulation import Simulation, UnitResult
from linkwise.views.output.words import amount_text

COLOURS = 6
"""The number of colours; units after these repeat them, but not the letters."""


class State(StrEnum):
    """The state of a GPU; each looks different without colour, too."""

    PLACED = "placed"
    """Given out in this simulation."""
    HELD = "held"
    """Taken before this simulation."""
    SHARED = "shared"
    """Given out in parts; some, all or none of them are taken."""
    FREE = "free"
    UNHEALTHY = "unhealthy"
    CORDONED = "cordoned"
    COUNTED = "counted"
    """Chosen by NVIDIA's plugin: some GPUs of the node are taken; it is not known which."""
    UNSURE = "unsure"
    """Its holder is not known."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The sign of a gang or a pod in drawings."""

    letters: str
    colour: int


@dataclass(frozen=True, slots=True)
class Unit(Mark):
    """A gang or a pod of the simulation, with its letters in drawings."""

    result: UnitResult

    def tag(self, number: int) -> str:
        """Return the label of the GPUs of a member, counted from 0."""
        return f"{self.letters}{number}" if self.result.is_gang else self.letters


@dataclass(frozen=True, slots=True)
class Part:
    """One pod's part of one GPU."""

    holding: Holding
    share: GPUShare
    unit: Mark | None
    """None for a pod that has no mark, such as one that was there before."""
    tag: str = ""
    """The pod's label in drawings; empty for a pod that was there before."""

    @property
    def words(self) -> str:
        """Its size; empty for a whole GPU."""
        return amount_text([self.share])


@dataclass(frozen=True, slots=True)
class GPU:
    """One GPU of a node."""

    index: int
    card: Card
    state: State
    parts: tuple[Part, ...]
    capacity: int = 0
    """The amount that is given out in parts; 0 for a GPU that is given out whole."""
    measure: str = "GiB"
    """The unit of the capacity: GiB of memory, or replicas."""

    @property
    def unit(self) -> Mark | None:
        """The mark of what has it whole."""
        return self.parts[0].unit if self.state is State.PLACED else None

    @property
    def taken(self) -> int:
        """The allocated part of the capacity."""
        return sum(map(self.size, self.parts))

    def size(self, part: Part) -> int:
        """Return how much of the capacity a part takes."""
        return part.share.mem or 1


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    """One node after the simulation."""

    ledger: NodeLedger
    gpus: tuple[GPU, ...]
    counted: tuple[Holding, ...] = ()
    """Pods with GPUs by count, chosen by NVIDIA's plugin."""
    placed: int = 0
    """The number of pods that this simulation placed here."""
    units: tuple[Mark, ...] = field(default=())
    """The marks of these pods, in the order of decision."""

    @property
    def name(self) -> str:
        """The node's name."""
        return self.ledger.node.name


def units_of(simulation: Simulation) -> tuple[Unit, ...]:
    """Return every unit in the order of decision, with its letters."""
    return tuple(
        Unit(letters(number), number % COLOURS, result)
        for number, result in enumerate(simulation.units)
    )


def letters(number: int) -> str:
    """Return A to Z for 0 to 25, then AA, AB and so on."""
    text = ""
    number += 1
    while number:
        number, letter = divmod(number - 1, 26)
        text = chr(ord("A") + letter) + text
    return text


def nodes_of(simulation: Simulation, units: Sequence[Unit]) -> list[SimulatedNode]:
    """Return the nodes on which something was placed, by name."""
    placed = {
        member.pod.metadata.uid or member.name: (unit, unit.tag(number))
        for unit in units
        for number, member in enumerate(unit.result.members)
    }
    touched = {
        placement.node
        for unit in units
        if unit.result.plan
        for placement in unit.result.plan.placements
    }
    ledgers = simulation.after.ledger.nodes
    return [marked_node(ledgers[name], placed) for name in sorted(touched)]


def alike(views: Sequence[SimulatedNode]) -> list[list[SimulatedNode]]:
    """Return nodes in groups of equal drawings and policies, except for numbers of members."""
    groups: dict[object, list[SimulatedNode]] = {}
    for view in views:
        gpus = tuple((gpu.state, gpu.unit and gpu.unit.letters) for gpu in view.gpus)
        shares = any(gpu.capacity or (gpu.parts and not gpu.unit) for gpu in view.gpus)
        machine = view.ledger.node.machine
        key: object = view.name
        if machine is not None and not shares and not view.counted:
            key = id(table_of(machine)), gpus, view.ledger.node.kubelet
        groups.setdefault(key, []).append(view)
    return list(groups.values())


MarkedPods = Mapping[str, tuple[Mark, str]]
"""The mark of a pod's unit, and the pod's own label, by the pod's uid."""


def marked_node(ledger: NodeLedger, placed: MarkedPods) -> SimulatedNode:
    """Return a node on which some pods have marks."""
    here = [placed[uid][0] for uid in ledger.holdings if uid in placed]
    return SimulatedNode(
        ledger,
        tuple(_gpu(ledger, i, placed) for i in range(len(ledger.node.cards))),
        tuple(held for held in ledger.holdings.values() if isinstance(held.gpus, Counted)),
        len(here),
        tuple({unit.letters: unit for unit in here}.values()),
    )


def _gpu(ledger: NodeLedger, i: int, placed: MarkedPods) -> GPU:
    card, node = ledger.node.cards[i], ledger.node
    parts = tuple(_parts(ledger, i, placed))
    capacity = node.replicas or ((card.memory or 0) if node.mode.shares_memory else 0)
    if any(part.share.mem is None for part in parts) and not node.replicas:
        capacity = 0
    state = _state(ledger, card, parts, capacity)
    return GPU(i, card, state, parts, capacity, "replicas" if node.replicas else "GiB")


def _parts(ledger: NodeLedger, i: int, placed: MarkedPods) -> Iterator[Part]:
    for uid, holding in ledger.holdings.items():
        unit, tag = placed.get(uid, (None, ""))
        yield from (
            Part(holding, share, unit, tag) for share in holding.gpus.shares if share.i == i
        )


def _state(ledger: NodeLedger, card: Card, parts: tuple[Part, ...], capacity: int) -> State:
    if parts and not capacity:
        return State.PLACED if parts[0].unit else State.HELD
    if not card.healthy:
        return State.UNHEALTHY
    if card.is_closed:
        return State.CORDONED
    if ledger.unaccounted:
        return State.UNSURE
    if ledger.has_counted_pods:
        return State.COUNTED
    return State.SHARED if capacity else State.FREE


def empty_view(node: Node) -> SimulatedNode:
    """Return a node without pods."""
    return marked_node(NodeLedger.empty(node), {})
