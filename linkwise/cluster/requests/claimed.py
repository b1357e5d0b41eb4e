"""Read the GPUs of a pod that gets them by a ResourceClaim of Linkwise.

Admission moves the amounts of `nvidia.com/gpu` into an annotation, by request of the claim. Each
app container with GPUs refers to a request of its own, and an init container to one of these. A
kubelet starts a container without GPUs if it refers to a request that its claim does not have, so
pods in any other form are errors.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from linkwise.cluster.finding import Code, Finding, Severity, quoted
from linkwise.cluster.keys import (
    CLAIM_PREFIX,
    CLAIM_REQUEST_PREFIX,
    CLAIMED_GPUS,
    NVIDIA_GPU,
    POD_CLAIM,
)
from linkwise.cluster.objects.container import NewContainer
from linkwise.cluster.objects.pod import NewPod, NewPodSpec
from linkwise.cluster.requests.container_request import (
    ContainerResources,
    container_path,
    indexed_containers,
)

_NAME = re.compile(f"{CLAIM_PREFIX}[0-9a-f]{{32}}")
_ANNOTATION = f"metadata.annotations[{CLAIMED_GPUS}]"
_CLAIMS = "spec.resourceClaims"
_LONGEST = 4096
"""The annotation of a pod with as many requests as a claim may have is shorter [characters]."""
_amounts = msgspec.json.Decoder(dict[str, Annotated[int, Meta(ge=1, lt=1 << 31)]])
_FIX = f"ask for {NVIDIA_GPU} by resources.limits alone: Linkwise adds the claim and its references"


class ClaimedGPUs(Struct, frozen=True, gc=False):
    """GPUs that one container gets by the claim."""

    container: str
    """Name of the container."""
    index: int
    """Index in `spec.containers` or `spec.initContainers`."""
    init: bool
    """It is an init container: it has the GPUs of an app container before that one starts."""
    gpus: int


def claim_name(spec: NewPodSpec) -> str | None:
    """Return the name of the claim by which a pod gets its GPUs from Linkwise; None: by none."""
    for claim in spec.resource_claims or ():
        name = claim.resource_claim_name
        if claim.name == POD_CLAIM and name and name.startswith(CLAIM_PREFIX):
            return name
    return None


def claim_request(index: int) -> str:
    """Return the name of the request for an app container."""
    return f"{CLAIM_REQUEST_PREFIX}{index}"


def is_sidecar(container: NewContainer, *, init: bool) -> bool:
    """Return whether a container is an init container that keeps running."""
    return init and container.restart_policy == "Always"


def reference_findings(
    spec: NewPodSpec, beside: Sequence[ContainerResources] = ()
) -> Iterator[Finding]:
    """Yield an error for each claim of Linkwise that a pod does not name as admission does.

    Args:
        spec: Spec of the pod.
        beside: GPU resources that its containers name, too.
    """
    ours = None if beside else claim_name(spec)
    for index, claim in enumerate(spec.resource_claims or ()):
        name = claim.resource_claim_name or ""
        is_as_written = claim.name == POD_CLAIM and name == ours and _NAME.fullmatch(name)
        if name.startswith(CLAIM_PREFIX) and not is_as_written:
            path = f"{_CLAIMS}[{index}].resourceClaimName"
            message = (
                f"{quoted(name)} is a name of the claims that Linkwise makes, each for the one pod "
                "that it places by it"
            )
            yield _error(path, name, message)


def claimed_gpus(pod: NewPod) -> tuple[list[ClaimedGPUs], list[Finding]]:
    """Return the GPUs of each container, app containers first, and all findings.

    Args:
        pod: A pod with a `claim_name`.
    """
    text = pod.annotations.get(CLAIMED_GPUS)
    amounts, finding = _read_amounts(text)
    if finding is not None:
        return [], [finding]
    containers: list[ClaimedGPUs] = []
    findings: list[Finding] = []
    for init, index, container in indexed_containers(pod.spec):
        requests = _requests(container)
        if not requests:
            continue
        problem = _problem(container, index, requests, amounts, init=init)
        if problem is None:
            gpus = amounts[requests[0] or ""]
            containers.append(ClaimedGPUs(container.name, index, init, gpus))
        else:
            path = f"{container_path(init, index)}.resources.claims"
            findings.append(_error(path, None, problem))
    used = {claim_request(each.index) for each in containers if not each.init}
    if not findings and (unused := amounts.keys() - used):
        message = f"no container refers to request {quoted(min(unused))} alone"
        findings.append(_error(_ANNOTATION, text, message))
    return containers, findings


def _read_amounts(text: str | None) -> tuple[Mapping[str, int], Finding | None]:
    if text is None:
        message = f"the pod names a claim of Linkwise, and has no annotation {CLAIMED_GPUS}"
        return {}, _error(_CLAIMS, None, message)
    try:
        amounts = _amounts.decode(text) if len(text) <= _LONGEST else {}
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        amounts = {}
    if amounts:
        return amounts, None
    message = f"{quoted(text)} is no number of GPUs for each request of a claim"
    return {}, _error(_ANNOTATION, text[:_LONGEST], message)


def _requests(container: NewContainer) -> list[str | None]:
    """Return the requests of our claim to which a container refers; None: it refers to all."""
    claims = (container.resources.claims if container.resources else None) or ()
    return [claim.request for claim in claims if claim.name == POD_CLAIM]


def _problem(
    container: NewContainer,
    index: int,
    requests: Sequence[str | None],
    amounts: Mapping[str, int],
    *,
    init: bool,
) -> str | None:
    """Return what is wrong with the references of a container to our claim."""
    name, request = quoted(container.name), requests[0]
    if len(requests) > 1 or request is None:
        return f"container {name} must refer to one request of its claim"
    if request not in amounts:
        return f"container {name} refers to request {quoted(request)}, which has no GPUs"
    if is_sidecar(container, init=init):
        return f"sidecar {name} would use the GPUs of a container that runs beside it"
    if not init and request != claim_request(index):
        return f"container {name} must refer to request {claim_request(index)} of its claim"
    return None


def _error(path: str, value: str | None, message: str) -> Finding:
    return Finding(Code.CLAIM_REFERENCE, Severity.ERROR, path, value, message, _FIX)
