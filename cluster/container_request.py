"""Which GPU resources each container of a pod names, and what is wrong with them there."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from cluster.amounts import check_amount, sound_amount, unreadable
from cluster.finding import Code, Finding, Severity
from cluster.keys import GPU_CORE, GPU_MEM, RESOURCES
from cluster.pod import Amount, NewContainer, NewPodSpec
from cluster.quantity import QuantityError, is_zero, parse_quantity


class ContainerRequest(Struct, frozen=True, gc=False):
    """The GPU resources that one container names; a container that names none has no claim.

    An amount of 0 asks for nothing, so that its resource counts as not named.
    """

    container: str
    """Its name."""
    index: int
    """Its place in `spec.containers`, or in `spec.initContainers`."""
    init: bool
    sidecar: bool
    """It is an init container that keeps running beside the app containers."""
    limits: dict[str, Amount]
    requests: dict[str, Amount]
    named: dict[str, Amount]
    """Each resource's limit; where only a request is given, that."""

    def field(self, resource: str) -> str:
        """Return the path of a resource that it names."""
        part = "limits" if resource in self.limits else "requests"
        return amount_path(self.index, self.init, part, resource)


def amount_path(index: int, init: bool, part: str, resource: str) -> str:
    """Return the path of a container's amount; `part` is `limits` or `requests`."""
    containers = "initContainers" if init else "containers"
    return f"spec.{containers}[{index}].resources.{part}[{resource}]"


def container_requests(spec: NewPodSpec) -> list[ContainerRequest]:
    """Return the claims of a pod: app containers first, then init containers, in their order."""
    claims = _claims(spec.containers, False)
    if spec.init_containers:
        claims += _claims(spec.init_containers, True)
    return claims


def read_container_request(
    claim: ContainerRequest, cards: int | None
) -> tuple[dict[str, int], list[Finding]]:
    """Return a claim's amounts by resource, 0 where one cannot be read, and all its findings.

    Args:
        claim: What the container names.
        cards: As `amounts.check_amount` takes it.
    """
    amounts: dict[str, int] = {}
    findings: list[Finding] = []
    limits, requests = claim.limits, claim.requests
    for resource, value in claim.named.items():
        amount = sound_amount(resource, value, cards)
        is_sound = amount is not None
        if amount is None:
            amount, finding = check_amount(resource, value, claim.field(resource), cards)
            is_sound = finding is None
            if finding is not None:
                findings.append(finding)
        amounts[resource] = amount
        if requests.get(resource, value) != limits.get(resource):
            findings += _request_findings(claim, resource, limit_is_read=is_sound)
    if GPU_CORE in amounts and GPU_MEM not in amounts:
        findings.append(
            Finding(
                Code.CORE_ALONE,
                Severity.ERROR,
                claim.field(GPU_CORE),
                claim.named[GPU_CORE],
                f"compute cannot be asked alone: the container names no {GPU_MEM}",
                f"add {GPU_MEM} with the GiB it needs beside it",
            )
        )
    return amounts, findings


def _claims(containers: Sequence[NewContainer], init: bool) -> list[ContainerRequest]:
    claims = []
    for index, container in enumerate(containers):
        resources = container.resources
        if resources is None:
            continue
        named: dict[str, Amount] = {}
        limits, requests = resources.limits or {}, resources.requests or {}
        for resource in limits | requests:
            if resource in _RESOURCES and not (
                is_zero(limits.get(resource, 0)) and is_zero(requests.get(resource, 0))
            ):
                named[resource] = limits[resource] if resource in limits else requests[resource]
        if named:
            sidecar = init and container.restart_policy == "Always"
            claims.append(
                ContainerRequest(container.name, index, init, sidecar, limits, requests, named)
            )
    return claims


def _request_findings(
    claim: ContainerRequest, resource: str, *, limit_is_read: bool
) -> Iterator[Finding]:
    """Yield what is wrong with a request that is not written as its limit: it must equal it."""
    request = claim.requests[resource]
    limit = claim.limits.get(resource)
    field = amount_path(claim.index, claim.init, "requests", resource)
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


_RESOURCES = frozenset(RESOURCES)
