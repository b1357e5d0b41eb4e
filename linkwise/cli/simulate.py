"""`linkwise simulate`: admits pods, places them on a cluster in a file, and shows the result."""

from collections.abc import Iterable, Iterator
from enum import StrEnum

from typer import echo

from linkwise.admission.decide.outcome import Verdict
from linkwise.cluster.account.ledger import Ledger
from linkwise.cluster.nodes.node import Node
from linkwise.topology.choice import ChoiceMode
from linkwise.views.analysis.created_pods import created_pods, number_of_pods
from linkwise.views.analysis.fit import placement_snapshot
from linkwise.views.analysis.running import highest_priority, units_that_run
from linkwise.views.analysis.simulation import PodResult, SimulationStep, simulate
from linkwise.views.analysis.workload_owners import owners_of
from linkwise.views.files.inputs import Inputs
from linkwise.views.output.printer import EXIT_UNREADABLE, Format, complain, emit, warn, widely
from linkwise.views.output.progress import with_progress
from linkwise.views.render import simulate_json, simulate_text
from linkwise.views.render.page.caption import Caption


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
    total = number_of_pods(inputs.templates)
    snapshot = placement_snapshot(inputs.cluster, inputs.policy, mode)
    admitted = list(with_progress(created_pods(inputs), "Admitting pods", total=total))
    pods, stored = inputs.cluster.pods, inputs.stored
    owners = owners_of(stored, inputs.cluster.pod_infos)
    highest = highest_priority(one.pod for one in admitted)
    preemption = inputs.policy.policy.gangs.preemption
    running = units_that_run(
        inputs.cluster, stored, owners, preemption, highest=highest, now=caption.clock
    )
    simulation = simulate(snapshot, admitted, pods, _placing, running)
    for unjudged in inputs.unjudged:
        complain(unjudged.sentence)
    for warning in (*inputs.warnings, *_ledger_warnings(snapshot.ledger)):
        warn(warning)
    if view is View.HTML:
        # The page costs 30 ms to import.
        from linkwise.views.render.page.simulation import simulation_page  # noqa: PLC0415

        echo(simulation_page(simulation, caption), nl=False)
    elif view in {View.TABLE, View.WIDE}:
        with widely(wide=view is View.WIDE):
            simulate_text.show(simulation)
    else:
        emit(simulate_json.document(simulation, inputs.unjudged), Format(view.value))
    if not all(map(_is_settled, simulation.pods)):
        return 1
    return 3 if inputs.unjudged else 0


def _placing(steps: Iterable[SimulationStep], total: int) -> Iterator[SimulationStep]:
    return with_progress(steps, "Placing pods", size=lambda step: len(step[0].places), total=total)


def _ledger_warnings(ledger: Ledger) -> Iterator[str]:
    """Yield the pods of the cluster whose GPUs are unknown or recorded wrongly."""
    for node in ledger.nodes.values():
        if node.unaccounted:
            yield f"node {node.node.name} takes no GPU pods: {node.unaccounted}. {_fix(node.node)}."
    for conflict in ledger.conflicts:
        yield f"pod {conflict.pod}: its record does not count: {conflict.reason}. Delete it."


def _fix(node: Node) -> str:
    if node.mismatch:
        return "Delete all but one of these claims" if node.is_claims else "End that process"
    return "End it, or let the policy's migration.gpushare read what another scheduler wrote"


def _is_settled(pod: PodResult) -> bool:
    """Return whether a pod was allowed, and placed if it asks for GPUs."""
    outcome = pod.admitted.outcome
    if outcome.verdict is Verdict.DENIED:
        return False
    return pod.node is not None or outcome.request.family is None
