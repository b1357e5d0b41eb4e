"""Draw gangs on nodes of their own, a reason to take one off its GPUs, and refusals of that."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from math import inf
from random import Random

from controlplane.api import ApiError
from controlplane.background import Background
from controlplane.gangs import make_stateful_gang
from controlplane.history import gpus
from controlplane.nodes import NODES, Line, unhealthy
from controlplane.pods import Pods, container
from controlplane.process import wait_until
from controlplane.refusals import LATE, LOST, Fault, Refusals, Write

from linkwise.cluster import keys
from linkwise.runtime.process.clock import monotonic

LOW, HIGH = "draws-low", "draws-high"
"""Priority classes of the gangs that run first, and of those that come later."""
_LABEL = "draw"
_PATIENCE = 180
_SHAPES = ((8, 1), (4, 2), (2, 4), (1, 8), (2, 8), (4, 4), (3, 2))
"""Pods, and GPUs of each."""
_STATUSES = (403, 409, 422, 429, 500, LATE, LOST)
_LONGEST = 12.0
"""The longest fault that ends [s]."""


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """What is drawn for some nodes; equal numbers draw equal things."""

    number: int
    pods: Pods
    refusals: Refusals
    gangs: dict[str, int] = field(default_factory=dict)
    """The number of pods of each gang."""
    kept: set[str] = field(default_factory=set)
    """Gangs of which some member can never be evicted."""
    torn: set[str] = field(default_factory=set)
    """Gangs that had members on a node that was deleted."""

    @property
    def nodes(self) -> Line:
        """Two nodes that no other draw uses, as a line of a cluster file's short form."""
        return {
            "name": f"draw-{self.number}",
            "count": 2,
            "machine": "dgx1-v100",
            "mode": "topology",
            "cpu": 96,
            "memory": "768Gi",
            "labels": {_LABEL: str(self.number)},
        }

    def fill(self, random: Random) -> None:
        """Run gangs of low priority until no other one fits; wait until all are bound."""
        free = 16
        while shapes := [shape for shape in _SHAPES if shape[0] * shape[1] <= free]:
            size, each = random.choice(shapes)
            free -= size * each
            if size * each == 16 or random.random() < 0.9:
                self._make(LOW, size, each)
        wait_until(
            lambda: set(self.present().values()) == {True},
            f"all gangs of draw {self.number} are bound",
            _PATIENCE,
        )

    def _make(self, of_class: str, size: int, each: int) -> None:
        name = f"{of_class.removeprefix('draws-')}-{len(self.gangs)}"
        self.gangs[name] = size
        spec = {
            "containers": [container({keys.GPU_WHOLE: each})],
            "priorityClassName": of_class,
            "nodeSelector": {_LABEL: str(self.number)},
            "terminationGracePeriodSeconds": 1,
        }
        make_stateful_gang(self.pods, name, size, spec)

    @contextmanager
    def _one_pod(self, random: Random) -> Iterator[None]:
        spec = {"nodeSelector": {_LABEL: str(self.number)}, "priorityClassName": HIGH}
        self.pods.create({keys.GPU_WHOLE: random.choice((1, 4, 8))}, name="single", spec=spec)
        yield

    def refuse(self, random: Random) -> None:
        """Let writes about some pods fail for a while, and some evictions for ever."""
        ends = monotonic() + _LONGEST
        for name, size in self.gangs.items():
            for index in range(size):
                if random.random() < 0.35:
                    pod = self.pods.namespace, f"{name}-{index}"
                    faults = _faults(random, pod, ends)
                    self.refusals.add(faults)
                    if any(fault.until == inf for fault in faults):
                        self.kept.add(name)

    @contextmanager
    def trigger(self, random: Random) -> Iterator[str]:
        """Let the scorer take a gang off its GPUs while the block runs; yield for which reason."""
        node = f"draw-{self.number}-{random.randrange(2)}"
        api = self.pods.api
        harms: dict[str, Callable[[], AbstractContextManager[None]]] = {
            "preemption": nullcontext,
            "preemption by one pod": lambda: self._one_pod(random),
            "fault": lambda: unhealthy(api, node, random.randrange(8)),
            "deleted node": lambda: self._deleted(node),
        }
        reason = random.choice(tuple(harms))
        with harms[reason](), ExitStack() as budgets:
            if random.random() < 0.4:
                budgets.enter_context(self._budgets(random))
            if reason == "preemption" or random.random() < 0.3:
                self._make(HIGH, *random.choice(_SHAPES))
            yield reason

    @contextmanager
    def _budgets(self, random: Random) -> Iterator[None]:
        """Let one or two budgets, the second of which blocks all evictions, select one gang."""
        gang = random.choice(tuple(self.gangs))
        path = f"/apis/policy/v1/namespaces/{self.pods.namespace}/poddisruptionbudgets"
        names = [f"{gang}-{i}" for i in range(random.choice((1, 2)))]
        self.kept.add(gang)
        for name in names:
            selector = {"matchLabels": {"app": gang}}
            body = {"maxUnavailable": random.choice((0, 1, "50%")), "selector": selector}
            self.pods.api.create(path, {"metadata": {"name": name}, "spec": body})
        try:
            yield
        finally:
            for name in names:
                self.pods.api.delete(f"{path}/{name}")

    def present(self) -> dict[str, bool]:
        """Return the gangs that are whole (True) or have no pod on a GPU (False).

        A pod whose node was deleted has no GPU; Kubernetes deletes it within a minute. The others
        of its gang may only stay in part if the API server lets nobody evict one of them.

        Raises:
            PartError: A gang has some of its members on GPUs.
        """
        present = {one["metadata"]["name"] for one in self.pods.api.get(NODES)["items"]}
        on_gpus: dict[str, list[str]] = defaultdict(list)
        for name, pod in self.pods.all().items():
            node = pod["spec"].get("nodeName")
            if node in present or (gpus(pod) and not node):
                on_gpus[_gang(name)].append(name)
        sizes = [pair for pair in self.gangs.items() if pair[0] not in self.torn & self.kept]
        if parts := {g: on_gpus[g] for g, size in sizes if len(on_gpus[g]) not in {0, size}}:
            raise PartError(f"draw {self.number}: only {parts} have GPUs")
        return {gang: bool(on_gpus[gang]) for gang in self.gangs}

    @contextmanager
    def _deleted(self, node: str) -> Iterator[None]:
        pods = self.pods.all().items()
        self.torn.update(_gang(name) for name, pod in pods if pod["spec"].get("nodeName") == node)
        self.pods.api.delete(f"{NODES}/{node}")
        yield


def _gang(pod: str) -> str:
    """Return the gang of a member, by the name of its pod."""
    return pod.rpartition("-")[0]


class PartError(Exception):
    """A gang runs in part."""


def _faults(random: Random, pod: tuple[str, str], ends: float) -> Sequence[Fault]:
    """Return the faults of one pod, of which at most those of its evictions last for ever."""
    writes = random.choice(
        (
            {Write.TRY, Write.EVICT},
            {Write.EVICT},
            {Write.PATCH},
            {Write.TRY, Write.EVICT, Write.PATCH},
        )
    )
    until = ends - random.uniform(0, _LONGEST)
    status = random.choice(_STATUSES)
    # No API server refuses an eviction for ever because of a conflict.
    lasts = Write.PATCH not in writes and status != 409 and random.random() < 0.3
    return [Fault(pod, frozenset(writes), status, inf if lasts else until)]


class Kubelet(Background):
    """Changes the status of bound pods again and again, as a kubelet does that starts containers.

    So a write that depends on the version of a pod is often refused.
    """

    def __init__(self, pods: Sequence[Pods]) -> None:
        """Write nothing yet; `pods` are those of each namespace."""
        super().__init__()
        self._pods = pods

    def _run(self) -> None:
        beat = 0
        while not self._over.wait(0.3):
            beat += 1
            for pods in self._pods:
                for name, pod in pods.all().items():
                    if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]:
                        _change(pods, name, beat)


def _change(pods: Pods, name: str, beat: int) -> None:
    condition = {"type": "example.com/Beat", "status": "True", "reason": f"Beat{beat}"}
    try:
        pods.api.patch(
            f"{pods.path}/{name}/status", {"status": {"conditions": [condition]}}, "strategic"
        )
    except ApiError as error:
        if error.status not in {404, 409}:
            raise
