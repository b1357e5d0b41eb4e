"""Columns of the pods of each node, as rules about pods select them."""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.requests.neighbors.rules import Selected
from linkwise.planning.placement.state.node_cache import Value
from linkwise.planning.placement.state.node_columns import Ints, labels
from linkwise.planning.placement.state.snapshot import Snapshot

Mask: TypeAlias = NDArray[np.bool_]
_FEW = 16


def column(snapshot: Snapshot, key: Hashable, compute: Callable[[NodeLedger], Value]) -> Ints:
    """Return one number of each node, as `NodeCache.get_or_compute`."""
    found: Ints = snapshot.cache.get_or_compute(key, snapshot.nodes, compute, np.int64)[0]
    return found


def pods_selected(snapshot: Snapshot, pods: Selected, *, is_spread: bool = False) -> Ints:
    """Return how many pods of each node a rule is about.

    Args:
        snapshot: The nodes.
        pods: The selected pods.
        is_spread: Pods that are ending do not count.
    """

    def compute(node: NodeLedger) -> Value:
        held = (holding.neighbor for holding in node.holdings.values())
        return (sum(one.may_be_in(pods) and not (is_spread and one.is_ending) for one in held),)

    return column(snapshot, ("pods", pods, is_spread), compute)


def has_labels(snapshot: Snapshot, keys: Iterable[str]) -> Mask:
    """Return the nodes that have all of some labels, at least one."""
    values = np.stack([labels(snapshot, key) for key in dict.fromkeys(keys)])
    return np.asarray(values.min(axis=0) > 0)


def rows_of(whole: Snapshot, part: Snapshot) -> Ints:
    """Return the nodes of a part as indices in the whole; both are in the order of names."""
    if len(part.nodes) <= _FEW:
        names = (node.node.name for node in part.nodes)
        found = [bisect_left(whole.nodes, name, key=_name) for name in names]
        return np.array(found, dtype=np.int64)
    places = {name: row for row, name in enumerate(whole.ledger.nodes)}
    return np.array([places[name] for name in part.ledger.nodes], dtype=np.int64)


def _name(ledger: NodeLedger) -> str:
    return ledger.node.name
