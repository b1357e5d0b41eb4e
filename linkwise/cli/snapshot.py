"""`linkwise snapshot`: writes the state of a live cluster, or with `--watch` its jobs over time."""

import asyncio
from collections.abc import Callable
from functools import partial

from linkwise.cli.long_running import run_until_interrupted
from linkwise.runtime.process.clock import wall
from linkwise.views.analysis.job_history import HEADER, JobHistory
from linkwise.views.files.current_cluster import CurrentCluster
from linkwise.views.files.source import line_writer, write_text
from linkwise.views.live.fetch import fetch_cluster
from linkwise.views.live.kubeconfig import Access
from linkwise.views.live.snapshot import snapshot_text
from linkwise.views.live.watch import watch_until
from linkwise.views.output.printer import Format, warn


def write_snapshot(access: Access, output: Format, to: str | None) -> int:
    """Write the objects of a live cluster; return the exit code.

    Raises:
        InputError: The cluster cannot be read, or the file not written.
    """
    cluster = fetch_cluster(access)
    for warning in cluster.warnings:
        warn(warning)
    write_text(to, snapshot_text(cluster.objects, output))
    return 0


def write_history(access: Access, to: str | None) -> int:
    """Write each job of a live cluster when it has ended, until Ctrl-C; return the exit code.

    Raises:
        InputError: The kubeconfig cannot be used, or the file not written.
    """
    with line_writer(to) as write:
        run_until_interrupted(partial(_watch, access, write))
    return 0


async def _watch(access: Access, write: Callable[[str], None], interrupted: asyncio.Event) -> None:
    history, problem = JobHistory(), ""

    async def publish(current: CurrentCluster) -> None:
        is_first = not history.has_begun
        if is_first:
            write(HEADER)
        for line in history.observe(current, wall()):
            write(line)
        if is_first:
            warn("the cluster is watched. A job is written when it has ended; Ctrl-C ends this.")

    def report(now: str) -> None:
        nonlocal problem
        if now and now != problem:
            warn(now)
        problem = now

    await watch_until(interrupted, access, (), publish, report)
    for line in history.finish():
        write(line)
