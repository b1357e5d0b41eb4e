"""The text of `linkwise inspect --format gpushare`: GPU memory, card by card.

Source of the format: gpushare-device-plugin `cmd/inspect/display.go` at 2c1dcb9.
"""

from collections.abc import Iterator, Sequence

from linkwise.cluster.finding import printable
from linkwise.views.analysis.inspection import InspectedNode
from linkwise.views.output.printer import aligned

_PENDING = "PENDING(Allocated)"
_NO_CARD = "0/0"
_RULE = 20
"""The line below the table is longer than the first node's row by this number of characters."""


def lines(views: Sequence[InspectedNode], *, detail: bool) -> Iterator[str]:
    """Yield the lines of the table, or of one table per node and the totals.

    Nodes whose GPU memory is not shared are left out. A pod whose card is not known is pending.

    Args:
        views: The nodes.
        detail: One table per node, one line per pod.
    """
    shared = [view for view in views if view.node.mode.shares_memory]
    yield from _detailed(shared) if detail else _summary(shared)


def _summary(views: list[InspectedNode]) -> Iterator[str]:
    cards = range(max((len(view.indices) for view in views), default=0))
    pending = [_PENDING] if any(view.pending for view in views) else []
    heads = [f"GPU{i}(Allocated/Total)" for i in cards]
    rows = [["NAME", "IPADDRESS", *heads, *pending, "GPU Memory(GiB)"]]
    for view in views:
        each = [_share(view, i) if i in view.indices else _NO_CARD for i in cards]
        waiting = [str(_waiting(view)) if view.pending else ""] if pending else []
        total = f"{_used(view)}/{_total(view)}"
        rows.append([view.node.name, view.address or "unknown", *each, *waiting, total])
    yield from _table(rows)
    yield "-" * (len("\t".join(rows[1])) + 1 + _RULE if views else 0)
    yield "Allocated/Total GPU Memory In Cluster:"
    yield _sum(views)


def _detailed(views: list[InspectedNode]) -> Iterator[str]:
    rule = 0
    for view in views:
        yield ""
        yield from _table([["NAME:", view.node.name], ["IPADDRESS:", view.address or "unknown"]])
        yield ""
        heads = [f"GPU{i}(Allocated)" for i in view.indices]
        pending = ["Pending(Allocated)"] if view.pending else []
        rows = [["NAME", "NAMESPACE", *heads, *pending], *_pods(view)]
        used, total = _used(view), _total(view)
        yield from _table(
            [
                *rows,
                ["Allocated :", f"{used} ({_percent(used, total)}%)"],
                ["Total :", str(total)],
            ]
        )
        rule = rule or sum(len("\t".join(row)) + 2 for row in rows[1:]) + 10
        yield "-" * rule
    yield ""
    yield ""
    yield f"Allocated/Total GPU Memory In Cluster:  {_sum(views)}"


def _pods(view: InspectedNode) -> Iterator[list[str]]:
    pending = ["0"] if view.pending else []
    for holder in view.holders:
        each = [str(view.memory_held(holder, i)) for i in view.indices]
        yield [holder.name, holder.namespace, *each, *pending]
    for pod in view.pending:
        namespace, _, name = pod.name.partition("/")
        yield [name, namespace, *("0" for _ in view.indices), str(pod.memory)]


def _table(rows: list[list[str]]) -> Iterator[str]:
    yield from (printable(line.rstrip()) for line in aligned(rows))


def _share(view: InspectedNode, i: int) -> str:
    return f"{view.used(i)}/{view.total(i)}"


def _waiting(view: InspectedNode) -> int:
    return sum(pod.memory for pod in view.pending)


def _used(view: InspectedNode) -> int:
    return sum(map(view.used, view.indices)) + _waiting(view)


def _total(view: InspectedNode) -> int:
    return sum(map(view.total, view.indices))


def _sum(views: list[InspectedNode]) -> str:
    used, total = sum(map(_used, views)), sum(map(_total, views))
    return f"{used}/{total} ({_percent(used, total)}%)"


def _percent(used: int, total: int) -> int:
    """Return the percentage, rounded down as by gpushare."""
    return 100 * used // total if total else 0
