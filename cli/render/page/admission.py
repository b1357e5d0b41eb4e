"""What admission said of the pods: those denied and how to mend them, warnings, profiles."""

from collections.abc import Iterator, Sequence

from cli.analysis.simulation import PodResult
from cli.render.output import sentence
from cli.render.page.markup import Markup, element, name, together
from cluster.finding import Finding
from webhook.outcome import Verdict

NAMES = 12
"""So many pods with the same findings are named."""


def admission_sections(pods: Sequence[PodResult]) -> Markup:
    """Return what admission found and added; nothing of pods of which it said nothing."""
    denied = [pod for pod in pods if is_denied(pod)]
    doubtful = [pod for pod in pods if not is_denied(pod) and pod.applicant.outcome.findings]
    added = list(_added(pods))
    return together(
        element("h2", "Denied", id="denied") if denied else None,
        _alike(denied, element("span", "✕ denied", class_="status bad")),
        element("h2", "Admitted with warnings") if doubtful else None,
        _alike(doubtful, element("span", "! warning", class_="status")),
        element("h2", "Added by profiles") if added else None,
        element("div", element("ul", added, class_="rows"), class_="card") if added else None,
    )


def is_denied(pod: PodResult) -> bool:
    """Tell whether admission refused a pod."""
    return pod.applicant.outcome.verdict is Verdict.DENIED


def _alike(pods: Sequence[PodResult], status: Markup) -> Iterator[Markup]:
    """Yield one card for all pods with the same findings, such as those of one workload."""
    groups: dict[tuple[Finding, ...], list[PodResult]] = {}
    for pod in pods:
        groups.setdefault(pod.applicant.outcome.findings, []).append(pod)
    for findings, group in groups.items():
        head = element("div", element("h3", names(group)), status, class_="head")
        yield element("article", head, map(_finding, findings), class_="card")


def names(pods: Sequence[PodResult]) -> Markup:
    """Return the names of pods, the first of them where they are many."""
    shown = [name(pod.applicant.pod.metadata.name) for pod in pods[:NAMES]]
    more = f" and {len(pods) - NAMES} more" if len(pods) > NAMES else None
    return together([(", ", one) if place else one for place, one in enumerate(shown)], more)


def _finding(finding: Finding) -> Markup:
    return element(
        "div",
        element("p", element("b", finding.code.value), " ", sentence(finding.message)),
        element("p", "Fix: ", sentence(finding.fix)),
        element("p", finding.field, class_="mono quiet"),
        class_="finding",
    )


def _added(pods: Sequence[PodResult]) -> Iterator[Markup]:
    """Yield what each profile added, with the pods to which it did."""
    found: dict[tuple[str, str, str], list[PodResult]] = {}
    for pod in pods:
        for trace in pod.applicant.outcome.profiles:
            for place, value in trace.added.items():
                found.setdefault((trace.name, place, value), []).append(pod)
    for (profile, place, value), group in found.items():
        yield element(
            "li",
            element("b", name(profile)),
            element("span", "to ", names(group)),
            element("span", f"{place} = {value}", class_="mono quiet where"),
        )
