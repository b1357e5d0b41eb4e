"""Build the request to the scorer's fit API for the pods of a template."""

from typing import Any

from linkwise.admission.decide.outcome import Outcome, Verdict
from linkwise.cluster.requests.other_systems import gpus_of_others
from linkwise.cluster.whatif_api import MAX_PODS, FitTemplate
from linkwise.manifest.template import PodTemplate


def fit_template(template: PodTemplate, patched: Any, outcome: Outcome) -> FitTemplate | None:  # noqa: ANN401 - JSON.
    """Return the template to place; None if it is denied, has no GPUs of ours, or has no pods.

    Args:
        template: The pod template.
        patched: One of its pods after admission.
        outcome: Admission outcome of the pod.
    """
    family = outcome.request.family
    if outcome.verdict is Verdict.DENIED or family is None:
        return None
    pod = template.read(patched)
    if gpus_of_others(pod.spec, family):
        return None
    # Requests for more pods are refused; the exact number is not needed.
    count = min(template.replicas, MAX_PODS + 1)
    if not count:
        return None
    marks = [template.stamp(i) for i in range(count)]
    labels = [dict(mark.labels.items() - marks[0].labels.items()) for mark in marks]
    return FitTemplate(
        pod=pod,
        names=[mark.name for mark in marks],
        owner=template.owners[-1].uid if template.owners else "",
        members=template.workload.members,
        starts_with=template.workload.sufficient,
        labels=labels if any(labels) else [],
    )
