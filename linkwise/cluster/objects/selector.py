"""Match label selectors, node selectors and tolerations as Kubernetes does.

Source: Kubernetes API reference (LabelSelector, NodeSelectorTerm, Toleration) and "Labels and
selectors". Unknown operators match nothing; `check_label_selector` reports them.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from linkwise.cluster.keys import NODE_NAME_FIELD
from linkwise.cluster.objects.affinity import (
    LabelSelector,
    NodeSelectorTerm,
    Requirement,
    Toleration,
)
from linkwise.cluster.objects.pod import NewPodSpec, PodSpec

LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
REPELLING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
"""Effects that keep pods away; PreferNoSchedule does not."""

REQUIRED_PATH = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
"""Path of the required node affinity in a pod."""
_TERMS_PATH = f"{REQUIRED_PATH}.nodeSelectorTerms"
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_INT64 = re.compile(r"[+-]?[0-9]{1,19}")


class Taint(Protocol):
    """A taint; implemented by `node.Taint`."""

    @property
    def key(self) -> str:
        """Its key, such as `nvidia.com/gpu`."""

    @property
    def value(self) -> str:
        """Its value; may be empty."""

    @property
    def effect(self) -> str:
        """NoSchedule, PreferNoSchedule or NoExecute."""


@dataclass(frozen=True, slots=True)
class SelectorProblem:
    """A violation of Kubernetes' rules for selectors."""

    path: str
    """The field of the selector, such as `matchExpressions[0].values`."""
    message: str
    """The problem and the permitted values."""
    fix: str
    """The fix."""


def check_label_selector(selector: LabelSelector) -> list[SelectorProblem]:
    """Return all violations of a label selector, in the order of its fields."""
    problems: list[SelectorProblem] = []
    for key, value in (selector.match_labels or {}).items():
        path = f"matchLabels[{key}]"
        problems += _syntax_problems(path, label_key_problem(key), label_value_problem(value))
    for i, requirement in enumerate(selector.match_expressions or ()):
        problems += _requirement_problems(requirement, f"matchExpressions[{i}]")
    return problems


def label_key_problem(key: str) -> str | None:
    """Return the problem with a label or annotation key, or None."""
    prefix, slash, name = key.rpartition("/")
    if slash and not (len(prefix) <= 253 and _DNS_SUBDOMAIN.fullmatch(prefix)):
        return (
            f"the prefix of key {key!r} is no DNS name: lower-case letters, digits, '-' and '.', "
            "at most 253 characters"
        )
    if not (len(name) <= 63 and _NAME.fullmatch(name)):
        return (
            f"the name in key {key!r} must have 1 to 63 letters, digits, '-', '_' or '.', and "
            "begin and end with a letter or digit"
        )
    return None


def label_value_problem(value: str) -> str | None:
    """Return the problem with a label value, or None."""
    if not value or (len(value) <= 63 and _NAME.fullmatch(value)):
        return None
    return (
        f"value {value!r} must be empty, or have at most 63 letters, digits, '-', '_' or '.', and "
        "begin and end with a letter or digit"
    )


def node_matches(spec: NewPodSpec, node_name: str, node_labels: Mapping[str, str]) -> bool:
    """Return whether a node satisfies a pod's nodeSelector and its required node affinity.

    Terms are ORed. A term without requirements matches nothing, and neither does a required
    affinity without terms. For taints see `tolerates`.
    """
    if any(node_labels.get(key) != value for key, value in (spec.node_selector or {}).items()):
        return False
    return spec.required_nodes is None or terms_match(spec.required_terms, node_name, node_labels)


def terms_match(
    terms: Iterable[NodeSelectorTerm], node_name: str, node_labels: Mapping[str, str]
) -> bool:
    """Return whether a node satisfies one of these terms."""
    return any(_term_matches(term, node_name, node_labels) for term in terms)


def labels_read(spec: PodSpec, most: int) -> frozenset[str] | None:
    """Return the labels of a node at which `node_matches` looks for this pod.

    None where these are more than `most`, or where it looks at the node's name, too.

    Args:
        spec: The pod's.
        most: How many labels at most.
    """
    found = set(islice(spec.node_selector or (), most + 1))
    for term in spec.required_terms:
        if term.match_fields:
            return None
        for requirement in term.match_expressions or ():
            found.add(requirement.key)
            if len(found) > most:
                return None
    return frozenset(found) if len(found) <= most else None


def tolerates(tolerations: Iterable[Toleration] | None, taint: Taint) -> bool:
    """Return whether a taint keeps no pod with these tolerations away.

    An Exists without a key tolerates every taint, an empty effect every effect; a taint that only
    prefers (PreferNoSchedule) does not keep pods away.
    """
    return taint.effect not in REPELLING_EFFECTS or any(
        _tolerated(toleration, taint) for toleration in tolerations or ()
    )


def is_tied(spec: NewPodSpec, keys: Collection[str], value: str) -> bool:
    """Return whether a pod goes only to nodes of which one of these labels has this value.

    Cost: O(terms x expressions).
    """
    if spec.node_selector and any(spec.node_selector.get(key) == value for key in keys):
        return True
    terms = _terms(spec)
    return bool(terms) and all(
        any(
            one.key in keys and one.operator == "In" and one.values == [value]
            for one in term.match_expressions or ()
        )
        for term in terms
    )


def names_label(spec: NewPodSpec, *keys: str) -> bool:
    """Return whether a pod requires anything of one of these labels of its nodes."""
    return any(key in (spec.node_selector or ()) for key in keys) or any(
        one.key in keys for term in _terms(spec) for one in term.match_expressions or ()
    )


def required_values(spec: NewPodSpec, key: str) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each place where a pod requires a node label to have one of some values.

    The nodeSelector, then each `In` of the required node affinity: its path in the pod, and the
    values.
    """
    if spec.node_selector and key in spec.node_selector:
        yield f"spec.nodeSelector[{key}]", (spec.node_selector[key],)
    for i, term in enumerate(spec.required_terms):
        for j, one in enumerate(term.match_expressions or ()):
            if one.key == key and one.operator == "In" and one.values:
                yield f"{_TERMS_PATH}[{i}].matchExpressions[{j}].values", one.values


def _terms(spec: NewPodSpec) -> list[NodeSelectorTerm]:
    """Return the terms that match some nodes: one without any requirement matches none."""
    return [one for one in spec.required_terms if one.match_expressions or one.match_fields]


def _tolerated(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    # A key may be left out with Exists only; the API server refuses anything else.
    return (
        toleration.operator in ("", "Equal")
        and toleration.key != ""
        and toleration.value == taint.value
    )


def _term_matches(term: NodeSelectorTerm, node_name: str, node_labels: Mapping[str, str]) -> bool:
    expressions, fields = term.match_expressions or (), term.match_fields or ()
    if not expressions and not fields:
        return False
    names = {NODE_NAME_FIELD: node_name}
    return all(_holds(requirement, node_labels) for requirement in expressions) and all(
        # The name is the only field a term may name, by In or NotIn.
        field.key in names and field.operator in ("In", "NotIn") and _holds(field, names)
        for field in fields
    )


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    values = requirement.values or ()
    match requirement.operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement.operator, value, values)
        case _:
            return False


def _compares(operator: str, value: str | None, bounds: Sequence[str]) -> bool:
    if value is None or len(bounds) != 1:
        return False
    number, bound = _int64(value), _int64(bounds[0])
    if number is None or bound is None:
        return False
    return number > bound if operator == "Gt" else number < bound


def _int64(text: str) -> int | None:
    if not _INT64.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def _requirement_problems(requirement: Requirement, path: str) -> Iterator[SelectorProblem]:
    operator, values = requirement.operator, requirement.values or []
    yield from _syntax_problems(f"{path}.key", label_key_problem(requirement.key))
    if operator not in LABEL_OPERATORS:
        yield SelectorProblem(
            f"{path}.operator",
            f"operator {operator!r} is none of {', '.join(LABEL_OPERATORS)}",
            f"write one of {', '.join(LABEL_OPERATORS)}",
        )
    elif operator in ("In", "NotIn") and not values:
        yield SelectorProblem(
            f"{path}.values",
            f"operator {operator} needs at least one value",
            "add values, or use Exists or DoesNotExist",
        )
    elif operator in ("Exists", "DoesNotExist") and values:
        yield SelectorProblem(
            f"{path}.values",
            f"operator {operator} takes no values",
            "remove values, or use In or NotIn",
        )
    for i, value in enumerate(values):
        yield from _syntax_problems(f"{path}.values[{i}]", label_value_problem(value))


def _syntax_problems(path: str, *messages: str | None) -> Iterator[SelectorProblem]:
    for message in messages:
        if message:
            yield SelectorProblem(path, message, "write it as Kubernetes allows labels")
