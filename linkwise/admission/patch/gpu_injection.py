"""Ways of the chosen GPUs of a pod into its containers, by `containers.gpuInjection` of the policy.

By the agent nothing is added here. For NVIDIA's NRI plugin the scorer writes an annotation for each
container, whose name must fit into the key. For NVIDIA's runtime the pod gets its RuntimeClass.
"""

from collections.abc import Iterator

from linkwise.admission.operations import Operation, add
from linkwise.admission.read.parsed_pod import ParsedPod
from linkwise.cluster.container_variables import ENV_VISIBLE_DEVICES
from linkwise.cluster.finding import Code, Finding, Severity
from linkwise.cluster.keys import CDI_ANNOTATION_PREFIX, NVIDIA_CDI_CONTAINER, NVIDIA_CDI_DOMAIN
from linkwise.cluster.requests.container_request import container_path
from linkwise.policy.document import Policy

_RUNTIME_CLASS = "nvidia"
"""Of NVIDIA's container runtime, as GPU Operator names it."""
_KEY_MAX = 63
"""Longest name of an annotation after its prefix [characters]."""
_NAME_MAX = _KEY_MAX - len(NVIDIA_CDI_CONTAINER.rpartition("/")[2])
_CDI_PREFIXES = (CDI_ANNOTATION_PREFIX, f"{NVIDIA_CDI_DOMAIN}/")
_SET_RUNTIME_CLASS = add("/spec/runtimeClassName", _RUNTIME_CLASS, "containers.gpuInjection")


def set_runtime_class(parsed: ParsedPod, rules: Policy) -> tuple[Operation, ...]:
    """Return the operation that sets NVIDIA's RuntimeClass, if the policy demands it.

    The pod's own RuntimeClass stays.
    """
    if rules.containers.gpu_injection != "runtimeClass" or not _is_injected(parsed):
        return ()
    return () if parsed.pod.spec.runtime_class_name else (_SET_RUNTIME_CLASS,)


def injection_findings(parsed: ParsedPod, rules: Policy) -> Iterator[Finding]:
    """Yield what keeps GPUs out of containers, and annotations that give them others."""
    if not (parsed.request.places or (parsed.mark and parsed.request.family is None)):
        return
    for key, value in parsed.pod.annotations.items():
        if key.startswith(_CDI_PREFIXES) or key == NVIDIA_CDI_DOMAIN:
            yield _annotation_finding(key, value)
    if _is_injected(parsed) and rules.containers.gpu_injection == "runtimeClass":
        name = parsed.pod.spec.runtime_class_name
        if name not in {"", _RUNTIME_CLASS}:
            yield _runtime_class_finding(name)
    if rules.containers.gpu_injection == "nri" and not parsed.request.by_claim:
        for container in parsed.request.containers:
            if len(container.container) > _NAME_MAX:
                path = f"{container_path(container.init, container.index)}.name"
                yield _name_finding(path, container.container)


def _is_injected(parsed: ParsedPod) -> bool:
    """Return whether the GPUs of a pod get into its containers by the policy's way.

    Those of a claim get there by the DRA driver.
    """
    return parsed.request.chooses_gpus and not parsed.request.by_claim


def _annotation_finding(key: str, value: str) -> Finding:
    return Finding(
        Code.CDI_ANNOTATION,
        Severity.ERROR,
        f"metadata.annotations[{key}]",
        value,
        f"annotation {key} gives containers devices that Linkwise did not choose",
        "remove the annotation: containers get their GPUs by resources.limits",
    )


def _runtime_class_finding(name: str) -> Finding:
    return Finding(
        Code.INJECTION,
        Severity.WARNING,
        "spec.runtimeClassName",
        name,
        f"by policy, GPUs reach containers by RuntimeClass {_RUNTIME_CLASS}, and this is another",
        f"remove runtimeClassName, or make sure that {name} adds the GPUs in {ENV_VISIBLE_DEVICES}",
    )


def _name_finding(path: str, name: str) -> Finding:
    return Finding(
        Code.INJECTION,
        Severity.ERROR,
        path,
        name,
        f"by policy, the GPUs of a container are in the annotation {NVIDIA_CDI_CONTAINER}<name>, "
        f"whose key has room for a name of {_NAME_MAX} characters",
        "choose a shorter name",
    )
