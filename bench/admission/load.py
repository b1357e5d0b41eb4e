"""Send the same body many times, by a program with little CPU usage of its own."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Target:
    """Destination and body of a request, and how a correct response is recognised."""

    url: str
    ca: Path
    body: Path
    token: str = ""
    expect: str = ""
    """What a good answer contains."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The results of sending."""

    seconds: float
    failures: int
    first: str
    """What the first failure was answered."""
    p50: float
    """Of the latencies [ms]."""
    p99: float


class LoadError(Exception):
    """A response is not the expected one, so that the figure would be wrong."""


@dataclass(frozen=True, slots=True)
class Load:
    """The program that sends."""

    program: Path

    def send(
        self,
        target: Target,
        count: int,
        *,
        connections: int = 25,
        rate: float = 0,
        cold: bool = False,
    ) -> Sent:
        """Send a body many times.

        Args:
            target: What, and where.
            count: How many times.
            connections: Each carries one request at a time.
            rate: Requests a second; 0 for as many as are answered.
            cold: Open the connections with the first requests only.
        """
        argv = [
            str(self.program),
            f"-url={target.url}",
            f"-ca={target.ca}",
            f"-body={target.body}",
            f"-token={target.token}",
            f"-expect={target.expect}",
            f"-count={count}",
            f"-connections={connections}",
            f"-rate={rate}",
            f"-cold={str(cold).lower()}",
        ]
        answer = subprocess.run(argv, check=True, stdout=subprocess.PIPE, timeout=900)  # noqa: S603
        return Sent(**json.loads(answer.stdout))

    def must(self, target: Target, count: int, *, rate: float = 0) -> Sent:
        """Send a body many times; all responses must be correct.

        Raises:
            LoadError: A response is not the expected one.
        """
        sent = self.send(target, count, rate=rate)
        if sent.failures:
            raise LoadError(f"{sent.failures} of {count} failed at {target.url}: {sent.first}")
        return sent
