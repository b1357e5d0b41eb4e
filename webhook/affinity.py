"""Which nodes a pod may go to: requirements added to what its author wrote.

Terms of a required node affinity are ORed, so that a requirement holds only when every one of them
has it. A term (or a nodeSelector) that names the key has decided it, and is left alone. An empty
term matches no node, and stays that way: giving it a requirement would make it match some.
"""

from msgspec import Struct

from cluster.pod import NodeSelectorTerm, PodSpec
from webhook.patch import Operation, add, append, joined

_AFFINITY = "/spec/affinity"
_NODE = f"{_AFFINITY}/nodeAffinity"
_REQUIRED = f"{_NODE}/requiredDuringSchedulingIgnoredDuringExecution"
_TERMS = f"{_REQUIRED}/nodeSelectorTerms"


class NodeRequirement(Struct, frozen=True, gc=False):
    """A node label's allowed values, and why they are required."""

    key: str
    values: tuple[str, ...]
    rule: str

    def expression(self) -> dict[str, object]:
        """Return it as a matchExpressions item."""
        return {"key": self.key, "operator": "In", "values": list(self.values)}


def require(spec: PodSpec, requirements: list[NodeRequirement]) -> list[Operation]:
    """Return the steps after which every term has every requirement that it did not decide.

    Args:
        spec: The pod's spec.
        requirements: At most one for a key.

    Cost: O(terms x (expressions + requirements)).
    """
    selected = spec.node_selector or {}
    open_ = [requirement for requirement in requirements if requirement.key not in selected]
    if not open_:
        return []
    terms = _terms(spec)
    if not terms:
        return [_first_term(spec, open_)]
    steps: list[Operation] = []
    for index, term in enumerate(terms):
        if term.match_expressions or term.match_fields:
            steps += _constrain(index, term, open_)
    return steps


def _terms(spec: PodSpec) -> list[NodeSelectorTerm] | None:
    node = spec.affinity.node_affinity if spec.affinity else None
    required = node.required_during_scheduling_ignored_during_execution if node else None
    return required.node_selector_terms if required else None


def _constrain(
    index: int, term: NodeSelectorTerm, requirements: list[NodeRequirement]
) -> list[Operation]:
    decided = {expression.key for expression in term.match_expressions or ()}
    values: list[tuple[object, str]] = [
        (requirement.expression(), requirement.rule)
        for requirement in requirements
        if requirement.key not in decided
    ]
    return append(f"{_TERMS}/{index}/matchExpressions", term.match_expressions, values)


def _first_term(spec: PodSpec, requirements: list[NodeRequirement]) -> Operation:
    """Return the step that makes the one term, and as many of its parents as are missing."""
    rule = joined([requirement.rule for requirement in requirements])
    terms = [{"matchExpressions": [requirement.expression() for requirement in requirements]}]
    affinity = spec.affinity
    if affinity is None:
        required = {"nodeSelectorTerms": terms}
        node = {"requiredDuringSchedulingIgnoredDuringExecution": required}
        return add(_AFFINITY, {"nodeAffinity": node}, rule)
    if affinity.node_affinity is None:
        required = {"nodeSelectorTerms": terms}
        return add(_NODE, {"requiredDuringSchedulingIgnoredDuringExecution": required}, rule)
    if affinity.node_affinity.required_during_scheduling_ignored_during_execution is None:
        return add(_REQUIRED, {"nodeSelectorTerms": terms}, rule)
    return add(_TERMS, terms, rule)
