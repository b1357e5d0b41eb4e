"""Admission through a real API server: the cost of Linkwise for creating pods."""

from collections.abc import Callable, Iterator
from functools import partial

from bench.admission.load import Sent, Target
from bench.admission.review import NAMESPACE
from bench.admission.stage import CONSTANT, NOTHING, Stage
from bench.measure import Figure, rounds, spread
from cluster import keys

_MANY, _RATE, _PACED, _BURST, _BURSTS = 800, 100, 400, 200, 10
_ITS = "  of the constant Go webhook's"


def figures(stage: Stage) -> Iterator[Figure]:
    """Yield each row as soon as it is measured."""
    yield _shared(
        "creates/s, as a share of those with the constant Go webhook",
        "≥ 0.95",
        partial(_rate, stage, NAMESPACE),
        partial(_rate, stage, CONSTANT),
    )
    yield _shared(
        "creates/s without GPUs, as a share of those without any webhook",
        "≥ 0.97",
        partial(_rate, stage, NAMESPACE, "plain"),
        partial(_rate, stage, NOTHING, "plain"),
    )
    yield from _latency(stage)
    yield _bursts(stage)


def _shared(
    name: str, target: str, ours: Callable[[], float], other: Callable[[], float]
) -> Figure:
    other()
    return Figure(name, target, spread([a / b for a, b in rounds(ours, other)]))


def _rate(stage: Stage, namespace: str, body: str = "worker") -> float:
    """Return creates per second."""
    return _MANY / stage.load.must(_target(stage, namespace, body), _MANY).seconds


def _target(stage: Stage, namespace: str, body: str) -> Target:
    """Return creates whose pods come back with our gate where some webhook adds it."""
    gated = body == "worker" and namespace != NOTHING
    return stage.creates(namespace, body, keys.GANG if gated else "")


def _latency(stage: Stage) -> Iterator[Figure]:
    """Yield the latency that is added to creates at a steady rate."""

    def paced(namespace: str) -> Sent:
        return stage.load.must(_target(stage, namespace, "worker"), _PACED, rate=_RATE)

    found = rounds(partial(paced, NAMESPACE), partial(paced, CONSTANT), partial(paced, NOTHING))
    ours, constant, none = zip(*found, strict=True)
    name = f"added latency at {_RATE} creates/s"
    for words, sent, limits in ((name, ours, ("≤ 2 ms", "≤ 8 ms")), (_ITS, constant, ("", ""))):
        median = spread([one.p50 - without.p50 for one, without in zip(sent, none, strict=True)])
        yield Figure(f"{words}, p50", limits[0], median, "ms")
        late = spread([one.p99 - without.p99 for one, without in zip(sent, none, strict=True)])
        yield Figure(f"{words}, p99", limits[1], late, "ms")


def _bursts(stage: Stage) -> Figure:
    """Count failures of bursts at a webhook that has no connection yet."""
    target = stage.creates(NAMESPACE, expect=keys.GANG)
    plane, process = stage.plane, stage.webhook.process
    failures = 0
    for _ in range(_BURSTS):
        plane.processes.stop(process)
        plane.processes.start(process)
        process.wait_ready(lambda: stage.webhook.ready)
        failures += stage.load.send(target, _BURST, connections=_BURST, cold=True).failures
    name = f"failures of {_BURSTS} bursts of {_BURST} creates on cold connections"
    return Figure(name, "0", spread([failures]))
