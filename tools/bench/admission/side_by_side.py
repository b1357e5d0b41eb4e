"""The webhook beside the Go servers: creations of pods, and reviews for their processor time."""

from collections.abc import Iterator
from functools import partial

from linkwise.cluster import keys
from tools.bench.admission.load import send
from tools.bench.admission.review import NAMESPACE
from tools.bench.admission.stage import CONSTANT, NOTHING, Stage
from tools.bench.measure import Figure, cpu, rounds, spread

_CREATES, _REVIEWS = 800, 5_000
_SERVERS = {
    "linkwise": ("", ""),
    "usual": ("controller-runtime, Pod decoded and compared", "≥ 3.5"),
    "constant": ("net/http with a constant patch", ""),
}


def figures(stage: Stage) -> Iterator[Figure]:
    """Yield each row as soon as it is measured."""
    for name, target, body, other in (
        ("with the constant Go webhook", "≥ 0.95", "worker", CONSTANT),
        ("without any webhook, both without GPUs", "≥ 0.97", "plain", NOTHING),
    ):
        ours, others = (partial(_rate, stage, where, body) for where in (NAMESPACE, other))
        others()
        shares = [a / b for a, b in rounds(ours, others)]
        yield Figure(f"creates/s, as a share of those {name}", target, spread(shares))
    measures = [partial(_cost, stage, name) for name in _SERVERS]
    for measure in measures:
        measure()
    found = rounds(*measures)
    for index, (name, (words, target)) in enumerate(_SERVERS.items()):
        if words:
            ratio = spread([each[index] / each[0] for each in found])
            yield Figure(f"reviews per CPU-second, over {words}", target, ratio)
        costs = spread([each[index] * 1e6 for each in found])
        yield Figure(f"  processor time of a review, {name}", "", costs, "µs")


def _rate(stage: Stage, namespace: str, body: str) -> float:
    """Return creations per second; pods come back with our gate where some webhook adds it."""
    gate = keys.GANG if body == "worker" else ""
    return _CREATES / send(stage.sender, stage.creates(namespace, body, gate), _CREATES)


def _cost(stage: Stage, name: str) -> float:
    """Return the processor time that a server takes for a review [s]."""
    process, _ = stage.servers[name]
    before = cpu(process.pid)
    send(stage.sender, stage.reviews(name), _REVIEWS)
    return (cpu(process.pid) - before) / _REVIEWS
