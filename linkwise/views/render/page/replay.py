"""The page of `linkwise replay -o html`: figures, and curves of each policy side by side."""

from collections.abc import Callable, Mapping, Sequence

from linkwise.replay.measures import SET_SIZE, Measures, Point
from linkwise.views.analysis.replay_runs import ReplayInputs, ReplayResults
from linkwise.views.render.page.caption import Caption, caption_markup
from linkwise.views.render.page.chart import Curve, Scale, chart
from linkwise.views.render.page.markup import Markup, element, together
from linkwise.views.render.page.shell import page
from linkwise.views.render.replay_figures import (
    figure_rows,
    input_lines,
    legend_lines,
    ratio_rows,
    wait_rows,
)

SEEDS_MAX = 8
"""Seeds whose curves are drawn."""


def replay_page(inputs: ReplayInputs, results: ReplayResults, caption: Caption) -> str:
    """Return a page that compares the policies; it needs no network."""
    first, *notes = input_lines(inputs, results)
    header = element(
        "header",
        element("h1", f"{inputs.reader.format.title}: policies compared"),
        element("p", first, class_="quiet"),
        [element("p", note, class_="quiet small") for note in notes],
        caption_markup(caption),
    )
    waits = None
    if not inputs.scenario.fills:
        waits = together(element("h2", "Waiting time"), _table(wait_rows(results)))
    ratios = None
    if len(results.measures) > 1:
        ratios = together(element("h2", "Ratios"), _table(ratio_rows(inputs, results)))
    return page(
        caption.title,
        header,
        element("h2", "Figures"),
        _table(figure_rows(inputs, results)),
        [element("p", note, class_="quiet small note") for note in legend_lines(results)],
        ratios,
        waits,
        _curves(inputs, results),
    )


def _table(rows: Sequence[Sequence[str]]) -> Markup:
    head, *body = rows
    lines = (
        element("tr", element("th", first, scope="row"), [element("td", cell) for cell in rest])
        for first, *rest in body
    )
    titles = [element("th", _sentence(title), scope="col") for title in head]
    table = element("table", element("thead", element("tr", titles)), element("tbody", lines))
    return element("div", table, class_="card", style="overflow-x:auto")


def _sentence(title: str) -> str:
    """Return a title of the table in a terminal as it is written in a sentence."""
    return title.capitalize().replace("Gb/s", "GB/s").replace("Gpu", "GPU").replace("gpu", "GPU")


def _curves(inputs: ReplayInputs, results: ReplayResults) -> Markup:
    fills, runs = inputs.scenario.fills, results.measures
    allocated = _multiples(
        "GPUs in use", runs, lambda point: 100 * point.allocated, fills=fills, top=(100, "100 %")
    )
    sets = _multiples(
        f"Free sets of {SET_SIZE} GPUs", runs, lambda point: float(point.free_sets), fills=fills
    )
    waiting = None
    if not fills:
        waiting = _multiples(
            "Jobs that wait", runs, lambda point: float(point.waiting), fills=False
        )
    return together(allocated, sets, waiting)


def _multiples(
    title: str,
    runs: Mapping[str, Mapping[int, Measures]],
    value: Callable[[Point], float],
    *,
    fills: bool,
    top: tuple[float, str] | None = None,
) -> Markup:
    """Return a chart for each policy, with the curve of each seed."""
    curves = {
        policy: [_curve(seeds[seed], value, fills=fills) for seed in sorted(seeds)[:SEEDS_MAX]]
        for policy, seeds in runs.items()
    }
    points = [point for own in curves.values() for curve in own for point in curve] or [(0.0, 0.0)]
    right, highest = max(x for x, _ in points), max(y for _, y in points)
    most, label = top or (highest, f"{highest:,.0f}")
    axis = f"demand {100 * right:.0f} %" if fills else f"{right / 86_400:.1f} days"
    scale = Scale(right, most, axis, label)
    charts = (
        chart(policy, own, scale, f"{title.lower()}, {_ends(own[0])}")
        for policy, own in curves.items()
    )
    return element("section", element("h2", title), element("div", charts, class_="charts card"))


def _curve(run: Measures, value: Callable[[Point], float], *, fills: bool) -> Curve:
    begin = run.points[0].time if run.points else 0.0
    return [(point.demand if fills else point.time - begin, value(point)) for point in run.points]


def _ends(curve: Curve) -> str:
    """Return the range of a curve in words."""
    values = [y for _, y in curve] or [0.0]
    return f"from {min(values):,.0f} to {max(values):,.0f}, {values[-1]:,.0f} at the end"
