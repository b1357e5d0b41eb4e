"""`linkwise simulate`: admit pods, place them on a cluster in a file, and show what happens."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import StrEnum

from jsonpatch import JsonPatch
from msgspec import json, structs
from typer import echo

from cli.analysis.simulation import (
    AdmittedPod,
    PodResult,
    Step,
    simulate,
)
from cli.commands.fit import cluster_of
from cli.files.inputs import Inputs, admitted
from cli.render import simulate_json, simulate_text
from cli.render.output import Format, complain, emit, warn, widely
from cli.render.page.caption import Caption
from cli.render.progress import followed
from cluster.ledger import Ledger
from manifest.template import PodTemplate
from topology.choice import Mode
from webhook.outcome import Verdict


class View(StrEnum):
    """How `simulate` answers."""

    TABLE = "table"
    WIDE = "wide"
    """The table, whole."""
    JSON = "json"
    YAML = "yaml"
    HTML = "html"


def show_simulation(inputs: Inputs, view: View, mode: Mode, given: Caption) -> int:
    """Simulate and show; return the exit code.

    Args:
        inputs: Manifests and a cluster.
        view: How to answer.
        mode: What a choice of GPUs prefers.
        given: Where a page comes from.

    Raises:
        InputError: A manifest cannot be a pod.
    """
    snapshot = cluster_of(inputs, mode)
    made = (one for template in inputs.templates for one in _applicants(inputs, template))
    number = sum(template.replicas for template in inputs.templates)
    applicants = list(followed(made, "Admitting pods", total=number))
    pods = inputs.cluster.pods if inputs.cluster else ()
    simulation = simulate(snapshot, applicants, pods, _placing)
    for one in inputs.unjudged:
        complain(one.sentence)
    for warning in (*inputs.warnings, *_disputed(snapshot.ledger)):
        warn(warning)
    if view is View.HTML:
        from cli.render.page.document import render  # noqa: PLC0415 - 30 ms that only a page needs

        echo(render(simulation, given), nl=False)
    elif view in {View.TABLE, View.WIDE}:
        with widely(wide=view is View.WIDE):
            simulate_text.show(simulation)
    else:
        emit(simulate_json.document(simulation, inputs.unjudged), Format(view.value))
    if not all(_is_settled(pod) for pod in simulation.pods):
        return 1
    return 3 if inputs.unjudged else 0


def _placing(steps: Iterable[Step], total: int) -> Iterator[Step]:
    return followed(steps, "Placing pods", size=lambda step: len(step[0].places), total=total)


def _disputed(ledger: Ledger) -> Iterator[str]:
    """Yield what the pods of the cluster tell wrongly, or not at all, of the GPUs they hold."""
    for node in ledger.nodes.values():
        if node.unaccounted:
            yield (
                f"node {node.node.name} takes no GPU pods: {node.unaccounted}. End it, or let "
                "the policy's migration.gpushare read what another scheduler wrote."
            )
    for conflict in ledger.conflicts:
        yield f"pod {conflict.pod}: its record does not count: {conflict.reason}. Delete it."


def _is_settled(pod: PodResult) -> bool:
    """Tell whether a pod was allowed, and placed where Linkwise or its planner places it."""
    outcome = pod.applicant.outcome
    if outcome.verdict is Verdict.DENIED:
        return False
    return pod.node is not None or outcome.request.family is None


def _applicants(inputs: Inputs, template: PodTemplate) -> Iterator[AdmittedPod]:
    """Yield the pods of a template; of those that differ in name only, one is admitted."""
    one, alike = None, None
    for index in range(template.replicas):
        name, *marks = template.stamp(index)
        if one is None or marks != alike:
            one, alike = _applicant(inputs, template, index), marks
        metadata = structs.replace(one.pod.metadata, name=name)
        yield replace(one, pod=structs.replace(one.pod, metadata=metadata))


def _applicant(inputs: Inputs, template: PodTemplate, index: int) -> AdmittedPod:
    raw = template.pod(index)
    outcome = admitted(inputs, template, template.read(raw))
    patch = JsonPatch([step.wire() for step in outcome.patch])
    # The pod shares parts with its template; a copy by way of JSON takes a tenth of the time.
    patched = patch.apply(json.decode(json.encode(raw)), in_place=True)
    return AdmittedPod(
        pod=template.read(patched),
        namespace=template.namespace,
        outcome=outcome,
        workload=template.workload,
        owner=template.owners[-1].uid if template.owners else "",
    )
