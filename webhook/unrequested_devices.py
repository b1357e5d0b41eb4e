"""Remove variables by which a container would take GPUs that its pod does not ask for.

NVIDIA's runtime gives a container the GPUs that `NVIDIA_VISIBLE_DEVICES` names, whatever its pod
asks for, unless it is configured not to; `CGPU_DISABLE` turns a cGPU node's limits off. The node is
not known at admission, and other runtimes ignore these variables: the rule is the same for all
nodes. Variables of the image, and those of `envFrom`, cannot be seen here.

Pods whose GPUs Linkwise chooses have a variable of ours instead: `environment`.

Source: NVIDIA Container Toolkit documentation, "Environment variables (OCI spec)"; of cGPU:
gpushare-device-plugin at 45fb8b8.
"""

from collections.abc import Iterator, Sequence

from cluster.finding import Code, Finding, Severity
from cluster.keys import ENV_CGPU_OFF, ENV_VISIBLE_DEVICES
from cluster.pod import Env, NewContainer, NewPodSpec
from cluster.request import Family, Request
from policy.document import Policy
from webhook.device_variables import NO_GPU, PatchSet
from webhook.patch import Operation, remove

_RULE = "environment"
_DEVICES = frozenset({ENV_VISIBLE_DEVICES})
_GIVING = frozenset({ENV_VISIBLE_DEVICES, ENV_CGPU_OFF})
_NO_GPUS = frozenset({"", NO_GPU, "none"})
"""Values with which a container sees no GPU."""
_LIMITED = frozenset({"", "false"})
"""Values with which a container keeps cGPU's limits."""


def chooses_gpus(spec: NewPodSpec) -> bool:
    """Tell whether a container of a pod names the GPUs that it wants to see."""
    return _name(spec.containers, _DEVICES) or _name(spec.init_containers or (), _DEVICES)


def _name(containers: Sequence[NewContainer], variables: frozenset[str]) -> bool:
    for container in containers:
        for env in container.env or ():
            if env.name in variables:
                return True
    return False


def remove_variables(spec: NewPodSpec, request: Request, rules: Policy) -> PatchSet:
    """Return the steps against such variables, and a finding for each.

    A privileged container reaches every device of its node anyway, as NVIDIA's own agents must: its
    variables stay.

    Args:
        spec: The pod's.
        request: What it asks for.
        rules: What becomes of such a variable.
    """
    changes = PatchSet()
    named = _name(spec.containers, _GIVING) or _name(spec.init_containers or (), _GIVING)
    if rules.environment == "allow" or not named:
        return changes
    asking = {(ask.init, ask.index) for ask in request.asks}
    for (is_init, index), container in _containers(spec):
        path = f"/spec/{'initContainers' if is_init else 'containers'}/{index}/env"
        asks = (is_init, index) in asking
        # From the last on, since each removal moves those behind it.
        for place in reversed(range(len(container.env or ()))):
            env = (container.env or [])[place]
            if instead := _instead(env, container, request, asks=asks):
                changes.operations.append(_step(f"{path}/{place}", env, instead))
                field = path[1:].replace("/", ".").replace(f".{index}.", f"[{index}].")
                changes.findings.append(_finding(f"{field}[{place}]", env, instead, rules))
    changes.findings.reverse()
    return changes


def _containers(spec: NewPodSpec) -> Iterator[tuple[tuple[bool, int], NewContainer]]:
    for index, container in enumerate(spec.containers):
        yield (False, index), container
    for index, container in enumerate(spec.init_containers or ()):
        yield (True, index), container


def _instead(env: Env, container: NewContainer, request: Request, *, asks: bool) -> str:
    """Return what becomes of a variable: a value, `removed`, or nothing where it may stay."""
    if container.security_context and container.security_context.privileged:
        return ""
    if env.name == ENV_VISIBLE_DEVICES and not request.places and not _has(env, _NO_GPUS):
        # The device plugin's own value comes before the container's, and would lose against it.
        return _REMOVED if asks else NO_GPU
    if env.name == ENV_CGPU_OFF and request.family is Family.SHARE and not _has(env, _LIMITED):
        return "false"
    return ""


_REMOVED = "removed"


def _has(env: Env, values: frozenset[str]) -> bool:
    return env.value_from is None and env.value in values


def _step(path: str, env: Env, instead: str) -> Operation:
    if instead == _REMOVED:
        return remove(path, _RULE)
    return Operation("replace", path, {"name": env.name, "value": instead}, _RULE)


def _finding(field: str, env: Env, instead: str, rules: Policy) -> Finding:
    refused = rules.environment == "refuse"
    if refused:
        becomes = "is refused"
    else:
        becomes = "is removed" if instead == _REMOVED else f"becomes {instead}"
    return Finding(
        Code.ENVIRONMENT,
        Severity.ERROR if refused else Severity.WARNING,
        field,
        env.value if env.value_from is None else None,
        f"{env.name} {becomes}: it would give the container more of the GPUs than it asks for",
        "remove the variable, and ask for GPUs by resources.limits",
    )
