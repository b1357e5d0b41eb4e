"""Resources that no device plugin offers, whose names are nearly those of GPU resources."""

from collections.abc import Iterator
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice

from cluster.container_request import amount_path
from cluster.finding import Code, Finding, Severity
from cluster.keys import GPU_WHOLE, HAMI_RESOURCES, MIG_PREFIX, RESOURCES
from cluster.pod import NewPodSpec
from cluster.quantity import is_zero

_RIGHT = frozenset((*RESOURCES, "cpu", "memory", "ephemeral-storage"))
_LONGEST = 64
"""A longer name is no slip of one of ours, and comparing takes time."""
_MOST = 8
"""Names of one pod that are told."""
_SLIP = 0.92
"""How alike two names are that differ by one or two letters; device plugins may have others."""
_OURS = 0.6
"""The same under `aliyun.com/gpu`, where nobody else offers anything."""


def misspelled(spec: NewPodSpec) -> Iterator[Finding]:
    """Yield a warning for each of the first few resources with such a name.

    Cost: about 1 µs a container; 0.3 ms for a name that was never seen, or is so no more.
    """
    return islice(_found(spec), _MOST)


def near(resource: str) -> str | None:
    """Return the resource that is probably meant; None for one that is right, or another's."""
    if "/" not in resource or resource in _RIGHT or len(resource) > _LONGEST:
        return None
    return _near(resource)


def _found(spec: NewPodSpec) -> Iterator[Finding]:
    for init, containers in ((False, spec.containers), (True, spec.init_containers or ())):
        for index, container in enumerate(containers):
            resources = container.resources
            if resources is None:
                continue
            limits, requests = resources.limits or {}, resources.requests or {}
            if _RIGHT.issuperset(limits) and _RIGHT.issuperset(requests):
                continue  # Nearly every pod, and this is on the path of each admission.
            named = {**requests, **limits}
            for resource, amount in named.items():
                meant = near(resource)
                if meant is None or is_zero(amount):
                    continue
                part = "limits" if resource in limits else "requests"
                yield Finding(
                    Code.MISSPELT,
                    Severity.WARNING,
                    amount_path(index, init, part, resource),
                    amount,
                    f"resource {resource} is not known; the nearest is {meant}",
                    f"write {meant}, unless a device plugin of your own offers {resource}",
                )


@lru_cache(maxsize=1024)
def _near(resource: str) -> str | None:
    if resource in HAMI_RESOURCES or resource.startswith(MIG_PREFIX):
        return None
    is_ours = resource.startswith(GPU_WHOLE)
    longer = [one for one in RESOURCES if is_ours and one.startswith(resource)]
    cutoff = _OURS if is_ours else _SLIP
    return next(iter(longer or get_close_matches(resource.lower(), RESOURCES, 1, cutoff)), None)
