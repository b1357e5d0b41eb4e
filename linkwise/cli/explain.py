"""`linkwise explain`: explains the placement of a pod or a gang, or why it waits."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from linkwise.manifest.value import InputError
from linkwise.views.analysis.explain import explain_gang, explain_pod
from linkwise.views.analysis.explain_own import (
    explain_own_gang,
    explain_own_pod,
    with_placement,
)
from linkwise.views.analysis.planner_view import planner_view
from linkwise.views.analysis.unit_explanation import UnitExplanation
from linkwise.views.files.current_cluster import CurrentCluster
from linkwise.views.live.kubeconfig import Access
from linkwise.views.output.printer import Format, emit, say, warn, widely
from linkwise.views.render import explain_json, explain_text

if TYPE_CHECKING:
    from linkwise.views.live.own_namespace import OwnNamespace

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
    if kind == "gang":
        found: Sequence[UnitExplanation | None] = explain_gang(view, namespace, name)
    else:
        found = [explain_pod(view, namespace, name)]
    return _show(current.warnings, f"{kind} {namespace}/{name}", found, output)


def show_own_explanation(
    access: Access, kind: Kind, name: str, output: str, *, clock: float
) -> int:
    """Show what Linkwise has written about a unit to someone who may read its namespace alone.

    Args:
        access: Chooses the cluster and the user.
        kind: The kind of object that the name names.
        name: `namespace/name`, or the name alone.
        output: `table`, `wide`, `json` or `yaml`.
        clock: The time [s since 1970].

    Return as `show_explanation`.

    Raises:
        InputError: There is no object of this name, or it may not be read.
    """
    # Its library costs 0.3 s and 50 MB.
    from linkwise.views.live.own_namespace import load_own_namespace  # noqa: PLC0415

    own_namespace, _, name = name.rpartition("/")
    own = load_own_namespace(access, own_namespace or None, name if kind == "pod" else None)
    namespace, view = own.current.namespace, planner_view(own.current, clock)
    if kind == "gang":
        found: Sequence[UnitExplanation | None] = explain_own_gang(view, namespace, name)
    else:
        found = [explain_own_pod(view, namespace, name, lambda uid: own.said.get(uid, ""))]
    units = [unit for unit in found if unit is not None]
    answered, unknown = _asked(replace(access, namespace=namespace), own, units)
    return _show((*own.current.warnings, *unknown), f"{kind} {namespace}/{name}", answered, output)


def _asked(
    access: Access, own: "OwnNamespace", units: Sequence[UnitExplanation]
) -> tuple[list[UnitExplanation], tuple[str, ...]]:
    """Return units with what the scorer answers about their pods, and why it does not."""
    from linkwise.views.live.asked_placement import placement_of  # noqa: PLC0415 - as above.

    answered = list(units)
    for i, unit in enumerate(units):
        try:
            placement = placement_of(access, [own.pods[name] for name in unit.lacking])
        except InputError as error:
            return answered, (f"What would be preempted is not known: {error}",)
        answered[i] = with_placement(unit, placement) if placement else unit
    return answered, ()


def _show(
    warnings: Sequence[str], what: str, found: Sequence[UnitExplanation | None], output: str
) -> int:
    explanations = [explanation for explanation in found if explanation is not None]
    if not explanations:
        raise InputError(f"there is no {what}. Write NAMESPACE/NAME, or name a namespace with -n.")
    for warning in warnings:
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
