"""The webhook's process: reviews for its processor time, its start, its memory."""

import http.client
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter, sleep

from controlplane.process import Process, free_ports

from bench.admission.stage import Stage
from bench.measure import ROUNDS, Figure, Spread, cpu, rounds, spread

_MANY, _LONG, _NAMESPACES = 5_000, 100_000, 5_000
_SERVERS = {
    "linkwise": ("", ""),
    "usual": ("controller-runtime, Pod decoded and compared", "≥ 3.5"),
    "constant": ("net/http with a constant patch", ""),
}


def figures(stage: Stage) -> Iterator[Figure]:
    """Yield each row as soon as it is measured."""
    yield from _costs(stage)
    starts = [_start(stage) for _ in range(ROUNDS)]
    yield Figure("start to ready", "≤ 1 s", spread(starts), "s")
    yield from _memory(stage)


def _costs(stage: Stage) -> Iterator[Figure]:
    """Yield the cost of a review in each server, and their ratios."""
    measures = [partial(_cost, stage, name) for name in _SERVERS]
    for measure in measures:
        measure()
    found = rounds(*measures)
    for index, (name, (words, target)) in enumerate(_SERVERS.items()):
        if words:
            ratio = spread([each[index] / each[0] for each in found])
            yield Figure(f"reviews per CPU-second, over {words}", target, ratio)
        yield Figure(f"  processor time of a review, {name}", "", _micro(found, index), "µs")


def _micro(found: list[tuple[float, ...]], index: int) -> Spread:
    return spread([each[index] * 1e6 for each in found])


def _cost(stage: Stage, name: str) -> float:
    """Return the processor time that a server takes for a review [s]."""
    process, _ = stage.servers[name]
    before = cpu(process.pid)
    stage.load.must(stage.reviews(name), _MANY)
    return (cpu(process.pid) - before) / _MANY


def _start(stage: Stage) -> float:
    """Return how long another replica takes from its start until it is ready [s]."""
    ports = free_ports(3)
    names = ("PORT", "DRY_RUN_PORT", "PROBE_PORT")
    env = {f"LINKWISE_{name}": str(port) for name, port in zip(names, ports, strict=True)}
    shipped = stage.webhook.process
    replica = Process(
        "replica", shipped.argv, stage.folder / "replica.log", env={**shipped.env, **env}
    )
    begin = perf_counter()
    stage.plane.processes.start(replica)
    try:
        while not _is_ready(ports[2]):
            if not replica.runs:
                raise RuntimeError(f"it ended before it was ready: {replica.log.read_text()}")
            sleep(0.005)
        return perf_counter() - begin
    finally:
        stage.plane.processes.stop(replica)


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _memory(stage: Stage) -> Iterator[Figure]:
    """Yield the memory with thousands of namespaces, early and after many reviews."""
    body = '{"metadata": {"generateName": "n-", "labels": {"team": "vision", "tier": "batch"}}}'
    (stage.folder / "namespace.json").write_text(body)
    target = replace(stage.creates("", "namespace"), url=f"{stage.plane.server}/api/v1/namespaces")
    stage.load.must(target, _NAMESPACES)
    process, _ = stage.servers["linkwise"]
    words = f"with {_NAMESPACES:,} namespaces"
    stage.load.must(stage.reviews("linkwise"), _LONG // 10)
    early = spread([_resident(process.pid)])
    yield Figure(f"  resident memory after {_LONG // 10:,} reviews, {words}", "", early, "MB")
    stage.load.must(stage.reviews("linkwise"), _LONG)
    late = spread([_resident(process.pid)])
    yield Figure(f"resident memory after {_LONG:,} reviews, {words}", "≤ 100 MB", late, "MB")


def _resident(pid: int) -> float:
    """Return the memory that a process holds [MB]."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
