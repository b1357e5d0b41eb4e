"""Builds HTML that is always escaped.

Names of pods and nodes come from people and are not validated. Everything that is not `Markup` is
text, which is escaped when it becomes part of an element.
"""

from collections.abc import Iterable
from html import escape

from linkwise.cluster.finding import printable


class Markup(str):
    """Text that is HTML; only this module creates it from other text."""

    __slots__ = ()


Child = str | Iterable["Child"] | None
"""Text, markup, several of them, or None."""
Attribute = str | float | bool | None
"""True writes the bare name; False and None leave the attribute out."""

_VOID = frozenset({"input", "meta"})


def element(tag: str, *children: Child, **attributes: Attribute) -> Markup:
    """Return an element; `class_` stands for class, and `_` in other names for `-`."""
    shown = "".join(_attribute(name, value) for name, value in attributes.items())
    inner = together(*children)
    return Markup(f"<{tag}{shown}>" if tag in _VOID else f"<{tag}{shown}>{inner}</{tag}>")


def together(*children: Child) -> Markup:
    """Return children without an element around them."""
    return Markup("".join(map(_text, children)))


def name(text: str) -> Markup:
    """Return a name from a person, isolated from the writing direction of the text around it."""
    return element("bdi", text)


def folded(summary: str, *children: Child, is_open: bool = False) -> Markup:
    """Return content that the reader unfolds."""
    return element("details", element("summary", summary), *children, class_="more", open=is_open)


def _text(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return str(child)
    if isinstance(child, str):
        return escape(printable(child))
    return "".join(map(_text, child))


def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    written = "class" if name == "class_" else name.replace("_", "-")
    if value is True:
        return f" {written}"
    shown = f"{value:g}" if isinstance(value, float) else printable(str(value))
    return f' {written}="{escape(shown)}"'
