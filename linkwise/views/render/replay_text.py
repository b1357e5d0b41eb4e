"""The table of `linkwise replay`."""

from linkwise.views.analysis.replay_runs import ReplayInputs, ReplayResults
from linkwise.views.output.printer import QUIET, Paint, is_quiet, say, table
from linkwise.views.render.replay_figures import (
    figure_rows,
    input_lines,
    legend_lines,
    ratio_rows,
    wait_rows,
)


def show(inputs: ReplayInputs, results: ReplayResults) -> None:
    """Write the comparison, the ratios to the best, then the waiting times by size."""
    if not is_quiet():
        _show_inputs(inputs, results)
    table(figure_rows(inputs, results))
    if len(results.measures) > 1:
        say()
        table(ratio_rows(inputs, results))
    if not inputs.scenario.fills:
        say()
        table(wait_rows(results))
    if not is_quiet():
        _show_legend(results)


def _show_inputs(inputs: ReplayInputs, results: ReplayResults) -> None:
    first, *notes = input_lines(inputs, results)
    say(first)
    for note in notes:
        say(Paint(note, QUIET))
    say()


def _show_legend(results: ReplayResults) -> None:
    say()
    for note in legend_lines(results):
        say(Paint(note, QUIET))
