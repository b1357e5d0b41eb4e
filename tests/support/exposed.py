"""Metrics that the processes expose, with their types and labels; no API server is needed."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from controlplane.process import free_ports, wait_until

ROOT = Path(__file__).parents[2]
_SHARED = {
    "PYTHONPATH": str(ROOT),
    "LINKWISE_HOST": "127.0.0.1",
    "LINKWISE_API_SERVER": "http://127.0.0.1:1",
    "LINKWISE_DRAIN_SECONDS": "0",
}
_PORTS = {
    "webhook": ("LINKWISE_PROBE_PORT", "LINKWISE_PORT", "LINKWISE_DRY_RUN_PORT"),
    "certs": ("LINKWISE_PROBE_PORT",),
    "scorer": ("LINKWISE_PROBE_PORT", "LINKWISE_INSPECT_PORT", "LINKWISE_FIT_PORT"),
    "agent": ("LINKWISE_PROBE_PORT",),
}
_OWN = {"agent": {"LINKWISE_NODE_NAME": "gpu-0", "LINKWISE_KUBELET_DIR": "/nonexistent"}}
_RUN = """\
import json, pathlib, runpy, sys
from prometheus_client import CollectorRegistry

collect = CollectorRegistry.collect

def labels(collector):
    if names := getattr(collector, "_name", None) and getattr(collector, "_labelnames", None):
        return {collector._name: names}
    return {one.name: getattr(one, "_labelnames", ()) for one in collector.collect()}

def written(registry):
    found = {}
    for collector in list(registry._collector_to_names):
        found.update(labels(collector))
    pathlib.Path(LABELS).write_text(json.dumps(found))
    return collect(registry)

CollectorRegistry.collect = written
runpy.run_module(PROCESS, run_name="__main__")
"""
"""Text of metrics has the labels only of those with samples; the registry knows all."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric as the text format names it: a counter has the suffix `_total`."""

    type: str
    labels: frozenset[str]


def exposed(folder: Path) -> dict[str, dict[str, Metric]]:
    """Return the metrics of each process, by its name and theirs.

    Args:
        folder: Files are written there.
    """
    with ExitStack() as stack:
        found = {}
        for name, ports in _PORTS.items():
            numbers = [str(port) for port in free_ports(len(ports))]
            environment = {**os.environ, **_SHARED, **_OWN.get(name, {})}
            environment |= dict(zip(ports, numbers, strict=True))
            code = _RUN.replace("PROCESS", repr(name))
            code = code.replace("LABELS", repr(str(folder / name)))
            process = subprocess.Popen(  # noqa: S603 - our own code
                [sys.executable, "-c", code], env=environment, stdout=subprocess.DEVNULL
            )
            stack.callback(process.wait, timeout=60)
            stack.callback(process.terminate)
            found[name] = numbers[0]
        return {name: dict(_metrics(folder / name, port)) for name, port in found.items()}


def _metrics(labels: Path, port: str) -> Iterator[tuple[str, Metric]]:
    answers: list[str] = []

    def read() -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                answers.append(answer.read().decode())
        except OSError:
            return False
        return True

    wait_until(read, "metrics are there", 60)
    names: Mapping[str, list[str]] = json.loads(labels.read_text())
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", answers[0], re.MULTILINE):
        base = name.removesuffix("_created").removesuffix("_total")
        yield name, Metric(kind, frozenset(names.get(base, names.get(name, ()))))
