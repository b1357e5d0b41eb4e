"""The frame of every document for scripts: its version, and its kind, which has a JSON Schema."""

from msgspec import Struct, field

from linkwise.cluster.keys import CLI_API_VERSION


class Document(Struct, frozen=True, kw_only=True, tag_field="kind", tag=True):
    """A document for scripts; the class's name is its kind. Fields may be added, never changed."""

    api_version: str = field(default=CLI_API_VERSION, name="apiVersion")


def rounded(bandwidth: float | None) -> float | None:
    """Return a bandwidth for a document, rounded to 0.1 GB/s."""
    return None if bandwidth is None else round(bandwidth, 1)
