"""Read the GPU resources of each container, and iterate over the containers of a pod."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from linkwise.cluster.finding import Code, Finding, Severity
from linkwise.cluster.keys import GPU_CORE, GPU_MEM, RESOURCES
from linkwise.cluster.objects.container import Amount, Amounts, NewContainer
from linkwise.cluster.objects.pod import NewPodSpec
from linkwise.cluster.objects.quantity import QuantityError, is_zero, parse_quantity
from linkwise.cluster.requests.amounts import check_amount, sound_amount, unreadable


class ContainerResources(Struct, frozen=True, gc=False):
    """GPU resources that one container names, at least one; an amount of 0 does not count."""

    container: str
    """Name of the container."""
    index: int
    """Index in `spec.containers` or `spec.initContainers`."""
    init: bool
    """It is an init container (or a sidecar)."""
    sidecar: bool
    """It is a sidecar: an init container that keeps running."""
    limits: dict[str, Amount]
    requests: dict[str, Amount]
    named: dict[str, Amount]
    """Limit of each resource; its request where it has no limit."""

    def field(self, resource: str) -> str:
        """Return the path of the amount of a named resource."""
        part = "limits" if resource in self.limits else "requests"
        return amount_path(self.index, self.init, part, resource)


def all_containers(spec: NewPodSpec) -> Sequence[NewContainer]:
    """Return the app containers, then the init containers."""
    init_containers = spec.init_containers
    return (*spec.containers, *init_containers) if init_containers else spec.containers


def indexed_containers(spec: NewPodSpec) -> Iterator[tuple[bool, int, NewContainer]]:
    """Yield (is it an init container, index, container): app containers, then init containers.

    For a single container, which nearly every pod has, a generator is faster than a list.
    """
    for index, container in enumerate(spec.containers):
        yield False, index, container
    if spec.init_containers:
        for index, container in enumerate(spec.init_containers):
            yield True, index, container


def container_path(init: bool, index: int) -> str:
    """Return the path of a container, such as `spec.containers[0]`."""
    return f"spec.{'initContainers' if init else 'containers'}[{index}]"


def container_pointer(init: bool, index: int) -> str:
    """Return the JSON pointer to a container, such as `/spec/containers/0`."""
    return f"/spec/{'initContainers' if init else 'containers'}/{index}"


def amount_path(index: int, init: bool, part: str, resource: str) -> str:
    """Return the path of a container's amount; `part` is `limits` or `requests`."""
    return f"{container_path(init, index)}.resources.{part}[{resource}]"


def container_resources(spec: NewPodSpec) -> list[ContainerResources]:
    """Return the requests of all containers that name GPU resources: app containers first."""
    found = []
    for init, index, container in indexed_containers(spec):
        resources = container.resources
        if resources is None:
            continue
        limits, requests = resources.limits or {}, resources.requests or {}
        if named := _named_resources(limits, requests):
            sidecar = init and container.restart_policy == "Always"
            found.append(
                ContainerResources(container.name, index, init, sidecar, limits, requests, named)
            )
    return found


def read_container_resources(
    request: ContainerResources, cards: int | None
) -> tuple[dict[str, int], list[Finding]]:
    """Return the amount of each resource, 0 where it is invalid, and all findings.

    Args:
        request: The request of one container.
        cards: As in `amounts.check_amount`.
    """
    amounts: dict[str, int] = {}
    findings: list[Finding] = []
    for resource, value in request.named.items():
        amount = sound_amount(resource, value, cards)
        is_valid = amount is not None
        if amount is None:
            amount, finding = check_amount(resource, value, request.field(resource), cards)
            is_valid = finding is None or finding.severity is Severity.WARNING
            if finding is not None:
                findings.append(finding)
        amounts[resource] = amount
        if request.requests.get(resource, value) != request.limits.get(resource):
            findings += _request_findings(request, resource, limit_is_valid=is_valid)
    if GPU_CORE in amounts and GPU_MEM not in amounts:
        findings.append(
            Finding(
                Code.CORE_ALONE,
                Severity.ERROR,
                request.field(GPU_CORE),
                request.named[GPU_CORE],
                f"compute cannot be asked alone: the container names no {GPU_MEM}",
                f"add {GPU_MEM} with the GiB it needs beside it",
            )
        )
    return amounts, findings


def zero_compute_findings(
    spec: NewPodSpec, named: list[ContainerResources], cards: int | None
) -> Iterator[Finding]:
    """Yield a finding for each container with compute of 0, in a pod that requests GPU memory.

    Elsewhere an amount of 0 requests nothing. But the least compute of a share is one step (ACK).

    Args:
        spec: Spec of the pod.
        named: What its containers request.
        cards: As in `amounts.check_amount`.
    """
    if not any(GPU_MEM in resources.named for resources in named):
        return
    for init, index, container in indexed_containers(spec):
        limits, requests = container.limits, container.requests
        part, amounts = ("limits", limits) if GPU_CORE in limits else ("requests", requests)
        if GPU_CORE not in amounts or GPU_CORE in _named_resources(limits, requests):
            continue
        field = amount_path(index, init, part, GPU_CORE)
        _, finding = check_amount(GPU_CORE, amounts[GPU_CORE], field, cards)
        if finding is not None:
            yield finding


def _named_resources(limits: Amounts, requests: Amounts) -> Amounts:
    named: Amounts = {}
    for resource in limits | requests:
        if resource in _RESOURCES and not (
            is_zero(limits.get(resource, 0)) and is_zero(requests.get(resource, 0))
        ):
            named[resource] = limits[resource] if resource in limits else requests[resource]
    return named


def _request_findings(
    request: ContainerResources, resource: str, *, limit_is_valid: bool
) -> Iterator[Finding]:
    """Yield a finding for a `requests` amount that differs from its limit."""
    amount = request.requests[resource]
    limit = request.limits.get(resource)
    field = amount_path(request.index, request.init, "requests", resource)
    if limit is None:
        message = f"{resource} is requested without a limit, and Kubernetes wants both equal"
        yield _request_finding(field, amount, message, f"add {resource}: {amount} to limits")
        return
    try:
        requested = parse_quantity(amount)
    except QuantityError as error:
        yield unreadable(amount, field, error, resource)
        return
    if limit_is_valid and requested != parse_quantity(limit):
        message = f"the request is {amount} but the limit {limit}, and Kubernetes wants both equal"
        fix = f"write {limit} here too, or leave the request out"
        yield _request_finding(field, amount, message, fix)


def _request_finding(field: str, value: Amount, message: str, fix: str) -> Finding:
    return Finding(Code.REQUEST_IS_LIMIT, Severity.ERROR, field, value, message, fix)


_RESOURCES = frozenset(RESOURCES)
