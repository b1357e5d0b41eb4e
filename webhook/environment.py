"""What containers are told about their GPUs: environment variables.

The choice is made after admission, so that most variables are downward-API references to the
annotations that the scorer writes before the container starts. An annotation that does not exist
yet is no error: it reads as an empty value.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from cluster.finding import Code, Finding, Severity
from cluster.keys import (
    ENV_MEMORY_FRACTION,
    ENV_REPLICAS,
    ENV_VISIBLE_DEVICES,
    MEM_CONTAINER,
    MEM_DEV,
    MEM_IDX,
    MEM_POD,
    VISIBLE_DEVICES,
    VISIBLE_DEVICES_OF,
)
from cluster.pod import Container, Env, Pod
from cluster.request import Ask, Family, Request
from webhook import mps
from webhook.patch import Operation, append

NO_GPU = "void"
"""The NVIDIA runtime leaves a container with this value alone: it sees no GPU."""


class Taken(Enum):
    """What happens when the container has a variable of that name already."""

    KEEP = auto()
    REPLACE = auto()
    TIGHTEN = auto()
    """Kept when it limits no less than ours, else replaced."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable that a container shall have."""

    name: str
    rule: str
    value: str = ""
    """Its literal value, where no annotation is named."""
    annotation: str = ""
    """The pod's annotation that holds its value."""
    taken: Taken = Taken.KEEP

    def entry(self) -> dict[str, object]:
        """Return it as an item of `env`."""
        if not self.annotation:
            return {"name": self.name, "value": self.value}
        path = f"metadata.annotations['{self.annotation}']"
        return {"name": self.name, "valueFrom": {"fieldRef": {"fieldPath": path}}}

    def is_written_as(self, env: Env) -> bool:
        """Tell whether a container's entry says the same."""
        if not self.annotation:
            return env.value_from is None and env.value == self.value
        reference = (env.value_from or {}).get("fieldRef")
        path = f"metadata.annotations['{self.annotation}']"
        return isinstance(reference, dict) and reference.get("fieldPath") == path


@dataclass(frozen=True, slots=True)
class Site:
    """A container in its pod."""

    pointer: str
    """JSON pointer, such as `/spec/initContainers/0`."""
    field: str
    """Path for people, such as `spec.initContainers[0]`."""
    container: Container
    ask: Ask | None
    """None: it asks for no GPU."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """What the policy says about shares, as far as containers are told."""

    compute_by_mps: bool = False
    deny_visible_devices: bool = False
    """The user's own NVIDIA_VISIBLE_DEVICES is an error, not replaced with a warning."""
    replicas: int = 0
    """Pods that share one GPU of a time-sliced node; 0: nothing tells."""
    memory_fraction: float = 0.9
    """Part of a time-sliced GPU's memory that its pods may have together."""


@dataclass(slots=True)
class Changes:
    """Steps, and what people are told about them."""

    operations: list[Operation]
    findings: list[Finding]


def sites(pod: Pod, request: Request) -> Iterator[Site]:
    """Yield the pod's app containers, then its init containers (sidecars stand among these)."""
    asks = {(ask.init, ask.index): ask for ask in request.asks}
    for index, container in enumerate(pod.spec.containers):
        field, ask = f"spec.containers[{index}]", asks.get((False, index))
        yield Site(f"/spec/containers/{index}", field, container, ask)
    for index, container in enumerate(pod.spec.init_containers or ()):
        field, ask = f"spec.initContainers[{index}]", asks.get((True, index))
        yield Site(f"/spec/initContainers/{index}", field, container, ask)


def tell_gpus(pod: Pod, request: Request, sharing: Sharing) -> Changes:
    """Return what makes every container of a pod whose GPUs Linkwise chooses see just its own."""
    changes = Changes([], [])
    for site in sites(pod, request):
        _write(site, list(_variables(site, request, sharing)), changes)
    if sharing.deny_visible_devices:
        changes.findings = [_denied(finding) for finding in changes.findings]
    return changes


def hide_gpus(pod: Pod) -> Changes:
    """Return what keeps a gang's pod without GPUs from seeing any, where it did not choose itself.

    A launcher is not a pod whose GPUs Linkwise chooses, so that its own variable stays.
    """
    changes = Changes([], [])
    for site in sites(pod, Request()):
        _write(site, [Variable(ENV_VISIBLE_DEVICES, "gang launcher", NO_GPU)], changes)
    return changes


def _variables(site: Site, request: Request, sharing: Sharing) -> Iterator[Variable]:
    ask = site.ask
    if ask is None:
        yield Variable(ENV_VISIBLE_DEVICES, "no GPU asked", NO_GPU, taken=Taken.REPLACE)
        return
    # The scorer writes one key a container as soon as a pod has several with GPUs.
    key = f"{VISIBLE_DEVICES_OF}{ask.container}" if len(request.asks) > 1 else VISIBLE_DEVICES
    yield Variable(ENV_VISIBLE_DEVICES, "visible devices", annotation=key, taken=Taken.REPLACE)
    if request.family is Family.SHARE:
        yield from _share(ask, request, sharing)
    elif request.family is Family.REPLICA and sharing.replicas:
        fraction = f"{sharing.memory_fraction / sharing.replicas:.4g}"
        yield Variable(ENV_REPLICAS, "time-slicing", str(sharing.replicas))
        yield Variable(ENV_MEMORY_FRACTION, "time-slicing", fraction)


def _share(ask: Ask, request: Request, sharing: Sharing) -> Iterator[Variable]:
    for name in (MEM_IDX, MEM_POD, MEM_DEV):
        yield Variable(name, "share", annotation=name)
    yield Variable(MEM_CONTAINER, "share", str(ask.memory))
    if sharing.compute_by_mps and request.core:
        for name, value in mps.limits(ask, request.gpus).items():
            yield Variable(name, "mps", value, taken=Taken.TIGHTEN)


def _write(site: Site, wanted: list[Variable], changes: Changes) -> None:
    """Add the steps for one container, and a finding for everything of the user's they replace."""
    present = site.container.env or []
    names = {env.name for env in present}
    for index, env in enumerate(present):
        for variable in wanted:
            if variable.name == env.name and _is_replaced(variable, env):
                path = f"{site.pointer}/env/{index}"
                step = Operation("replace", path, variable.entry(), variable.rule)
                changes.operations.append(step)
                changes.findings.append(_replaced(f"{site.field}.env[{index}]", env, variable))
    absent: list[tuple[object, str]] = [
        (variable.entry(), variable.rule) for variable in wanted if variable.name not in names
    ]
    changes.operations += append(f"{site.pointer}/env", site.container.env, absent)


def _is_replaced(variable: Variable, env: Env) -> bool:
    if variable.taken is Taken.KEEP or variable.is_written_as(env):
        return False
    if variable.taken is Taken.REPLACE:
        return True
    return env.value_from is not None or not mps.is_tighter(env.name, env.value, variable.value)


def _replaced(field: str, env: Env, variable: Variable) -> Finding:
    value = env.value if env.value_from is None else None
    if variable.taken is Taken.TIGHTEN:
        return Finding(
            Code.MPS_LIMIT,
            Severity.WARNING,
            field,
            value,
            f"{env.name} allows more than the pod asks for, {variable.value} takes its place.",
            "Remove the variable, or write a tighter limit.",
        )
    return Finding(
        Code.VISIBLE_DEVICES,
        Severity.WARNING,
        field,
        value,
        f"{env.name} is replaced, since Linkwise chooses this pod's GPUs.",
        "Remove the variable.",
    )


def _denied(finding: Finding) -> Finding:
    if finding.code is not Code.VISIBLE_DEVICES:
        return finding
    return Finding(
        finding.code,
        Severity.ERROR,
        finding.field,
        finding.value,
        f"{ENV_VISIBLE_DEVICES} may not be set where Linkwise chooses a pod's GPUs.",
        "Remove the variable.",
    )
