"""Read the GPUs that a pod gets by a ResourceClaimTemplate of its own.

kube-controller-manager makes a claim from the template, for this pod alone. Linkwise allocates that
claim only if it evaluates all of it as kube-scheduler does; every other claim is left to that.
Admission writes the GPUs of each request into an annotation, since the pod does not have them.

Source: kubernetes v1.36, `staging/src/k8s.io/api/resource/v1/types.go`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct, field

from cluster.finding import Code, Finding, Severity, quoted
from cluster.keys import CLAIMED_GPUS, DRA_GPU_DRIVER, RESOURCES
from cluster.objects.kube_object import KubeObject
from cluster.objects.pod import Metadata, NewPod, NewPodSpec
from cluster.requests.container_request import all_containers

RESULTS_MAX = 32
"""Devices of a claim; the API server accepts no more."""
_ANNOTATION = f"metadata.annotations[{CLAIMED_GPUS}]"
_LONGEST = 4096
"""The annotation of a claim with as many requests as it may have is shorter [characters]."""
_CLASSES_MAX = 4
"""DeviceClasses of one claim that are read."""
_Q = "['\"]"
_DRIVER = re.escape(DRA_GPU_DRIVER)
_EVERY_GPU = tuple(
    map(
        re.compile,
        (
            rf"device\.driver\s*==\s*{_Q}{_DRIVER}{_Q}",
            rf"device\.attributes\[{_Q}{_DRIVER}{_Q}\]\.type\s*==\s*{_Q}gpu{_Q}",
        ),
    )
)
"""Terms of expressions (CEL) that hold for each whole GPU of the driver."""
_amounts = msgspec.json.Decoder(dict[str, Annotated[int, Meta(ge=1, le=RESULTS_MAX)]])

Body: TypeAlias = dict[str, object]
Amounts: TypeAlias = tuple[tuple[str, int], ...]
"""GPUs of each request of a claim, by its name."""


@dataclass(frozen=True, slots=True)
class TemplateClaim:
    """The GPUs that a pod gets by the claim of one template."""

    reference: str
    """Name of the pod's reference to the template."""
    amounts: Amounts

    @property
    def gpus(self) -> int:
        """All its GPUs."""
        return sum(count for _, count in self.amounts)

    @property
    def annotation(self) -> str:
        """The annotation of the pod, from which `read_template_claim` reads it."""
        texts = {f"{self.reference}/{name}": count for name, count in self.amounts}
        return msgspec.json.encode(texts).decode()


@dataclass(frozen=True, slots=True)
class LeftToScheduler:
    """A claim for GPUs that kube-scheduler allocates."""

    reason: str
    """What Linkwise does not evaluate, for users."""


Asked: TypeAlias = Amounts | LeftToScheduler | None
"""What a claim or template asks for: whole GPUs alone, or what is not evaluated; None: no GPUs."""


class _CEL(KubeObject, frozen=True):
    expression: str = ""


class _Selector(KubeObject, frozen=True):
    cel: _CEL | None = None


class _ClassSpec(KubeObject, frozen=True):
    selectors: list[_Selector] | None = None
    config: list[Body] | None = None


class DeviceClass(KubeObject, frozen=True):
    """The fields of a DeviceClass that are read."""

    metadata: Metadata = Metadata()
    spec: _ClassSpec = _ClassSpec()

    @property
    def is_of_driver(self) -> bool:
        """It may select devices of NVIDIA's driver: an expression names it."""
        return any(DRA_GPU_DRIVER in text for text in self._expressions)

    @property
    def selects_every_gpu(self) -> bool:
        """All whole GPUs of the driver satisfy it."""
        return all(map(selects_every_gpu, self._expressions))

    @property
    def _expressions(self) -> list[str]:
        return [one.cel.expression if one.cel else "" for one in self.spec.selectors or ()]


WHOLE_GPUS = DeviceClass(
    spec=_ClassSpec(
        selectors=[
            _Selector(
                cel=_CEL(
                    expression=f"device.driver == '{DRA_GPU_DRIVER}' && "
                    f"device.attributes['{DRA_GPU_DRIVER}'].type == 'gpu'"
                )
            )
        ]
    )
)
"""The class of whole GPUs as NVIDIA's driver installs it."""


class _Strict(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A field that Linkwise does not know may change what a claim means."""


class _Exactly(_Strict, frozen=True):
    device_class_name: str
    selectors: list[_Selector] | None = None
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None
    tolerations: list[Body] | None = None
    capacity: Body | None = None


class _Request(_Strict, frozen=True):
    name: str
    exactly: _Exactly | None = None
    first_available: list[Body] | None = None


class _Devices(_Strict, frozen=True):
    requests: list[_Request] | None = None
    constraints: list[Body] | None = None
    config: list[Body] | None = None


class _ClaimSpec(_Strict, frozen=True):
    devices: _Devices = _Devices()


class _Template(KubeObject, frozen=True):
    spec: Body = field(default_factory=dict)


class TemplateObject(KubeObject, frozen=True):
    """The fields of a ResourceClaimTemplate that are read."""

    metadata: Metadata = Metadata()
    spec: _Template = _Template()

    @property
    def claim_spec(self) -> Body:
        """The specification of the claims that are made from it."""
        return self.spec.spec


def selects_every_gpu(expression: str) -> bool:
    """Return whether an expression surely holds for each whole GPU of the driver."""
    terms = (term.strip() for term in expression.split("&&"))
    return all(any(known.fullmatch(term) for known in _EVERY_GPU) for term in terms)


def classes_to_read(spec: Mapping[str, object]) -> list[str]:
    """Return the DeviceClasses that a claim names; of more than 4, the first ones by name."""
    return sorted(frozenset(_class_names(spec)))[:_CLASSES_MAX]


def _class_names(spec: Mapping[str, object]) -> Iterator[str]:
    devices = spec.get("devices")
    for request in _bodies(devices.get("requests") if isinstance(devices, dict) else None):
        for part in (request.get("exactly"), *_bodies(request.get("firstAvailable"))):
            name = part.get("deviceClassName") if isinstance(part, dict) else None
            if isinstance(name, str):
                yield name


def _bodies(part: object) -> list[Body]:
    return [one for one in part if isinstance(one, dict)] if isinstance(part, list) else []


def asked_of(spec: Mapping[str, object], classes: Mapping[str, DeviceClass]) -> Asked:
    """Return what a claim asks for.

    Args:
        spec: Specification of a claim, or of the claims of a template.
        classes: The DeviceClasses that exist among `classes_to_read`.
    """
    names = frozenset(_class_names(spec))
    of_driver = {name for name in names if name in classes and classes[name].is_of_driver}
    if not of_driver:
        return None
    if others := names - of_driver:
        return LeftToScheduler(f"it asks for devices of class {quoted(min(others))}, too")
    for name in sorted(of_driver):
        if not classes[name].selects_every_gpu:
            return LeftToScheduler(f"the selectors of class {quoted(name)} are not evaluated")
    try:
        devices = msgspec.convert(spec, _ClaimSpec).devices
    except msgspec.ValidationError as error:
        return LeftToScheduler(f"a field of it is not evaluated: {quoted(str(error))}")
    if devices.constraints:
        return LeftToScheduler("its constraints are not evaluated")
    return _amounts_of(devices)


def _amounts_of(devices: _Devices) -> Amounts | LeftToScheduler:
    """Return the GPUs of each request."""
    amounts: list[tuple[str, int]] = []
    for request in devices.requests or ():
        if reason := _obstacle(request):
            return LeftToScheduler(f"request {quoted(request.name)} {reason}")
        amounts.append((request.name, request.exactly.count if request.exactly else 0))
    if not 0 < sum(count for _, count in amounts) <= RESULTS_MAX:
        return LeftToScheduler(f"a claim has 1 to {RESULTS_MAX} devices")
    return tuple(amounts)


def _obstacle(request: _Request) -> str | None:
    """Return why a request is not evaluated."""
    exactly = request.exactly
    if exactly is None or request.first_available:
        return "has alternatives (firstAvailable)"
    if exactly.admin_access:
        return "has adminAccess"
    if exactly.capacity:
        return "asks for capacity of a device"
    if exactly.allocation_mode != "ExactCount" or exactly.count < 1:
        return f"has allocationMode {quoted(exactly.allocation_mode)}"
    for selector in exactly.selectors or ():
        if selector.cel is None or not selects_every_gpu(selector.cel.expression):
            return "has a selector, and these are not evaluated"
    return None


def template_names(spec: NewPodSpec) -> frozenset[str]:
    """Return the templates that a pod names."""
    names = (claim.resource_claim_template_name for claim in spec.resource_claims or ())
    return frozenset(filter(None, names))


def uses_template(spec: NewPodSpec) -> bool:
    """Return whether a container refers to a claim that is made from a template."""
    made = {one.name for one in spec.resource_claims or () if one.resource_claim_template_name}
    return bool(made) and any(
        claim.name in made
        for container in all_containers(spec)
        for claim in (container.resources.claims if container.resources else None) or ()
    )


def claim_from_templates(
    spec: NewPodSpec, asked: Mapping[str, Asked]
) -> TemplateClaim | LeftToScheduler | None:
    """Return the GPUs that a pod gets by the claim of a template; None: by none.

    Args:
        spec: Spec of the pod.
        asked: What templates ask for, by name.
    """
    claims = spec.resource_claims or ()
    found = [
        (claim, what)
        for claim in claims
        if (what := asked.get(claim.resource_claim_template_name or "")) is not None
    ]
    for claim, what in found:
        if isinstance(what, LeftToScheduler):
            return LeftToScheduler(f"template {claim.resource_claim_template_name}: {what.reason}")
    if not found:
        return None
    if len(found) > 1:
        return LeftToScheduler("several of its claims ask for GPUs")
    if named := next(filter(None, (claim.resource_claim_name for claim in claims)), None):
        return LeftToScheduler(f"it names claim {quoted(named)}, which other pods may use, too")
    if resource := _resource(spec):
        return LeftToScheduler(f"it asks for {resource}, too")
    claim, what = found[0]
    return TemplateClaim(claim.name, what) if isinstance(what, tuple) else None


def _resource(spec: NewPodSpec) -> str | None:
    """Return a resource of GPUs that a container names beside claims."""
    named = (
        name
        for container in all_containers(spec)
        for amounts in (container.limits, container.requests)
        for name in amounts
    )
    return next((name for name in named if name in RESOURCES), None)


def read_template_claim(pod: NewPod) -> tuple[TemplateClaim | None, Sequence[Finding]]:
    """Return the GPUs that a pod gets by the claim of its template, as admission has written them.

    None: by none, or the annotation is unreadable.
    """
    text = pod.annotations.get(CLAIMED_GPUS)
    if text is None or not template_names(pod.spec):
        return None, ()
    try:
        texts = _amounts.decode(text) if len(text) <= _LONGEST else {}
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        texts = {}
    parts = {name: name.partition("/") for name in texts}
    references = {reference for reference, _, _ in parts.values()}
    made = {one.name for one in pod.spec.resource_claims or () if one.resource_claim_template_name}
    if len(references) != 1 or not references <= made:
        message = f"{quoted(text)} is no number of GPUs for each request of one claim of the pod"
        fix = "remove the annotation: admission writes it"
        return None, [
            Finding(
                Code.CLAIM_REFERENCE,
                Severity.ERROR,
                _ANNOTATION,
                text[:_LONGEST],
                message,
                fix,
            )
        ]
    amounts = tuple((request, texts[name]) for name, (_, _, request) in parts.items())
    return TemplateClaim(references.pop(), amounts), ()
