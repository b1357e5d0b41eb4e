"""Remove variables and mounts by which a container would use GPUs that its pod does not request.

NVIDIA's runtime gives a container the GPUs in `NVIDIA_VISIBLE_DEVICES`, whatever its pod requests,
unless it is configured not to. By other variables it gives IMEX channels, and the right to change
or read the MIG configuration of all GPUs. Volumes of `/dev/null` that are mounted below one folder
name devices in the same way, and have precedence. `CGPU_DISABLE` disables the limits of a cGPU
node. The node is not known at admission, and other runtimes ignore these settings, so the rule is
the same for all nodes. Variables of the image and of `envFrom` are not visible here.

Pods whose GPUs Linkwise chooses get a `NVIDIA_VISIBLE_DEVICES` of ours instead: `device_variables`.

Source: NVIDIA Container Toolkit documentation, "Environment variables (OCI spec)", and its code:
`cmd/nvidia-container-runtime-hook/container_config.go`, `internal/config/image/cuda_image.go`; of
cGPU: gpushare-device-plugin at 45fb8b8.
"""

from posixpath import normpath

from linkwise.admission.operations import Operation, remove
from linkwise.admission.patch.device_variables import NO_GPU, PatchSet
from linkwise.cluster.container_variables import (
    DEVICE_MOUNTS,
    ENV_CGPU_OFF,
    ENV_IMEX_CHANNELS,
    ENV_MIG_CONFIG,
    ENV_MIG_MONITOR,
    ENV_VISIBLE_DEVICES,
)
from linkwise.cluster.finding import Code, Finding, Severity
from linkwise.cluster.objects.container import Env, NewContainer
from linkwise.cluster.objects.pod import NewPodSpec
from linkwise.cluster.requests.container_request import (
    all_containers,
    container_path,
    container_pointer,
    indexed_containers,
)
from linkwise.cluster.requests.other_systems import has_other_devices
from linkwise.cluster.requests.request import Family, Request
from linkwise.policy.document import Policy

_RULE = "environment"
_DEVICES = frozenset({ENV_VISIBLE_DEVICES, ENV_IMEX_CHANNELS, ENV_MIG_CONFIG})
_CHECKED = _DEVICES | {ENV_CGPU_OFF, ENV_MIG_MONITOR}
_FOLDER = DEVICE_MOUNTS.rpartition("/")[2]
_NO_GPUS = frozenset({"", NO_GPU, "none"})
"""Values with which a container sees no GPU."""
_LIMITED = frozenset({"", "false"})
"""Values with which the limits of cGPU stay in force."""
_REMOVED = "removed"
_REASON = "it would give the container more of the GPUs than it asks for"


def chooses_gpus(spec: NewPodSpec) -> bool:
    """Return whether a container names the GPUs that it wants, by a variable or a mount."""
    return _has_variable(spec, _DEVICES) or _has_mount(spec)


def _has_variable(spec: NewPodSpec, names: frozenset[str]) -> bool:
    for container in all_containers(spec):
        for env in container.env or ():
            if env.name in names:
                return True
    return False


def _has_mount(spec: NewPodSpec) -> bool:
    for container in all_containers(spec):
        for mount in container.volume_mounts or ():
            # Most paths have no such part.
            if _FOLDER in mount.mount_path and _names_device(mount.mount_path):
                return True
    return False


def _names_device(path: str) -> bool:
    """Return whether NVIDIA's runtime may read a device from a path at which a volume is mounted.

    The runtime normalizes the path, and compares its start only. A kubelet makes it absolute. The
    volume is not read: a claim may be for `/dev/null`, too.
    """
    return normpath("/" + path.lstrip("/")).startswith(DEVICE_MOUNTS)


def remove_devices(spec: NewPodSpec, request: Request, rules: Policy) -> PatchSet:
    """Return the operations that remove or replace these settings, and a finding for each.

    Those of a privileged container stay: it has access to all devices of its node anyway.

    Args:
        spec: Spec of the pod.
        request: GPU request of the pod.
        rules: The policy, whose `environment` decides.
    """
    changes = PatchSet()
    if rules.environment == "allow":
        return changes
    if _has_variable(spec, _CHECKED):
        _remove_variables(spec, request, rules, changes)
    if _has_mount(spec):
        _remove_mounts(spec, rules, changes)
    changes.findings.reverse()
    return changes


def _remove_variables(spec: NewPodSpec, request: Request, rules: Policy, changes: PatchSet) -> None:
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


def _remove_mounts(spec: NewPodSpec, rules: Policy, changes: PatchSet) -> None:
    for init, index, container in indexed_containers(spec):
        mounts = container.volume_mounts or []
        if _is_privileged(container):
            continue
        for position in reversed(range(len(mounts))):
            path = mounts[position].mount_path
            if _names_device(path):
                pointer = f"{container_pointer(init, index)}/volumeMounts/{position}"
                changes.operations.append(remove(pointer, _RULE))
                field = f"{container_path(init, index)}.volumeMounts[{position}].mountPath"
                changes.findings.append(_mount_finding(field, path, rules))


def _is_privileged(container: NewContainer) -> bool:
    context = container.security_context
    return context is not None and bool(context.privileged)


def _new_value(env: Env, container: NewContainer, request: Request, *, requests_gpus: bool) -> str:
    """Return the value that replaces a variable's, `_REMOVED`, or nothing where it may stay."""
    if _is_privileged(container):
        return ""
    if _is_removed(env.name, request) and not _has_value(env, _NO_GPUS):
        return _REMOVED
    by_others = not requests_gpus and has_other_devices(container)
    by_plugin = not request.chooses_gpus or by_others
    if env.name == ENV_VISIBLE_DEVICES and by_plugin and not _has_value(env, _NO_GPUS):
        # The container's own value would override that of the device plugin.
        return _REMOVED if requests_gpus or by_others else NO_GPU
    is_share = request.family is Family.SHARE
    if env.name == ENV_CGPU_OFF and is_share and not _has_value(env, _LIMITED):
        return "false"
    return ""


def _is_removed(name: str, request: Request) -> bool:
    # Device plugins that are not privileged have the last one. They request no GPUs.
    return name in {ENV_IMEX_CHANNELS, ENV_MIG_CONFIG} or (
        name == ENV_MIG_MONITOR and request.family is not None
    )


def _has_value(env: Env, values: frozenset[str]) -> bool:
    return env.value_from is None and env.value in values


def _operation(pointer: str, env: Env, new_value: str) -> Operation:
    if new_value == _REMOVED:
        return remove(pointer, _RULE)
    return Operation("replace", pointer, {"name": env.name, "value": new_value}, _RULE)


def _finding(field: str, env: Env, new_value: str, rules: Policy) -> Finding:
    outcome = "is removed" if new_value == _REMOVED else f"becomes {new_value}"
    return Finding(
        Code.ENVIRONMENT,
        _severity(rules),
        field,
        env.value if env.value_from is None else None,
        f"{env.name} {_outcome(outcome, rules)}: {_REASON}",
        "remove the variable, and ask for GPUs by resources.limits",
    )


def _mount_finding(field: str, path: str, rules: Policy) -> Finding:
    return Finding(
        Code.ENVIRONMENT,
        _severity(rules),
        field,
        path,
        f"the mount below {DEVICE_MOUNTS} {_outcome('is removed', rules)}: {_REASON}",
        "remove the volume mount, and ask for GPUs by resources.limits",
    )


def _severity(rules: Policy) -> Severity:
    return Severity.ERROR if rules.environment == "refuse" else Severity.WARNING


def _outcome(outcome: str, rules: Policy) -> str:
    return "is refused" if rules.environment == "refuse" else outcome
