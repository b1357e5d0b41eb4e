"""What the map's script reads: the fleet as compact JSON, in which no name can end its element."""

import json
from collections.abc import Sequence

from cli.analysis.fleet import FleetNode
from cli.analysis.fleet import Holder as FleetHolder
from webhook.messages import printable


class _Names:
    """Texts that come often, each stored once."""

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
    """Return the fleet as JSON that may stand inside a script element.

    Args:
        nodes: The fleet.
        drawings: For each the number of its drawing; None: it has no GPUs to draw.
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
        [printable(one) for one in node.problems],
        [_holder(one, tables) for one in node.holders],
    ]


def _holder(holder: FleetHolder, tables: _Tables) -> list[object]:
    return [
        tables.namespaces.number(holder.namespace),
        printable(holder.name),
        tables.gangs.number(holder.gang) if holder.gang else -1,
        holder.gpus,
        tables.amounts.number(holder.amount),
        int(holder.is_new),
    ]
