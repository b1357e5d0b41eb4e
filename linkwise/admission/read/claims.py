"""Turn a pod for `nvidia.com/gpu` into one that gets its GPUs by a ResourceClaim.

The amounts of its containers move into an annotation, and its containers refer to requests of a
claim. The claim does not exist yet: the scorer creates it once it has chosen the GPUs. Its name is
random, since that of a pod may be generated after admission.
"""

from bisect import bisect_left
from collections.abc import Iterator

import msgspec

from linkwise.admission.operations import Operation, append, remove
from linkwise.cluster.finding import Code, Finding, Severity, quoted
from linkwise.cluster.keys import (
    CLAIM_PREFIX,
    CLAIMS,
    NVIDIA_GPU,
    POD_CLAIM,
)
from linkwise.cluster.objects.container import NewContainer
from linkwise.cluster.objects.pod import NewPod
from linkwise.cluster.pointer import escape
from linkwise.cluster.requests.claimed import claim_name, claim_request
from linkwise.cluster.requests.container_request import container_pointer
from linkwise.cluster.requests.request import ContainerRequest, Request

NO_CLAIM = f"{CLAIM_PREFIX}{'0' * 32}"
"""Stands for the name of a claim where the pod is not created, such as in a dry run."""
RULE = "claim"
_CHOICES = {"true": True, "false": False}


def label_choice(pod: NewPod) -> bool | None:
    """Return whether the label of a pod demands a claim; None: it leaves that to the policy."""
    return _CHOICES.get(pod.labels.get(CLAIMS, ""))


def claim_findings(pod: NewPod, request: Request) -> Iterator[Finding]:
    """Yield what is wrong with the label, and what keeps a pod from getting its GPUs by a claim.

    Args:
        pod: The pod after profiles.
        request: Its GPU request, once it is decided whether that is by a claim.
    """
    if CLAIMS in pod.labels and pod.labels[CLAIMS] not in _CHOICES:
        yield _label_finding(pod.labels[CLAIMS])
    if not lacks_claim(pod, request):
        return
    for index, claim in enumerate(pod.spec.resource_claims or ()):
        if claim.name == POD_CLAIM:
            message = f"{POD_CLAIM} is the name of the claim by which Linkwise gives the pod GPUs"
            path = f"spec.resourceClaims[{index}].name"
            yield _error(path, claim.name, message, "choose another name for the pod's own claim")
    largest = max((each.gpus for each in request.containers if not each.init), default=0)
    for requested in request.containers:
        if problem := _problem(requested, largest):
            fix = (
                f"ask for GPUs in app containers, or set the label {CLAIMS} to false where "
                "nodes offer them by a device plugin"
            )
            yield _error(requested.field, requested.gpus, problem, fix)


def lacks_claim(pod: NewPod, request: Request) -> bool:
    """Return whether a pod gets its GPUs by a claim that it does not name yet."""
    return request.by_claim and request.user_claims is None and claim_name(pod.spec) is None


def claim_amounts(request: Request) -> str:
    """Return the annotation with the GPUs of each request of the claim."""
    amounts = {claim_request(each.index): each.gpus for each in request.containers if not each.init}
    return msgspec.json.encode(amounts).decode()


def add_claim(pod: NewPod, request: Request, name: str) -> Iterator[Operation]:
    """Yield the operations that replace the amounts of a pod by references to a claim.

    An init container has ended when the app containers start, so it uses the GPUs of one of them:
    of the one with the fewest that are enough.

    Args:
        pod: A pod that `lacks_claim`, without findings.
        request: Its GPU request.
        name: Name of the claim.
    """
    apps = [each for each in request.containers if not each.init]
    by_size = sorted(apps, key=lambda app: app.gpus)
    sizes = [app.gpus for app in by_size]
    for requested in request.containers:
        source = requested
        if requested.init:
            source = by_size[bisect_left(sizes, requested.gpus)]
        yield from _refer(pod, requested, claim_request(source.index))
    reference = {"name": POD_CLAIM, "resourceClaimName": name}
    yield append("/spec/resourceClaims", pod.spec.resource_claims, reference, RULE)


def _refer(pod: NewPod, requested: ContainerRequest, request: str) -> Iterator[Operation]:
    container = _container(pod, requested)
    pointer = f"{container_pointer(requested.init, requested.index)}/resources"
    for part, amounts in (("limits", container.limits), ("requests", container.requests)):
        if NVIDIA_GPU in amounts:
            yield remove(f"{pointer}/{part}/{escape(NVIDIA_GPU)}", RULE)
    claims = container.resources.claims if container.resources else None
    yield append(f"{pointer}/claims", claims, {"name": POD_CLAIM, "request": request}, RULE)


def _container(pod: NewPod, requested: ContainerRequest) -> NewContainer:
    containers = (pod.spec.init_containers or ()) if requested.init else pod.spec.containers
    return containers[requested.index]


def _problem(requested: ContainerRequest, largest: int) -> str | None:
    """Return why a container cannot get its GPUs by a claim.

    Args:
        requested: The request of the container.
        largest: The most GPUs of one app container.
    """
    name = quoted(requested.container)
    if requested.sidecar:
        return (
            f"sidecar {name} asks for GPUs, and by a claim only app containers have some of their "
            "own"
        )
    if requested.init and requested.gpus > largest:
        return (
            f"init container {name} asks for {requested.gpus} GPUs, and by a claim it can use "
            f"those of one app container, of which none asks for more than {largest}"
        )
    return None


def _label_finding(value: str) -> Finding:
    message = f"{quoted(value)} is not allowed: the label says whether GPUs are given by a claim"
    return Finding(
        Code.CLAIMS_LABEL,
        Severity.ERROR,
        f"metadata.labels[{CLAIMS}]",
        value,
        message,
        'write "true" or "false", or remove the label to leave it to the policy',
    )


def _error(path: str, value: str | int, message: str, fix: str) -> Finding:
    return Finding(Code.NO_CLAIM, Severity.ERROR, path, value, message, fix)
