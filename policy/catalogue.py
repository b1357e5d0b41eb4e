"""What is wrong with a pod's ACS class, quality of service, GPU model, driver and GPU count."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from cluster.finding import Code, Finding, Severity
from cluster.keys import COMPUTE_CLASS, COMPUTE_QOS, DRIVER_VERSION, MODEL_SERIES
from cluster.request import Family, Request
from policy.models import SHIPPED, Catalogue, Model

__all__ = ["CLASS_LABELS", "SHIPPED", "Catalogue", "Model", "check_class"]

GENERAL_PURPOSE, PERFORMANCE, GPU, GPU_HPN = CLASSES = (
    "general-purpose",
    "performance",
    "gpu",
    "gpu-hpn",
)
CLASS_LABELS = frozenset((COMPUTE_CLASS, COMPUTE_QOS, MODEL_SERIES, DRIVER_VERSION))
"""What `check_class` looks at."""
DEFAULT_QOS, BEST_EFFORT = QOS = ("default", "best-effort")
PLACEHOLDER = "example-model"
"""The model in ACS's own example, which people paste."""


def check_class(
    labels: Mapping[str, str], request: Request, catalogue: Catalogue, *, strict: bool = True
) -> tuple[Finding, ...]:
    """Return what is wrong with the ACS labels of a pod.

    Model and driver are looked at whatever the class: a name that nobody knows serves none.

    Args:
        labels: The pod's, after profiles.
        request: What the pod asks for; its `nvidia.com/gpu` are counted for class `gpu`.
        catalogue: The models known.
        strict: What the catalogue does not know is an error, else a warning. Class and quality of
            service are words of the protocol: an unknown one is always an error.
    """
    severity = Severity.ERROR if strict else Severity.WARNING
    name, driver = labels.get(MODEL_SERIES), labels.get(DRIVER_VERSION)
    model = catalogue.find(name) if name is not None else None
    findings = [*_words(labels)]
    if name is not None and model is None:
        findings.append(_unknown_model(name, catalogue, severity))
    if driver is not None:
        findings += _driver(driver, model, catalogue, severity)
    if labels.get(COMPUTE_CLASS) == GPU and model and request.family is Family.NVIDIA:
        findings += _count(request, model, severity)
    return tuple(findings)


def _words(labels: Mapping[str, str]) -> Iterator[Finding]:
    compute_class = labels.get(COMPUTE_CLASS, GENERAL_PURPOSE)
    qos = labels.get(COMPUTE_QOS, DEFAULT_QOS)
    if compute_class not in CLASSES:
        message = f"{compute_class!r} is no compute class: it is one of {', '.join(CLASSES)}"
        yield _finding(Code.CLASS, COMPUTE_CLASS, compute_class, message, _one_of(CLASSES))
    if qos not in QOS:
        message = f"{qos!r} is no compute QoS: it is one of {', '.join(QOS)}"
        yield _finding(Code.QOS, COMPUTE_QOS, qos, message, _one_of(QOS))
    elif qos == BEST_EFFORT and compute_class == GPU_HPN:
        message = f"class {GPU_HPN} runs on reserved nodes and knows QoS {DEFAULT_QOS} only"
        fix = f"leave the label out, write {DEFAULT_QOS}, or choose class {GPU}"
        yield _finding(Code.QOS, COMPUTE_QOS, qos, message, fix)


def _unknown_model(name: str, catalogue: Catalogue, severity: Severity) -> Finding:
    what = f"{name!r} is no GPU model of the catalogue"
    if name == PLACEHOLDER:
        what = f"{name!r} is the placeholder of ACS's documentation, no GPU model"
    message = f"{what}: known are {catalogue.titles}"
    fix = _nearest(name, catalogue.names) or "write a model of the list"
    return _finding(Code.MODEL, MODEL_SERIES, name, message, fix, severity)


def _driver(
    version: str, model: Model | None, catalogue: Catalogue, severity: Severity
) -> Iterator[Finding]:
    known = catalogue.drivers(model)
    if version in known or not known:
        return
    whose = model.name if model else "any GPU model"
    message = f"{version!r} is no driver version of {whose}: known are {', '.join(known)}"
    fix = _nearest(version, known) or "write a version of the list"
    if model and model.default and model.default not in fix:
        fix += f", or leave the label out for {model.default}"
    yield _finding(Code.DRIVER, DRIVER_VERSION, version, message, fix, severity)


def _count(request: Request, model: Model, severity: Severity) -> Iterator[Finding]:
    if request.gpus in model.counts or not model.counts:
        return
    *fewer, most = map(str, model.counts)
    counts = f"{', '.join(fewer)} or {most}" if fewer else most
    field = request.asks[0].field if request.asks else "spec.containers"
    yield Finding(
        Code.MODEL_COUNT,
        severity,
        field,
        request.gpus,
        f"{model.name} comes with {counts} GPUs a pod, and this pod asks for {request.gpus}",
        f"ask for {counts} GPUs in all, or choose another model",
    )


def _nearest(word: str, known: tuple[str, ...]) -> str:
    """Return advice when the word looks like a slip of a known one, else nothing."""
    by_folded = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), by_folded, 1, 0.75)
    return f"write {by_folded[close[0]]}" if close else ""


def _one_of(words: tuple[str, ...]) -> str:
    return f"write {', '.join(words[:-1])} or {words[-1]}"


def _finding(
    code: Code, key: str, value: str, message: str, fix: str, severity: Severity = Severity.ERROR
) -> Finding:
    return Finding(code, severity, f"metadata.labels[{key}]", value, message, fix)
