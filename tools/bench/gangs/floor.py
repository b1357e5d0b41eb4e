"""A control plane with nodes, for benchmarks of the scorer and of others."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from signal import SIGCONT, SIGSTOP

from controlplane.binaries import Binaries
from controlplane.manifests import BASE, MUTATING, REGISTRATIONS, VALIDATING
from controlplane.nodes import Line, add_nodes, read_nodes
from controlplane.plane import ControlPlane, control_plane
from controlplane.process import wait_until
from controlplane.scorer import start_scorer, wait_for_leader

from tools.bench.measure import Stopwatch


@dataclass(slots=True)
class Floor:
    """A control plane with nodes, and the scorer where one runs."""

    plane: ControlPlane
    folder: Path
    _numbers: Iterator[int]

    @contextmanager
    def scorer(self) -> Iterator[None]:
        """Run a scorer, and wait until it leads."""
        scorer = start_scorer(self.plane, self.folder, f"scorer-{next(self._numbers)}.log")
        try:
            wait_for_leader(scorer)
            yield
        finally:
            self.plane.processes.stop(scorer.process)

    @contextmanager
    def no_kubelets(self) -> Iterator[None]:
        """Pause kwok: the kubelets of a cluster use processors of their own."""
        (kwok,) = (process for process in self.plane.processes.running if process.name == "kwok")
        kwok.signal(SIGSTOP)
        try:
            yield
        finally:
            kwok.signal(SIGCONT)

    def namespace(self) -> str:
        """Make a namespace in which pods can be created; return its name."""
        name = f"bench-{next(self._numbers)}"
        self.plane.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
        accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
        wait_until(lambda: bool(self.plane.api.get(accounts)["items"]), f"{name} can have pods")
        return name

    def stopwatch(self) -> Stopwatch:
        """Return a stopwatch for all running processes."""
        return Stopwatch([process.pid for process in self.plane.processes.running])


@contextmanager
def floor(found: Binaries, line: Line, **flags: Sequence[str]) -> Iterator[Floor]:
    """Start everything, with direct connections from the clients to the scorer.

    Args:
        found: What runs.
        line: The nodes.
        flags: Of programs, by their names; `_` stands for `-`.
    """
    # Nodes stay ready however long kwok stands still.
    grace = ("--node-monitor-grace-period=1h",)
    manager = "kube-controller-manager"
    more = {name.replace("_", "-"): tuple(given) for name, given in flags.items()}
    more[manager] = (*more.get(manager, ()), *grace)
    with (
        tempfile.TemporaryDirectory(prefix="linkwise-bench-") as name,
        control_plane(Path(name), found, **more) as plane,
    ):
        folder = Path(name) / "bench"
        folder.mkdir()
        applied = plane.kubectl("apply", "-k", str(BASE))
        if applied.returncode:
            raise ValueError(applied.stderr)
        bindings = f"{REGISTRATIONS}/validatingadmissionpolicybindings"
        # The bare client makes pods and claims that these refuse.
        refusing = (f"{bindings}/linkwise-placed", f"{bindings}/linkwise-claims")
        for path in (MUTATING, VALIDATING, *refusing):
            plane.api.delete(path)
        add_nodes(plane.api, read_nodes([line]))
        yield Floor(plane, folder, count())
