"""Read the GPU request of a pod, with all findings about it."""

from collections.abc import Iterator

import msgspec

from linkwise.cluster.finding import Code, Finding, Severity
from linkwise.cluster.keys import (
    ALLOCATION,
    CLAIMED_GPUS,
    GPU_CORE,
    GPU_COUNT,
    GPU_MEM,
    GPU_WHOLE,
    MODE_LABELS,
    NVIDIA_GPU,
    NVIDIA_GPU_SHARED,
)
from linkwise.cluster.objects.pod import NewPod
from linkwise.cluster.objects.quantity import count
from linkwise.cluster.objects.selector import is_tied
from linkwise.cluster.requests.amounts import CORE_MAX, either, nearest_multiples
from linkwise.cluster.requests.claimed import claim_name, claimed_gpus, reference_findings
from linkwise.cluster.requests.container_request import (
    ContainerResources,
    container_resources,
    read_container_resources,
    zero_compute_findings,
)
from linkwise.cluster.requests.pod_demand import pod_total
from linkwise.cluster.requests.request import (
    PLACED_AS,
    ContainerRequest,
    Family,
    Request,
    user_claims_request,
)
from linkwise.cluster.requests.request_findings import (
    CARDS_FIELD,
    family_findings,
    label_finding,
    node_name_finding,
    unused_label_finding,
)
from linkwise.cluster.requests.user_claims.pod_claims import read_user_claims

_FAMILY_OF = {
    GPU_MEM: Family.SHARE,
    GPU_CORE: Family.SHARE,
    GPU_WHOLE: Family.WHOLE,
    NVIDIA_GPU: Family.NVIDIA,
    NVIDIA_GPU_SHARED: Family.REPLICA,
}
_MEMORY_CODES = {Code.MEMORY_WHOLE, Code.MEMORY_UNITS, Code.CORE_ALONE}


def read_request(pod: NewPod) -> tuple[Request, tuple[Finding, ...]]:
    """Return the GPU request of a pod, and all findings that depend on the pod alone.

    Totals follow Kubernetes: the maximum of app containers plus sidecars, and of each init
    container plus the sidecars before it.

    Compute is valid per container and in total. If a label spreads the share over N cards, the
    compute of a container is a total over these cards: its N-th part is a multiple of 5 from 5 to
    100. The total memory must be divisible by N. A container with compute needs memory of its own.

    With errors the request has the readable parts, and of several families the first.
    """
    containers = container_resources(pod.spec)
    if not pod.spec.resource_claims:
        return _read_limits(pod, containers)
    if not containers and claim_name(pod.spec) is not None:
        return _read_claimed(pod)
    if not containers and CLAIMED_GPUS in pod.annotations:
        return _read_user_claims(pod)
    request, findings = _read_limits(pod, containers)
    return request, (*reference_findings(pod.spec, beside=containers), *findings)


def _read_limits(
    pod: NewPod, containers: list[ContainerResources]
) -> tuple[Request, tuple[Finding, ...]]:
    """Return the request of a pod by the resources of its containers, and all findings."""
    if not containers:
        return Request(), _label_alone(pod)
    families = _families(containers)
    family = next(iter(families))
    cards = _cards(pod) if Family.SHARE in families else 1
    findings: list[Finding] = []
    requests: list[ContainerRequest] = []
    for resources in containers:
        amounts, problems = read_container_resources(resources, cards)
        findings += problems
        if requested := _container_request(resources, amounts, family):
            requests.append(requested)
    findings += zero_compute_findings(pod.spec, containers, cards)
    request = _total(tuple(requests), family, cards or 1)
    if family is Family.REPLICA or family is Family.NVIDIA:
        is_tied_to_ours = is_tied(pod.spec, MODE_LABELS, PLACED_AS[families[family][0]][0])
        places = is_tied_to_ours or ALLOCATION in pod.annotations or pod.spec.is_gated
        request = request.decided(places=places, by_count=not is_tied_to_ours)
    if cards is None:
        findings.append(label_finding(pod.labels[GPU_COUNT]))
    elif family is Family.SHARE:
        findings += _total_findings(
            request,
            containers,
            pod,
            {finding.code for finding in findings if finding.severity is Severity.ERROR},
        )
    if len(families) > 1:
        findings += family_findings(families.values())
    elif family is not Family.SHARE and GPU_COUNT in pod.labels:
        findings.append(
            unused_label_finding(pod.labels[GPU_COUNT], next(iter(containers[0].named)))
        )
    if pod.spec.node_name and families.keys() != {Family.NVIDIA}:
        findings.append(node_name_finding(pod.spec.node_name))
    return request, tuple(findings)


def _read_claimed(pod: NewPod) -> tuple[Request, tuple[Finding, ...]]:
    """Return the request of a pod that gets its GPUs by a claim of Linkwise, and all findings.

    Linkwise places it even if its amounts cannot be read, so that the GPUs of its record count.
    """
    claimed, problems = claimed_gpus(pod)
    findings = [*reference_findings(pod.spec), *problems]
    requests = tuple(
        ContainerRequest(each.container, each.index, each.init, False, NVIDIA_GPU, gpus=each.gpus)
        for each in claimed
    )
    request = _total(requests, Family.WHOLE, 1)
    if GPU_COUNT in pod.labels:
        findings.append(unused_label_finding(pod.labels[GPU_COUNT], NVIDIA_GPU))
    if pod.spec.node_name:
        findings.append(node_name_finding(pod.spec.node_name))
    return msgspec.structs.replace(request, by_claim=True), tuple(findings)


def _read_user_claims(pod: NewPod) -> tuple[Request, tuple[Finding, ...]]:
    """Return the request of a pod that gets its GPUs by claims that it brings, and all findings.

    Admission gates such pods, and the record follows when the gate goes. A pod without both is left
    to kube-scheduler, whatever its annotation says.
    """
    claims, problems = read_user_claims(pod)
    if not (pod.spec.is_gated or ALLOCATION in pod.annotations):
        return Request(), (*reference_findings(pod.spec), *_label_alone(pod))
    request = Request(Family.WHOLE, by_claim=True) if problems else Request()
    if claims is not None:
        request = user_claims_request(claims)
    return request, (*reference_findings(pod.spec), *problems, *_label_alone(pod))


def _label_alone(pod: NewPod) -> tuple[Finding, ...]:
    """Return the finding about a number of cards in a pod that asks for no GPU."""
    label = pod.labels.get(GPU_COUNT)
    return () if label is None else (unused_label_finding(label, "a pod without it"),)


def _families(containers: list[ContainerResources]) -> dict[Family, tuple[str, ContainerResources]]:
    """Return the families in order of appearance, with the first resource and container."""
    families: dict[Family, tuple[str, ContainerResources]] = {}
    for resources in containers:
        for resource in resources.named:
            families.setdefault(_FAMILY_OF[resource], (resource, resources))
    return families


def _cards(pod: NewPod) -> int | None:
    """Return the number of cards of a share; None if the label is invalid."""
    return count(pod.labels.get(GPU_COUNT, "1")) or None


def _container_request(
    resources: ContainerResources, amounts: dict[str, int], family: Family
) -> ContainerRequest | None:
    container, index, init = resources.container, resources.index, resources.init
    if family is Family.SHARE:
        memory, core = amounts.get(GPU_MEM, 0), amounts.get(GPU_CORE, 0)
        decisive = GPU_MEM if GPU_MEM in amounts else GPU_CORE
        if decisive not in amounts:
            return None
        limited = decisive in resources.limits
        return ContainerRequest(
            container, index, init, resources.sidecar, decisive, limited, 0, memory, core
        )
    for resource, amount in amounts.items():
        if _FAMILY_OF[resource] is family:
            limited = resource in resources.limits
            return ContainerRequest(
                container, index, init, resources.sidecar, resource, limited, amount
            )
    return None


def _total(requests: tuple[ContainerRequest, ...], family: Family, cards: int) -> Request:
    if len(requests) == 1:  # Fast path for nearly every pod.
        (requested,) = requests
        gpus = cards if family is Family.SHARE else requested.gpus
        return Request(family, gpus, requested.memory, requested.core, requests)
    gpus = (
        cards
        if family is Family.SHARE
        else _pod_total(requests, [requested.gpus for requested in requests])
    )
    memory = _pod_total(requests, [requested.memory for requested in requests])
    core = _pod_total(requests, [requested.core for requested in requests])
    return Request(family, gpus, memory, core, requests)


def _pod_total(requests: tuple[ContainerRequest, ...], amounts: list[int]) -> int:
    """Return the total of a resource by the rule of Kubernetes."""
    pairs = list(zip(requests, amounts, strict=True))
    apps = sum(amount for requested, amount in pairs if not requested.init)
    return pod_total(
        apps,
        ((amount, requested.sidecar) for requested, amount in pairs if requested.init),
    )


def _total_findings(
    request: Request, containers: list[ContainerResources], pod: NewPod, judged: set[Code]
) -> Iterator[Finding]:
    """Yield findings about the totals of a share, unless its parts have findings."""
    cards = request.gpus
    if request.core > CORE_MAX * cards and Code.CORE_STEP not in judged:
        asking = [resources for resources in containers if GPU_CORE in resources.named]
        yield Finding(
            Code.CORE_STEP,
            Severity.ERROR,
            asking[-1].field(GPU_CORE),
            asking[-1].named[GPU_CORE],
            f"the containers ask for {request.core} percent together, and a pod can have at most "
            f"{CORE_MAX * cards} (of {cards} card{'s' if cards > 1 else ''})",
            f"lower the containers' compute by {request.core - CORE_MAX * cards} in total",
        )
    if request.memory % cards and judged.isdisjoint(_MEMORY_CODES):
        totals = either(nearest_multiples(request.memory, cards))
        yield Finding(
            Code.COUNT_DIVIDES,
            Severity.ERROR,
            CARDS_FIELD,
            pod.labels[GPU_COUNT],
            f"{request.memory} GiB cannot be divided evenly over {cards} cards",
            f"ask for {totals} GiB in total, or for a number of cards that divides "
            f"{request.memory}",
        )
