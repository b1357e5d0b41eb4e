"""Memory of a leader with a large cluster: real watches of lists that another process serves.

`python -m bench.planning.memory` prints the figures alone.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import process_time

from bench.measure import Figure, spread
from bench.planning.memory_server import (
    CLUSTERS,
    LARGE,
    NODES,
    PLAIN,
    PODS,
    VALUES,
    WAITING,
    WITH_GPUS,
)
from runtime.kube.client import Kube
from runtime.process.lifecycle import tune_gc
from scorer.cache.informers import Informers

_TIMES = 3


def figures() -> Iterator[Figure]:
    """Yield memory and CPU time of a process that has listed everything and accounted for it."""
    for what, cluster in (
        (f"{LARGE} pods that wait, each with {VALUES:,} values of affinity", "large"),
        (f"{PLAIN:,} plain pods that wait", "plain"),
    ):
        added = [
            _measured(cluster)["resident"] - _measured("nothing")["resident"] for _ in range(_TIMES)
        ]
        yield Figure(f"{what}: resident memory that they add", "", spread(added), "MB")
    found = [_measured("cluster") for _ in range(_TIMES)]
    size = f"{NODES:,} nodes and {PODS:,} pods"
    for what, target, key, unit in (
        (f"{size}, resident memory", "≤ 400", "resident", "MB"),
        (f"{size}, at most on the way", "≤ 400", "most", "MB"),
        (f"{size}, listed and accounted for (CPU)", "", "seconds", "s"),
    ):
        yield Figure(what, target, spread([one[key] for one in found]), unit)


def _measured(cluster: str) -> dict[str, float]:
    """Return the figures of a process that watches one of `CLUSTERS`, and ends."""
    python = [sys.executable, "-m"]
    serve = [*python, "bench.planning.memory_server", cluster]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603
        try:
            assert server.stdout is not None  # noqa: S101
            port = server.stdout.readline().strip()
            output = subprocess.run(  # noqa: S603
                [*python, "bench.planning.memory", port, cluster],
                check=True,
                stdout=subprocess.PIPE,
            )
        finally:
            server.terminate()
    found: dict[str, float] = json.loads(output.stdout.splitlines()[-1])
    return found


async def _watch(port: str, cluster: str) -> None:
    tune_gc()
    began = process_time()
    async with Kube(f"http://127.0.0.1:{port}") as kube:
        informers = Informers(kube)
        running = asyncio.create_task(informers.run())
        await informers.synced()
        snapshot = informers.state.snapshot()
        seconds = process_time() - began
        # Else something else is measured.
        if cluster == "cluster":
            assert len(snapshot.nodes) == NODES  # noqa: S101
            free = sum(node.free_mask.bit_count() for node in snapshot.nodes)
            assert free == 8 * NODES - 2 * (WITH_GPUS - WAITING), free  # noqa: S101
        else:
            waiting = len(list(informers.state.groups))
            assert waiting == CLUSTERS[cluster].get("/api/v1/pods", (None, 0))[1]  # noqa: S101
        print(json.dumps({**_memory(), "seconds": seconds}))
        running.cancel()
        await asyncio.wait((running,))


def _memory() -> dict[str, float]:
    """Return the present and the peak memory of this process [MB]."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    status = dict(line.split(":", 1) for line in lines)
    return {
        name: int(status[key].split()[0]) * 1024 / 1e6
        for name, key in (("resident", "VmRSS"), ("most", "VmHWM"))
    }


def main() -> None:
    """Print the figures; with arguments, run the process that watches."""
    match sys.argv[1:]:
        case [port, cluster]:
            asyncio.run(_watch(port, cluster))
        case _:
            for figure in figures():
                print(figure, flush=True)


if __name__ == "__main__":
    main()
