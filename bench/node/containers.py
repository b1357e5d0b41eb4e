"""Containers on a real kubelet: the time to their first line, with Linkwise and without.

`python -m bench.node.containers` prints these figures alone.
"""

import re
import tempfile
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path

from controlplane.binaries import Binaries, MissingError, binaries
from controlplane.demo import NO_KWOK, node_programs, node_with_agent
from controlplane.installed_plane import install
from controlplane.node.agent import Agent
from controlplane.node.image import IMAGE
from controlplane.node.machine import RealNode
from controlplane.plane import control_plane
from controlplane.pods import Pods
from controlplane.process import wait_until

from bench.measure import Figure, Spread, rounds, spread
from cluster import keys
from runtime.process.clock import wall

_ROUNDS = 21
_WITH, _WITHOUT = "default", "kube-system"
"""Linkwise leaves the namespace kube-system out."""
_numbers = count()


def figures(found: Binaries) -> Iterator[Figure]:
    """Yield each row, or say in a line why there is none."""
    try:
        programs = node_programs(print)
    except MissingError as why:
        print(f"rows of containers are left out: {why}")
        return
    with (
        tempfile.TemporaryDirectory(prefix="linkwise-bench-") as name,
        control_plane(Path(name), found, kwok=NO_KWOK) as plane,
    ):
        install(plane)
        with node_with_agent(plane, programs) as (node, agent):
            yield from _starts(node, agent)


def _starts(node: RealNode, agent: Agent) -> Iterator[Figure]:
    ours, plain = partial(_start, node, _WITH, {keys.GPU_WHOLE: 1}), partial(_start, node, _WITHOUT)
    # The first ones wait for caches.
    ours(), plain()
    pairs = rounds(ours, plain, count=_ROUNDS)
    differences = [mine - other for mine, other in pairs]
    yield Figure(
        "pod created to the container's first line: added by Linkwise",
        "≤ 0.3",
        spread(differences),
        "s",
    )
    yield Figure("  with Linkwise, one GPU", "", spread([mine for mine, _ in pairs]), "s")
    yield Figure("  without Linkwise, no GPU", "", spread([other for _, other in pairs]), "s")
    seconds, binds, within = (
        _sample(agent, f"linkwise_agent_bind_seconds_{part}")
        for part in ("sum", "count", 'bucket{le="0.02"}')
    )
    for name, target, value, unit in (
        (
            f"PreStartContainer of {binds:g} containers by this kubelet, mean",
            "",
            seconds / binds * 1000,
            "ms",
        ),
        ("  share within 20 ms, by the agent's own metric", "≥ 99", 100 * within / binds, "%"),
    ):
        yield Figure(name, target, Spread(value, value, value), unit)


def _start(node: RealNode, namespace: str, limits: dict[str, int] | None = None) -> float:
    """Return the time from the creation of a pod to the first line of its container [s]."""
    pods = Pods(node.plane.api, namespace)
    name = f"bench-{next(_numbers)}"
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["sh", "-c", "echo started; exec sleep infinity"],
        "resources": {"limits": {key: str(value) for key, value in (limits or {}).items()}},
    }
    began = wall()
    pod = pods.create(name=name, spec={"containers": [container]})
    wait_until(lambda: bool(node.log(pod, "main")), f"{name} has written a line")
    folder = f"{namespace}_{name}_{pod['metadata']['uid']}"
    line = (node.place.folder / "log/pods" / folder / "main/0.log").read_text(encoding="utf-8")
    # Python's times have six digits.
    stamp = re.sub(r"(\.\d{6})\d*", r"\1", line.split(" ")[0])
    pods.api.delete(f"{pods.path}/{name}", gracePeriodSeconds="1")
    wait_until(lambda: name not in pods.all(), f"{name} is gone")
    return datetime.fromisoformat(stamp).timestamp() - began


def _sample(agent: Agent, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", agent.metrics, re.MULTILINE)
    return float(found[1]) if found else 0.0


if __name__ == "__main__":
    for figure in figures(binaries(print)):
        print(figure, flush=True)
