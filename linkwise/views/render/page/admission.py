"""The sections of a page about admission: denied pods with fixes, warnings, profiles."""

from collections.abc import Iterator, Sequence

from linkwise.cluster.finding import Finding
from linkwise.views.analysis.simulation import PodResult, PodState
from linkwise.views.output.printer import sentence
from linkwise.views.render.page.markup import Markup, element, name, together

NAMES = 12
"""The number of pods with equal findings that are named."""


def admission_sections(pods: Sequence[PodResult]) -> Markup:
    """Return the findings of admission and the additions of profiles."""
    denied = [pod for pod in pods if pod.state is PodState.DENIED]
    others = [pod for pod in pods if pod.state is not PodState.DENIED]
    with_warnings = [pod for pod in others if pod.admitted.outcome.findings]
    added = list(_added(pods))
    return together(
        element("h2", "Denied", id="denied") if denied else None,
        _cards(denied, element("span", "✕ denied", class_="status bad")),
        element("h2", "Admitted with warnings") if with_warnings else None,
        _cards(with_warnings, element("span", "! warning", class_="status")),
        element("h2", "Added by profiles") if added else None,
        element("div", element("ul", added, class_="rows"), class_="card") if added else None,
    )


def _cards(pods: Sequence[PodResult], status: Markup) -> Iterator[Markup]:
    """Yield one card for all pods with equal findings, such as those of one workload."""
    groups: dict[tuple[Finding, ...], list[PodResult]] = {}
    for pod in pods:
        groups.setdefault(pod.admitted.outcome.findings, []).append(pod)
    for findings, group in groups.items():
        head = element("div", element("h3", names(group)), status, class_="head")
        yield element("article", head, map(_finding, findings), class_="card")


def names(pods: Sequence[PodResult]) -> Markup:
    """Return the names of pods; of many, the first ones."""
    shown = [name(pod.name) for pod in pods[:NAMES]]
    more = f" and {len(pods) - NAMES} more" if len(pods) > NAMES else None
    return together([(", ", each) if number else each for number, each in enumerate(shown)], more)


def _finding(finding: Finding) -> Markup:
    return element(
        "div",
        element("p", element("b", finding.code.value), " ", sentence(finding.message)),
        element("p", "Fix: ", sentence(finding.fix)),
        element("p", finding.field, class_="mono quiet"),
        class_="finding",
    )


def _added(pods: Sequence[PodResult]) -> Iterator[Markup]:
    """Yield the fields that each profile added, with the pods."""
    groups: dict[tuple[str, str, str], list[PodResult]] = {}
    for pod in pods:
        for trace in pod.admitted.outcome.profiles:
            for field, value in trace.added.items():
                groups.setdefault((trace.name, field, value), []).append(pod)
    for (profile, field, value), group in groups.items():
        yield element(
            "li",
            element("b", name(profile)),
            element("span", "to ", names(group)),
            element("span", f"{field} = {value}", class_="mono quiet where"),
        )
