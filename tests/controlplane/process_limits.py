"""Measure the memory and event loop lag of a process, and limit its memory as the manifests do."""

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGKILL
from urllib.request import urlopen

import yaml
from controlplane.background import Background
from controlplane.manifests import BASE
from controlplane.process import Process

MIB = 1 << 20
_PAUSE = 0.02
"""Between two looks at a process's memory [s]."""
_LAG = re.compile(r'^linkwise_event_loop_lag_seconds_bucket\{le="(.+)"\} (\S+)$', re.MULTILINE)

Lag = dict[float, float]
"""How many timers were called so late at most, by the bound [s]."""


def memory(pid: int | str, line: str = "VmRSS") -> int:
    """Return the memory of a process [bytes]; `VmHWM`: its peak; 0 where it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(rf"^{line}:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) << 10 if found else 0


def restart_peak(pid: int) -> int:
    """Measure the peak of a process from now on; return its memory [bytes]."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return memory(pid)


def granted(component: str) -> int:
    """Return the memory limit of a component in the manifests [bytes]."""
    documents = yaml.safe_load_all((BASE / f"{component}.yaml").read_text())
    (deployment,) = (one for one in documents if one["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    limit = re.fullmatch(r"(\d+)([MG])i", container["resources"]["limits"]["memory"])
    if limit is None:
        raise ValueError(f"{component}: a memory limit in Mi or Gi is expected")
    return int(limit[1]) * {"M": MIB, "G": MIB << 10}[limit[2]]


@dataclass(frozen=True, slots=True)
class Vitals:
    """Memory and lag of a process over some time."""

    before: int
    """Memory at its begin [bytes]."""
    after: int
    peak: int
    limit: int
    lag: float | None
    """No timer was later [s], to a bucket's bound; None: it does not answer."""


@dataclass(slots=True)
class Limited(Background):
    """A process with a memory limit, which is killed above it; use it in `with`."""

    process: Process
    probes: str
    limit: int
    _peak: int = 0
    _before: int = 0
    _lag: Lag = field(default_factory=dict)

    def begin(self) -> None:
        """Measure from now on."""
        self._before = self._peak = memory(self.process.pid)
        self._lag = self._lags()

    def end(self) -> Vitals:
        """Return what was measured."""
        try:
            lag = _worst(self._lag, self._lags())
        except OSError:
            lag = None
        return Vitals(self._before, memory(self.process.pid), self._peak, self.limit, lag)

    def _run(self) -> None:
        while not self._over.wait(_PAUSE):
            held = memory(self.process.pid)
            self._peak = max(self._peak, held)
            if held > self.limit:
                self.process.signal(SIGKILL)

    def _lags(self) -> Lag:
        with urlopen(f"{self.probes}/metrics", timeout=10) as answer:  # noqa: S310
            found = _LAG.findall(answer.read().decode())
        return {float(bound): float(count) for bound, count in found}


def _worst(before: Lag, after: Lag) -> float:
    """Return a bound that every timer kept between two moments; of a new process, since its start.

    A bucket counts what the smaller ones count, too.
    """
    restarted = after[math.inf] < before[math.inf]
    since = {bound: count - (0 if restarted else before[bound]) for bound, count in after.items()}
    return min(bound for bound, count in since.items() if count == since[math.inf])
