"""What every document for scripts has: its version, and its kind, which has a JSON Schema."""

from msgspec import Struct, field

from cluster.keys import CLI_API_VERSION


class Document(Struct, frozen=True, kw_only=True, tag_field="kind", tag=True):
    """One answer for scripts; the class's name is its kind. Fields may be added, never changed."""

    api_version: str = field(default=CLI_API_VERSION, name="apiVersion")
