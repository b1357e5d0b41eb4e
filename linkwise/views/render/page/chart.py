"""Small charts of curves, all of one size and one scale, so that they can be compared."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from linkwise.views.render.page.markup import Markup, element

Curve: TypeAlias = Sequence[tuple[float, float]]
"""Points from left to right."""

_WIDTH, _HEIGHT = 240, 120
_LEFT, _BOTTOM, _TOP = 44, 22, 8
"""Margins for the labels of the axes."""


class Scale(NamedTuple):
    """The axes of a chart, which begin at 0."""

    x: float
    """The largest value."""
    y: float
    x_label: str
    """The largest value, in words."""
    y_label: str


def chart(title: str, curves: Sequence[Curve], scale: Scale, description: str) -> Markup:
    """Return a chart; the first curve is in front and thicker.

    Args:
        title: Its caption.
        curves: At least one.
        scale: The axes.
        description: What it shows, for people who do not see it.
    """
    width, height = _WIDTH, _HEIGHT
    axes = f"M{_LEFT} {_TOP}V{height - _BOTTOM}H{width}"
    svg = element(
        "svg",
        element("desc", description),
        (_curve(curve, scale, "curve") for curve in curves[1:]),
        _curve(curves[0], scale, "curve main"),
        element("path", d=axes, class_="axis", fill="none"),
        element("text", scale.y_label, x=_LEFT - 5, y=_TOP + 8, class_="scale right"),
        element("text", "0", x=_LEFT - 5, y=height - _BOTTOM, class_="scale right"),
        element("text", scale.x_label, x=width, y=height - 6, class_="scale right"),
        role="img",
        aria_label=f"{title}: {description}",
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
    )
    return element("figure", element("figcaption", title), svg, style="margin:0")


def _curve(curve: Curve, scale: Scale, style: str) -> Markup:
    wide, high = _WIDTH - _LEFT, _HEIGHT - _BOTTOM - _TOP
    points = " ".join(
        f"{_LEFT + wide * x / (scale.x or 1):.1f},{_TOP + high * (1 - y / (scale.y or 1)):.1f}"
        for x, y in curve
    )
    return element("polyline", points=points, class_=style)
