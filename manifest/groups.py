"""Expand JobSet and LeaderWorkerSet into the pod templates of their controllers.

Sources: kubernetes-sigs/jobset `api/jobset/v1alpha2` and `pkg/controllers` at v0.8;
kubernetes-sigs/lws `api/leaderworkerset/v1` and `pkg` at v0.6.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate

from cluster import keys
from cluster.gang import gang_mark
from manifest.template import (
    Head,
    Marks,
    PodTemplate,
    Stamp,
    batch_labels,
    is_placed,
    number_of,
)
from manifest.value import Value


def job_set(job: Head) -> tuple[PodTemplate, ...]:
    """Return the templates of a JobSet's replicated Jobs."""
    replicated = job.spec.listed("replicatedJobs")
    counts = [number_of(one, "replicas", 1) for one in replicated]
    firsts = accumulate(counts, initial=0)
    made = [_replicated(job, one, first) for one, first in zip(replicated, firsts, strict=False)]
    templates = tuple(made)
    policy = job.spec.child("startupPolicy")
    order = policy.child("startupPolicyOrder") if policy else None
    depends = any(one.child("dependsOn") is not None for one in replicated)
    if not depends and (order is None or order.text() != "InOrder"):
        return templates
    return _ordered(templates)


def leader_worker_set(job: Head) -> tuple[PodTemplate, ...]:
    """Return the leaders' and the workers' templates of a LeaderWorkerSet."""
    group = job.spec.need("leaderWorkerTemplate")
    groups, size = number_of(job.spec, "replicas", 1), number_of(group, "size", 1)
    workers = group.need("workerTemplate")

    def stamp(part: int, first: int) -> Stamp:
        def marks(index: int) -> Marks:
            number, worker = index // part, first + index % part
            labels = {
                keys.LWS_NAME: job.name,
                keys.LWS_GROUP_INDEX: str(number),
                keys.LWS_WORKER_INDEX: str(worker),
            }
            name = f"{job.name}-{number}" + (f"-{worker}" if worker else "")
            return Marks(name, labels, {keys.LWS_SIZE: str(size)})

        return marks

    leader = group.child("leaderTemplate") or workers
    templates = [job.template(leader, "leader", groups, stamp(1, 0))]
    if size > 1:
        part = size - 1
        templates.append(job.template(workers, "worker", groups * part, stamp(part, 1)))
    owners = (job.made("StatefulSet", "apps/v1", job.name), job.owner)
    # Each group is a gang.
    members = sum(one.replicas // groups for one in templates if groups and is_placed(one))
    made = tuple(
        replace(one, owners=owners, workload=replace(one.workload, members=members))
        for one in templates
    )
    policy = job.spec.child("startupPolicy")
    waits = policy is not None and policy.text() == "LeaderReady"
    return _ordered(made) if waits else made


def _replicated(job: Head, written: Value, first: int) -> PodTemplate:
    """Return the template of one replicated Job.

    Args:
        job: The JobSet.
        written: The replicated Job.
        first: Number of Jobs of the replicated Jobs before it.
    """
    name, spec = written.need("name").text(), written.need("template").need("spec")
    parallelism = number_of(spec, "parallelism", 1)
    each = min(parallelism, number_of(spec, "completions", parallelism))

    def stamp(index: int) -> Marks:
        number, completion = index // max(each, 1), index % max(each, 1)
        made = f"{job.name}-{name}-{number}"
        labels = {
            keys.JOBSET_NAME: job.name,
            keys.JOBSET_REPLICATED_JOB: name,
            keys.JOBSET_JOB_INDEX: str(number),
            keys.JOBSET_GLOBAL_INDEX: str(first + number),
            keys.JOB_COMPLETION_INDEX: str(completion),
            **batch_labels(made),
        }
        return Marks(f"{made}-{completion}", labels)

    count = number_of(written, "replicas", 1) * each
    template = job.template(spec.need("template"), name, count, stamp)
    return replace(template, owners=(job.made("Job", "batch/v1", f"{job.name}-{name}"), job.owner))


def _gang(template: PodTemplate) -> str | None:
    """Return the gang of the first pod of a template, "" without a mark; None without GPUs."""
    if not template.replicas or not is_placed(template):
        return None
    mark, _ = gang_mark(template.read(template.pod()))
    return mark.name if mark else ""


def _ordered(templates: Iterable[PodTemplate]) -> tuple[PodTemplate, ...]:
    """Mark the templates of each gang as ordered whose parts start one after the other."""
    gangs = [(template, _gang(template)) for template in templates]
    parts = Counter(gang for _, gang in gangs if gang is not None)
    return tuple(
        replace(template, workload=replace(template.workload, ordered=parts[gang] > 1))
        if gang is not None
        else template
        for template, gang in gangs
    )
