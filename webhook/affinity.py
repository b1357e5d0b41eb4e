"""Which nodes a pod may go to: requirements added to what its author wrote.

Terms of a required node affinity are ORed, so that a requirement holds only when every one of them
has it. A term (or a nodeSelector) that names the key has decided it, and is left alone. An empty
term matches no node, and stays that way: giving it a requirement would make it match some.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from cluster.pod import Affinity, NewPodSpec, NodeSelectorTerm
from webhook.patch import Operation, add, extend, join_rules, pre_encoded

_AFFINITY = "/spec/affinity"
_NODE = f"{_AFFINITY}/nodeAffinity"
_REQUIRED = f"{_NODE}/requiredDuringSchedulingIgnoredDuringExecution"
_TERMS = f"{_REQUIRED}/nodeSelectorTerms"


class NodeRequirement(Struct, frozen=True, gc=False):
    """A node label's allowed or excluded values, and why they are required."""

    key: str
    values: tuple[str, ...]
    rule: str
    operator: Literal["In", "NotIn"] = "In"

    def expression(self) -> dict[str, object]:
        """Return it as a matchExpressions item."""
        return {"key": self.key, "operator": self.operator, "values": list(self.values)}


def add_requirements(spec: NewPodSpec, requirements: Sequence[NodeRequirement]) -> list[Operation]:
    """Return the steps after which every term has every requirement that it did not decide.

    Args:
        spec: The pod's spec.
        requirements: At most one for a key.

    Cost: O(terms x (expressions + requirements)).
    """
    if spec.node_selector:
        requirements = [one for one in requirements if one.key not in spec.node_selector]
    if not requirements:
        return []
    terms, path = _terms(spec.affinity)
    if not terms:
        return [_first_term(path, tuple(requirements))]
    steps: list[Operation] = []
    for index, term in enumerate(terms):
        if term.match_expressions or term.match_fields:
            steps += _constrain(index, term, requirements)
    return steps


def _terms(affinity: Affinity | None) -> tuple[list[NodeSelectorTerm] | None, str]:
    """Return the terms, and their path: that of what they are missing in where there are none."""
    if affinity is None:
        return None, _AFFINITY
    if affinity.node_affinity is None:
        return None, _NODE
    required = affinity.node_affinity.required_during_scheduling_ignored_during_execution
    if required is None:
        return None, _REQUIRED
    return required.node_selector_terms, _TERMS


def _constrain(
    index: int, term: NodeSelectorTerm, requirements: Sequence[NodeRequirement]
) -> list[Operation]:
    decided = {expression.key for expression in term.match_expressions or ()}
    values: list[tuple[object, str]] = [
        (requirement.expression(), requirement.rule)
        for requirement in requirements
        if requirement.key not in decided
    ]
    return extend(f"{_TERMS}/{index}/matchExpressions", term.match_expressions, values)


@lru_cache(maxsize=64)
def _first_term(path: str, requirements: tuple[NodeRequirement, ...]) -> Operation:
    """Return the step that makes the one term, and its parents from a path on.

    Nearly all pods get the same; the few kept are bounded, since users name models and drivers.
    """
    value: object = [{"matchExpressions": [one.expression() for one in requirements]}]
    for parent in reversed(_TERMS.removeprefix(path).split("/")[1:]):
        value = {parent: value}
    return pre_encoded(add(path, value, join_rules(tuple([one.rule for one in requirements]))))
