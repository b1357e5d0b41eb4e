"""Environment variables that give a container its GPUs and limits.

The scorer chooses GPUs after admission. So most variables are downward-API references to the
annotations that it writes before the container starts. A reference to an annotation that does not
exist yet is valid: its value is empty.
"""

import re
from enum import Enum, auto

from msgspec import Struct

from linkwise.admission.operations import Operation, extend
from linkwise.cluster.container_variables import (
    ENV_MEMORY_FRACTION,
    ENV_REPLICAS,
    ENV_VISIBLE_DEVICES,
)
from linkwise.cluster.finding import Code, Finding, Severity
from linkwise.cluster.keys import (
    MEM_CONTAINER,
    MEM_DEV,
    MEM_IDX,
    MEM_POD,
    VISIBLE_DEVICES,
    VISIBLE_DEVICES_OF,
)
from linkwise.cluster.objects.container import Env
from linkwise.cluster.objects.pod import NewPod
from linkwise.cluster.requests import mps
from linkwise.cluster.requests.container_request import container_pointer, indexed_containers
from linkwise.cluster.requests.other_systems import has_other_devices, uses_other_devices
from linkwise.cluster.requests.request import ContainerRequest, Family, Request
from linkwise.policy.document import Policy

NO_GPU = "void"
"""The NVIDIA runtime does not add GPUs to a container with this value."""

_INDEX = re.compile(r"/(\d+)")


class OnConflict(Enum):
    """Handling of a variable that the container already has."""

    KEEP = auto()
    REPLACE = auto()
    TIGHTEN = auto()
    """Keep it if it is at least as strict as ours, else replace it."""


class Variable(Struct, frozen=True, eq=False, gc=False):
    """A variable that a container must have."""

    name: str
    rule: str
    entry: dict[str, object]
    """The item of `env`."""
    value: str | None = None
    """Literal value; None for a reference."""
    field_path: str = ""
    """Path of the annotation that a reference names."""
    on_conflict: OnConflict = OnConflict.KEEP

    def equals(self, env: Env) -> bool:
        """Return whether a present entry has the same value."""
        if self.value is not None:
            return env.value_from is None and env.value == self.value
        reference = env.value_from.field_ref if env.value_from else None
        return reference is not None and reference.field_path == self.field_path


def _literal(
    name: str, value: str, rule: str, on_conflict: OnConflict = OnConflict.KEEP
) -> Variable:
    return Variable(name, rule, {"name": name, "value": value}, value, on_conflict=on_conflict)


def _reference(
    name: str, annotation: str, rule: str, on_conflict: OnConflict = OnConflict.KEEP
) -> Variable:
    path = f"metadata.annotations['{annotation}']"
    source = {"fieldRef": {"fieldPath": path}}
    return Variable(name, rule, {"name": name, "valueFrom": source}, None, path, on_conflict)


_NO_GPU_ASKED = _literal(ENV_VISIBLE_DEVICES, NO_GPU, "no GPU asked", OnConflict.REPLACE)
_BY_CLAIM = _literal(ENV_VISIBLE_DEVICES, NO_GPU, "claim", OnConflict.REPLACE)
_LAUNCHER = _literal(ENV_VISIBLE_DEVICES, NO_GPU, "gang launcher")
_DEVICES = _reference(ENV_VISIBLE_DEVICES, VISIBLE_DEVICES, "visible devices", OnConflict.REPLACE)
_SHARE_VARIABLES = [
    _reference(name, name, "share", OnConflict.REPLACE) for name in (MEM_IDX, MEM_POD, MEM_DEV)
]


class PatchSet(Struct, gc=False):
    """Patch operations, and their findings."""

    operations: list[Operation] = []
    findings: list[Finding] = []


def set_visible_devices(
    pod: NewPod, request: Request, rules: Policy, replicas: int = 0
) -> PatchSet:
    """Return the operations that set the variables of all containers, and their findings.

    Variables with GPUs are set only where Linkwise chooses them: NVIDIA's plugin sets its own. A
    variable without GPUs would override that of another system, so it is not set beside devices
    of others.

    Args:
        pod: The pod.
        request: GPU request of the pod.
        rules: The policy: handling of present variables, enforcement of shares.
        replicas: Pods that share one GPU by NVIDIA's sharing; 0 where none, or not known.
    """
    changes = PatchSet()
    requested_by = {
        (requested.init, requested.index): requested for requested in request.containers
    }
    # Where Linkwise chooses the GPUs, the other containers of such a pod still see none.
    has_others = request.by_count and uses_other_devices(pod.spec)
    for init, index, container in indexed_containers(pod.spec):
        requested = requested_by.get((init, index))
        if requested is None and (has_others or has_other_devices(container)):
            continue
        variables = _variables(requested, request, rules, replicas)
        _write(f"{container_pointer(init, index)}/env", container.env, variables, changes)
    if changes.findings and rules.visible_devices == "deny":
        changes.findings = [_denied(finding) for finding in changes.findings]
    return changes


def hide_devices(pod: NewPod) -> PatchSet:
    """Return the operations that hide all GPUs from a gang's pod without a GPU request.

    Otherwise it would see those that its image names. A variable of the pod is kept here, and
    handled by `unrequested_devices`. A pod with devices of another system gets none.
    """
    changes = PatchSet()
    if uses_other_devices(pod.spec):
        return changes
    for init, index, container in indexed_containers(pod.spec):
        _write(f"{container_pointer(init, index)}/env", container.env, [_LAUNCHER], changes)
    return changes


def _variables(
    requested: ContainerRequest | None, request: Request, rules: Policy, replicas: int
) -> list[Variable]:
    """Return the variables of a container; one without a GPU request sees no GPU."""
    family = request.family
    if request.by_count:
        # On counted nodes NVIDIA's plugin sets it, and on exact ones the agent overrides it.
        return _fraction(rules, replicas) if requested else [_LAUNCHER]
    if family is Family.NVIDIA:
        return _fraction(rules, replicas) if requested else []
    if requested is None:
        return [_NO_GPU_ASKED]
    devices = _devices(requested, request)
    if family is Family.WHOLE:
        # By a claim, the DRA driver gives the container its GPUs, and sets the same value.
        return [_BY_CLAIM if request.by_claim else devices]
    if family is Family.SHARE:
        return [devices, *_share(requested, request, rules)]
    return [devices, *_fraction(rules, replicas)]


def _fraction(rules: Policy, replicas: int) -> list[Variable]:
    if not replicas:
        return []
    fraction = f"{rules.sharing.memory_fraction / replicas:.4g}"
    return [
        _literal(ENV_REPLICAS, str(replicas), "time-slicing"),
        _literal(ENV_MEMORY_FRACTION, fraction, "time-slicing"),
    ]


def _devices(requested: ContainerRequest, request: Request) -> Variable:
    if len(request.containers) == 1:
        return _DEVICES
    # For several containers with GPUs, the scorer writes one annotation each.
    key = f"{VISIBLE_DEVICES_OF}{requested.container}"
    return _reference(ENV_VISIBLE_DEVICES, key, "visible devices", OnConflict.REPLACE)


def _share(requested: ContainerRequest, request: Request, rules: Policy) -> list[Variable]:
    own = _literal(MEM_CONTAINER, str(requested.memory), "share", OnConflict.REPLACE)
    variables = [*_SHARE_VARIABLES, own]
    if rules.sharing.compute_by_mps:
        limits = mps.limits(requested, request.gpus)
        variables += [
            _literal(name, text, "mps", OnConflict.TIGHTEN) for name, text in limits.items()
        ]
    return variables


def _write(path: str, present: list[Env] | None, wanted: list[Variable], changes: PatchSet) -> None:
    """Add the operations for one container, and a finding for each variable that they replace.

    Args:
        path: Pointer to its variables, such as `/spec/containers/0/env`.
        present: Its present variables; None where they are absent or null.
        wanted: The variables that it must have.
        changes: Receives the operations and findings.
    """
    _replace(path, present or [], wanted, changes)
    names = {env.name for env in present or ()}
    absent = [(variable.entry, variable.rule) for variable in wanted if variable.name not in names]
    changes.operations += extend(path, present, absent)


def _replace(path: str, present: list[Env], wanted: list[Variable], changes: PatchSet) -> None:
    for index, env in enumerate(present):
        for variable in wanted:
            if variable.name == env.name and _is_replaced(variable, env):
                pointer = f"{path}/{index}"
                operation = Operation("replace", pointer, variable.entry, variable.rule)
                changes.operations.append(operation)
                changes.findings.append(_replaced_finding(pointer, env, variable))


def _is_replaced(variable: Variable, env: Env) -> bool:
    if variable.on_conflict is OnConflict.KEEP or variable.equals(env):
        return False
    if variable.on_conflict is OnConflict.REPLACE or variable.value is None:
        return True
    return env.value_from is not None or not mps.is_tighter(env.name, env.value, variable.value)


def _replaced_finding(path: str, env: Env, variable: Variable) -> Finding:
    value = env.value if env.value_from is None else None
    field = _INDEX.sub(r"[\1]", path[1:]).replace("/", ".")
    if variable.on_conflict is OnConflict.TIGHTEN:
        return Finding(
            Code.MPS_LIMIT,
            Severity.WARNING,
            field,
            value,
            f"{env.name} allows more than the pod asks for: it is replaced by {variable.value}",
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
        f"{finding.message.partition(' ')[0]} may not be set where Linkwise chooses a pod's GPUs",
        "remove the variable",
    )
