"""`linkwise explain`: why a pod or a gang is where it is, or why it is nowhere yet."""

from collections.abc import Sequence
from typing import Literal

from cli.analysis.explained import Explained, UnitState
from cli.analysis.explanation import explain_gang, explain_pod
from cli.analysis.planner_view import planner_view
from cli.live.current import Current
from cli.render import explain_json, explain_text
from cli.render.output import Format, emit, say, warn, widely
from manifest.value import InputError

Kind = Literal["pod", "gang"]


def show_explanation(now: Current, kind: Kind, name: str, output: str, *, clock: float) -> int:
    """Explain; return the exit code: 1 while it waits.

    Args:
        now: The cluster.
        kind: What the name names.
        name: `namespace/name`, or the name alone.
        output: `table`, `wide`, `json` or `yaml`.
        clock: The time [s since 1970].

    Raises:
        InputError: There is nothing of that name.
    """
    home, _, rest = name.rpartition("/")
    namespace = home or now.namespace
    scene = planner_view(now, clock)
    found: Sequence[Explained]
    if kind == "gang":
        found = explain_gang(scene, namespace, rest)
    else:
        alone = explain_pod(scene, namespace, rest)
        found = [alone] if alone else []
    if not found:
        raise InputError(
            f"there is no {kind} {namespace}/{rest}. Write NAMESPACE/NAME, or name a namespace "
            "with -n."
        )
    for warning in now.warnings:
        warn(warning)
    if output in {"table", "wide"}:
        with widely(wide=output == "wide"):
            for place, one in enumerate(found):
                if place:
                    say()
                explain_text.show(one)
    else:
        emit(explain_json.document(found), Format(output))
    return 1 if any(one.state in {UnitState.WAITS, UnitState.NEVER} for one in found) else 0
