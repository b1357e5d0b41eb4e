"""Add node requirements to the required node affinity of a pod.

Terms of a required node affinity are ORed, so a requirement must be in every term. A term (or a
nodeSelector) that names the key keeps precedence and does not get the requirement. An empty term
matches no node and stays empty: with a requirement it would match some.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from linkwise.admission.operations import Operation, add, extend, join_rules
from linkwise.cluster.objects.affinity import NewAffinity, NodeSelectorTerm
from linkwise.cluster.objects.pod import NewPodSpec

_AFFINITY = "/spec/affinity"
_NODE = f"{_AFFINITY}/nodeAffinity"
_REQUIRED = f"{_NODE}/requiredDuringSchedulingIgnoredDuringExecution"
_TERMS = f"{_REQUIRED}/nodeSelectorTerms"


class NodeRequirement(Struct, frozen=True, gc=False):
    """Allowed or excluded values of a node label, and the rule that requires them."""

    key: str
    values: tuple[str, ...]
    rule: str
    operator: Literal["In", "NotIn"] = "In"

    def expression(self) -> dict[str, object]:
        """Return the item of `matchExpressions`."""
        return {"key": self.key, "operator": self.operator, "values": list(self.values)}


def add_requirements(spec: NewPodSpec, requirements: Sequence[NodeRequirement]) -> list[Operation]:
    """Return the operations that add requirements to every term without their keys.

    Args:
        spec: The pod's spec.
        requirements: At most one for each key.

    Cost: O(terms x (expressions + requirements)).
    """
    if spec.node_selector:
        requirements = [new for new in requirements if new.key not in spec.node_selector]
    if not requirements:
        return []
    terms, path = _terms(spec.affinity)
    if not terms:
        return [_add_term(path, requirements)]
    operations: list[Operation] = []
    for index, term in enumerate(terms):
        if term.match_expressions or term.match_fields:
            operations += _extend_term(index, term, requirements)
    return operations


def _terms(affinity: NewAffinity | None) -> tuple[list[NodeSelectorTerm] | None, str]:
    """Return the terms and their path; without terms, the path of the first absent parent."""
    if affinity is None:
        return None, _AFFINITY
    if affinity.node_affinity is None:
        return None, _NODE
    required = affinity.node_affinity.required_during_scheduling_ignored_during_execution
    if required is None:
        return None, _REQUIRED
    return required.node_selector_terms, _TERMS


def _extend_term(
    index: int, term: NodeSelectorTerm, requirements: Sequence[NodeRequirement]
) -> list[Operation]:
    present = {expression.key for expression in term.match_expressions or ()}
    values: list[tuple[object, str]] = [
        (requirement.expression(), requirement.rule)
        for requirement in requirements
        if requirement.key not in present
    ]
    return extend(f"{_TERMS}/{index}/matchExpressions", term.match_expressions, values)


def _add_term(path: str, requirements: Sequence[NodeRequirement]) -> Operation:
    """Return the operation that adds one term, and its parents from `path` on."""
    value: object = [{"matchExpressions": [new.expression() for new in requirements]}]
    for parent in reversed(_TERMS.removeprefix(path).split("/")[1:]):
        value = {parent: value}
    return add(path, value, join_rules(new.rule for new in requirements))
