"""Remove variables by which a container would use GPUs that its pod does not request.

NVIDIA's runtime gives a container the GPUs in `NVIDIA_VISIBLE_DEVICES`, whatever its pod requests,
unless it is configured not to. `CGPU_DISABLE` disables the limits of a cGPU node. The node is not
known at admission, and other runtimes ignore these variables, so the rule is the same for all
nodes. Variables of the image and of `envFrom` are not visible here.

Pods whose GPUs Linkwise chooses get a variable of ours instead: `device_variables`.

Source: NVIDIA Container Toolkit documentation, "Environment variables (OCI spec)"; of cGPU:
gpushare-device-plugin at 45fb8b8.
"""

from cluster.container_request import (
    all_containers,
    container_path,
    container_pointer,
    indexed_containers,
)
from cluster.finding import Code, Finding, Severity
from cluster.keys import ENV_CGPU_OFF, ENV_VISIBLE_DEVICES
from cluster.pod import Env, NewContainer, NewPodSpec
from cluster.request import Family, Request
from policy.document import Policy
from webhook.device_variables import NO_GPU, PatchSet
from webhook.patch import Operation, remove

_RULE = "environment"
_DEVICES = frozenset({ENV_VISIBLE_DEVICES})
_CHECKED = frozenset({ENV_VISIBLE_DEVICES, ENV_CGPU_OFF})
_NO_GPUS = frozenset({"", NO_GPU, "none"})
"""Values with which a container sees no GPU."""
_LIMITED = frozenset({"", "false"})
"""Values with which the limits of cGPU stay in force."""
_REMOVED = "removed"


def chooses_gpus(spec: NewPodSpec) -> bool:
    """Return whether a container has a variable with the GPUs that it wants to see."""
    return _has_variable(spec, _DEVICES)


def _has_variable(spec: NewPodSpec, names: frozenset[str]) -> bool:
    for container in all_containers(spec):
        for env in container.env or ():
            if env.name in names:
                return True
    return False


def remove_variables(spec: NewPodSpec, request: Request, rules: Policy) -> PatchSet:
    """Return the operations that remove or replace such variables, and a finding for each.

    Variables of a privileged container stay: it has access to all devices of its node anyway.

    Args:
        spec: Spec of the pod.
        request: GPU request of the pod.
        rules: The policy, whose `environment` decides.
    """
    changes = PatchSet()
    if rules.environment == "allow" or not _has_variable(spec, _CHECKED):
        return changes
    requesting = {(requested.init, requested.index) for requested in request.containers}
    for init, index, container in indexed_containers(spec):
        variables = container.env or []
        requests_gpus = (init, index) in requesting
        # In reverse order, since a removal shifts the later ones.
        for position in reversed(range(len(variables))):
            env = variables[position]
            if new_value := _new_value(env, container, request, requests_gpus=requests_gpus):
                pointer = f"{container_pointer(init, index)}/env/{position}"
                changes.operations.append(_operation(pointer, env, new_value))
                field = f"{container_path(init, index)}.env[{position}]"
                changes.findings.append(_finding(field, env, new_value, rules))
    changes.findings.reverse()
    return changes


def _new_value(env: Env, container: NewContainer, request: Request, *, requests_gpus: bool) -> str:
    """Return the value that replaces a variable's, `_REMOVED`, or nothing where it may stay."""
    if container.security_context and container.security_context.privileged:
        return ""
    by_plugin = not request.chooses_gpus
    if env.name == ENV_VISIBLE_DEVICES and by_plugin and not _has_value(env, _NO_GPUS):
        # The container's own value would override that of the device plugin.
        return _REMOVED if requests_gpus else NO_GPU
    is_share = request.family is Family.SHARE
    if env.name == ENV_CGPU_OFF and is_share and not _has_value(env, _LIMITED):
        return "false"
    return ""


def _has_value(env: Env, values: frozenset[str]) -> bool:
    return env.value_from is None and env.value in values


def _operation(pointer: str, env: Env, new_value: str) -> Operation:
    if new_value == _REMOVED:
        return remove(pointer, _RULE)
    return Operation("replace", pointer, {"name": env.name, "value": new_value}, _RULE)


def _finding(field: str, env: Env, new_value: str, rules: Policy) -> Finding:
    refused = rules.environment == "refuse"
    if refused:
        outcome = "is refused"
    else:
        outcome = "is removed" if new_value == _REMOVED else f"becomes {new_value}"
    return Finding(
        Code.ENVIRONMENT,
        Severity.ERROR if refused else Severity.WARNING,
        field,
        env.value if env.value_from is None else None,
        f"{env.name} {outcome}: it would give the container more of the GPUs than it asks for",
        "remove the variable, and ask for GPUs by resources.limits",
    )
