"""Limits for nodeSelector and required node affinity, which planning evaluates on each node."""

from linkwise.cluster.finding import Code, Finding, Severity
from linkwise.cluster.objects.pod import NewPodSpec
from linkwise.cluster.objects.selector import REQUIRED_PATH

MAX_TERMS = 100
"""Terms of the required node affinity; people write one to five."""
MAX_REQUIREMENTS = 200
"""Requirements of all terms together, and entries of the nodeSelector."""
MAX_VALUES = 1_000
"""Values of all requirements together, such as names of nodes."""


def node_terms_finding(spec: NewPodSpec) -> Finding | None:
    """Return the finding about too large a nodeSelector or required node affinity.

    Cost: linear in the requirements.
    """
    required, terms = spec.required_nodes, spec.required_terms
    selected = len(spec.node_selector or ())
    if required is None and selected <= MAX_REQUIREMENTS:
        return None
    requirements = [
        one
        for term in terms
        for one in (*(term.match_expressions or ()), *(term.match_fields or ()))
    ]
    values = sum(len(one.values or ()) for one in requirements)
    for count, most, what in (
        (len(terms), MAX_TERMS, "terms"),
        (len(requirements) + selected, MAX_REQUIREMENTS, "requirements"),
        (values, MAX_VALUES, "values"),
    ):
        if count > most:
            return Finding(
                Code.NODE_TERMS,
                Severity.ERROR,
                REQUIRED_PATH if required else "spec.nodeSelector",
                count,
                f"the pod names {count} {what} for its node, and at most {most} are planned",
                "give the nodes that are meant a label in common, and require that",
            )
    return None
