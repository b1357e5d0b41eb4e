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


class LoadError(Exception):
    """A response is not the expected one, so that the figure would be wrong."""


def send(program: Path, target: Target, count: int) -> float:
    """Send a body many times over 25 connections; return how long it took [s].

    Raises:
        LoadError: A response is not the expected one.
    """
    argv = [
        str(program),
        f"-url={target.url}",
        f"-ca={target.ca}",
        f"-body={target.body}",
        f"-token={target.token}",
        f"-expect={target.expect}",
        f"-count={count}",
    ]
    answer = subprocess.run(argv, check=True, stdout=subprocess.PIPE, timeout=900)  # noqa: S603
    sent = json.loads(answer.stdout)
    if sent["failures"]:
        raise LoadError(f"{sent['failures']} of {count} failed at {target.url}: {sent['first']}")
    return float(sent["seconds"])
