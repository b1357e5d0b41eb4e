"""Validate the ACS class, quality of service, GPU model, driver and GPU count of a pod."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from linkwise.cluster.finding import Code, Finding, Severity, quoted
from linkwise.cluster.keys import (
    COMPUTE_CLASS,
    COMPUTE_QOS,
    DRIVER_VERSION,
    MODEL_SERIES,
    NVIDIA_GPU,
)
from linkwise.cluster.objects.pod import NewPodSpec
from linkwise.cluster.objects.selector import required_values
from linkwise.cluster.requests.request import Family, Request
from linkwise.policy.models import SHIPPED, Catalogue, Model

__all__ = ["CLASS_LABELS", "SHIPPED", "Catalogue", "Model", "check_class"]

GENERAL_PURPOSE, PERFORMANCE, GPU, GPU_HPN = CLASSES = (
    "general-purpose",
    "performance",
    "gpu",
    "gpu-hpn",
)
CLASS_LABELS = frozenset((COMPUTE_CLASS, COMPUTE_QOS, MODEL_SERIES, DRIVER_VERSION))
"""Labels that `check_class` reads."""
DEFAULT_QOS, BEST_EFFORT = QOS = ("default", "best-effort")
_LONGEST_WORD = 63
"""Maximum length of a label value. A review can exceed it: admission precedes validation."""
PLACEHOLDER = "example-model"
"""The placeholder model of the example in ACS's documentation, which people paste."""


class _Choice(NamedTuple):
    """A field of a pod that selects a model or a driver."""

    field: str
    values: Sequence[str]
    """Alternatives."""


def check_class(
    labels: Mapping[str, str],
    spec: NewPodSpec,
    request: Request,
    catalogue: Catalogue,
    *,
    strict: bool = True,
) -> tuple[Finding, ...]:
    """Return the findings about the ACS class of a pod, its GPU model and its driver.

    Model and driver are checked for every class, in the labels and in nodeSelector and required
    node affinity: an unknown name is always a mistake.

    Args:
        labels: Labels of the pod after profiles.
        spec: Spec of the pod.
        request: The GPU request of the pod; for class `gpu` its `nvidia.com/gpu` are counted.
        catalogue: The known models.
        strict: Unknown models and drivers are errors, else warnings. Class and quality of service
            are words of the protocol: an unknown one is always an error.

    Cost: linear in the labels, terms and values that name a model or a driver.
    """
    severity = Severity.ERROR if strict else Severity.WARNING
    models, drivers = _choices(labels, spec, MODEL_SERIES), _choices(labels, spec, DRIVER_VERSION)
    findings = [*_words(labels)]
    for choice in models:
        findings += _unknown_model(choice, catalogue, severity)
    if drivers:
        found = (catalogue.find(name) for one in models for name in one.values)
        known = tuple(dict.fromkeys(model for model in found if model))
        for choice in drivers:
            findings += _driver(choice, known, catalogue, severity)
    findings += _contradictions(labels, models, MODEL_SERIES, catalogue)
    findings += _contradictions(labels, drivers, DRIVER_VERSION, catalogue)
    if labels.get(COMPUTE_CLASS) == GPU:
        model = catalogue.find(labels.get(MODEL_SERIES, ""))
        if MODEL_SERIES not in labels:
            findings.append(_no_model(catalogue))
        elif model and _is_nvidias(request):
            findings += _count(request, model, severity)
    return tuple(findings)


def _is_nvidias(request: Request) -> bool:
    """Return whether a request for whole GPUs or replicas is under NVIDIA's resource names."""
    is_whole = request.family is Family.WHOLE and request.resource == NVIDIA_GPU
    return is_whole or request.family is Family.NVIDIA


def _choices(labels: Mapping[str, str], spec: NewPodSpec, key: str) -> list[_Choice]:
    """Return the fields that select the value of a key: the label first, then node requirements."""
    on_nodes = [_Choice(*one) for one in required_values(spec, key)]
    return [_Choice(_label(key), (labels[key],)), *on_nodes] if key in labels else on_nodes


def _label(key: str) -> str:
    return f"metadata.labels[{key}]"


def _words(labels: Mapping[str, str]) -> Iterator[Finding]:
    compute_class = labels.get(COMPUTE_CLASS, GENERAL_PURPOSE)
    qos = labels.get(COMPUTE_QOS, DEFAULT_QOS)
    if compute_class not in CLASSES:
        message = f"{quoted(compute_class)} is no compute class: it is one of {', '.join(CLASSES)}"
        yield _finding(
            Code.CLASS,
            COMPUTE_CLASS,
            compute_class,
            message,
            _nearest(compute_class, CLASSES) or _one_of(CLASSES),
        )
    if qos not in QOS:
        message = f"{quoted(qos)} is no compute QoS: it is one of {', '.join(QOS)}"
        yield _finding(Code.QOS, COMPUTE_QOS, qos, message, _nearest(qos, QOS) or _one_of(QOS))
    elif qos == BEST_EFFORT and compute_class == GPU_HPN:
        message = f"class {GPU_HPN} runs on reserved nodes and knows QoS {DEFAULT_QOS} only"
        fix = f"leave the label out, write {DEFAULT_QOS}, or choose class {GPU}"
        yield _finding(Code.QOS, COMPUTE_QOS, qos, message, fix)


def _unknown_model(choice: _Choice, catalogue: Catalogue, severity: Severity) -> Iterator[Finding]:
    name = next((one for one in choice.values if catalogue.find(one) is None), None)
    if name is None:
        return
    what = f"{quoted(name)} is no GPU model of the catalogue"
    if name == PLACEHOLDER:
        what = f"{quoted(name)} is the placeholder of ACS's documentation, no GPU model"
    message = f"{what}: known are {catalogue.titles}"
    fix = _nearest(name, catalogue.names) or "write a model of the list"
    yield Finding(Code.MODEL, severity, choice.field, name, message, fix)


def _driver(
    choice: _Choice, models: Sequence[Model], catalogue: Catalogue, severity: Severity
) -> Iterator[Finding]:
    """Yield a finding for a version that none of the selected models supports."""
    drivers = [catalogue.drivers(model) for model in models or (None,)]
    known = tuple(dict.fromkeys(one for some in drivers for one in some))
    version = next((one for one in choice.values if one not in known), None)
    if version is None or not all(drivers):
        return
    names = [model.name for model in models]
    message = (
        f"{quoted(version)} is no driver version of {' or '.join(names) or 'any GPU model'}: "
        f"known are {', '.join(known)}"
    )
    fix = _nearest(version, known) or "write a version of the list"
    default = models[0].default if len(names) == 1 else None
    if default and default not in fix:
        fix += f", or leave the label out for {default}"
    yield Finding(Code.DRIVER, severity, choice.field, version, message, fix)


def _contradictions(
    labels: Mapping[str, str], choices: Sequence[_Choice], key: str, catalogue: Catalogue
) -> Iterator[Finding]:
    """Yield an error for each node requirement that contradicts the label of the pod."""
    wanted = labels.get(key)
    if wanted is None:
        return
    same = catalogue.find(wanted)
    for choice in choices:
        if wanted in choice.values or (same and same in map(catalogue.find, choice.values)):
            continue
        yield Finding(
            Code.MODEL_CONTRADICTS,
            Severity.ERROR,
            choice.field,
            choice.values[0],
            f"the pod's label {key} asks for {quoted(wanted)}, but its nodes must have "
            f"{quoted(choice.values[0])}",
            "write the same value in both places, or remove one of them",
        )


def _no_model(catalogue: Catalogue) -> Finding:
    return Finding(
        Code.MODEL_MISSING,
        Severity.WARNING,
        _label(COMPUTE_CLASS),
        GPU,
        f"a pod of class {GPU} must name its GPU model by the label {MODEL_SERIES}",
        f"add the label with one of {catalogue.titles}",
    )


def _count(request: Request, model: Model, severity: Severity) -> Iterator[Finding]:
    if request.gpus in model.counts or not model.counts:
        return
    *fewer, most = map(str, model.counts)
    counts = f"{', '.join(fewer)} or {most}" if fewer else most
    field = request.containers[0].field if request.containers else "spec.containers"
    yield Finding(
        Code.MODEL_COUNT,
        severity,
        field,
        request.gpus,
        f"{model.name} comes with {counts} GPUs a pod, and this pod asks for {request.gpus}",
        f"ask for {counts} GPUs in all, or choose another model",
    )


def _nearest(word: str, known: tuple[str, ...]) -> str:
    """Return a suggestion if the word resembles a known one, else an empty text."""
    if len(word) > _LONGEST_WORD:
        return ""
    by_folded = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), by_folded, 1, 0.75)
    return f"write {by_folded[close[0]]}" if close else ""


def _one_of(words: tuple[str, ...]) -> str:
    return f"write {', '.join(words[:-1])} or {words[-1]}"


def _finding(code: Code, key: str, value: str, message: str, fix: str) -> Finding:
    return Finding(code, Severity.ERROR, _label(key), value, message, fix)
