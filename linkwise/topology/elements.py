"""Parse untrusted XML into plain elements: no entities, no document type, bounded depth."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from xml.parsers import expat

from linkwise.topology.machine import MAX_TEXT, TopologyError

_MAX_DEPTH = 64
"""PCIe trees are a few switches deep; a bound keeps every walk over them short."""


@dataclass(frozen=True, slots=True)
class Element:
    """One XML element; text between tags is not kept."""

    tag: str
    attributes: Mapping[str, str]
    children: list["Element"] = field(default_factory=list)

    def get(self, attribute: str) -> str:
        """Return an attribute without the blanks around it, or an empty string."""
        return self.attributes.get(attribute, "").strip()

    def find(self, tag: str) -> Iterator["Element"]:
        """Yield the children with a tag."""
        return (child for child in self.children if child.tag == tag)


def parse_xml(text: str) -> Element:
    """Return the root element of a document.

    Raises:
        TopologyError: Not well-formed, too long, too deep, or with a document type: an entity is
            declared there, and can be made to expand without end.
    """
    if len(text) > MAX_TEXT:
        raise TopologyError(f"the text has {len(text):,} characters; at most {MAX_TEXT:,} are read")
    parser = expat.ParserCreate()
    top = Element("", {})
    stack = [top]

    def start(tag: str, attributes: dict[str, str]) -> None:
        if len(stack) > _MAX_DEPTH:
            raise TopologyError(f"line {parser.CurrentLineNumber}: more than {_MAX_DEPTH} levels")
        element = Element(tag, attributes)
        stack[-1].children.append(element)
        stack.append(element)

    def end(_tag: str) -> None:
        stack.pop()

    def doctype(*_: object) -> None:
        raise TopologyError(f"line {parser.CurrentLineNumber}: a DOCTYPE is not read; remove it")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise TopologyError(f"not well-formed XML: {error}") from None
    except UnicodeEncodeError as error:
        raise TopologyError(f"not XML: character {error.start} is half of one") from None
    return top.children[0]
