"""Keep GPUs of pods that were deleted while their containers may run from new pods. Pure.

A forced deletion removes a pod from the API server before its containers have ended. On a claims
node its kubelet then lets the driver give the GPUs to the next claim, within a minute from the
deletion and whether or not the containers have ended.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from linkwise.cluster.nodes.node import Node

CLOSED_FOR = 90.0
"""Time from the deletion of the pod [s]. The kubelet releases claims of pods that are gone every
60 s, and kills containers, unless they cannot be killed, before that."""


class UnreleasedGPUs:
    """The GPUs of all nodes that such pods had: at most those that the nodes have."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start without GPUs; the clock is monotonic [s]."""
        self._clock = clock
        self._nodes: dict[str, dict[str, tuple[float, str]]] = {}
        """By node, then by UUID: when the GPU may be used again [s], and the pod."""

    def add(self, node: str, uuids: Iterable[str], pod: str) -> None:
        """Take the GPUs of a pod that was deleted now."""
        until = self._clock() + CLOSED_FOR
        self._nodes.setdefault(node, {}).update(dict.fromkeys(uuids, (until, pod)))

    def forget(self, node: str) -> None:
        """Forget the GPUs of a node that was deleted."""
        self._nodes.pop(node, None)

    def cordoned(self, node: Node) -> tuple[Node, float | None]:
        """Cordon these GPUs of a node; return it, and the time until one may be used again.

        The time is None if there is none [s].
        """
        now, present = self._clock(), {card.uuid for card in node.cards}
        gpus = {
            uuid: (until, pod)
            for uuid, (until, pod) in self._nodes.pop(node.name, {}).items()
            if now < until and (uuid in present or node.awaits_slices)
        }
        if not gpus:
            return node, None
        self._nodes[node.name] = gpus
        cards = tuple(
            replace(card, cordoned=card.cordoned or card.uuid in gpus) for card in node.cards
        )
        warnings = tuple(
            f"GPU{i}: closed for {CLOSED_FOR:g} s, since the containers of pod "
            f"{gpus[card.uuid][1]}, which was deleted, may run"
            for i, card in enumerate(node.cards)
            if card.uuid in gpus
        )
        left = min(until for until, _ in gpus.values()) - now
        return replace(node, cards=cards, warnings=(*node.warnings, *warnings)), left
