"""The pods that manifests create, each admitted as by the webhook. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from jsonpatch import JsonPatch
from msgspec import json, structs

from linkwise.cluster.objects.priority_class import prioritized
from linkwise.manifest.template import PodTemplate
from linkwise.manifest.value import InputError
from linkwise.views.analysis.simulation import AdmittedPod
from linkwise.views.files.inputs import Inputs, admit_pod

_PODS_MAX = 100_000
"""Pods that are created at once: ten times as many as `docs/benchmarks.md` measures."""


def number_of_pods(templates: Sequence[PodTemplate]) -> int:
    """Return the number of pods.

    Raises:
        InputError: There are more than `_PODS_MAX`.
    """
    total = sum(template.replicas for template in templates)
    if total > _PODS_MAX:
        largest = max(templates, key=lambda template: template.replicas)
        message = f"{total} pods: simulate creates at most {_PODS_MAX} at once."
        raise InputError(f"{largest.source}: {message}")
    return total


def created_pods(inputs: Inputs) -> Iterator[AdmittedPod]:
    """Yield the pods of all templates, in the order of the files."""
    for template in inputs.templates:
        yield from _admit(inputs, template)


def _admit(inputs: Inputs, template: PodTemplate) -> Iterator[AdmittedPod]:
    """Yield the pods of a template; pods that differ in name only are admitted once."""
    admitted, marks = None, None
    for index in range(template.replicas):
        name, *own_marks = template.stamp(index)
        if admitted is None or own_marks != marks:
            admitted, marks = _admit_one(inputs, template, index), own_marks
        metadata = structs.replace(admitted.pod.metadata, name=name)
        yield replace(admitted, pod=structs.replace(admitted.pod, metadata=metadata))


def _admit_one(inputs: Inputs, template: PodTemplate, index: int) -> AdmittedPod:
    raw = template.pod(index)
    outcome = admit_pod(inputs, template, template.read(raw))
    patch = JsonPatch([step.wire() for step in outcome.patch])
    # The pod shares parts with its template. A copy through JSON is ten times as fast as deepcopy.
    patched = patch.apply(json.decode(json.encode(raw)), in_place=True)
    return AdmittedPod(
        pod=prioritized(template.read(patched), inputs.classes),
        namespace=template.namespace,
        outcome=outcome,
        workload=template.workload,
        owner=template.owners[-1].uid if template.owners else "",
    )
