"""Find unknown resources whose names are similar to those of GPU resources."""

from collections.abc import Iterator
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice

from cluster.container_request import amount_path, indexed_containers
from cluster.finding import Code, Finding, Severity
from cluster.keys import GPU_WHOLE, HAMI_RESOURCES, MIG_PREFIX, RESOURCES
from cluster.pod import Amounts, NewPodSpec
from cluster.quantity import is_zero

_KNOWN = frozenset((*RESOURCES, "cpu", "memory", "ephemeral-storage"))
_MAX_LENGTH = 64
"""Longer names are not compared, to limit the cost."""
_MAX_FINDINGS = 8
"""Findings for one pod."""
_SIMILARITY = 0.92
"""Minimum similarity: one or two letters differ. Device plugins may have other names."""
_SIMILARITY_OURS = 0.6
"""The same for the prefix `aliyun.com/gpu`, which no other device plugin uses."""


def misspelled(spec: NewPodSpec) -> list[Finding]:
    """Return a warning for each of the first few misspelled resources.

    Cost: about 1 µs a container; 0.3 ms for a name that is not cached.
    """
    findings: list[Finding] = []
    for init, index, container in indexed_containers(spec):
        resources = container.resources
        if resources is None:
            continue
        limits, requests = resources.limits or {}, resources.requests or {}
        if _KNOWN.issuperset(limits) and _KNOWN.issuperset(requests):
            continue  # Fast path: nearly every pod.
        more = _findings(init, index, limits, requests)
        findings += islice(more, _MAX_FINDINGS - len(findings))
    return findings


def near(resource: str) -> str | None:
    """Return the resource that is probably meant; None for a known or unrelated name."""
    if "/" not in resource or resource in _KNOWN or len(resource) > _MAX_LENGTH:
        return None
    return _near(resource)


def _findings(init: bool, index: int, limits: Amounts, requests: Amounts) -> Iterator[Finding]:
    for resource, amount in {**requests, **limits}.items():
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
    longer = [name for name in RESOURCES if is_ours and name.startswith(resource)]
    cutoff = _SIMILARITY_OURS if is_ours else _SIMILARITY
    return next(iter(longer or get_close_matches(resource.lower(), RESOURCES, 1, cutoff)), None)
