"""`python -m scorer.withdraw`: withdraw Linkwise from the cluster, and end."""

import linkwise.runtime.process.missing_package  # noqa: F401 - before packages that it reports

# isort: split

import asyncio
import os
import sys

from linkwise.runtime.kube.client import Kube
from linkwise.runtime.process.lifecycle import run_until, start
from linkwise.runtime.process.settings import ProcessSettings
from scorer.withdraw.withdrawal import Times, withdraw


def main() -> int:
    """Run until no pod is held; return 1 after a termination signal, 2 for invalid settings."""
    finished = False

    async def run(settings: ProcessSettings, stop: asyncio.Event) -> None:
        nonlocal finished
        async with Kube.from_settings(settings, os.environ) as kube:
            await run_until(stop, withdraw(kube, Times()))
        finished = not stop.is_set()

    return start(ProcessSettings, run) or int(not finished)


if __name__ == "__main__":
    sys.exit(main())
