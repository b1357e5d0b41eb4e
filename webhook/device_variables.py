"""What containers are told about their GPUs: environment variables.

The choice is made after admission, so that most variables are downward-API references to the
annotations that the scorer writes before the container starts. An annotation that does not exist
yet is no error: it reads as an empty value.
"""

import re
from enum import Enum, auto
from functools import lru_cache

import msgspec
from msgspec import Struct

from cluster import mps
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
from cluster.pod import Env, NewPod
from cluster.request import Ask, Family, Request
from policy.document import Policy
from webhook.patch import Operation, append, extend, pre_encoded

NO_GPU = "void"
"""The NVIDIA runtime leaves a container with this value alone: it sees no GPU."""


# In Python 3.11 a member of an enum takes ten times as long to look up as a name.
_WHOLE, _SHARE, _NVIDIA = Family.WHOLE, Family.SHARE, Family.NVIDIA

_INDEX = re.compile(r"/(\d+)")


class OnConflict(Enum):
    """What happens when the container has a variable of that name already."""

    KEEP = auto()
    REPLACE = auto()
    TIGHTEN = auto()
    """Kept when it limits no less than ours, else replaced."""


class Variable(Struct, frozen=True, eq=False, gc=False):
    """A variable that a container shall have."""

    name: str
    rule: str
    entry: dict[str, object]
    """The item of `env`."""
    value: str | None = None
    """Its value; None where an annotation holds it."""
    field_path: str = ""
    """Path of the annotation that holds it."""
    on_conflict: OnConflict = OnConflict.KEEP
    is_pre_encoded: bool = False
    """Many pods get this very one."""

    def is_written_as(self, env: Env) -> bool:
        """Tell whether a container's entry says the same."""
        if self.value is not None:
            return env.value_from is None and env.value == self.value
        theirs = env.value_from.field_ref if env.value_from else None
        return theirs is not None and theirs.field_path == self.field_path


def _literal(name: str, value: str, rule: str, taken: OnConflict = OnConflict.KEEP) -> Variable:
    return Variable(name, rule, {"name": name, "value": value}, value, on_conflict=taken)


def _reference(
    name: str, annotation: str, rule: str, taken: OnConflict = OnConflict.KEEP
) -> Variable:
    path = f"metadata.annotations['{annotation}']"
    source = {"fieldRef": {"fieldPath": path}}
    return Variable(name, rule, {"name": name, "valueFrom": source}, None, path, taken)


def _common(variable: Variable) -> Variable:
    return msgspec.structs.replace(variable, is_pre_encoded=True)


_NO_GPU_ASKED = _common(_literal(ENV_VISIBLE_DEVICES, NO_GPU, "no GPU asked", OnConflict.REPLACE))
_LAUNCHER = _common(_literal(ENV_VISIBLE_DEVICES, NO_GPU, "gang launcher"))
_DEVICES = _common(
    _reference(ENV_VISIBLE_DEVICES, VISIBLE_DEVICES, "visible devices", OnConflict.REPLACE)
)
_SHARE_VARIABLES = [
    _common(_reference(name, name, "share")) for name in (MEM_IDX, MEM_POD, MEM_DEV)
]


class PatchSet(Struct, gc=False):
    """Steps, and what people are told about them."""

    operations: list[Operation] = []
    findings: list[Finding] = []


def set_visible_devices(
    pod: NewPod, request: Request, rules: Policy, replicas: int = 0
) -> PatchSet:
    """Return what tells every container which GPUs it has, and how far it shares them.

    Which GPUs, only where Linkwise chooses them: NVIDIA's plugin tells its own choice.

    Args:
        pod: The pod.
        request: What it asks for.
        rules: What it may be told, and how shares are enforced.
        replicas: Pods that share one GPU by NVIDIA's sharing; 0: none do, or nothing tells.
    """
    changes, spec = PatchSet(), pod.spec
    asks: dict[tuple[bool, int], Ask] = {}
    for ask in request.asks:
        asks[ask.init, ask.index] = ask
    for index, container in enumerate(spec.containers):
        wanted = _wanted(asks.get((False, index)), request, rules, replicas)
        _write(f"/spec/containers/{index}/env", container.env, wanted, changes)
    if spec.init_containers:
        for index, container in enumerate(spec.init_containers):
            wanted = _wanted(asks.get((True, index)), request, rules, replicas)
            _write(f"/spec/initContainers/{index}/env", container.env, wanted, changes)
    if changes.findings and rules.visible_devices == "deny":
        changes.findings = [_denied(finding) for finding in changes.findings]
    return changes


def hide_devices(pod: NewPod) -> PatchSet:
    """Return what keeps a gang's pod without GPUs from seeing those that its image names.

    A variable of its own stays here: the policy's `environment` says what becomes of it.
    """
    changes = PatchSet()
    for index, container in enumerate(pod.spec.containers):
        _write(f"/spec/containers/{index}/env", container.env, [_LAUNCHER], changes)
    for index, container in enumerate(pod.spec.init_containers or ()):
        _write(f"/spec/initContainers/{index}/env", container.env, [_LAUNCHER], changes)
    return changes


def _wanted(ask: Ask | None, request: Request, rules: Policy, replicas: int) -> list[Variable]:
    """Return what a container shall have; one that asks for no GPU sees none."""
    family = request.family
    if family is _NVIDIA:
        return _fraction(rules, replicas) if ask else []
    if ask is None:
        return [_NO_GPU_ASKED]
    devices = _devices(ask, request)
    if family is _WHOLE:
        return [devices]
    if family is _SHARE:
        return [devices, *_share(ask, request, rules)]
    return [devices, *_fraction(rules, replicas)]


def _fraction(rules: Policy, replicas: int) -> list[Variable]:
    if not replicas:
        return []
    fraction = f"{rules.sharing.memory_fraction / replicas:.4g}"
    return [
        _literal(ENV_REPLICAS, str(replicas), "time-slicing"),
        _literal(ENV_MEMORY_FRACTION, fraction, "time-slicing"),
    ]


def _devices(ask: Ask, request: Request) -> Variable:
    if len(request.asks) == 1:
        return _DEVICES
    # The scorer writes one key a container as soon as a pod has several with GPUs.
    key = f"{VISIBLE_DEVICES_OF}{ask.container}"
    return _reference(ENV_VISIBLE_DEVICES, key, "visible devices", OnConflict.REPLACE)


def _share(ask: Ask, request: Request, rules: Policy) -> list[Variable]:
    variables = [*_SHARE_VARIABLES, _literal(MEM_CONTAINER, str(ask.memory), "share")]
    if rules.sharing.compute_by_mps:
        limits = mps.limits(ask, request.gpus)
        variables += [
            _literal(name, text, "mps", OnConflict.TIGHTEN) for name, text in limits.items()
        ]
    return variables


def _write(path: str, present: list[Env] | None, wanted: list[Variable], changes: PatchSet) -> None:
    """Add the steps for one container, and a finding for everything of the user's they replace.

    Args:
        path: Pointer to its variables, such as `/spec/containers/0/env`.
        present: The variables that it has; None when they are absent or null.
        wanted: What it shall have.
        changes: Where the steps and findings go.
    """
    if present is None:
        entries = [(variable.entry, variable.rule) for variable in wanted]
        changes.operations += extend(path, None, entries)
        return
    absent = []
    for variable in wanted:
        for env in present:  # A set of the names costs more to make than it saves.
            if env.name == variable.name:
                break
        else:
            absent.append(variable)
    if len(absent) < len(wanted):
        _replace(path, present, wanted, changes)
    for variable in absent:
        step = _append_common if variable.is_pre_encoded else _append
        changes.operations.append(step(path, variable))


def _append(path: str, variable: Variable) -> Operation:
    return append(path, [], variable.entry, variable.rule)


@lru_cache(maxsize=2048)
def _append_common(path: str, variable: Variable) -> Operation:
    return pre_encoded(_append(path, variable))


def _replace(path: str, present: list[Env], wanted: list[Variable], changes: PatchSet) -> None:
    for index, env in enumerate(present):
        for variable in wanted:
            if variable.name == env.name and _is_replaced(variable, env):
                step = Operation("replace", f"{path}/{index}", variable.entry, variable.rule)
                changes.operations.append(step)
                changes.findings.append(_replaced(step.path, env, variable))


def _is_replaced(variable: Variable, env: Env) -> bool:
    if variable.on_conflict is OnConflict.KEEP or variable.is_written_as(env):
        return False
    if variable.on_conflict is OnConflict.REPLACE or variable.value is None:
        return True
    return env.value_from is not None or not mps.is_tighter(env.name, env.value, variable.value)


def _replaced(path: str, env: Env, variable: Variable) -> Finding:
    value = env.value if env.value_from is None else None
    field = _INDEX.sub(r"[\1]", path[1:]).replace("/", ".")
    if variable.on_conflict is OnConflict.TIGHTEN:
        return Finding(
            Code.MPS_LIMIT,
            Severity.WARNING,
            field,
            value,
            f"{env.name} allows more than the pod asks for: {variable.value} takes its place",
            "remove the variable, or write a tighter limit",
        )
    return Finding(
        Code.VISIBLE_DEVICES,
        Severity.WARNING,
        field,
        value,
        f"{env.name} is replaced, since Linkwise chooses this pod's GPUs",
        "remove the variable",
    )


def _denied(finding: Finding) -> Finding:
    if finding.code is not Code.VISIBLE_DEVICES:
        return finding
    return Finding(
        finding.code,
        Severity.ERROR,
        finding.field,
        finding.value,
        f"{ENV_VISIBLE_DEVICES} may not be set where Linkwise chooses a pod's GPUs",
        "remove the variable",
    )
