"""Judges pod templates from files: their admission, and with a cluster their placement. Pure."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec
from msgspec import structs

from linkwise.admission.decide.outcome import Outcome
from linkwise.admission.dry_run.fit_template import fit_template
from linkwise.admission.dry_run.pod_report import finding_report, pod_report
from linkwise.cluster.gang import gang_mark, is_member
from linkwise.cluster.objects.priority_class import prioritized
from linkwise.cluster.requests.other_systems import CLAIMED_DEVICES
from linkwise.cluster.whatif_api import MAX_PODS, FitRequest, FitTemplate
from linkwise.manifest.template import PodTemplate
from linkwise.views.analysis.check_report import CheckReport, TemplateReport
from linkwise.views.analysis.gang_sizes import MarkedTemplate, different_sizes
from linkwise.views.files.inputs import Inputs, admit_pod
from linkwise.views.files.objects import Plain

_DEPENDS = (
    "with placement.templates: auto, Linkwise allocates the claims of these pods where GPUs of a "
    "claims node satisfy them; name the nodes by --cluster to know."
)

Progress: TypeAlias = Callable[[Sequence[PodTemplate]], Iterable[PodTemplate]]


def judge(inputs: Inputs, progress: Progress, clock: float) -> CheckReport:
    """Judge each pod template; with a cluster, find a place for its pods.

    Args:
        inputs: Manifests, policy and cluster.
        progress: Yields the templates, and shows how many are judged.
        clock: The time [s since 1970].
    """
    reports: list[Plain] = []
    templates: list[FitTemplate | None] = []
    members: list[MarkedTemplate] = []
    unknown: list[str] = []
    for template in progress(inputs.templates):
        pod = template.pod()
        typed = template.read(pod)
        outcome = admit_pod(inputs, template, typed)
        report = pod_report(template, pod, typed, outcome)
        if _depends_on_nodes(inputs, report):
            report["others"] = None
            unknown.append(f"{template.source}: {_DEPENDS}")
        reports.append(report)
        templates.append(_to_place(inputs, template, report, outcome))
        mark, _ = gang_mark(typed)
        if mark and is_member(typed, outcome.request, mark):
            members.append(MarkedTemplate(template, mark, len(reports) - 1))
    for place, finding in different_sizes(members):
        reports[place]["findings"].append(finding_report(finding, inputs.templates[place]))
    fits, notes = _fits(inputs, templates, clock)
    for report, fit in zip(reports, fits, strict=True):
        report["placement"] = fit
    return CheckReport(
        items=msgspec.convert(reports, tuple[TemplateReport, ...]),
        unjudged=inputs.unjudged,
        warnings=inputs.warnings,
        notes=(*unknown, *notes),
    )


def _to_place(
    inputs: Inputs, template: PodTemplate, report: Plain, outcome: Outcome
) -> FitTemplate | None:
    found = fit_template(template, report["patched"], outcome)
    return found and structs.replace(found, pod=prioritized(found.pod, inputs.classes))


def _depends_on_nodes(inputs: Inputs, report: Plain) -> bool:
    """Return whether nodes decide if Linkwise allocates the claims of a pod, and none is known."""
    is_auto = inputs.policy.policy.placement.templates == "auto"
    return is_auto and inputs.cluster is None and report["others"] == CLAIMED_DEVICES


def _fits(
    inputs: Inputs, templates: list[FitTemplate | None], clock: float
) -> tuple[list[object], tuple[str, ...]]:
    """Return where each template's pods would go, as JSON; and a note where this is not known."""
    request = FitRequest([template for template in templates if template])
    if inputs.cluster is None or not request.templates:
        return [None] * len(templates), ()
    if request.pods > MAX_PODS:
        note = f"placement is not known: of more than {MAX_PODS} pods, ask linkwise simulate."
        return [None] * len(templates), (note,)
    # Placement costs 0.3 s to import; a check without a cluster needs none.
    from linkwise.views.analysis.fit import fit_results  # noqa: PLC0415

    results = fit_results(inputs, inputs.cluster, request, clock)
    fits = iter(msgspec.to_builtins(results))
    return [next(fits) if template else None for template in templates], ()
