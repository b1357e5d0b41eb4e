"""Read the cards of shares from the annotations of pods."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping

from controlplane.api import Object
from controlplane.history import Write
from controlplane.pods import Pods
from controlplane.process import NotReadyError, wait_until

from linkwise.cluster import keys

Card = tuple[str, int]
"""Node and index."""
_PATIENCE = 180
"""For what the scheduler has to try again [s], some of it several times on a busy machine."""


def where(pods: Pods, name: str) -> tuple[str, tuple[int, ...]]:
    """Return a pod's node and cards, once it is bound."""
    wait_until(
        lambda: bool(pods.all()[name]["spec"].get("nodeName")), f"{name} is bound", _PATIENCE
    )
    pod = pods.all()[name]
    return pod["spec"]["nodeName"], tuple(card for _, card in shares(pod))


def wait_for_reason(pods: Pods, name: str, reply: str) -> None:
    """Wait until the scheduler's reason in the pod's status contains some text.

    The scheduler's view of the cluster is late: other reasons may precede this one.

    Raises:
        NotReadyError: It was not in time; with the last reason.
    """

    def reason() -> str:
        conditions = pods.all()[name].get("status", {}).get("conditions", ())
        found = [one for one in conditions if one["type"] == "PodScheduled"]
        return found[0].get("message", "") if found else ""

    try:
        wait_until(lambda: reply in reason(), f"{name} waits for this reason: {reply}", _PATIENCE)
    except NotReadyError as error:
        raise NotReadyError(f"{error}, but: {reason()}") from error


def shares(pod: Object) -> dict[Card, tuple[int, int]]:
    """Return the share that a pod has of each card: memory [GiB] and compute [%]."""
    text = pod["metadata"].get("annotations", {}).get(keys.ALLOCATION)
    if text is None:
        return {}
    record = json.loads(text)
    return {
        (record["node"], one["i"]): (one.get("mem", 0), one.get("core", 0))
        for one in record["gpus"]
    }


def overfull(writes: Iterable[Write], memory: int, compute: int = 100) -> list[str]:
    """Return the writes after which a card was overcommitted.

    Args:
        writes: In the API server's order.
        memory: Of each card [GiB].
        compute: Of each card [%].
    """
    held: dict[str, Mapping[Card, tuple[int, int]]] = {}
    used: dict[Card, list[int]] = defaultdict(lambda: [0, 0])
    found = []
    for write in writes:
        for card, (mem, core) in held.pop(write.uid, {}).items():
            used[card][0] -= mem
            used[card][1] -= core
        if write.ended:
            continue
        held[write.uid] = now = shares(write.pod)
        for card, (mem, core) in now.items():
            used[card][0] += mem
            used[card][1] += core
            if used[card][0] > memory or used[card][1] > compute:
                found.append(f"{write.key} on {card}: {used[card]}")
    return found
