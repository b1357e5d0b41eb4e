"""Who has what of every GPU once the simulation is over, as a reader of the page asks it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from cli.analysis.simulation import Simulation, UnitResult
from cluster.node import Card, Node
from cluster.node_ledger import Holding, NodeLedger
from cluster.record import GPUShare
from topology.table import table_of

COLOURS = 6
"""How many units have a colour of their own before colours come again; letters never do."""


class State(StrEnum):
    """What a GPU is to the reader; each looks different without its colour."""

    PLACED = "placed"
    """Given out in this simulation."""
    HELD = "held"
    """Taken before."""
    SHARED = "shared"
    """Given out by parts, some of them perhaps."""
    FREE = "free"
    UNHEALTHY = "unhealthy"
    CORDONED = "cordoned"
    COUNTED = "counted"
    """NVIDIA's plugin chooses: some of the node are taken, and nobody knows which."""
    UNSURE = "unsure"
    """Nobody knows who has it."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A gang or a pod that was decided, with the letters that stand for it in drawings."""

    letters: str
    colour: int
    result: UnitResult

    def tag(self, number: int) -> str:
        """Return what stands on the GPUs of its member of this number, counted from 0."""
        return f"{self.letters}{number}" if self.result.is_gang else self.letters


@dataclass(frozen=True, slots=True)
class Part:
    """What one pod has of one GPU."""

    holding: Holding
    share: GPUShare
    unit: Unit | None
    """None for a pod that was there before."""
    tag: str = ""
    """What stands for the pod in drawings; empty for a pod that was there before."""

    @property
    def words(self) -> str:
        """Say how much it is; nothing for a whole GPU."""
        core = f", {self.share.core} %" if self.share.core else ""
        return f"{self.share.mem} GiB{core}" if self.share.mem is not None else ""


@dataclass(frozen=True, slots=True)
class GPU:
    """One GPU of a node."""

    index: int
    card: Card
    state: State
    parts: tuple[Part, ...]
    capacity: int = 0
    """How much of it is given out by parts; 0 for a GPU that is given whole."""
    measure: str = "GiB"
    """What the capacity counts: GiB of memory, or replicas."""

    @property
    def unit(self) -> Unit | None:
        """The unit that has it whole."""
        return self.parts[0].unit if self.state is State.PLACED else None

    @property
    def taken(self) -> int:
        """How much of the capacity is given out."""
        return sum(map(self.size, self.parts))

    def size(self, part: Part) -> int:
        """Return how much of the capacity a part takes."""
        return part.share.mem or 1


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node after the simulation."""

    ledger: NodeLedger
    gpus: tuple[GPU, ...]
    counted: tuple[Holding, ...] = ()
    """Pods that got GPUs by count: NVIDIA's plugin chooses which."""
    placed: int = 0
    """How many pods came in this simulation."""
    units: tuple[Unit, ...] = field(default=())
    """Those of which pods came, in the order of decision."""

    @property
    def name(self) -> str:
        """The node's name."""
        return self.ledger.node.name


def units_of(simulation: Simulation) -> tuple[Unit, ...]:
    """Return every unit in the order of decision, with its letters."""
    return tuple(
        Unit(_letters(place), place % COLOURS, result)
        for place, result in enumerate(simulation.gangs)
    )


def _letters(place: int) -> str:
    """Count in letters: A to Z, then AA, AB and so on."""
    letters = ""
    place += 1
    while place:
        place, letter = divmod(place - 1, 26)
        letters = chr(ord("A") + letter) + letters
    return letters


def nodes_of(simulation: Simulation, units: Sequence[Unit]) -> list[NodeView]:
    """Return the nodes on which something was placed, by name."""
    newcomers = {
        member.pod.metadata.uid or member.name: (unit, unit.tag(number))
        for unit in units
        for number, member in enumerate(unit.result.members)
    }
    touched = {
        one.node for unit in units if unit.result.plan for one in unit.result.plan.placements
    }
    ledgers = simulation.after.ledger.nodes
    return [_view(ledgers[name], newcomers) for name in sorted(touched)]


def alike(views: Sequence[NodeView]) -> list[list[NodeView]]:
    """Return nodes in groups whose drawings differ in the numbers of members alone."""
    groups: dict[object, list[NodeView]] = {}
    for view in views:
        gpus = tuple((one.state, one.unit and one.unit.letters) for one in view.gpus)
        shares = any(one.capacity or (one.parts and not one.unit) for one in view.gpus)
        machine = view.ledger.node.machine
        key: object = view.name
        if machine is not None and not shares and not view.counted:
            key = id(table_of(machine)), gpus
        groups.setdefault(key, []).append(view)
    return list(groups.values())


Newcomers = Mapping[str, tuple[Unit, str]]


def _view(ledger: NodeLedger, newcomers: Newcomers) -> NodeView:
    here = [newcomers[uid][0] for uid in ledger.holdings if uid in newcomers]
    return NodeView(
        ledger,
        tuple(_gpu(ledger, i, newcomers) for i in range(len(ledger.node.cards))),
        tuple(holding for holding in ledger.holdings.values() if holding.nvidia),
        len(here),
        tuple({unit.letters: unit for unit in here}.values()),
    )


def _gpu(ledger: NodeLedger, i: int, newcomers: Newcomers) -> GPU:
    card, node = ledger.node.cards[i], ledger.node
    parts = tuple(_parts(ledger, i, newcomers))
    capacity = node.replicas or ((card.memory or 0) if node.mode.shares_memory else 0)
    if any(part.share.mem is None for part in parts) and not node.replicas:
        capacity = 0
    state = _state(ledger, card, parts, capacity)
    return GPU(i, card, state, parts, capacity, "replicas" if node.replicas else "GiB")


def _parts(ledger: NodeLedger, i: int, newcomers: Newcomers) -> Iterator[Part]:
    for uid, holding in ledger.holdings.items():
        unit, tag = newcomers.get(uid, (None, ""))
        yield from (Part(holding, share, unit, tag) for share in holding.shares if share.i == i)


def _state(ledger: NodeLedger, card: Card, parts: tuple[Part, ...], capacity: int) -> State:
    if parts and not capacity:
        return State.PLACED if parts[0].unit else State.HELD
    if not card.healthy:
        return State.UNHEALTHY
    if card.cordoned:
        return State.CORDONED
    if ledger.unaccounted:
        return State.UNSURE
    if any(holding.nvidia for holding in ledger.holdings.values()):
        return State.COUNTED
    return State.SHARED if capacity else State.FREE


def empty_view(node: Node) -> NodeView:
    """Return a node on which nothing runs."""
    return _view(NodeLedger.empty(node), {})
