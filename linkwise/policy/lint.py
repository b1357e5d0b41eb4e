"""Lint policies and profiles: errors, warnings, and the resulting changes."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from linkwise.manifest.json_text import places
from linkwise.manifest.lines import WHOLE, Embedded
from linkwise.manifest.place import Path, field
from linkwise.policy.document import one_document, parse_plugin_config, parse_policy
from linkwise.policy.lint_policy import LintWarning, plugin_warnings, policy_warnings
from linkwise.policy.lint_selectors import selector_warnings
from linkwise.policy.plugin_flags import unknown_keys
from linkwise.policy.policy_file import Found, Kind, read_policy_file
from linkwise.policy.problem import PolicyError, Problem, outer, reported, warning
from linkwise.policy.profile import parse_profiles
from linkwise.policy.wire import Wire


@dataclass(frozen=True, slots=True)
class Change:
    """A setting in a file."""

    line: int
    what: str
    """Name of a selector, or path of a policy key."""
    when: str
    """The pods to which it applies; empty: all."""
    sets: Mapping[str, object]
    """Value by path: on the pod for a selector, in the policy for a key."""


@dataclass(frozen=True, slots=True)
class Lint:
    """Result of linting."""

    problems: tuple[Problem, ...] = ()
    """Errors and warnings by line, limited in number. A text with an error has no warnings."""
    changes: tuple[Change, ...] = ()
    """Settings by line; empty with errors."""


def lint(text: str, *, machines: Collection[str] | None = None) -> Lint:
    """Lint a file: a ConfigMap or a bare text.

    Args:
        text: Text that `read_policy_file` reads.
        machines: Names of the machine catalogue, if known.
    """
    try:
        found = read_policy_file(text)
    except PolicyError as error:
        return Lint(error.problems)
    parts = [lint_found(one, machines) for one in found]
    return Lint(
        tuple(problem for part in parts for problem in part.problems),
        tuple(change for part in parts for change in part.changes),
    )


def lint_profiles(text: str, *, at: Embedded = WHOLE) -> Lint:
    """Lint profiles."""
    try:
        profiles = parse_profiles(text, at=at)
    except PolicyError as error:
        return Lint(error.problems)
    if not profiles.selectors:
        return Lint()
    place = places(text)
    changes = [
        Change(
            at.outer(place.find((i,)).line),
            selector.name,
            selector.matches,
            {addition.path: addition.value for addition in selector.additions},
        )
        for i, selector in enumerate(profiles.selectors)
    ]
    problems = outer(selector_warnings(profiles.selectors, place), at)
    return Lint(reported(problems), tuple(changes))


def lint_policy(
    text: str, *, at: Embedded = WHOLE, machines: Collection[str] | None = None
) -> Lint:
    """Lint a policy.

    Args:
        text: One YAML or JSON document.
        at: Position of the text in a file.
        machines: Names of the machine catalogue, if known.
    """
    try:
        policy = parse_policy(text, at=at)
    except PolicyError as error:
        return Lint(error.problems)
    unknown = [
        (("sharing", "groups", i, "config", *path), message, fix)
        for i, group in enumerate(policy.sharing.groups)
        for path, message, fix in unknown_keys(group.config)
    ]
    return _judged(text, at, policy, policy_warnings(policy, machines), unknown)


def lint_plugin_config(text: str, *, at: Embedded = WHOLE) -> Lint:
    """Lint a configuration file of NVIDIA's device plugin."""
    try:
        config = parse_plugin_config(text, at=at)
    except PolicyError as error:
        return Lint(error.problems)
    return _judged(text, at, config, plugin_warnings(config), list(unknown_keys(config)))


def lint_found(found: Found, machines: Collection[str] | None = None) -> Lint:
    """Lint one text of a file."""
    match found.kind:
        case Kind.PROFILES:
            return lint_profiles(found.text, at=found.at)
        case Kind.POLICY:
            return lint_policy(found.text, at=found.at, machines=machines)
        case Kind.SHARING:
            return lint_plugin_config(found.text, at=found.at)


def _judged(
    text: str,
    at: Embedded,
    wire: Wire,
    warnings: Iterable[LintWarning],
    unknown: Sequence[LintWarning],
) -> Lint:
    """Return the problems of a text that can be read, and its settings.

    Args:
        text: One YAML or JSON document.
        at: Position of the text in a file.
        wire: Its content.
        warnings: About it.
        unknown: Keys that nobody reads: errors, by which there are no settings.
    """
    document = one_document(text, at)
    if document is None:
        return Lint()
    if unknown:
        errors = [Problem(document.line_of(p), field(p), text, fix) for p, text, fix in unknown]
        return Lint(reported(outer(errors, at)))
    problems = [
        warning(document.line_of(path), field(path), message, fix)
        for path, message, fix in warnings
    ]
    decided = wire.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    changes = [
        Change(at.outer(document.line_of(path)), field(path), "", {field(path): value})
        for path, value in _leaves(decided)
    ]
    return Lint(reported(outer(problems, at)), tuple(changes))


def _leaves(value: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    if not isinstance(value, dict):
        yield path, value
        return
    for key, inner in value.items():
        yield from _leaves(inner, (*path, key))
