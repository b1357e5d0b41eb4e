"""The rules of pods about other pods, with the names of the namespaces that they select."""

from collections.abc import Iterator
from dataclasses import replace

from linkwise.cluster.objects.label_match import LabelMatch
from linkwise.cluster.requests.neighbors.namespaces import (
    SelectNamespaces,
    neighbor_with_namespaces,
    rules_with_namespaces,
)
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.placement.pods.member import Member


def with_namespaces(pod: PodInfo, select: SelectNamespaces) -> PodInfo:
    """Return a pod whose rules name the namespaces that they select by labels.

    Cost: a look-up for each such term.
    """
    usage = pod.usage
    member = pod.member or pod.ungated
    has_some = bool(usage and usage.neighbor.unresolved)
    if not has_some and not (member and member.rules.unresolved):
        return pod
    if usage:
        usage = replace(usage, neighbor=neighbor_with_namespaces(usage.neighbor, select))
    member = member and member_with_namespaces(member, select)
    return replace(
        pod,
        usage=usage,
        member=member if pod.member else None,
        ungated=member if pod.ungated else None,
    )


def member_with_namespaces(member: Member, select: SelectNamespaces) -> Member:
    """Return a pod to place whose rules name the namespaces that they select by labels."""
    rules = rules_with_namespaces(member.rules, select)
    return replace(member, rules=rules, neighbor=neighbor_with_namespaces(member.neighbor, select))


def selectors_of(pod: PodInfo) -> Iterator[LabelMatch]:
    """Yield the selectors of namespaces that the rules of a pod have, before they are named."""
    member = pod.member or pod.ungated
    terms = [one.term for one in member.rules.unresolved] if member else []
    terms += pod.usage.neighbor.unresolved if pod.usage else ()
    for term in terms:
        if term.pods.by_labels is not None:
            yield term.pods.by_labels
