"""What is valid in profiles and yet risky, or without effect."""

from collections.abc import Iterator, Sequence

from cluster import keys
from cluster.finding import Code
from policy.condition import Condition, can_hold
from policy.place import Path, Place, field
from policy.problem import Problem, doubtful
from policy.selection import Addition, Selector

_GANG_LABELS = frozenset({keys.POD_GROUP, keys.POD_GROUP_NAME})


def doubts_about(selectors: Sequence[Selector], document: Place) -> Iterator[Problem]:
    """Yield what deserves a second look in the selectors of a profile.

    Args:
        selectors: All of them, in list order.
        document: Where their text stands.
    """
    for i, selector in enumerate(selectors):
        for path, message, fix, code in _doubts(selectors, i, selector):
            at = (i, *path)
            yield doubtful(document.find(at).line, field(at), message, fix, code)


_Doubt = tuple[Path, str, str, Code]


def _doubts(selectors: Sequence[Selector], index: int, selector: Selector) -> Iterator[_Doubt]:
    earlier = selectors[:index]
    if any(other.name == selector.name for other in earlier):
        message = f"another selector is named {selector.name!r} too"
        yield ("name",), message, "give each its own name, so that traces tell them apart", _PROFILE
    if not can_hold(selector.pod) or not can_hold(selector.namespace):
        message = "its requirements contradict each other: it never matches"
        yield (), message, "remove one of the requirements on the same label", _PROFILE
        return
    if not selector.additions:
        yield (), "it adds nothing", "give it an effect, or remove it", _PROFILE
    yield from _reach(selector)
    yield from _chained(selectors, selector)
    yield from _effects(earlier, selector)


_PROFILE = Code.PROFILE


def _reach(selector: Selector) -> Iterator[_Doubt]:
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
    """Tell whether every pod that meets the condition has a label that the webhook looks for."""
    named = condition.key.startswith(keys.ACS_PREFIX) or condition.key in _GANG_LABELS
    return named and condition.operator in {"In", "Exists"}


def _chained(selectors: Sequence[Selector], selector: Selector) -> Iterator[_Doubt]:
    """Yield when what another selector adds can be what this one waits for.

    Selectors are matched on the pod as received, so that it does not match then, but would if the
    pod came a second time.
    """
    set_by_any = {addition.key for other in selectors for addition in other.labels}
    own = [condition for condition in selector.pod if condition.key not in set_by_any]
    for other in selectors:
        for addition in other.labels:
            absent = Condition(addition.key, "DoesNotExist", frozenset(), "")
            if (
                _turns(selector.pod, addition)
                and can_hold([*other.pod, absent, *own])
                and can_hold([*other.namespace, *selector.namespace])
            ):
                message = (
                    f"{other.name!r} adds {addition.key}={addition.value}, which this selector "
                    "wants, but selectors do not see each other's effects"
                )
                fix = "select by labels that pods bring themselves"
                yield ("objectSelector",), message, fix, Code.CHAINED_SELECTOR


def _turns(conditions: Sequence[Condition], addition: Addition) -> bool:
    """Tell whether a label makes unmet conditions on it met."""
    same = [condition for condition in conditions if condition.key == addition.key]
    unmet = any(not condition.holds(None) for condition in same)
    return unmet and all(condition.holds(addition.value) for condition in same)


def _effects(earlier: Sequence[Selector], selector: Selector) -> Iterator[_Doubt]:
    """Yield for each addition that is never made, or that is not an administrator's to make."""
    for kind, additions in (("labels", selector.labels), ("annotations", selector.annotations)):
        for addition in additions:
            path = ("effect", kind, addition.key)
            first = next((one for one in earlier if _forestalls(one, selector, addition)), None)
            if first:
                message = f"never added: {first.name!r} matches whenever this does, and sets it"
                yield path, message, "remove it, or put this selector first", _PROFILE
            whose = _owner(addition.key)
            if whose:
                message = f"{addition.key} belongs to {whose}"
                yield path, message, "leave it to its owner", Code.RISKY_SELECTOR


def _forestalls(earlier: Selector, selector: Selector, addition: Addition) -> bool:
    sets = any(addition.path == other.path for other in earlier.additions)
    return (
        sets and {*earlier.pod} <= {*selector.pod} and {*earlier.namespace} <= {*selector.namespace}
    )


def _owner(key: str) -> str | None:
    """Return who alone sets a key; None when administrators may."""
    if key in keys.RECORD or key.startswith(keys.VISIBLE_DEVICES_OF):
        return "the record of an allocation"
    if key in {keys.COMPUTE_CLASS, keys.COMPUTE_QOS}:
        return "the platform, which bills and places by it"
    if key.rpartition("/")[0] in keys.KUBERNETES_DOMAINS:
        return "Kubernetes"
    return None
