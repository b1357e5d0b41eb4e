"""Read the Kubernetes objects of a text in YAML or JSON."""

from collections.abc import Iterator

from linkwise.cluster.keys import CLI_API_VERSION
from linkwise.manifest.lines import Document, read_documents, read_json_stream
from linkwise.manifest.place import SourceError
from linkwise.manifest.value import InputError, Value
from linkwise.manifest.yaml_stream import read_parts

_NOTHING = "there is nothing in it. Name a file with Kubernetes objects."

_INNER = {
    "metadata": {"name", "namespace", "labels", "annotations"},
    "spec": {"containers", "template", "replicas", "selector"},
}
"""Some of the fields in those of an object."""


def values_in(text: str, name: str) -> list[Value]:
    """Return the documents of a text.

    Args:
        text: YAML or JSON.
        name: Its name in error messages.

    Raises:
        InputError: The text is neither YAML nor JSON, or it is empty.
    """
    try:
        documents = _documents(text)
    except SourceError as error:
        raise InputError(f"{name}:{error.line}: {error.message}.") from None
    if not documents:
        raise InputError(f"{name}:1: {_NOTHING}")
    return [Value(name, document.value, document) for document in documents]


def objects_in(text: str, name: str) -> list[Value]:
    """Return the Kubernetes objects of a text; Lists and snapshots are expanded.

    Raises:
        InputError: As `values_in`, or a document is not a Kubernetes object.
    """
    return [item for value in values_in(text, name) for item in _objects(value)]


def objects_of_large(text: str, name: str) -> Iterator[Value]:
    """Yield the Kubernetes objects of a text as `objects_in`, YAML as a stream.

    Args:
        text: YAML or JSON. Of YAML at most one object is in memory at a time.
        name: Its name in error messages.

    Raises:
        InputError: As `objects_in`, when the error is reached.
    """
    if text.lstrip()[:1] in {"{", "["}:
        yield from objects_in(text, name)
        return
    is_empty = True
    try:
        for document in read_parts(text):
            is_empty = False
            yield from _objects(Value(name, document.value, document))
    except SourceError as error:
        raise InputError(f"{name}:{error.line}: {error.message}.") from None
    if is_empty:
        raise InputError(f"{name}:1: {_NOTHING}")


def _documents(text: str) -> list[Document]:
    try:
        return read_documents(text)
    except SourceError:
        documents = read_json_stream(text)
        if len(documents) < 2:
            raise
        return documents


def _check_indentation(plain: dict[str, object], value: Value) -> None:
    """Raise an error for an object whose fields stand at the left border, as after bad pasting."""
    for key, inner in _INNER.items():
        if key in plain and plain[key] is None and (misplaced := inner & plain.keys()):
            raise value.at(key).error(
                f"{key} is empty, and {min(misplaced)}, which belongs into it, stands beside it: "
                "the indentation is lost. Paste the text again with its spaces."
            )


def _objects(value: Value) -> list[Value]:
    if not isinstance(value.plain, dict):
        raise value.error(
            "this is no Kubernetes object. Write apiVersion, kind, metadata and spec."
        )
    _check_indentation(value.plain, value)
    for key in ("apiVersion", "kind"):
        if value.child(key) is None:
            raise value.error(f"no Kubernetes object: {key} is missing. Add it.")
    is_snapshot = value.need("apiVersion").plain == CLI_API_VERSION
    is_list = is_snapshot or value.need("kind").text().endswith("List")
    if not is_list or value.child("items") is None:
        return [value]
    return [item for listed in value.listed("items") for item in _objects(listed)]
