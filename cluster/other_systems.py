"""GPUs that others give out: MIG devices, claims of DRA, shares of HAMi."""

from collections.abc import Iterator

from cluster.keys import HAMI_RESOURCES, HAMI_SCHEDULER, MIG_PREFIX
from cluster.pod import PodSpec
from cluster.quantity import is_zero
from cluster.request import Family

_MOST = 3
"""Resources that are named."""


def gpus_of_others(spec: PodSpec, family: Family | None) -> str | None:
    """Return what a pod asks others for, such as `MIG devices (nvidia.com/mig-1g.5gb)`, or None.

    Args:
        spec: The pod's.
        family: What it asks for by names that Linkwise knows: GPUs of other kinds beside them, or
            a claim for a device that is no GPU, are no reason to leave it alone.
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


def _resources(spec: PodSpec) -> Iterator[str]:
    for container in (*spec.containers, *(spec.init_containers or ())):
        for amounts in (container.limits, container.requests):
            yield from (one for one, amount in amounts.items() if not is_zero(amount))


def _few(names: list[str]) -> str:
    return ", ".join([*names[:_MOST], *(["…"] if names[_MOST:] else [])])
