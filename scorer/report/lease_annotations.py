"""Annotations of the leader's Lease: its address, and facts about nodes that others read."""

import asyncio
from collections.abc import Callable, Mapping

import msgspec
import structlog

from linkwise.cluster.keys import (
    CLAIMS_NODES,
    EXCLUDED_NODES,
    GPU_KINDS,
    NVIDIA_NODES,
    REFUSED_MACHINES,
    SCORER_ADDRESS,
    UNFENCED_NODES,
    VAIN_PREEMPTIONS,
)
from linkwise.cluster.nodes.gpu_kinds import KINDS_MAX, encode_kinds
from linkwise.cluster.objects.metadata import Metadata
from linkwise.cluster.pointer import escape
from linkwise.cluster.scorer_lease import LEASE, ScorerLease
from linkwise.planning.gang.crd_patch import Steps
from linkwise.runtime.kube.client import Kube, KubeError
from scorer.report.claims_nodes import ClaimsNodes

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
    nodes: Callable[[], ClaimsNodes | None], kube: Kube, term: int, interval: float = _INTERVAL
) -> None:
    """Annotate the Lease, until cancelled, with the size and the kinds of GPUs of claims nodes.

    Admission reads them: without claims nodes no pod gets its GPUs by a claim, unless it or the
    policy demands one; and a claim whose selectors no kind satisfies is left to kube-scheduler. A
    pod that is created while the only claims node is away for a moment cannot be changed later. So
    neither the number falls nor a kind goes during a term, and what the last leader wrote stays
    until all slices are there.

    Args:
        nodes: Returns the nodes; None: unknown.
        kube: The API server.
        term: The leader's term; a Lease of another term is not changed.
        interval: Between two checks [s].
    """
    known, is_current = await _last_claims_nodes(kube, interval), False
    had_too_many_kinds = known.gpus > 0 and not known.kinds

    def update() -> ClaimsNodes | None:
        nonlocal known, is_current
        found = nodes()
        if found is None:
            return None
        if found.is_complete and not is_current:
            known, is_current = found, True
        kinds = known.kinds | found.kinds if len(known.kinds) <= KINDS_MAX else known.kinds
        known = ClaimsNodes(max(known.gpus, found.gpus), kinds, is_current)
        return known

    def gpus() -> str | None:
        found = update()
        return None if found is None else str(found.gpus or "")

    def kinds() -> str | None:
        found = update()
        if found is None or (had_too_many_kinds and not found.is_complete):
            return None
        return encode_kinds(found.kinds)

    await asyncio.gather(
        _report(CLAIMS_NODES, gpus, kube, term, interval),
        _report(GPU_KINDS, kinds, kube, term, interval),
    )


async def _last_claims_nodes(kube: Kube, interval: float) -> ClaimsNodes:
    """Return what the last leader wrote, once the Lease is read."""
    while True:
        try:
            lease = await kube.get(LEASE, ScorerLease)
        except KubeError as error:
            _log.warning("Could not annotate Lease", err=str(error))
            await asyncio.sleep(interval)
        else:
            return ClaimsNodes(lease.claims_gpus, frozenset(lease.gpu_kinds), is_complete=False)


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


async def report_excluded_nodes(
    nodes: Callable[[], Mapping[str, Mapping[str, float]] | None],
    kube: Kube,
    term: int,
    interval: float = _INTERVAL,
) -> None:
    """Annotate the Lease, until cancelled, with the nodes that units do not use for a while.

    `linkwise explain` and the other commands that plan read it, and the next leader.

    Args:
        nodes: Returns, by id of a unit and node, until when [s since 1970]; None: unknown.
        kube: The API server.
        term: The leader's term; a Lease of another term is not changed.
        interval: Between two checks [s].
    """
    await _report(EXCLUDED_NODES, lambda: _by_unit(nodes()), kube, term, interval)


async def report_vain_preemptions(
    nodes: Callable[[], Mapping[str, Mapping[str, str]] | None],
    kube: Kube,
    term: int,
    interval: float = _INTERVAL,
) -> None:
    """Annotate the Lease, until cancelled, with the nodes where evictions did not help a unit.

    The next leader reads it. The arguments are those of `report_excluded_nodes`, with digests of
    the nodes.
    """
    await _report(VAIN_PREEMPTIONS, lambda: _by_unit(nodes()), kube, term, interval)


def _by_unit(nodes: Mapping[str, Mapping[str, object]] | None) -> str | None:
    return None if nodes is None else msgspec.json.encode(nodes).decode() if nodes else ""


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


async def read_lease(kube: Kube, retry: float) -> ScorerLease:
    """Return the leader's Lease, however long that takes; an empty one if there is none.

    Args:
        kube: The API server.
        retry: Delay before the Lease is read again that was not read [s].
    """
    while True:
        try:
            return await kube.find(LEASE, ScorerLease) or ScorerLease()
        except KubeError as error:
            _log.warning("Could not read Lease", err=str(error))
            await asyncio.sleep(retry)


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
