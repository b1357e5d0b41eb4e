"""The constraints of claims: GPUs of some requests have the same value of an attribute.

kube-scheduler compares values with their types, and versions as texts; a device without the
attribute satisfies no constraint that names it.

Source: kubernetes v1.36, `staging/src/k8s.io/dynamic-resource-allocation/structured`.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from itertools import combinations
from operator import or_
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from linkwise.cluster.cel.values import DeviceFacts, Scalar
from linkwise.cluster.finding import quoted

CONSTRAINTS_MAX = 8
"""Constraints of a claim that are evaluated."""
_TEXT_MAX = 4096
"""All constraints of a claim together [characters]: they are written into the pod."""

Amounts: TypeAlias = tuple[tuple[str, int], ...]
"""GPUs of each request, by its name."""
Groups: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""By attribute: the masks of the GPUs with an equal value. A GPU without the attribute is in none.
"""


class Constraint(
    Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """All GPUs of some requests of a claim have the same value of an attribute."""

    match_attribute: str
    """Its name, with the domain."""
    requests: tuple[str, ...] | None = None
    """Names of the requests, sorted; None: all of the claim."""


class MatchedGPUs(NamedTuple):
    """GPUs with the same values of some attributes."""

    attributes: tuple[str, ...]
    """Names of the attributes; without any, the GPUs may differ."""
    requests: Amounts
    """Requests for these GPUs; those of the parts come first."""
    parts: tuple["MatchedGPUs", ...] = ()
    """Some of the GPUs, each part with more attributes of its own."""

    @property
    def all_requests(self) -> Amounts:
        """The requests of the parts, then its own."""
        inner = (one for part in self.parts for one in part.all_requests)
        return (*inner, *self.requests)

    @property
    def gpus(self) -> int:
        """The number of all its GPUs."""
        return sum(count for _, count in self.all_requests)

    @property
    def shape(self) -> "MatchedGPUs":
        """What the sets of GPUs depend on: the same without names, and in an order of its own.

        Users choose the names, and would make each result that is remembered useless.
        """
        return MatchedGPUs(
            self.attributes,
            tuple(("", count) for count in sorted(count for _, count in self.requests)),
            tuple(sorted(part.shape for part in self.parts)),
        )

    @property
    def all_attributes(self) -> frozenset[str]:
        """The attributes of all constraints."""
        return frozenset(self.attributes).union(*(part.all_attributes for part in self.parts))


def read_constraints(raw: object, names: frozenset[str]) -> tuple[Constraint, ...] | str:
    """Return the constraints of a claim: each once, in a form in which equal ones are equal.

    Args:
        raw: As they are written.
        names: The requests of the claim.

    Returns:
        Why they are not evaluated, for users: a phrase.
    """
    try:
        constraints = msgspec.convert(raw, list[Constraint])
    except msgspec.ValidationError as error:
        return quoted(str(error))
    found: set[Constraint] = set()
    for one in constraints:
        requests = frozenset(one.requests or names)
        if unknown := requests - names:
            return f"there is no request {quoted(min(unknown))}"
        if "/" not in one.match_attribute:
            return f"attribute {quoted(one.match_attribute)} has no domain"
        some = None if requests == names else tuple(sorted(requests))
        found.add(Constraint(one.match_attribute, some))
    if len(found) > CONSTRAINTS_MAX or len(msgspec.json.encode(list(found))) > _TEXT_MAX:
        return f"there are more than {CONSTRAINTS_MAX}, or {_TEXT_MAX} characters of them"
    sets = [frozenset(one.requests or names) for one in found]
    if any(a & b and not (a <= b or b <= a) for a, b in combinations(sets, 2)):
        return "two of them share some of their requests"
    return tuple(sorted(found, key=lambda one: (one.match_attribute, one.requests or ())))


def matched_gpus(amounts: Amounts, matched: Mapping[frozenset[str], frozenset[str]]) -> MatchedGPUs:
    """Return the GPUs of some requests as constraints divide them.

    Args:
        amounts: The requests.
        matched: By names of requests: the attributes in which their GPUs are equal. Two sets of
            names have nothing in common, or one is a part of the other one.
    """
    names = frozenset(name for name, _ in amounts)
    inner = [some for some in matched if some < names]
    outermost = [some for some in inner if not any(some < other for other in inner)]
    divided = frozenset[str]().union(*outermost)
    return MatchedGPUs(
        tuple(sorted(matched.get(names, ()))),
        tuple(one for one in amounts if one[0] not in divided),
        tuple(
            matched_gpus(tuple(one for one in amounts if one[0] in some), matched)
            for some in outermost
        ),
    )


def groups_of(attributes: frozenset[str], gpus: Sequence[DeviceFacts]) -> Groups:
    """Return which GPUs have equal values of some attributes."""
    return tuple((name, _equal_gpus(name, gpus)) for name in sorted(attributes))


def _equal_gpus(attribute: str, gpus: Sequence[DeviceFacts]) -> tuple[int, ...]:
    masks: dict[tuple[type, Scalar], int] = {}
    for i, facts in enumerate(gpus):
        if (value := _value(attribute, facts)) is not None:
            # The type is in the key, since True and 1 are equal.
            key = type(value), value
            masks[key] = masks.get(key, 0) | 1 << i
    return tuple(masks.values())


def _value(attribute: str, facts: DeviceFacts) -> Scalar | None:
    """Return the value of an attribute; None: the device has none, or one that is not read."""
    known = dict(facts.attributes)
    if attribute in known:
        return known[attribute]
    domain, _, name = attribute.partition("/")
    return known.get(name) if domain == facts.driver else None


@lru_cache(maxsize=64)
def matching_sets(
    matched: MatchedGPUs, groups: Groups, within: int
) -> Mapping[int, tuple[int, ...]]:
    """Return all sets of GPUs that satisfy constraints.

    Args:
        matched: The constraints.
        groups: Which GPUs are equal in their attributes.
        within: Mask of the GPUs that may be taken.

    Returns:
        By mask: the GPUs in the order of `all_requests`, one way to divide them.

    Cost: 1 ms for 8 GPUs; below 1 s for 16. Remembered.
    """
    return _extended({0: ()}, matched, dict(groups), within)


def _extended(
    ways: Mapping[int, tuple[int, ...]],
    matched: MatchedGPUs,
    groups: Mapping[str, tuple[int, ...]],
    within: int,
) -> dict[int, tuple[int, ...]]:
    """Return the sets with GPUs for more requests."""
    found: dict[int, tuple[int, ...]] = {}
    for equal in _equal_in(matched, groups, within):
        longer = dict(ways)
        for part in matched.parts:
            longer = _extended(longer, part, groups, equal)
        for _ in range(sum(count for _, count in matched.requests)):
            longer = _with_one_more(longer, equal)
        for mask, gpus in longer.items():
            found.setdefault(mask, gpus)
    return found


def _equal_in(
    matched: MatchedGPUs, groups: Mapping[str, tuple[int, ...]], within: int
) -> list[int]:
    """Return the largest masks of GPUs that have the same values of all attributes."""
    masks = [within]
    for name in matched.attributes:
        masks = [mask & group for mask in masks for group in groups[name] if mask & group]
    # A single GPU equals itself, whatever its value is.
    return [reduce(or_, masks, 0)] if matched.gpus == 1 else masks


def _with_one_more(ways: Mapping[int, tuple[int, ...]], within: int) -> dict[int, tuple[int, ...]]:
    longer: dict[int, tuple[int, ...]] = {}
    for mask, gpus in ways.items():
        for i in _indices(within & ~mask):
            longer.setdefault(mask | 1 << i, (*gpus, i))
    return longer


def _indices(mask: int) -> Iterator[int]:
    return (i for i in range(mask.bit_length()) if mask >> i & 1)
