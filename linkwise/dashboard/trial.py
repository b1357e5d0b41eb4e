"""Checks and simulates a manifest on a moment of the cluster; nothing is created. Pure."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from msgspec import Struct

from linkwise.dashboard.moment import Moment
from linkwise.dashboard.tree import Tree, tree_of
from linkwise.manifest.objects import objects_of_large
from linkwise.manifest.value import InputError, Value
from linkwise.planning.placement.state.node_cache import DeadlineExceeded
from linkwise.views.analysis.check import judge
from linkwise.views.analysis.check_report import Finding
from linkwise.views.analysis.created_pods import created_pods, number_of_pods
from linkwise.views.analysis.fit import placement_snapshot
from linkwise.views.analysis.simulation import Simulation, SimulationStep, simulate
from linkwise.views.files.inputs import ReadManifests, inputs_of
from linkwise.views.output.printer import sentence
from linkwise.views.render import simulate_json
from linkwise.views.render.page.drawing import drawing_of
from linkwise.views.render.page.occupancy import nodes_of, units_of
from linkwise.views.render.simulate_json import GangPlace, PodPlace

PODS = 2000
"""The number of pods that a manifest may create here, and of its objects."""
NODES = 12
"""The number of nodes that are drawn."""
_NAME = "manifest"
"""Of the text, in places: `manifest:12`."""


class Judged(Struct, frozen=True):
    """The findings of one pod template."""

    source: str
    """`manifest:line`."""
    kind: str
    name: str
    namespace: str
    template: str | None
    replicas: int
    verdict: str
    findings: tuple[Finding, ...]


class TakenGPUs(Struct, frozen=True):
    """The GPUs of one node that the pods would get."""

    node: str
    gpus: tuple[int, ...]


class TrialNode(Struct, frozen=True):
    """A node with the placement."""

    name: str
    drawing: Tree


class TrialReport(Struct, frozen=True):
    """The result for a manifest."""

    problems: tuple[str, ...]
    """Why it, or parts of it, cannot be read or judged; each with its line."""
    warnings: tuple[str, ...]
    items: tuple[Judged, ...] = ()
    pods: tuple[PodPlace, ...] = ()
    gangs: tuple[GangPlace, ...] = ()
    taken: tuple[TakenGPUs, ...] = ()
    nodes: tuple[TrialNode, ...] = ()


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Trial:
    """A manifest that is tried."""

    text: str
    is_over: Callable[[], bool]
    """Whether its time is over."""

    def on(self, moment: Moment) -> TrialReport:
        """Return what would become of its pods if they were created at a moment."""
        try:
            return self._report(moment)
        except InputError as error:
            return TrialReport((str(error),), ())
        except DeadlineExceeded:
            why = "it takes too long here, also because of other views. Try again, or fewer pods."
            return TrialReport((f"{_NAME}: {why}",), ())

    def _report(self, moment: Moment) -> TrialReport:
        current = moment.current
        manifests = ReadManifests(self._objects(), (), current.namespace)
        inputs = inputs_of(manifests, current.policy, current.cluster, current.objects)
        if number_of_pods(inputs.templates) > PODS:
            raise InputError(f"{_NAME}: more than {PODS} pods. Ask linkwise simulate.")
        # Without the cluster: the simulation below finds the places.
        checked = judge(replace(inputs, cluster=None), self._in_time, moment.at)
        items = tuple(
            Judged(
                item.source,
                item.kind,
                item.name,
                item.namespace,
                item.template,
                item.replicas,
                item.verdict.value,
                item.findings,
            )
            for item in checked.items
        )
        problems = (*inputs.unreadable, *(each.sentence for each in inputs.unjudged))
        warnings = inputs.warnings
        if inputs.unreadable:
            return TrialReport(problems, warnings, items)
        admitted = list(self._in_time(created_pods(inputs)))
        snapshot = placement_snapshot(current.cluster, current.policy).fork(self.is_over)
        simulation = simulate(snapshot, admitted, current.cluster.pods, self._steps)
        document = simulate_json.document(simulation, ())
        return TrialReport(
            problems,
            tuple(map(sentence, warnings)),
            items,
            tuple(document.pods),
            tuple(document.gangs),
            tuple(_taken(simulation)),
            tuple(_nodes(simulation)),
        )

    def _objects(self) -> list[Value]:
        objects = list(islice(self._in_time(objects_of_large(self.text, _NAME)), PODS + 1))
        if len(objects) > PODS:
            raise InputError(f"{_NAME}: more than {PODS} objects. Ask linkwise check.")
        return objects

    def _in_time(self, steps: Iterable[T]) -> Iterator[T]:
        for step in steps:
            if self.is_over():
                raise DeadlineExceeded
            yield step

    def _steps(self, steps: Iterable[SimulationStep], _: int) -> Iterator[SimulationStep]:
        return self._in_time(steps)


def _taken(simulation: Simulation) -> Iterator[TakenGPUs]:
    by_node: dict[str, set[int]] = {}
    for pod in simulation.pods:
        if pod.node is not None:
            by_node.setdefault(pod.node, set()).update(pod.gpus.indices)
    return (TakenGPUs(node, tuple(sorted(gpus))) for node, gpus in by_node.items())


def _nodes(simulation: Simulation) -> Iterator[TrialNode]:
    for view in nodes_of(simulation, units_of(simulation))[:NODES]:
        if machine := view.ledger.node.machine:
            yield TrialNode(view.name, tree_of(drawing_of(view, machine)))
