"""What `inspect` shows to those who know gpushare's inspect: GPU memory, card by card.

Source of the format: gpushare-device-plugin `cmd/inspect/display.go` at 2c1dcb9.
"""

from collections.abc import Iterator, Sequence

from cli.analysis.inspection import NodeView
from cli.render.output import aligned
from webhook.messages import printable

_PENDING = "PENDING(Allocated)"
_NO_CARD = "0/0"
_RULE = 20
"""The line below the table is so much longer than the first node's words."""


def lines(views: Sequence[NodeView], *, detail: bool) -> Iterator[str]:
    """Yield the lines of the table, or of one table a node and the sum.

    Nodes whose GPU memory is not shared have no place in it. A pod whose card nobody knows counts
    as pending.

    Args:
        views: The nodes.
        detail: One table a node, a pod a line.
    """
    shared = [view for view in views if view.node.mode.shares_memory]
    yield from _detailed(shared) if detail else _summary(shared)


def _summary(views: list[NodeView]) -> Iterator[str]:
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


def _detailed(views: list[NodeView]) -> Iterator[str]:
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


def _pods(view: NodeView) -> Iterator[list[str]]:
    nobody = ["0"] if view.pending else []
    for holder in view.holders:
        each = [str(view.has(holder, i)) for i in view.indices]
        yield [holder.name, holder.namespace, *each, *nobody]
    for pod in view.pending:
        namespace, _, name = pod.name.partition("/")
        yield [name, namespace, *("0" for _ in view.indices), str(pod.memory)]


def _table(rows: list[list[str]]) -> Iterator[str]:
    yield from (printable(line.rstrip()) for line in aligned(rows))


def _share(view: NodeView, i: int) -> str:
    return f"{view.used(i)}/{view.total(i)}"


def _waiting(view: NodeView) -> int:
    return sum(pod.memory for pod in view.pending)


def _used(view: NodeView) -> int:
    return sum(map(view.used, view.indices)) + _waiting(view)


def _total(view: NodeView) -> int:
    return sum(map(view.total, view.indices))


def _sum(views: list[NodeView]) -> str:
    used, total = sum(map(_used, views)), sum(map(_total, views))
    return f"{used}/{total} ({_percent(used, total)}%)"


def _percent(used: int, total: int) -> int:
    """Return the share, cut to a whole number as gpushare does."""
    return 100 * used // total if total else 0
