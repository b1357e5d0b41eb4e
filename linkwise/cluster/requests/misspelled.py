"""Find unknown resources whose names are similar to those of GPU resources."""

from collections.abc import Iterator
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice

from linkwise.cluster.finding import Code, Finding, Severity
from linkwise.cluster.keys import (
    GPU_COUNT,
    GPU_MEM,
    GPU_WHOLE,
    HAMI_RESOURCES,
    MIG_PREFIX,
    RESOURCES,
)
from linkwise.cluster.objects.container import Amount, Amounts
from linkwise.cluster.objects.pod import NewPodSpec
from linkwise.cluster.objects.quantity import is_zero
from linkwise.cluster.requests.container_request import (
    all_containers,
    amount_path,
    indexed_containers,
)

_KNOWN = frozenset((*RESOURCES, "cpu", "memory", "ephemeral-storage"))
_MAX_LENGTH = 64
"""Longer names are not compared, to limit the cost."""
_MAX_COMPARED = 64
"""Unknown names of one pod that are compared. One comparison takes up to 0.3 ms."""
_MAX_FINDINGS = 8
"""Findings for one pod."""
_SIMILARITY = 0.92
"""Minimum similarity: one or two letters differ. Device plugins may have other names."""
_SIMILARITY_OURS = 0.6
"""The same for the prefix `aliyun.com/gpu`, which no other device plugin uses."""


def misspelled(spec: NewPodSpec) -> list[Finding]:
    """Return a warning for each of the first few misspelled resources.

    Cost: about 1 µs a container, and the cost of `misspelled_names`.
    """
    meant = misspelled_names(spec)
    return list(islice(_findings(spec, meant), _MAX_FINDINGS)) if meant else []


def misspelled_names(spec: NewPodSpec) -> dict[str, str]:
    """Return the resource that is probably meant by each misspelled name of a pod.

    Cost: linear, and at most `_MAX_COMPARED` comparisons, whose results are cached.
    """
    names: dict[str, None] = {}
    for container in all_containers(spec):
        resources = container.resources
        if resources is None:
            continue
        for amounts in (resources.limits, resources.requests):
            # Fast path: the names of nearly every container are known.
            if amounts and not _KNOWN.issuperset(amounts):
                names |= dict.fromkeys(name for name in amounts if _is_unknown(name))
    compared = ((name, near(name)) for name in islice(names, _MAX_COMPARED))
    return {name: meant for name, meant in compared if meant is not None}


def near(resource: str) -> str | None:
    """Return the resource that is probably meant; None for a known or unrelated name."""
    return _near(resource) if _is_unknown(resource) else None


def _is_unknown(resource: str) -> bool:
    return "/" in resource and resource not in _KNOWN and len(resource) <= _MAX_LENGTH


def _findings(spec: NewPodSpec, meant: dict[str, str]) -> Iterator[Finding]:
    for init, index, container in indexed_containers(spec):
        limits, requests = container.limits, container.requests
        amounts: Amounts = {**requests, **limits}
        for resource, amount in amounts.items():
            if resource not in meant or is_zero(amount):
                continue
            part = "limits" if resource in limits else "requests"
            if resource == GPU_COUNT:
                field = amount_path(index, init, part, resource)
                yield _cards_as_resource(field, amount, is_share=GPU_MEM in limits)
                continue
            yield Finding(
                Code.MISSPELT,
                Severity.WARNING,
                amount_path(index, init, part, resource),
                amount,
                f"resource {resource} is not known; the nearest is {meant[resource]}",
                f"write {meant[resource]}, unless a device plugin of your own offers {resource}",
            )


def _cards_as_resource(field: str, amount: Amount, *, is_share: bool) -> Finding:
    """Return the finding about a number of cards that is written as a resource."""
    remedy = f"write {GPU_COUNT} as a label of the pod, with the number in quotes"
    if not is_share:
        remedy = (
            f"ask for {GPU_WHOLE} to get whole GPUs; for a share, ask for {GPU_MEM} and {remedy}"
        )
    message = (
        f"{GPU_COUNT} is a label of pods: as a resource it asks for nothing that nodes give out"
    )
    return Finding(Code.MISSPELT, Severity.WARNING, field, amount, message, remedy)


@lru_cache(maxsize=1024)
def _near(resource: str) -> str | None:
    if resource in HAMI_RESOURCES or resource.startswith(MIG_PREFIX):
        return None
    is_ours = resource.startswith(GPU_WHOLE)
    longer = [name for name in RESOURCES if is_ours and name.startswith(resource)]
    cutoff = _SIMILARITY_OURS if is_ours else _SIMILARITY
    return next(iter(longer or get_close_matches(resource.lower(), RESOURCES, 1, cutoff)), None)
