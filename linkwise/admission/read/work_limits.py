"""Limits of one review: of its body, of the pod, and of the patch that answers it.

Admission visits each part of a pod a bounded number of times, while all other reviews wait. So a
bound of the parts is a bound of the time. A pod beyond a limit is denied: after an error response
it would be created without a review.
"""

from linkwise.cluster.finding import Code, Finding, Severity
from linkwise.cluster.objects.container import NewContainer
from linkwise.cluster.objects.pod import NewPodSpec
from linkwise.cluster.requests.container_request import all_containers

MAX_COMMAS = 100_000
"""Commas of a body. In JSON one is between two values, so that they bound the decoded objects."""
MAX_PARTS = 2048
"""Parts of a spec that admission visits, see `size_finding`."""
MAX_OPERATIONS = 512
"""Operations of a patch. An answer of more would need more memory than its request."""


def size_finding(spec: NewPodSpec) -> Finding | None:
    """Return the finding about a spec with too many parts.

    These are its containers with their variables, mounts, resources and references to claims, the
    entries of its nodeSelector, the terms, requirements and values of its required node affinity,
    its gates and its claims.

    Cost: linear in the containers and requirements.
    """
    parts = (
        sum(map(_container_parts, all_containers(spec)))
        + _node_parts(spec)
        + len(spec.scheduling_gates or ())
        + len(spec.resource_claims or ())
    )
    if parts <= MAX_PARTS:
        return None
    return _too_large(
        f"it has {parts} containers, variables, mounts, resources and node requirements, and at "
        f"most {MAX_PARTS} are reviewed",
        "remove those that the pod does not need; variables can come from a ConfigMap by envFrom",
    )


def patch_finding(operations: int) -> Finding | None:
    """Return the finding about a patch with too many operations."""
    if operations <= MAX_OPERATIONS:
        return None
    return _too_large(
        f"its GPUs need {operations} changes of the pod, and at most {MAX_OPERATIONS} are made",
        "use fewer containers, and remove variables and annotations that Linkwise sets",
    )


def _too_large(problem: str, fix: str) -> Finding:
    message = f"the pod is too large to be reviewed: {problem}"
    return Finding(Code.UNREADABLE, Severity.ERROR, "spec", None, message, fix)


def _container_parts(container: NewContainer) -> int:
    return (
        1
        + len(container.env or ())
        + len(container.volume_mounts or ())
        + len(container.limits)
        + len(container.requests)
        + len((container.resources.claims if container.resources else None) or ())
    )


def _node_parts(spec: NewPodSpec) -> int:
    if not spec.required_terms:
        return len(spec.node_selector or ())
    requirements = [
        requirement
        for term in spec.required_terms
        for requirement in (*(term.match_expressions or ()), *(term.match_fields or ()))
    ]
    values = sum(len(requirement.values or ()) for requirement in requirements)
    return len(spec.node_selector or ()) + len(spec.required_terms) + len(requirements) + values
