"""Turns drawings into trees, from which the page makes elements without parsing markup. Pure."""

from html.parser import HTMLParser
from typing import TypeAlias

from linkwise.views.render.page.markup import Markup

Tree: TypeAlias = list[object]
"""Tag, attributes, and children: trees and texts."""


def tree_of(markup: Markup) -> Tree:
    """Return the tree of one element whose tags are all closed, as `element` writes them."""
    reader = _Reader()
    reader.feed(markup)
    reader.close()
    (root,) = reader.children
    if not isinstance(root, list):
        raise TypeError("the markup is a text")
    return root


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.children: list[object] = []
        self._open: list[list[object]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        # A name in SVG has capitals, which this parser does not keep.
        named = {_CAPITALS.get(name, name): value or "" for name, value in attrs}
        children: list[object] = []
        self.children.append([tag, named, children])
        self._open.append(self.children)
        self.children = children

    def handle_endtag(self, tag: str) -> None:
        del tag
        self.children = self._open.pop()

    def handle_data(self, data: str) -> None:
        self.children.append(data)


_CAPITALS = {
    "viewbox": "viewBox",
    "textlength": "textLength",
    "lengthadjust": "lengthAdjust",
    "patternunits": "patternUnits",
}
