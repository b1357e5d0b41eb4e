"""Detect the policy texts in a file: a Policy, profiles, or a file of NVIDIA's device plugin."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from linkwise.cluster.finding import Code
from linkwise.cluster.keys import POLICY_KEY, PROFILE_KEY
from linkwise.manifest.lines import WHOLE, Document, Embedded, embedded, read_documents
from linkwise.manifest.place import Path, SourceError, field
from linkwise.policy.problem import PolicyError, Problem


class Kind(StrEnum):
    """Kind of a policy text."""

    POLICY = "policy"
    PROFILES = "profiles"
    SHARING = "sharing"
    """The file of NVIDIA's device plugin."""


@dataclass(frozen=True, slots=True)
class Found:
    """A policy text and its position in the file."""

    kind: Kind
    text: str
    at: Embedded = WHOLE
    name: str = ""
    """The ConfigMap's key; empty for a bare text."""


def read_policy_file(text: str) -> tuple[Found, ...]:
    """Return every policy text in a file, in order; a blank file is an empty policy.

    Each document may be a ConfigMap (ours, `acs-profile`, or that of NVIDIA's device plugin whose
    keys each hold a file) or bare: a Policy, the array of selectors, the plugin's file.

    Raises:
        PolicyError: The file is not YAML or JSON, or a document is none of these.
    """
    text = text.removeprefix("\ufeff")
    if text.lstrip().startswith("["):
        # Selectors are strict JSON; `parse_profiles` reports errors.
        return (Found(Kind.PROFILES, text),)
    try:
        documents = read_documents(text)
    except SourceError as error:
        problem = Problem(error.line, "", error.message, "write it as YAML or JSON")
        raise PolicyError([problem]) from None
    if not documents:
        return (Found(Kind.POLICY, ""),)
    ends = [document.line for document in documents[1:]]
    bounds = zip([1, *ends], [*ends, None], strict=True)
    lines = text.split("\n")
    found: list[Found] = []
    for document, (start, end) in zip(documents, bounds, strict=True):
        bare = "\n".join(lines[start - 1 : end and end - 1])
        found += _found(document, bare, Embedded(start))
    return tuple(found)


def _found(document: Document, bare: str, at: Embedded) -> Iterator[Found]:
    value = document.value
    if not isinstance(value, dict):
        fix = "write a Policy, a ConfigMap, or the JSON array of selectors"
        raise _error(document, (), "this is no policy", fix)
    kind = value.get("kind")
    if kind == "ConfigMap":
        yield from _in_configmap(document, value.get("data"))
    elif kind is None and _is_plugin_file(value):
        yield Found(Kind.SHARING, bare, at)
    elif kind is None or kind == "Policy":
        yield Found(Kind.POLICY, bare, at)
    else:
        what = f"a {kind}" if isinstance(kind, str) else "what has no text as its kind"
        fix = "write a Policy or a ConfigMap"
        raise _error(document, ("kind",), f"{what} is no policy", fix)


def _in_configmap(document: Document, data: object) -> Iterator[Found]:
    if not isinstance(data, dict):
        raise _error(document, ("data",), "the ConfigMap has no data", _keys_fix())
    ours = {PROFILE_KEY: Kind.PROFILES, POLICY_KEY: Kind.POLICY}
    kinds = {key: kind for key, kind in ours.items() if key in data}
    # Without a key of ours, each key may hold a file of the device plugin.
    for key, kind in (kinds or dict.fromkeys(data, Kind.SHARING)).items():
        path, text = ("data", key), data[key]
        if not isinstance(text, str):
            fix = f"put a | after {key}: and indent what follows"
            raise _error(document, path, "values of a ConfigMap are text", fix)
        if kind is Kind.SHARING and not _holds_plugin_file(text):
            raise _error(document, path, "the ConfigMap holds no policy", _keys_fix())
        yield Found(kind, text, embedded(document, path), key)


def _holds_plugin_file(text: str) -> bool:
    try:
        return any(_is_plugin_file(document.value) for document in read_documents(text))
    except SourceError:
        # The parser of the text will report the mistake.
        return True


def _is_plugin_file(value: object) -> bool:
    """Distinguish the `sharing` of NVIDIA's file from that of a Policy, which lists groups."""
    if not isinstance(value, dict):
        return False
    sharing = value.get("sharing")
    named = isinstance(sharing, dict) and not sharing.keys().isdisjoint({"timeSlicing", "mps"})
    return named or "version" in value


def _keys_fix() -> str:
    return f"put selectors under {PROFILE_KEY}, or a Policy under {POLICY_KEY}"


def _error(document: Document, path: Path, message: str, fix: str) -> PolicyError:
    problem = Problem(document.line_of(path), field(path), message, fix, Code.POLICY)
    return PolicyError([problem])
