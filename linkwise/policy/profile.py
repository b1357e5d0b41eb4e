"""Parse profiles: the selectors of `acs-profile` (ACS) and `eci-profile` (ECI)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, TypeVar

from pydantic import AfterValidator

from linkwise.cluster.finding import Code
from linkwise.cluster.objects.affinity import LabelSelector, Requirement
from linkwise.cluster.objects.condition import Condition, conditions_of
from linkwise.cluster.objects.selector import (
    check_label_selector,
    label_key_problem,
    label_value_problem,
)
from linkwise.manifest.json_text import places, read_json
from linkwise.manifest.lines import WHOLE, Embedded
from linkwise.manifest.place import Path, Place, SourceError, field
from linkwise.policy.problem import PolicyError, Problem, check_length, outer
from linkwise.policy.selection import Addition, ProfileResult, Profiles, Selector, Trace
from linkwise.policy.wire import Wire, read_value

T = TypeVar("T")

__all__ = ["PolicyError", "ProfileResult", "Profiles", "Selector", "Trace", "parse_profiles"]


class _Requirement(Wire):
    key: str
    operator: str
    values: tuple[str, ...] | None = None


class _LabelSelector(Wire):
    match_labels: dict[str, str] | None = None
    match_expressions: tuple[_Requirement, ...] | None = None


class _Effect(Wire):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


def _named(name: str) -> str:
    if not name.strip():
        raise ValueError("the name is empty; give the selector one that describes its purpose")
    return name


class _Selector(Wire):
    """The parts are read separately, so that an error in one does not hide errors in another."""

    name: Annotated[str, AfterValidator(_named)]
    namespace_selector: object = None
    object_selector: object = None
    effect: object = None


MAX_SELECTORS = 500
"""Each is matched against every admitted pod, and lint compares them with each other."""


def _few(items: tuple[object, ...]) -> tuple[object, ...]:
    if len(items) > MAX_SELECTORS:
        raise ValueError(
            f"{len(items)} selectors are more than the {MAX_SELECTORS} that are read; remove some"
        )
    return items


_Items = Annotated[tuple[object, ...], AfterValidator(_few)]


def parse_profiles(text: str, *, at: Embedded = WHOLE) -> Profiles:
    """Parse the `selectors` text of a ConfigMap; a blank one has no selectors.

    Args:
        text: A strict JSON array without comments.
        at: Position of the text in a file.

    Raises:
        PolicyError: Has all problems.
    """
    if not text.strip():
        return Profiles()
    check_length(text, at, Code.PROFILE)
    try:
        value, place = read_json(text), places(text)
    except SourceError as error:
        problem = Problem(error.line, "", error.message, _syntax_fix(text, error), Code.PROFILE)
        raise PolicyError(outer([problem], at)) from None
    items, problems = read_value(_Items, value, place)
    reader = _Reader(place, problems)
    selectors = tuple(reader.selector(item, (i,)) for i, item in enumerate(items or ()))
    if problems:
        raise PolicyError(outer(problems, at, Code.PROFILE))
    return Profiles(selectors, json.dumps(value, sort_keys=True, separators=(",", ":")))


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads selectors and collects their problems."""

    place: Place
    problems: list[Problem]

    def selector(self, item: object, at: Path) -> Selector:
        """Return a selector; if it has problems, its readable parts."""
        wire = self._read(_Selector, item, at)
        parts = item if isinstance(item, dict) else {}
        namespace = self._conditions(parts, (*at, "namespaceSelector"))
        pod = self._conditions(parts, (*at, "objectSelector"))
        effect = self._effect(parts, (*at, "effect"))
        return Selector(
            wire.name if wire else "",
            namespace,
            pod,
            _additions("metadata.labels", effect.labels),
            _additions("metadata.annotations", effect.annotations),
            _matches(namespace, pod),
        )

    def _conditions(self, parts: Mapping[str, object], at: Path) -> tuple[Condition, ...]:
        wire = self._read(_LabelSelector, _given(parts, at), at)
        if wire is None:
            return ()
        requirements = [
            Requirement(key=one.key, operator=one.operator, values=list(one.values or ()))
            for one in wire.match_expressions or ()
        ]
        selector = LabelSelector(match_labels=wire.match_labels, match_expressions=requirements)
        for problem in check_label_selector(selector):
            self._note((*at, *_steps(problem.path)), problem.message, problem.fix)
        return conditions_of(selector)

    def _effect(self, parts: Mapping[str, object], at: Path) -> _Effect:
        effect = self._read(_Effect, _given(parts, at), at) or _Effect()
        for key, value in (effect.labels or {}).items():
            self._syntax((*at, "labels", key), label_key_problem(key), label_value_problem(value))
        for key in effect.annotations or {}:
            # Kubernetes validates annotation keys in lower case.
            self._syntax((*at, "annotations", key), label_key_problem(key.lower()))
        return effect

    def _read(self, kind: type[T], value: object, at: Path) -> T | None:
        read, problems = read_value(kind, value, self.place, at)
        self.problems.extend(problems)
        return read

    def _note(self, path: Path, message: str, fix: str) -> None:
        self.problems.append(Problem(self.place.find(path).line, field(path), message, fix))

    def _syntax(self, path: Path, *messages: str | None) -> None:
        for message in messages:
            if message:
                self._note(path, message, "write it as Kubernetes allows it")


def _given(parts: Mapping[str, object], at: Path) -> object:
    """Return the last part of a path; null counts as absent."""
    part = parts.get(str(at[-1]))
    return {} if part is None else part


def _additions(where: str, wanted: Mapping[str, str] | None) -> tuple[Addition, ...]:
    return tuple(Addition(key, value, f"{where}[{key}]") for key, value in (wanted or {}).items())


def _matches(namespace: tuple[Condition, ...], pod: tuple[Condition, ...]) -> str:
    met = [
        f"the {what} meets {', '.join(condition.text for condition in conditions)}"
        for what, conditions in (("namespace", namespace), ("pod", pod))
        if conditions
    ]
    return " and ".join(met) or "it selects every pod"


def _steps(path: str) -> Path:
    """Split a path such as `matchExpressions[0].values[1]`, `matchLabels[a.b/c]`."""
    head, _, rest = path.partition("[")
    if head == "matchLabels":
        return (head, rest.removesuffix("]"))
    words = rest.replace("].", "[").removesuffix("]").split("[")
    return (head, *(int(word) if word.isdigit() else word for word in words))


def _syntax_fix(text: str, error: SourceError) -> str:
    line = text.split("\n")[error.line - 1].strip()
    if line.startswith(("#", "//", "/*")):
        return "delete the comment: JSON has none"
    return "write a JSON array of selectors"
