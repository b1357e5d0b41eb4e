"""Reads the trace and the fleet that a replay names."""

import re
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

from linkwise.cluster.keys import RACK
from linkwise.cluster.nodes.node import Card, MachineSource, Node
from linkwise.manifest.value import InputError
from linkwise.planning.placement.options import Preferences, preferences_of
from linkwise.replay.fleet import PLENTY
from linkwise.replay.traces.formats import FORMATS
from linkwise.replay.traces.read import TraceReader, fleet_format_of, format_of, read_nodes
from linkwise.topology.machine import Machine
from linkwise.views.files.cluster_file import collect_objects
from linkwise.views.files.current_cluster import current_cluster, require_nodes
from linkwise.views.files.machine import find_machine
from linkwise.views.files.source import (
    DEFAULT_NAMESPACE,
    STDIN,
    shown_name,
    stream_lines,
    stream_objects,
)

_NUMBER_OF = re.compile(r"([1-9][0-9]{0,4})x([a-z0-9-]+)(?:/([1-9][0-9]{0,4}))?")
_FLEETS = "Add --fleet: a published list of nodes, a cluster file, or a number of machines of the"


@dataclass(frozen=True, slots=True)
class Fleet:
    """The nodes of a fleet, and what its administrators prefer."""

    nodes: tuple[Node, ...]
    preferences: Preferences

    @property
    def digest(self) -> str:
        """Equal for fleets that a replay treats alike."""
        hashed, machines = sha256(repr(self.preferences).encode()), dict[Machine | None, int]()
        for node in self.nodes:
            machine = machines.setdefault(node.machine, len(machines))
            amounts = node.cpu, node.memory, len(node.cards), node.machine_known
            facts = node.name, sorted(node.labels.items()), machine, amounts
            hashed.update(repr(facts).encode())
        for known in machines:
            hashed.update(repr(known).encode())
        return hashed.hexdigest()


def digest_of(reader: TraceReader) -> str:
    """Return a number that is equal for traces with the same lines."""
    hashed = sha256()
    for line in reader.lines():
        hashed.update(line.encode())
    return hashed.hexdigest()


def open_trace(name: str) -> TraceReader:
    """Return the reader of a trace; its format is recognised by its header.

    Raises:
        InputError: The file cannot be read, or has other columns.
    """
    if name == STDIN:
        raise InputError("a trace is read once for each run; name a file instead of a pipe.")
    lines = partial(stream_lines, name)
    return TraceReader(shown_name(name), lines, format_of(_first_line(name), shown_name(name)))


def read_fleet(name: str | None) -> Fleet:
    """Return the fleet of a name.

    Args:
        name: A published list of nodes, a cluster file, or a number of machines of the catalogue,
            such as `128xdgx1-v100`, or `128xdgx1-v100/16` in racks of 16.

    Raises:
        InputError: It is missing, cannot be read, or has no GPUs.
    """
    if name is None:
        lists = "; ".join(f"{f.name}: {f.nodes_source}" for f in FORMATS if f.nodes_source)
        raise InputError(f"no fleet is named. {_FLEETS} catalogue (128xdgx1-v100). Lists: {lists}.")
    if counted := _NUMBER_OF.fullmatch(name):
        number, machine, rack = int(counted[1]), counted[2], counted[3]
        nodes = _machines(number, machine, int(rack) if rack else None)
        return Fleet(tuple(nodes), Preferences(domains=(RACK,) if rack else ()))
    if known := fleet_format_of(_first_line(name)):
        listed = read_nodes(stream_lines(name), shown_name(name), known)
        return Fleet(tuple(each.node for each in listed), Preferences())
    objects = collect_objects(stream_objects(name), name)
    current = current_cluster(objects, DEFAULT_NAMESPACE, name)
    require_nodes(current.cluster, name)
    with_gpus = tuple(node for node in current.cluster.nodes if node.machine)
    if not with_gpus:
        raise InputError(f"{shown_name(name)}: no node in it has GPUs.")
    return Fleet(with_gpus, preferences_of(current.policy.policy))


def _machines(number: int, machine_name: str, rack: int | None) -> list[Node]:
    """Return nodes of a machine; of each rack so many, None: they have no racks."""
    machine = find_machine(machine_name)
    width = len(str(number - 1))
    return [
        Node(
            f"node-{i:0{width}}",
            {RACK: f"rack-{i // rack}"} if rack else {},
            machine=machine,
            machine_source=MachineSource.FILE,
            cards=(Card(),) * machine.n,
            cpu=PLENTY,
            memory=PLENTY,
        )
        for i in range(number)
    ]


def _first_line(name: str) -> str:
    return next(stream_lines(name), "")
