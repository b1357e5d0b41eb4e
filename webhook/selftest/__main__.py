"""`python -m webhook.selftest`: ask for dry runs, write what is wrong, and end."""

import linkwise.runtime.process.missing_package  # noqa: F401 - before packages that it reports

# isort: split

import asyncio
import os
import sys
from dataclasses import dataclass

from linkwise.runtime.kube.client import Kube
from linkwise.runtime.kube.errors import KubeError
from linkwise.runtime.process.lifecycle import run_until, start
from linkwise.runtime.process.settings import ProcessSettings, setting
from webhook.selftest.trial import complaints


@dataclass(frozen=True, slots=True)
class Settings(ProcessSettings):
    """Settings of the test."""

    test_namespace: str = setting("default", "of the pods of its dry runs")


def main() -> int:
    """Return 0 if admission works, 1 if not or after a signal, 2 for invalid settings."""
    works = False

    async def attempt(settings: Settings) -> None:
        nonlocal works
        try:
            async with Kube.from_settings(settings, os.environ) as kube:
                lines = await complaints(kube, settings.test_namespace)
        except KubeError as error:
            lines = [f"the API server does not answer: {error}"]
        works = not lines
        shown = lines or ["a pod was refused and a gang of two was changed, as they are to be"]
        sys.stdout.write("".join(f"{line}\n" for line in shown))

    async def run(settings: Settings, stop: asyncio.Event) -> None:
        await run_until(stop, attempt(settings))

    return start(Settings, run) or int(not works)


if __name__ == "__main__":
    sys.exit(main())
