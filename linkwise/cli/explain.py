"""`linkwise explain`: explains the placement of a pod or a gang, or why it waits."""

from collections.abc import Sequence
from typing import Literal

from linkwise.manifest.value import InputError
from linkwise.views.analysis.explain import explain_gang, explain_pod
from linkwise.views.analysis.planner_view import planner_view
from linkwise.views.analysis.unit_explanation import UnitExplanation
from linkwise.views.files.current_cluster import CurrentCluster
from linkwise.views.output.printer import Format, emit, say, warn, widely
from linkwise.views.render import explain_json, explain_text

Kind = Literal["pod", "gang"]


def show_explanation(
    current: CurrentCluster, kind: Kind, name: str, output: str, *, clock: float
) -> int:
    """Show an explanation; return the exit code, 1 for a unit that waits.

    Args:
        current: The cluster.
        kind: The kind of object that the name names.
        name: `namespace/name`, or the name alone.
        output: `table`, `wide`, `json` or `yaml`.
        clock: The time [s since 1970].

    Raises:
        InputError: There is no object of this name.
    """
    own_namespace, _, name = name.rpartition("/")
    namespace = own_namespace or current.namespace
    view = planner_view(current, clock)
    explanations: Sequence[UnitExplanation]
    if kind == "gang":
        explanations = explain_gang(view, namespace, name)
    else:
        explanation = explain_pod(view, namespace, name)
        explanations = [explanation] if explanation else []
    if not explanations:
        raise InputError(
            f"there is no {kind} {namespace}/{name}. Write NAMESPACE/NAME, or name a namespace "
            "with -n."
        )
    for warning in current.warnings:
        warn(warning)
    if output in {"table", "wide"}:
        with widely(wide=output == "wide"):
            for number, explanation in enumerate(explanations):
                if number:
                    say()
                explain_text.show(explanation)
    else:
        emit(explain_json.document(explanations), Format(output))
    return 1 if any(unit.is_waiting for unit in explanations) else 0
