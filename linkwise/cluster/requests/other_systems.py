"""GPU requests that other systems serve: MIG devices, DRA claims, HAMi shares, other vendors."""

from collections.abc import Iterator, Mapping

from linkwise.cluster.accelerator_keys import ACCELERATORS, KAI_FRACTIONS
from linkwise.cluster.keys import (
    AMD_PREFIX,
    DEFAULT_SCHEDULER,
    HAMI_RESOURCES,
    HAMI_SCHEDULER,
    MIG_PREFIX,
    NVIDIA_PREFIX,
    RESOURCES,
    SCHEDULER,
)
from linkwise.cluster.objects.container import NewContainer
from linkwise.cluster.objects.pod import NewPodSpec
from linkwise.cluster.objects.quantity import is_zero
from linkwise.cluster.requests.container_request import all_containers
from linkwise.cluster.requests.request import Family

_VENDORS = (NVIDIA_PREFIX, AMD_PREFIX)
"""Prefixes of resources by which containers get GPUs."""
CLAIMED_DEVICES = "devices by a claim (DRA, spec.resourceClaims)"
_OF_KAI = "a part of a GPU from KAI Scheduler"
_NAME_MAX = 63
"""Of a name in a message [characters]."""
_MAX_NAMES = 3
"""Maximum number of resources in a message."""


def gpus_of_others(
    spec: NewPodSpec, family: Family | None, annotations: Mapping[str, str] | None = None
) -> str | None:
    """Return the request for other systems, such as `MIG devices (nvidia.com/mig-1g.5gb)`, or None.

    Args:
        spec: Spec of the pod.
        family: Family of its request. With a family of ours, other resources or a DRA claim do not
            make it a pod of another system.
        annotations: Of the pod.
    """
    if family not in (None, Family.NVIDIA):
        return None
    if shares := shares_of_others(spec, family):
        return shares
    if family is Family.NVIDIA:
        named = spec.scheduler_name
        is_stock = named in {"", DEFAULT_SCHEDULER, SCHEDULER}
        return None if is_stock else f"GPUs from scheduler {named[:_NAME_MAX]}"
    parts = (one for one in KAI_FRACTIONS if one in (annotations or {}))
    found = (*_devices_of_others(spec), *(f"{_OF_KAI} (annotation {one})" for one in parts))
    return next(iter(found), None)


def _devices_of_others(spec: NewPodSpec) -> Iterator[str]:
    names = list(dict.fromkeys(_resources(spec)))
    if mig := [one for one in names if one.startswith(MIG_PREFIX)]:
        yield f"MIG devices ({_few(mig)})"
    if spec.resource_claims:
        yield CLAIMED_DEVICES
    for prefix, whose in ACCELERATORS:
        if known := [one for one in names if one.startswith(prefix)]:
            yield f"{whose} ({_few(known)})"


def shares_of_others(spec: NewPodSpec, family: Family | None) -> str | None:
    """Return the shares of GPUs that a pod has from HAMi, in words, or None."""
    hami = list(dict.fromkeys(one for one in _resources(spec) if one in HAMI_RESOURCES))
    if hami or (family is Family.NVIDIA and spec.scheduler_name == HAMI_SCHEDULER):
        return f"shares of GPUs from HAMi ({_few(hami or [f'scheduler {HAMI_SCHEDULER}'])})"
    return None


def uses_other_devices(spec: NewPodSpec) -> bool:
    """Return whether another system gives devices to any container of a pod."""
    return bool(spec.resource_claims) or any(map(has_other_devices, all_containers(spec)))


def has_other_devices(container: NewContainer) -> bool:
    """Return whether another system gives devices to a container.

    By a DRA claim or a resource of AMD, HAMi or NVIDIA, such as a MIG device or a name that an
    administrator chose for some GPUs of NVIDIA's plugin.
    """
    resources = container.resources
    if resources is None:
        return False
    return bool(resources.claims) or any(
        name.startswith(_VENDORS) and name not in RESOURCES and not is_zero(amount)
        for amounts in (resources.limits, resources.requests)
        for name, amount in (amounts or {}).items()
    )


def _resources(spec: NewPodSpec) -> Iterator[str]:
    for container in all_containers(spec):
        for amounts in (container.limits, container.requests):
            yield from (one for one, amount in amounts.items() if not is_zero(amount))


def _few(names: list[str]) -> str:
    return ", ".join([*names[:_MAX_NAMES], *(["…"] if names[_MAX_NAMES:] else [])])
