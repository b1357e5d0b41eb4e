"""A leader of the scorer on an API server, without its HTTP servers and the election.

`python -m tools.bench.leader_process URL` prints a line once it knows all objects, and goes on.
"""

import asyncio
import sys

from linkwise.runtime.kube.client import Kube
from linkwise.runtime.process.clock import wall
from linkwise.runtime.process.lifecycle import tune_gc
from linkwise.runtime.process.metrics import new_registry
from scorer import __main__ as _  # noqa: F401 - all modules of a scorer take memory.
from scorer.leader import Leader
from scorer.metrics import Metrics
from scorer.timings import Timings

READY = "accounted for: "
"""Begins the line; others are the log."""


def _is_ready(leader: Leader) -> bool:
    """Return whether all is accounted for, and claims nodes are fenced."""
    report = leader.report()
    if report is None or report.nodes is None or leader.missing():
        return False
    return not (report.nodes.unfenced or report.nodes.incomplete or report.nodes.unaccounted)


async def _lead(url: str) -> None:
    async with Kube(url, timeout=60) as kube, asyncio.TaskGroup() as group:
        leader = Leader(
            kube,
            kube,
            Metrics(new_registry()),
            clock=wall,
            instance="bench",
            wait=0,
            timings=Timings(),
        )
        tune_gc()
        group.create_task(leader.lead(1))
        # No event says so.
        while not _is_ready(leader):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        nodes = leader.context.informers.state.snapshot().nodes if leader.context else ()
        held = sum(len(node.holdings) for node in nodes)
        print(f"{READY}{len(nodes)} nodes, {held} pods with resources", flush=True)


if __name__ == "__main__":
    asyncio.run(_lead(sys.argv[1]))
