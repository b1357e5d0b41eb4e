"""Expand workloads into the pod templates of their controllers."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from msgspec import Struct

from cluster import keys
from manifest import groups, kubeflow, ray, volcano
from manifest.guessed import TEMPLATES_MAX, guessed_templates
from manifest.misplaced import misplaced
from manifest.template import (
    Head,
    Marks,
    PodTemplate,
    batch_labels,
    number_of,
    numbered,
    ordinal,
    placed_request,
)
from manifest.unknown_fields import unknown_fields
from manifest.value import InputError, Value

NO_PODS = "no pods are described in these files; name Pods or workloads."
"""The warning if no object has a pod template."""


class Unjudged(Struct, frozen=True, rename={"api_version": "apiVersion"}):
    """An object of an unknown kind, which may create pods."""

    source: str
    """`file:line`."""
    api_version: str
    kind: str
    name: str
    """Empty if it has none."""
    reason: str

    @property
    def sentence(self) -> str:
        """One line for people."""
        return f"{self.source}: {self.kind} ({self.api_version}) {self.reason}."


class Expansion(NamedTuple):
    """Pod templates of some objects."""

    templates: tuple[PodTemplate, ...]
    unjudged: tuple[Unjudged, ...]
    """Objects of unknown kinds that may create pods."""
    warnings: tuple[str, ...]
    """Assumptions about the other objects."""
    invalid: tuple[str, ...]
    """Why the API of Kubernetes would reject the rest: a line for each object."""


def expanded(objects: Iterable[Value], namespace: str) -> Expansion:
    """Return the pod templates of objects, the objects of unknown kinds, and invalid objects.

    Args:
        objects: Kubernetes objects.
        namespace: The namespace of objects that name none.
    """
    templates: list[PodTemplate] = []
    unjudged: list[Unjudged] = []
    invalid: list[str] = []
    without_effect: list[str] = []
    for value in objects:
        try:
            made, left_out = _templates_or_guesses(value, namespace)
            for template in made:
                template.read(template.pod())
        except InputError as error:
            invalid.append(str(error))
        else:
            templates += made
            unjudged += left_out
            for one in made:
                without_effect += misplaced(value, one)
                if not one.is_guessed:
                    without_effect += unknown_fields(value, one)
    warnings = [f"{one.value.source}: {one.note}." for one in templates if one.note]
    warnings += dict.fromkeys(without_effect)
    return Expansion(tuple(templates), tuple(unjudged), tuple(warnings), tuple(invalid))


def _templates_or_guesses(
    value: Value, namespace: str
) -> tuple[tuple[PodTemplate, ...], tuple[Unjudged, ...]]:
    """Return the pod templates of one object; and itself, as far as it is not judged."""
    made = templates_of(value, namespace)
    if made is not None:
        return made, ()
    if not may_make_pods(value):
        return (), ()
    guessed = guessed_templates(value, namespace)
    if not guessed:
        return (), (_unjudged(value, "was not looked at"),)
    if len(guessed) <= TEMPLATES_MAX:
        return guessed, ()
    reason = f"was looked at in part: it has more than {TEMPLATES_MAX} pod templates"
    return guessed[:TEMPLATES_MAX], (_unjudged(value, reason),)


def _unjudged(value: Value, reason: str) -> Unjudged:
    version, kind = value.need("apiVersion").text(), value.need("kind").text()
    metadata = value.child("metadata")
    name = metadata.mapping().get("name") if metadata else None
    return Unjudged(value.source, version, kind, str(name or ""), reason)


def templates_of(document: Value, namespace: str) -> tuple[PodTemplate, ...] | None:
    """Return the pod templates of a document; None if its kind is unknown here.

    Args:
        document: A Kubernetes object.
        namespace: Its namespace if it names none.

    Raises:
        InputError: The API of the workload would reject it.
    """
    api_version, kind = document.need("apiVersion").text(), document.need("kind").text()
    group = api_version.rpartition("/")[0]
    expand = _EXPANSIONS.get((group, kind)) or _EXPANSIONS.get((api_version, kind))
    if expand is None:
        return None
    templates = expand(Head.of(document, namespace))
    return _with_members(templates) if kind in _SIZED else templates


def may_make_pods(document: Value) -> bool:
    """Return whether a document of a kind that is not expanded here may create pods.

    Built-in kinds do not; any other kind may.
    """
    group = document.need("apiVersion").text().rpartition("/")[0]
    is_kubernetes = "." not in group or (group.endswith(".k8s.io") and ".x-k8s." not in group)
    return not is_kubernetes and group != keys.API_VERSION.partition("/")[0]


def _with_members(templates: tuple[PodTemplate, ...]) -> tuple[PodTemplate, ...]:
    """Return templates with the number of GPU pods that their workload declares."""
    if any(template.workload.members is not None for template in templates):
        return templates
    placed = [(each, request) for each in templates if (request := placed_request(each))]
    asked = [request for template, request in placed if not template.is_late]
    members = sum(
        template.replicas
        for template, request in placed
        if not template.is_late or any(map(request.is_part_of, asked))
    )
    return tuple(
        replace(template, workload=replace(template.workload, members=members))
        for template in templates
    )


def _pod(job: Head) -> tuple[PodTemplate, ...]:
    template = job.template(job.document, None, 1, lambda _: Marks(job.name))
    return (replace(template, owners=()),)


def _deployment(job: Head) -> tuple[PodTemplate, ...]:
    (template,) = _replica_set(job)
    made = job.made("ReplicaSet", "apps/v1", job.name)
    return (replace(template, owners=(made, job.owner)),)


def _replica_set(job: Head) -> tuple[PodTemplate, ...]:
    replicas = number_of(job.spec, "replicas", 1)
    return (job.template(job.spec.need("template"), None, replicas, numbered(job.name, {})),)


def _stateful_set(job: Head) -> tuple[PodTemplate, ...]:
    replicas = number_of(job.spec, "replicas", 1)
    template = job.template(job.spec.need("template"), None, replicas, ordinal(job.name, {}))
    management = job.spec.child("podManagementPolicy")
    ordered = management is None or management.text() != "Parallel"
    return (replace(template, workload=replace(template.workload, ordered=ordered)),)


def _daemon_set(job: Head) -> tuple[PodTemplate, ...]:
    template = job.template(job.spec.need("template"), None, 1, numbered(job.name, {}))
    note = "a DaemonSet makes one pod a node; one stands here for all"
    return (replace(template, note=note),)


def _batch_job(job: Head) -> tuple[PodTemplate, ...]:
    return _run(job, job.spec, job.name)


def _cron_job(job: Head) -> tuple[PodTemplate, ...]:
    name = f"{job.name}-xxxxx"
    (template,) = _run(job, job.spec.need("jobTemplate").need("spec"), name)
    note = "a CronJob makes these pods at each time of its schedule; one run stands here for all"
    return (replace(template, owners=(job.made("Job", "batch/v1", name), job.owner), note=note),)


def _run(job: Head, spec: Value, name: str) -> tuple[PodTemplate, ...]:
    """Return the template of a batch Job.

    Args:
        job: The Job, or the object that makes it.
        spec: The Job's spec.
        name: The Job's name.
    """
    parallelism = number_of(spec, "parallelism", 1)
    completions = number_of(spec, "completions", parallelism)
    mode = spec.child("completionMode")
    labels = batch_labels(name)

    def indexed(index: int) -> Marks:
        own = {keys.JOB_COMPLETION_INDEX: str(index)}
        return Marks(f"{name}-{index}", {**labels, **own}, own)

    stamp = indexed if mode and mode.text() == "Indexed" else numbered(name, labels)
    replicas = min(parallelism, completions)
    template = job.template(spec.need("template"), None, replicas, stamp)
    fails = not _ignores_disruption(spec)
    return (replace(template, workload=replace(template.workload, fails_when_evicted=fails)),)


def _ignores_disruption(spec: Value) -> bool:
    """Return whether the podFailurePolicy of the Job ignores evicted pods."""
    policy = spec.child("podFailurePolicy")
    for rule in policy.listed("rules") if policy else ():
        action = rule.child("action")
        if action is None or action.plain != "Ignore":
            continue
        for condition in rule.listed("onPodConditions"):
            kind = condition.child("type")
            if kind is not None and kind.plain == "DisruptionTarget":
                return True
    return False


_SIZED = {
    "CronJob",
    "Job",
    "JobSet",
    "MPIJob",
    "PyTorchJob",
    "RayCluster",
    "RayJob",
    "RayService",
    "TFJob",
}
"""Workloads whose templates together are one gang, if any."""

_EXPANSIONS: Mapping[tuple[str, str], Callable[[Head], tuple[PodTemplate, ...]]] = {
    ("", "Pod"): _pod,
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replica_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("apps", "DaemonSet"): _daemon_set,
    ("", "ReplicationController"): _replica_set,
    ("batch", "Job"): _batch_job,
    ("batch", "CronJob"): _cron_job,
    ("jobset.x-k8s.io", "JobSet"): groups.job_set,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): groups.leader_worker_set,
    ("batch.volcano.sh", "Job"): volcano.volcano_job,
    ("ray.io", "RayCluster"): ray.ray_cluster,
    ("ray.io", "RayJob"): ray.ray_job,
    ("ray.io", "RayService"): ray.ray_service,
    ("kubeflow.org", "PyTorchJob"): kubeflow.pytorch_job,
    ("kubeflow.org", "TFJob"): kubeflow.tf_job,
    ("kubeflow.org/v1", "MPIJob"): kubeflow.mpi_job_v1,
    ("kubeflow.org/v2beta1", "MPIJob"): kubeflow.mpi_job_v2,
    ("kubeflow.org/v1alpha1", "MPIJob"): kubeflow.mpi_job_v1alpha1,
}
