"""Which GPU resources each container of a pod names, and what is wrong with them there."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from cluster.amounts import check_amount, unreadable
from cluster.finding import Code, Finding, Severity
from cluster.keys import GPU_CORE, GPU_MEM, RESOURCES
from cluster.pod import Amount, NewContainer, NewPodSpec
from cluster.quantity import QuantityError, parse_quantity


class Claim(Struct, frozen=True, gc=False):
    """The GPU resources that one container names; a container that names none has no claim."""

    container: str
    """Its name."""
    index: int
    """Its place in `spec.containers`, or in `spec.initContainers`."""
    init: bool
    sidecar: bool
    """It is an init container that keeps running beside the app containers."""
    limits: dict[str, Amount]
    requests: dict[str, Amount]
    named: dict[str, tuple[Amount, str]]
    """Each resource's limit and its path; where only a request is given, that."""


def claims_of(spec: NewPodSpec) -> list[Claim]:
    """Return the claims of a pod: app containers first, then init containers, in their order."""
    claims = _claims(spec.containers, "spec.containers")
    if spec.init_containers:
        claims += _claims(spec.init_containers, _INIT)
    return claims


def read_claim(claim: Claim, cards: int | None) -> tuple[dict[str, int], list[Finding]]:
    """Return a claim's amounts by resource, 0 where one cannot be read, and all its findings.

    Args:
        claim: What the container names.
        cards: As `amounts.check_amount` takes it.
    """
    amounts: dict[str, int] = {}
    findings: list[Finding] = []
    limits, requests = claim.limits, claim.requests
    for resource, (value, field) in claim.named.items():
        amounts[resource], finding = check_amount(resource, value, field, cards)
        if finding is not None:
            findings.append(finding)
        if requests.get(resource, value) != limits.get(resource):
            findings += _request_findings(claim, resource, limit_is_read=finding is None)
    if GPU_CORE in amounts and GPU_MEM not in amounts:
        value, field = claim.named[GPU_CORE]
        findings.append(
            Finding(
                Code.CORE_ALONE,
                Severity.ERROR,
                field,
                value,
                f"compute cannot be asked alone: the container names no {GPU_MEM}",
                f"add {GPU_MEM} with the GiB it needs beside it",
            )
        )
    return amounts, findings


def _claims(containers: Sequence[NewContainer], path: str) -> list[Claim]:
    claims, init = [], path is _INIT
    for index, container in enumerate(containers):
        resources = container.resources
        if resources is None:
            continue
        named: dict[str, tuple[Amount, str]] = {}
        limits, requests = resources.limits or {}, resources.requests or {}
        for resource in limits | requests:
            if resource in _RESOURCES:
                part, amounts = ("limits", limits) if resource in limits else ("requests", requests)
                field = f"{path}[{index}].resources.{part}[{resource}]"
                named[resource] = (amounts[resource], field)
        if named:
            sidecar = init and container.restart_policy == "Always"
            claims.append(Claim(container.name, index, init, sidecar, limits, requests, named))
    return claims


def _request_findings(claim: Claim, resource: str, *, limit_is_read: bool) -> Iterator[Finding]:
    """Yield what is wrong with a request that is not written as its limit: it must equal it."""
    request = claim.requests[resource]
    limit = claim.limits.get(resource)
    field = claim.named[resource][1].replace(".limits[", ".requests[")
    if limit is None:
        message = f"{resource} is requested without a limit, and Kubernetes wants both equal"
        yield _request_finding(field, request, message, f"add {resource}: {request} to limits")
        return
    try:
        requested = parse_quantity(request)
    except QuantityError as problem:
        yield unreadable(request, field, problem)
        return
    if limit_is_read and requested != parse_quantity(limit):
        message = f"the request is {request} but the limit {limit}, and Kubernetes wants both equal"
        fix = f"write {limit} here too, or leave the request out"
        yield _request_finding(field, request, message, fix)


def _request_finding(field: str, value: Amount, message: str, fix: str) -> Finding:
    return Finding(Code.REQUEST_IS_LIMIT, Severity.ERROR, field, value, message, fix)


_INIT = "spec.initContainers"
_RESOURCES = frozenset(RESOURCES)
