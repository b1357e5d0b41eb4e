"""Warnings about valid profiles: risky selectors, or selectors without effect."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from linkwise.cluster import keys
from linkwise.cluster.finding import Code
from linkwise.cluster.objects.condition import Condition, can_hold
from linkwise.manifest.place import Path, Place, field
from linkwise.policy.problem import Problem, warning
from linkwise.policy.selection import Addition, Selector

T = TypeVar("T")

_GANG_LABELS = frozenset({keys.POD_GROUP, keys.POD_GROUP_NAME})


def selector_warnings(selectors: Sequence[Selector], document: Place) -> Iterator[Problem]:
    """Yield warnings about the selectors of a profile.

    Args:
        selectors: All of them, in list order.
        document: Places of their text.

    Cost: linear in the text, and at most `MAX_COMPARED` conditions of pairs.
    """
    others = _Others(selectors)
    for i, selector in enumerate(selectors):
        for path, message, fix, code in _warnings(others, i, selector):
            at = (i, *path)
            yield warning(document.find(at).line, field(at), message, fix, code)
    if others.left <= 0:
        message = "these are too many selectors on the same labels to compare each with all others"
        yield warning(document.line, "", message, "join some of them", _PROFILE)


_Warning = tuple[Path, str, str, Code]
MAX_COMPARED = 200_000
"""Maximum number of compared conditions, over all pairs of selectors. A pair is compared only if
one adds a label that the other selects by, or if both add the same: few, unless the profile is
hostile."""


class _Others:
    """Index of the selectors of a profile by their additions."""

    def __init__(self, selectors: Sequence[Selector]) -> None:
        self.left = MAX_COMPARED
        self.names: set[str] = set()
        """Names of the selectors that were visited."""
        self._selectors = selectors
        self._meets = [(frozenset(one.pod), frozenset(one.namespace)) for one in selectors]
        self._labels: dict[str, list[tuple[int, Addition]]] = {}
        """Selectors that add a label, with the addition, by label key."""
        self._paths: dict[str, list[int]] = {}
        """Selectors by the path of an addition."""
        for i, selector in enumerate(selectors):
            for addition in selector.labels:
                self._labels.setdefault(addition.key, []).append((i, addition))
            for addition in selector.additions:
                self._paths.setdefault(addition.path, []).append(i)

    def adds(self, key: str) -> bool:
        """Return whether any selector adds a label."""
        return key in self._labels

    def adding(self, key: str, index: int) -> Iterator[tuple[Selector, Addition]]:
        """Yield the other selectors that add a label, with the addition."""
        for other, addition in self._labels.get(key, ()):
            if not self._may_compare(other, index):
                return
            yield self._selectors[other], addition

    def earlier_equivalent(self, index: int, addition: Addition) -> Selector | None:
        """Return the first earlier selector that always makes the same addition before this one."""
        pod, namespace = self._meets[index]
        for earlier in self._paths[addition.path]:
            if earlier >= index or not self._may_compare(earlier, index):
                return None
            if self._meets[earlier][0] <= pod and self._meets[earlier][1] <= namespace:
                return self._selectors[earlier]
        return None

    def _may_compare(self, *pair: int) -> bool:
        self.left -= 1 + sum(len(conditions) for one in pair for conditions in self._meets[one])
        return self.left > 0


def _warnings(others: _Others, index: int, selector: Selector) -> Iterator[_Warning]:
    if selector.name in others.names:
        message = f"another selector is named {selector.name!r} too"
        yield (
            ("name",),
            message,
            "give each its own name, so that traces distinguish them",
            _PROFILE,
        )
    others.names.add(selector.name)
    if not can_hold(selector.pod) or not can_hold(selector.namespace):
        message = "its requirements contradict each other: it never matches"
        yield (), message, "remove one of the requirements on the same label", _PROFILE
        return
    if not selector.additions:
        yield (), "it adds nothing", "give it an effect, or remove it", _PROFILE
    yield from _reach(selector)
    yield from _chained(others, index, selector)
    yield from _effects(others, index, selector)


_PROFILE = Code.PROFILE


def _reach(selector: Selector) -> Iterator[_Warning]:
    """Yield when a selector matches more pods, or fewer, than it seems."""
    if not selector.pod and not selector.namespace:
        message = "it has no condition: every pod that reaches the webhook matches"
        yield (), message, "add an objectSelector or a namespaceSelector", Code.RISKY_SELECTOR
    elif not any(_brings_to_webhook(condition) for condition in selector.pod):
        message = (
            "it can match pods that never reach the webhook: those without a GPU resource, a label "
            f"of {keys.ACS_PREFIX}* or a gang"
        )
        fix = f"require such a label (as {keys.COMPUTE_CLASS}), or install the overlay profiles-all"
        yield ("objectSelector",), message, fix, Code.UNREACHED_SELECTOR


def _brings_to_webhook(condition: Condition) -> bool:
    """Return whether every pod that meets the condition has a label that triggers the webhook."""
    named = condition.key.startswith(keys.ACS_PREFIX) or condition.key in _GANG_LABELS
    return named and condition.operator in {"In", "Exists"}


def _chained(others: _Others, index: int, selector: Selector) -> Iterator[_Warning]:
    """Yield selectors that need a label which another selector adds.

    Selectors match the pod as received: such a selector does not match at first, but would match on
    a second admission.
    """
    by_key: dict[str, list[Condition]] = {}
    for condition in selector.pod:
        by_key.setdefault(condition.key, []).append(condition)
    own = [condition for condition in selector.pod if not others.adds(condition.key)]
    for key, conditions in by_key.items():
        absent = Condition(key, "DoesNotExist", frozenset(), "")
        if all(condition.holds(None) for condition in conditions):
            # They hold without the label, too.
            continue
        for other, addition in others.adding(key, index):
            if (
                all(condition.holds(addition.value) for condition in conditions)
                and can_hold([*other.pod, absent, *own])
                and can_hold([*other.namespace, *selector.namespace])
            ):
                message = (
                    f"{other.name!r} adds {addition.key}={addition.value}, which this selector "
                    "wants, but selectors do not see each other's effects"
                )
                fix = "select by labels that pods bring themselves"
                yield ("objectSelector",), message, fix, Code.CHAINED_SELECTOR


def _effects(others: _Others, index: int, selector: Selector) -> Iterator[_Warning]:
    """Yield additions that are never made, or that administrators must not make."""
    for kind, additions in (("labels", selector.labels), ("annotations", selector.annotations)):
        for addition in additions:
            path = ("effect", kind, addition.key)
            first = others.earlier_equivalent(index, addition)
            if first:
                message = f"never added: {first.name!r} matches whenever this does, and sets it"
                yield path, message, "remove it, or put this selector first", _PROFILE
            whose = _owner(addition.key)
            if whose:
                message = f"{addition.key} belongs to {whose}"
                yield path, message, "leave it to its owner", Code.RISKY_SELECTOR


def _owner(key: str) -> str | None:
    """Return the owner of a key; None if administrators may set it."""
    if key in keys.RECORD or key.startswith(keys.VISIBLE_DEVICES_OF):
        return "the record of an allocation"
    if key in {keys.COMPUTE_CLASS, keys.COMPUTE_QOS}:
        return "the platform, which bills and places by it"
    if key.rpartition("/")[0] in keys.KUBERNETES_DOMAINS:
        return "Kubernetes"
    return None
