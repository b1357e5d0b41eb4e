"""What placement is asked about the pods of a template."""

from typing import Any

from cluster.other_systems import gpus_of_others
from cluster.whatif_api import MOST_PODS, FitTemplate
from manifest.template import PodTemplate
from webhook.outcome import Outcome, Verdict


def fit_template(template: PodTemplate, patched: Any, outcome: Outcome) -> FitTemplate | None:  # noqa: ANN401 - JSON.
    """Return what to ask; None where no place is looked for: denied, no known GPUs, or no pods.

    Args:
        template: Where the pods come from.
        patched: One of them, as admission leaves it.
        outcome: What admission makes of it.
    """
    family = outcome.request.family
    if outcome.verdict is Verdict.DENIED or family is None:
        return None
    pod = template.read(patched)
    if gpus_of_others(pod.spec, family):
        return None
    # More are refused, however many they are.
    count = min(template.replicas, MOST_PODS + 1)
    if not count:
        return None
    return FitTemplate(
        pod=pod,
        names=[template.stamp(i).name for i in range(count)],
        owner=template.owners[-1].uid if template.owners else "",
        members=template.workload.members,
    )
