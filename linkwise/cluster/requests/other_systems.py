"""GPU requests that other systems serve: MIG devices, DRA claims, HAMi shares."""

from collections.abc import Iterator

from linkwise.cluster.keys import (
    AMD_PREFIX,
    HAMI_RESOURCES,
    HAMI_SCHEDULER,
    MIG_PREFIX,
    NVIDIA_PREFIX,
    RESOURCES,
)
from linkwise.cluster.objects.container import NewContainer
from linkwise.cluster.objects.pod import NewPodSpec, PodSpec
from linkwise.cluster.objects.quantity import is_zero
from linkwise.cluster.requests.container_request import all_containers
from linkwise.cluster.requests.request import Family

_VENDORS = (NVIDIA_PREFIX, AMD_PREFIX)
"""Prefixes of resources by which containers get GPUs."""
_MAX_NAMES = 3
"""Maximum number of resources in a message."""


def gpus_of_others(spec: PodSpec, family: Family | None) -> str | None:
    """Return the request for other systems, such as `MIG devices (nvidia.com/mig-1g.5gb)`, or None.

    Args:
        spec: Spec of the pod.
        family: Family of its request. With a family of ours, other resources or a DRA claim do not
            make it a pod of another system.
    """
    if family not in (None, Family.NVIDIA):
        return None
    named = dict.fromkeys(_resources(spec))
    hami = [one for one in named if one in HAMI_RESOURCES]
    if hami or (family is Family.NVIDIA and spec.scheduler_name == HAMI_SCHEDULER):
        return f"shares of GPUs from HAMi ({_few(hami or [f'scheduler {HAMI_SCHEDULER}'])})"
    if family is Family.NVIDIA:
        return None
    if mig := [one for one in named if one.startswith(MIG_PREFIX)]:
        return f"MIG devices ({_few(mig)})"
    return "devices by a claim (DRA, spec.resourceClaims)" if spec.resource_claims else None


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


def _resources(spec: PodSpec) -> Iterator[str]:
    for container in all_containers(spec):
        for amounts in (container.limits, container.requests):
            yield from (one for one, amount in amounts.items() if not is_zero(amount))


def _few(names: list[str]) -> str:
    return ", ".join([*names[:_MAX_NAMES], *(["…"] if names[_MAX_NAMES:] else [])])
