"""`python -m scorer.withdraw`: withdraw Linkwise from the cluster, and end."""

import linkwise.runtime.process.missing_package  # noqa: F401 - before packages that it reports

# isort: split

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from linkwise.runtime.kube.client import Kube
from linkwise.runtime.process.environment import Environment
from linkwise.runtime.process.lifecycle import run_until, start
from scorer.withdraw.withdrawal import Times, withdraw


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings, read once at start."""

    api_server: str = ""
    """URL; empty for the API server of the pod's cluster."""
    api_token_file: str = ""
    api_ca_file: str = ""
    log_level: str = "info"


def main() -> int:
    """Run until no pod is held; return 1 after a termination signal, 2 for invalid settings."""
    finished = False

    async def run(settings: Settings, stop: asyncio.Event) -> None:
        nonlocal finished
        async with Kube.from_settings(settings, os.environ) as kube:
            await run_until(stop, withdraw(kube, Times()))
        finished = not stop.is_set()

    return start(read_settings, run) or int(not finished)


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Return the settings; an unset or empty variable has its default.

    | variable | default | meaning |
    |---|---|---|
    | `LINKWISE_API_SERVER` | the pod's own | outside a cluster: its address |
    | `LINKWISE_API_TOKEN_FILE` | none | read again for every call |
    | `LINKWISE_API_CA_FILE` | the system's | CA of the API server's certificate |
    | `LINKWISE_LOG_LEVEL` | `info` | `debug`, `info`, `warning`, `error` |

    Raises:
        SettingsError: A value cannot be used.
    """
    return Environment(environment).read(Settings, {})


if __name__ == "__main__":
    sys.exit(main())
