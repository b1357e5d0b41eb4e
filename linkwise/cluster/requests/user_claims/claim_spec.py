"""Read the specification of a claim: the GPUs of its requests, or what of it is not evaluated."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import msgspec
from msgspec import Struct, field

from linkwise.cluster.finding import quoted
from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.cluster.objects.metadata import Metadata
from linkwise.cluster.requests.user_claims.device_class import (
    SELECTORS_MAX,
    Body,
    DeviceClass,
    Selector,
    class_names,
    selectors_of,
)
from linkwise.cluster.requests.user_claims.matching import Amounts, Constraint, read_constraints

_WITHOUT_EXACTLY = frozenset({"v1alpha3", "v1beta1"})
"""Versions of the API in which a request has the fields of `exactly` itself."""
RESULTS_MAX = 32
"""Devices of a claim; the API server accepts no more."""


@dataclass(frozen=True, slots=True)
class ClaimedDevices:
    """Whole GPUs that a claim asks for."""

    amounts: Amounts
    selectors: tuple[str, ...] = ()
    """Expressions (CEL) that each of its GPUs has to satisfy; those that all satisfy are left out.
    """
    constraints: tuple[Constraint, ...] = ()

    @property
    def gpus(self) -> int:
        """All its GPUs."""
        return sum(count for _, count in self.amounts)

    def is_same(self, other: "ClaimedDevices") -> bool:
        """Return whether it asks for the same, in any order of the requests."""
        chosen_by = other.selectors, other.constraints
        is_as_many = sorted(self.amounts) == sorted(other.amounts)
        return is_as_many and (self.selectors, self.constraints) == chosen_by


@dataclass(frozen=True, slots=True)
class Delegated:
    """A claim for GPUs that kube-scheduler allocates."""

    reason: str
    """What Linkwise does not evaluate, for users."""


Asked: TypeAlias = ClaimedDevices | Delegated | None
"""What a claim or template asks for: whole GPUs alone, or what is not evaluated; None: no GPUs."""


class _Strict(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A field that Linkwise does not know may change what a claim means."""


class _Exactly(_Strict, frozen=True):
    device_class_name: str
    selectors: list[Selector] | None = None
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

    api_version: str = ""
    metadata: Metadata = Metadata()
    spec: _Template = _Template()

    @property
    def claim_spec(self) -> Body:
        """The specification of the claims that are made from it, in the form of v1."""
        return present_form(self.spec.spec, self.api_version)


def present_form(spec: Body, api_version: str) -> Body:
    """Return the specification of a claim of any version in the form of v1."""
    if api_version.rpartition("/")[2] not in _WITHOUT_EXACTLY:
        return spec
    devices = spec.get("devices")
    requests = devices.get("requests") if isinstance(devices, dict) else None
    if not isinstance(devices, dict) or not isinstance(requests, list):
        return spec
    return {**spec, "devices": {**devices, "requests": [*map(_with_exactly, requests)]}}


def _with_exactly(request: object) -> object:
    if not isinstance(request, dict) or "deviceClassName" not in request:
        return request
    exactly = {key: value for key, value in request.items() if key != "name"}
    return {"name": request.get("name"), "exactly": exactly}


def asked_of(spec: Mapping[str, object], classes: Mapping[str, DeviceClass]) -> Asked:
    """Return what a claim asks for.

    Args:
        spec: Specification of a claim, or of the claims of a template.
        classes: The DeviceClasses that exist among `classes_to_read`.
    """
    names = frozenset(class_names(spec))
    of_driver = {name for name in names if name in classes and classes[name].is_of_driver}
    if not of_driver:
        return None
    if others := names - of_driver:
        return Delegated(f"it asks for devices of class {quoted(min(others))}, too")
    for name in sorted(of_driver):
        if isinstance(reason := selectors_of(classes[name].expressions), str):
            return Delegated(f"class {quoted(name)} has {reason}")
    try:
        devices = msgspec.convert(spec, _ClaimSpec).devices
    except msgspec.ValidationError as error:
        return Delegated(f"a field of it is not evaluated: {quoted(str(error))}")
    found = _devices_of(devices, classes)
    return _constrained(found, devices) if isinstance(found, ClaimedDevices) else found


def _constrained(found: ClaimedDevices, devices: _Devices) -> ClaimedDevices | Delegated:
    constraints = read_constraints(devices.constraints or [], frozenset(dict(found.amounts)))
    if isinstance(constraints, str):
        return Delegated(f"its constraints are not evaluated: {constraints}")
    return replace(found, constraints=constraints)


def _devices_of(
    devices: _Devices, classes: Mapping[str, DeviceClass]
) -> ClaimedDevices | Delegated:
    """Return the GPUs of each request."""
    # Before any is evaluated: a tenant writes them, and a template of 1.5 MB has many.
    if len(_expressions(devices)) > SELECTORS_MAX:
        return Delegated(f"it has more than {SELECTORS_MAX} selectors")
    amounts: list[tuple[str, int]] = []
    selectors: set[tuple[str, ...]] = set()
    for request in devices.requests or ():
        found = _selectors_of(request, classes)
        if isinstance(found, str):
            return Delegated(f"request {quoted(request.name)} has {found}")
        selectors.add(found)
        amounts.append((request.name, request.exactly.count if request.exactly else 0))
    if not 0 < sum(count for _, count in amounts) <= RESULTS_MAX:
        return Delegated(f"a claim has 1 to {RESULTS_MAX} devices")
    if len(selectors) > 1:
        return Delegated("its requests have different selectors")
    return ClaimedDevices(tuple(amounts), selectors.pop())


def _expressions(devices: _Devices) -> set[str]:
    exactly = (request.exactly for request in devices.requests or () if request.exactly)
    return {one.expression for each in exactly for one in each.selectors or ()}


def _selectors_of(request: _Request, classes: Mapping[str, DeviceClass]) -> tuple[str, ...] | str:
    """Return the selectors of a request and its class, or what it has that is not evaluated."""
    exactly = request.exactly
    if exactly is None or request.first_available:
        return "alternatives (firstAvailable)"
    if exactly.admin_access:
        return "adminAccess"
    if exactly.capacity:
        return "a capacity of devices"
    if exactly.allocation_mode != "ExactCount" or exactly.count < 1:
        return f"allocationMode {quoted(exactly.allocation_mode)}"
    expressions = classes[exactly.device_class_name].expressions
    return selectors_of([*expressions, *(one.expression for one in exactly.selectors or ())])
