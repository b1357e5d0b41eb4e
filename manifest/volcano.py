"""Expand Volcano's Job into the pod templates of its tasks.

Source: volcano-sh/volcano `pkg/controllers/job` at v1.15, volcano-sh/apis `batch/v1alpha1`.
"""

from dataclasses import replace

from manifest.template import Head, PodTemplate, is_placed, number_of, numbered
from manifest.value import Value

_SCHEDULER = "volcano"


def volcano_job(job: Head) -> tuple[PodTemplate, ...]:
    """Return the templates of the tasks; their scheduler is Volcano's unless they name another."""
    named = job.spec.child("schedulerName")
    scheduler = named.text() if named else _SCHEDULER
    tasks = job.spec.listed("tasks")
    templates = [_task(job, task, index, scheduler) for index, task in enumerate(tasks)]
    placed = [template for template in templates if template.replicas and is_placed(template)]
    members = sum(template.replicas for template in placed)
    least = number_of(job.spec, "minAvailable", 0)
    depends = any(task.child("dependsOn") is not None for task in tasks)
    ordered = depends and len(placed) > 1
    members = min(members, least) if least else members
    return tuple(
        replace(one, workload=replace(one.workload, members=members, ordered=ordered))
        for one in templates
    )


def _task(job: Head, task: Value, index: int, scheduler: str) -> PodTemplate:
    written = task.child("name")
    name = written.text() if written else f"default{index}"
    replicas = number_of(task, "replicas", 1)
    stamp = numbered(f"{job.name}-{name}", {})
    template = job.template(task.need("template"), name, replicas, stamp)
    return replace(template, scheduler=scheduler)
