"""Withhold questions of one namespace from the scorer whose answers would tell of others.

A namespace learns where its pods fit. Rules about pods of other namespaces would let it guess
their labels and learn their nodes; a priority that no user can have would show what all have. Pure.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from linkwise.cluster.objects.affinity import PodAffinityTerm
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.whatif_api import FitRequest

HIGHEST_OF_USERS = 1_000_000_000
"""The highest priority of a PriorityClass that is not Kubernetes' own."""
ABOUT_OTHERS = "a rule of affinity names pods of other namespaces, of which this token may not ask"


def asks_about_others(request: FitRequest, namespace: str) -> bool:
    """Return whether required affinity, or anti-affinity, names pods of other namespaces."""
    return any(
        term.namespace_selector is not None or set(term.namespaces or ()) - {namespace}
        for template in request.templates
        for term in _terms(template.pod)
    )


def as_of_users(request: FitRequest) -> FitRequest:
    """Return a request whose pods have priorities below those of Kubernetes' own classes."""
    templates = []
    for template in request.templates:
        pod = template.pod
        capped = min(pod.spec.priority or 0, HIGHEST_OF_USERS)
        if capped != (pod.spec.priority or 0):
            pod = replace(pod, spec=replace(pod.spec, priority=capped))
        templates.append(replace(template, pod=pod))
    return FitRequest(templates)


def _terms(pod: Pod) -> Iterator[PodAffinityTerm]:
    affinity = pod.spec.affinity
    for each in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity else ():
        if each is not None:
            yield from each.required
