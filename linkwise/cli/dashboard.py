"""`linkwise dashboard`: serves the live page of a cluster on loopback until it is interrupted."""

import asyncio
import secrets
from functools import partial

from linkwise.cli.long_running import run_until_interrupted
from linkwise.dashboard.browser import open_browser
from linkwise.dashboard.feed import Feed
from linkwise.dashboard.server import serve_dashboard
from linkwise.manifest.value import InputError
from linkwise.runtime.process.clock import wall
from linkwise.views.files.current_cluster import CurrentCluster
from linkwise.views.live.kubeconfig import Access
from linkwise.views.output.printer import say, warn

_SECRET = 32
"""Bytes of randomness in the address."""


def run_dashboard(loaded: CurrentCluster, access: Access | None, *, port: int, open_: bool) -> int:
    """Serve the page until Ctrl-C; return the exit code.

    Args:
        loaded: The cluster as it is now.
        access: Chooses the live cluster that is watched; None for a cluster in a file.
        port: On loopback; 0 for any that is free.
        open_: Open the page in a browser.

    Raises:
        InputError: The port is taken, or the kubeconfig cannot be used.
    """
    for warning in loaded.warnings:
        warn(warning)
    try:
        run_until_interrupted(partial(_run, loaded, access, port=port, open_=open_))
    except OSError as error:
        # asyncio writes the address before the reason.
        reason = (error.strerror or str(error)).rpartition(": ")[2].lower()
        raise InputError(f"port {port}: {reason}. Name another one with --port.") from None
    return 0


async def _run(
    loaded: CurrentCluster,
    access: Access | None,
    interrupted: asyncio.Event,
    *,
    port: int,
    open_: bool,
) -> None:
    feed = Feed(wall, live=access is not None)
    redirect = None
    try:
        await feed.publish(loaded)
        secret = secrets.token_urlsafe(_SECRET)
        async with serve_dashboard(feed, secret, port) as (_, address):
            say(f"The page of {loaded.source}: {address.url}")
            say("It shows what you may read, to this user of this machine. Ctrl-C ends it.")
            redirect = await asyncio.to_thread(open_browser, address.url) if open_ else None
            try:
                await _watch_until(interrupted, loaded, access, feed)
            finally:
                feed.close()
    finally:
        if redirect is not None:
            redirect.unlink(missing_ok=True)


async def _watch_until(
    interrupted: asyncio.Event, loaded: CurrentCluster, access: Access | None, feed: Feed
) -> None:
    if access is None:
        await interrupted.wait()
        return
    # Its library costs 0.3 s and 50 MB.
    from linkwise.views.live.watch import watch_until  # noqa: PLC0415

    await watch_until(interrupted, access, loaded.warnings, feed.publish, feed.report)
