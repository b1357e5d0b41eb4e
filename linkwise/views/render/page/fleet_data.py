"""Encodes the fleet as compact JSON for the map's script; no name can end its element."""

import json
from collections.abc import Sequence

from linkwise.cluster.finding import printable
from linkwise.views.analysis.fleet import FleetNode, FleetPod
from linkwise.views.output.printer import sentence


class _Names:
    """Frequent texts, each stored once."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self.numbers.setdefault(printable(text), len(self.numbers))

    @property
    def all(self) -> list[str]:
        return list(self.numbers)


class _Tables:
    def __init__(self) -> None:
        self.pools, self.models, self.modes = _Names(), _Names(), _Names()
        self.namespaces, self.gangs, self.amounts = _Names(), _Names(), _Names()


def fleet_json(nodes: Sequence[FleetNode], drawings: Sequence[int | None]) -> str:
    """Return the fleet as JSON that is safe inside a script element.

    Args:
        nodes: The fleet.
        drawings: The number of each node's drawing; None: it has no GPUs to draw.
    """
    tables = _Tables()
    rows = [_row(node, drawing, tables) for node, drawing in zip(nodes, drawings, strict=True)]
    document = {**{name: names.all for name, names in vars(tables).items()}, "nodes": rows}
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _row(node: FleetNode, drawing: int | None, tables: _Tables) -> list[object]:
    return [
        printable(node.node.name),
        tables.pools.number(node.pool),
        tables.models.number(node.model),
        tables.modes.number(node.node.mode.value),
        node.states,
        node.used,
        node.free,
        node.stranded,
        drawing,
        node.links,
        [printable(problem) for problem in node.problems],
        [_pod(pod, tables) for pod in node.pods],
        [printable(sentence(note)) for note in node.notes],
    ]


def _pod(pod: FleetPod, tables: _Tables) -> list[object]:
    return [
        tables.namespaces.number(pod.namespace),
        printable(pod.name),
        tables.gangs.number(pod.gang) if pod.gang else -1,
        pod.gpus,
        tables.amounts.number(pod.amount),
        int(pod.is_new),
    ]
