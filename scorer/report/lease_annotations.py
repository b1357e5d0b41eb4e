"""Annotations of the leader's Lease: its address, and facts about nodes that others read."""

import asyncio
from collections.abc import Callable, Mapping

import msgspec
import structlog

from cluster.cel.values import DeviceFacts
from cluster.keys import (
    CLAIMS_NODES,
    GPU_KINDS,
    NVIDIA_NODES,
    REFUSED_MACHINES,
    SCORER_ADDRESS,
    UNFENCED_NODES,
)
from cluster.nodes.gpu_kinds import encode_kinds
from cluster.objects.pod import Metadata
from cluster.pointer import escape
from cluster.scorer_lease import LEASE, ScorerLease
from runtime.kube.client import Kube, KubeError
from scorer.gang.crd_patch import Steps

_RETRY = 5.0
"""Before a failed write is tried again [s]."""
_INTERVAL = 2.0
"""Between two checks [s]."""

_NODES_MAX = 64
"""Nodes in an annotation: about 16 KB."""

_log = structlog.get_logger()


async def publish_address(kube: Kube, address: str, term: int, retry: float = _RETRY) -> None:
    """Write the leader's address into the Lease; return once it is written.

    Args:
        kube: The API server.
        address: `host:port`; empty: nothing is written.
        term: The leader's term; a Lease of another term is not changed.
        retry: Before a failed write is tried again [s].
    """
    while address:
        try:
            await annotate_lease(kube, SCORER_ADDRESS, address, term)
        except KubeError as error:
            _log.warning("Could not publish address", err=str(error))
            await asyncio.sleep(retry)
        else:
            return


async def report_nvidia_nodes(
    exists: Callable[[], bool | None], kube: Kube, term: int, interval: float = _INTERVAL
) -> None:
    """Annotate the Lease, until cancelled, with whether Linkwise chooses `nvidia.com/gpu`.

    The admission policy `linkwise-placed-nvidia` reads it: without such a node it rejects no pod.

    Args:
        exists: Returns whether there is a node with such GPUs; None: unknown.
        kube: The API server.
        term: The leader's term; a Lease of another term is not changed.
        interval: Between two checks [s].
    """
    texts = {None: None, True: "true", False: ""}
    await _report(NVIDIA_NODES, lambda: texts[exists()], kube, term, interval)


async def report_claims_nodes(
    gpus: Callable[[], int | None], kube: Kube, term: int, interval: float = _INTERVAL
) -> None:
    """Annotate the Lease, until cancelled, with the GPUs of the largest claims node.

    Admission reads it: without claims nodes no pod gets its GPUs by a claim, unless it or the
    policy demands one. The number does not fall during a term: a pod that is created while the
    only claims node is away for a moment cannot be changed later.

    Args:
        gpus: Returns the number; 0: there is no such node; None: unknown.
        kube: The API server.
        term: The leader's term; a Lease of another term is not changed.
        interval: Between two checks [s].
    """
    largest = 0

    def text() -> str | None:
        nonlocal largest
        number = gpus()
        largest = max(largest, number or 0)
        return None if number is None else str(largest or "")

    await _report(CLAIMS_NODES, text, kube, term, interval)


async def report_gpu_kinds(
    kinds: Callable[[], frozenset[DeviceFacts] | None],
    kube: Kube,
    term: int,
    interval: float = _INTERVAL,
) -> None:
    """Annotate the Lease, until cancelled, with the kinds of GPUs of claims nodes.

    Admission reads it: a claim whose selectors none of them satisfies is left to kube-scheduler.
    A kind stays during a term, as the number of `report_claims_nodes`.

    Args:
        kinds: Returns the kinds; None: unknown.
        kube: The API server.
        term: The leader's term; a Lease of another term is not changed.
        interval: Between two checks [s].
    """
    every: frozenset[DeviceFacts] = frozenset()

    def text() -> str | None:
        nonlocal every
        now = kinds()
        every |= now or frozenset()
        return None if now is None else encode_kinds(every)

    await _report(GPU_KINDS, text, kube, term, interval)


async def report_refused_machines(
    reasons: Callable[[], Mapping[str, str] | None],
    kube: Kube,
    term: int,
    interval: float = _INTERVAL,
) -> None:
    """Annotate the Lease, until cancelled, with the nodes whose machines are not used.

    `linkwise inspect` and `linkwise explain` read it.

    Args:
        reasons: Returns the reasons by node; None: unknown.
        kube: The API server.
        term: The leader's term; a Lease of another term is not changed.
        interval: Between two checks [s].
    """
    await _report(REFUSED_MACHINES, lambda: _by_node(reasons()), kube, term, interval)


async def report_unfenced_nodes(
    reasons: Callable[[], Mapping[str, str] | None],
    kube: Kube,
    term: int,
    interval: float = _INTERVAL,
) -> None:
    """Annotate the Lease, until cancelled, with the nodes whose GPUs claims of others may get.

    The arguments and the readers are those of `report_refused_machines`.
    """
    await _report(UNFENCED_NODES, lambda: _by_node(reasons()), kube, term, interval)


def _by_node(reasons: Mapping[str, str] | None) -> str | None:
    """Return the reasons as an annotation: of the first nodes, by name."""
    if not reasons:
        return None if reasons is None else ""
    return msgspec.json.encode(dict(sorted(reasons.items())[:_NODES_MAX])).decode()


async def _report(
    key: str, value: Callable[[], str | None], kube: Kube, term: int, interval: float
) -> None:
    """Set an annotation of the Lease whenever its value changes, until cancelled."""
    reported: str | None = None
    while True:
        text = value()
        if text is not None and text != reported:
            try:
                await annotate_lease(kube, key, text, term)
                reported = text
            except KubeError as error:
                _log.warning("Could not annotate Lease", err=str(error))
        await asyncio.sleep(interval)


async def annotate_lease(kube: Kube, key: str, value: str, term: int) -> None:
    """Set an annotation of the leader's Lease, unless it has that value.

    Args:
        kube: The API server.
        key: The annotation.
        value: Its value; empty is the same as none.
        term: The leader's term; a Lease of another term is not changed.

    Raises:
        KubeError: The Lease was not read or written, or is of another term.
    """
    lease = await kube.get(LEASE, ScorerLease)
    if (lease.metadata.annotations or {}).get(key, "") == value:
        return
    steps = [
        {"op": "test", "path": "/spec/leaseTransitions", "value": term},
        *_annotation_steps(lease.metadata, key, value),
    ]
    await kube.patch(LEASE, steps, ScorerLease, kind="json")


def _annotation_steps(metadata: Metadata, key: str, value: str) -> Steps:
    """Return the steps that set an annotation and keep those that others write meanwhile."""
    path = "/metadata/annotations"
    if metadata.annotations:
        return [{"op": "add", "path": f"{path}/{escape(key)}", "value": value}]
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": metadata.resource_version},
        {"op": "add", "path": path, "value": {key: value}},
    ]
