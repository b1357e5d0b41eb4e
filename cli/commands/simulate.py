"""`linkwise simulate`: admits pods, places them on a cluster in a file, and shows the result."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum

from jsonpatch import JsonPatch
from msgspec import json, structs
from typer import echo

from cli.analysis.fit import placement_snapshot
from cli.analysis.simulation import AdmittedPod, PodResult, SimulationStep, simulate
from cli.files.inputs import Inputs, admit_pod
from cli.output.printer import EXIT_UNREADABLE, Format, complain, emit, warn, widely
from cli.output.progress import with_progress
from cli.render import simulate_json, simulate_text
from cli.render.page.caption import Caption
from cluster.account.ledger import Ledger
from manifest.template import PodTemplate
from manifest.value import InputError
from topology.choice import ChoiceMode
from webhook.outcome import Verdict

_PODS_MAX = 100_000
"""Pods that are created at once: ten times as many as `docs/benchmarks.md` measures."""


class View(StrEnum):
    """The output formats of `simulate`."""

    TABLE = "table"
    WIDE = "wide"
    """The table with all rows."""
    JSON = "json"
    YAML = "yaml"
    HTML = "html"


def show_simulation(inputs: Inputs, view: View, mode: ChoiceMode, caption: Caption) -> int:
    """Simulate and show the result; return the exit code.

    Args:
        inputs: Manifests and a cluster.
        view: The output format.
        mode: What a choice of GPUs prefers.
        caption: The caption of a page.

    Raises:
        InputError: There are too many pods.
    """
    if inputs.unreadable:
        # Without some of the pods the others would be placed elsewhere.
        for reason in inputs.unreadable:
            complain(reason)
        return EXIT_UNREADABLE
    if inputs.cluster is None:
        raise ValueError("there is no cluster among the files")
    total = _total(inputs.templates)
    snapshot = placement_snapshot(inputs.cluster, inputs.policy, mode)
    created = (pod for template in inputs.templates for pod in _admit(inputs, template))
    admitted = list(with_progress(created, "Admitting pods", total=total))
    simulation = simulate(snapshot, admitted, inputs.cluster.pods, _placing)
    for unjudged in inputs.unjudged:
        complain(unjudged.sentence)
    for warning in (*inputs.warnings, *_ledger_warnings(snapshot.ledger)):
        warn(warning)
    if view is View.HTML:
        # The page costs 30 ms to import.
        from cli.render.page.simulation import simulation_page  # noqa: PLC0415

        echo(simulation_page(simulation, caption), nl=False)
    elif view in {View.TABLE, View.WIDE}:
        with widely(wide=view is View.WIDE):
            simulate_text.show(simulation)
    else:
        emit(simulate_json.document(simulation, inputs.unjudged), Format(view.value))
    if not all(map(_is_settled, simulation.pods)):
        return 1
    return 3 if inputs.unjudged else 0


def _total(templates: Sequence[PodTemplate]) -> int:
    """Return the number of pods.

    Raises:
        InputError: There are more than `_PODS_MAX`.
    """
    total = sum(template.replicas for template in templates)
    if total > _PODS_MAX:
        largest = max(templates, key=lambda template: template.replicas)
        message = f"{total} pods: simulate creates at most {_PODS_MAX} at once."
        raise InputError(f"{largest.source}: {message}")
    return total


def _placing(steps: Iterable[SimulationStep], total: int) -> Iterator[SimulationStep]:
    return with_progress(steps, "Placing pods", size=lambda step: len(step[0].places), total=total)


def _ledger_warnings(ledger: Ledger) -> Iterator[str]:
    """Yield the pods of the cluster whose GPUs are unknown or recorded wrongly."""
    for node in ledger.nodes.values():
        if node.unaccounted:
            migrate = ", or let the policy's migration.gpushare read what another scheduler wrote"
            fix = "End that process" if node.node.mismatch else f"End it{migrate}"
            yield f"node {node.node.name} takes no GPU pods: {node.unaccounted}. {fix}."
    for conflict in ledger.conflicts:
        yield f"pod {conflict.pod}: its record does not count: {conflict.reason}. Delete it."


def _is_settled(pod: PodResult) -> bool:
    """Return whether a pod was allowed, and placed if it asks for GPUs."""
    outcome = pod.admitted.outcome
    if outcome.verdict is Verdict.DENIED:
        return False
    return pod.node is not None or outcome.request.family is None


def _admit(inputs: Inputs, template: PodTemplate) -> Iterator[AdmittedPod]:
    """Yield the pods of a template; pods that differ in name only are admitted once."""
    admitted, marks = None, None
    for index in range(template.replicas):
        name, *own_marks = template.stamp(index)
        if admitted is None or own_marks != marks:
            admitted, marks = _admit_one(inputs, template, index), own_marks
        metadata = structs.replace(admitted.pod.metadata, name=name)
        yield replace(admitted, pod=structs.replace(admitted.pod, metadata=metadata))


def _admit_one(inputs: Inputs, template: PodTemplate, index: int) -> AdmittedPod:
    raw = template.pod(index)
    outcome = admit_pod(inputs, template, template.read(raw))
    patch = JsonPatch([step.wire() for step in outcome.patch])
    # The pod shares parts with its template. A copy through JSON is ten times as fast as deepcopy.
    patched = patch.apply(json.decode(json.encode(raw)), in_place=True)
    return AdmittedPod(
        pod=template.read(patched),
        namespace=template.namespace,
        outcome=outcome,
        workload=template.workload,
        owner=template.owners[-1].uid if template.owners else "",
    )
