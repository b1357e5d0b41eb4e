"""Keep GPUs that have just recovered from a fault from new pods for a while. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from linkwise.cluster.nodes.node import Node


@dataclass(slots=True)
class _Recovery:
    """The faults of one node."""

    faulty: frozenset[int] = frozenset()
    """The indices of the GPUs with a fault."""
    since: dict[int, float] = field(default_factory=dict)
    """By index of a recovered GPU that new pods may not have yet: when it recovered [s]."""


class RecoveredGPUs:
    """The GPUs of all nodes that had a fault."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start without faults; the clock is monotonic [s]."""
        self._clock = clock
        self._nodes: dict[str, _Recovery] = {}

    def forget(self, node: str) -> None:
        """Forget the faults of a node that was deleted."""
        self._nodes.pop(node, None)

    def cordoned(self, node: Node, seconds: float) -> tuple[Node, float | None]:
        """Cordon the recovered GPUs of a node; return it, and the time until one is used again.

        The time is None if there is none [s].

        Args:
            node: The node as it is now.
            seconds: How long a GPU has no fault before new pods may have it [s].
        """
        now, before = self._clock(), self._nodes.pop(node.name, _Recovery())
        faulty = frozenset(i for i, card in enumerate(node.cards) if card.faulty)
        since = before.since | dict.fromkeys(before.faulty - faulty, now)
        since = {i: at for i, at in since.items() if now < at + seconds and i not in faulty}
        if not (faulty or since):
            return node, None
        self._nodes[node.name] = _Recovery(faulty, since)
        cards = tuple(
            replace(card, cordoned=card.cordoned or i in since) for i, card in enumerate(node.cards)
        )
        left = min(since.values()) + seconds - now if since else None
        return replace(node, cards=cards), left
