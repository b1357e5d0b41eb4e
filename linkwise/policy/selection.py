"""Apply the selectors of profiles to a pod."""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import Struct

from linkwise.cluster.objects.condition import Condition, first_unmet


class Trace(Struct, frozen=True, gc=False):
    """Effect of one selector on one pod. A Struct, since one is created per selector and pod."""

    name: str
    matched: bool
    reason: str
    """One sentence: the matching requirements, or the failed one and the actual value."""
    added: Mapping[str, str] = {}
    """Added labels and annotations: path to value."""
    kept: tuple[str, ...] = ()
    """Paths that the pod or an earlier selector had set already."""


class ProfileResult(Struct, frozen=True, gc=False):
    """A pod's labels and annotations after the profiles."""

    labels: dict[str, str]
    annotations: dict[str, str]
    added_labels: dict[str, str]
    """Labels that the profiles added, in order."""
    added_annotations: dict[str, str]
    trace: tuple[Trace, ...]
    """One for each selector, in list order."""


@dataclass(frozen=True, slots=True)
class Addition:
    """A label or annotation that a selector adds if it is missing."""

    key: str
    value: str
    path: str
    """Such as `metadata.labels[example.com/a]`."""


@dataclass(frozen=True, slots=True)
class Selector:
    """One selector of a profile."""

    name: str
    namespace: tuple[Condition, ...]
    """On the namespace's labels; empty: any namespace."""
    pod: tuple[Condition, ...]
    """On the pod's labels; empty: any pod."""
    labels: tuple[Addition, ...]
    annotations: tuple[Addition, ...]
    matches: str
    """The reason if it matches."""

    @property
    def additions(self) -> tuple[Addition, ...]:
        """Labels, then annotations."""
        return self.labels + self.annotations

    def mismatch(
        self, labels: Mapping[str, str], namespace_labels: Mapping[str, str] | None
    ) -> str | None:
        """Return why the selector does not match a pod; None if it matches."""
        unmet = first_unmet(self.pod, labels)
        if unmet:
            return _sentence("objectSelector", unmet, "pod", labels)
        if not self.namespace:
            return None
        if namespace_labels is None:
            return "namespaceSelector cannot be judged: the namespace's labels are not known"
        unmet = first_unmet(self.namespace, namespace_labels)
        if unmet:
            return _sentence("namespaceSelector", unmet, "namespace", namespace_labels)
        return None


@dataclass(frozen=True, slots=True)
class Profiles:
    """The selectors of a profile."""

    selectors: tuple[Selector, ...] = ()
    text: str = "[]"
    """The selectors as canonical JSON, independent of layout."""

    def apply(
        self,
        labels: dict[str, str],
        annotations: dict[str, str],
        namespace_labels: Mapping[str, str] | None,
    ) -> ProfileResult:
        """Return labels and annotations of a pod with the additions of all matching selectors.

        Matching selectors apply in list order and only add: values of the pod take precedence, then
        those of earlier selectors. Selectors match the pod as received, without additions.

        Args:
            labels: The pod's, as received.
            annotations: The pod's, as received.
            namespace_labels: None if unknown; selectors that need them do not match.

        Cost: less than 1 µs a selector.
        """
        new_labels: dict[str, str] = {}
        new_annotations: dict[str, str] = {}
        trace = []
        for selector in self.selectors:
            mismatch = selector.mismatch(labels, namespace_labels)
            if mismatch:
                trace.append(Trace(selector.name, False, mismatch))
                continue
            added: dict[str, str] = {}
            kept = _add(selector.labels, labels, new_labels, added)
            kept += _add(selector.annotations, annotations, new_annotations, added)
            trace.append(Trace(selector.name, True, selector.matches, added, tuple(kept)))
        return ProfileResult(
            {**labels, **new_labels} if new_labels else labels,
            {**annotations, **new_annotations} if new_annotations else annotations,
            new_labels,
            new_annotations,
            tuple(trace),
        )


def _add(
    additions: tuple[Addition, ...],
    present: Mapping[str, str],
    new: dict[str, str],
    added: dict[str, str],
) -> list[str]:
    """Add missing entries, and return the paths of existing ones."""
    kept = []
    for addition in additions:
        if addition.key in present or addition.key in new:
            kept.append(addition.path)
        else:
            new[addition.key] = added[addition.path] = addition.value
    return kept


def _sentence(selector: str, unmet: Condition, what: str, labels: Mapping[str, str]) -> str:
    value = labels.get(unmet.key)
    label = "no such label" if value is None else f"{unmet.key}={value}"
    return f"{selector} wants {unmet.text}; the {what} has {label}"
