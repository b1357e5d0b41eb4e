"""`linkwise inspect`: who has which GPU."""

from enum import StrEnum
from typing import NamedTuple

from cli import inspect_gpushare, inspect_json, inspect_text
from cli.current import Current
from cli.inspection import views
from cli.output import Format, emit, say, warn
from webhook.manifest.value import InputError


class Style(StrEnum):
    """How people are shown it."""

    LINKWISE = "linkwise"
    GPUSHARE = "gpushare"


class Wanted(NamedTuple):
    """Which nodes are shown: all that have GPUs, where nothing is said."""

    node: str | None = None
    """Only this one."""
    namespace: str | None = None
    """Only those of which this namespace's pods have GPUs."""


def show_inspection(
    now: Current, wanted: Wanted, output: Format, style: Style, *, detail: bool
) -> int:
    """Show who has which GPU; return the exit code.

    Args:
        now: The cluster.
        wanted: Which nodes.
        output: How to answer; for scripts there is one document, whatever the style.
        style: Which table people are shown.
        detail: More of each node.

    Raises:
        InputError: There is no such node, or none with GPUs of that name.
    """
    node, namespace = wanted
    found = views(now.cluster, node)
    if node is not None and not found:
        here = node in now.cluster.ledger.nodes
        problem = f"node {node} has no GPUs" if here else f"there is no node {node}"
        raise InputError(f"{problem}. See linkwise inspect for those that have some.")
    if namespace is not None:
        found = tuple(view for view in found if namespace in view.namespaces)
    for warning in now.warnings:
        warn(warning)
    if output is not Format.TABLE:
        emit(inspect_json.document(found), output)
    elif style is Style.GPUSHARE:
        for line in inspect_gpushare.lines(found, detail=detail):
            say(line)
    else:
        inspect_text.show(found, detail=detail)
    return 0
