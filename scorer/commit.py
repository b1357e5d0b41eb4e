"""A plan carried out: the Gang that records it, then its pods, all at once, nobody else between.

Every write holds for the very pod that was planned. What is refused frees the GPUs that were meant
for it; what has no answer keeps them until a read settles what became of it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog
from msgspec import Struct

from cluster.keys import ALLOCATION
from cluster.node import Node
from cluster.record import Allocation
from runtime.clock import Clock
from runtime.kube import ApiError, Kube, KubeError
from scorer.outcome import Placement
from scorer.seen import Seen
from scorer.settle import is_open, settled
from scorer.writes import Step, placing, record_of

FENCE = "linkwise-fence"
"""The policy that refuses what a past leader writes."""

_log = structlog.get_logger()


class Deposed(Exception):  # noqa: N818 - it says all.
    """Another process leads by now, so that nothing more may be written."""


class _Metadata(Struct, frozen=True):
    uid: str = ""
    annotations: dict[str, str] | None = None


class _Pod(Struct, frozen=True):
    metadata: _Metadata = _Metadata()


@dataclass(frozen=True, slots=True)
class Grant:
    """One pod, and what it is about to be given."""

    pod: Seen
    placement: Placement
    allocation: Allocation
    node: Node
    """Where to, as it was when this was planned."""


class Committer:
    """Who writes on pods, for one tenure of the Lease."""

    def __init__(self, kube: Kube, term: int, clock: Clock) -> None:
        """Say whom to write to, and under which term."""
        self._kube, self._term, self._clock = kube, term, clock
        self._tried = False
        """Whether the fence was."""

    async def commit(self, grants: Sequence[Grant]) -> list[Seen]:
        """Give all pods what is theirs, concurrently; return those that could not be given.

        Raises:
            Deposed: Another process leads.
        """
        if grants and not self._tried:
            self._tried = True
            await self._try_fence(grants[0])
        done = await asyncio.gather(*(self._give(grant) for grant in grants))
        return [grant.pod for grant, given in zip(grants, done, strict=True) if not given]

    async def _try_fence(self, grant: Grant) -> None:
        """Tell it when the API server would take what the leader before decided.

        It may go by a Lease that it has long ceased to watch: Kubernetes up to 1.36 does, once no
        policy's binding has named any Lease (kubernetes/kubernetes issue 130887).
        """
        path, steps = self._write(grant, self._term - 1)
        try:
            await self._kube.patch(path, steps, _Pod, kind="json", params={"dryRun": "All"})
        except KubeError:
            # By the fence, or for a reason that the write itself will tell.
            return
        _log.error("Past leaders could still write", term=self._term)

    def _write(self, grant: Grant, term: int) -> tuple[str, list[Step]]:
        """Return the pod's path, and its patch."""
        path = f"/api/v1/namespaces/{grant.pod.namespace}/pods/{grant.pod.name}"
        now_ns = int(self._clock() * 1e9)
        record = record_of(grant.placement, grant.allocation, grant.node, term=term, now_ns=now_ns)
        return path, placing(grant.placement.member.pod, grant.allocation.node, record)

    async def _give(self, grant: Grant) -> bool:
        path, steps = self._write(grant, self._term)
        try:
            await self._kube.patch(path, steps, _Pod, kind="json")
        except KubeError as error:
            if isinstance(error, ApiError) and FENCE in error.message:
                raise Deposed(error.message) from error
            _log.warning("Could not place pod", pod="/".join(grant.pod.key), err=str(error))
            return is_open(error) and _has(await settled(self._kube, path, _Pod), grant)
        return True


def _has(found: _Pod | None, grant: Grant) -> bool:
    if found is None or found.metadata.uid != grant.pod.uid:
        return False
    text = (found.metadata.annotations or {}).get(ALLOCATION)
    return text is not None and f'"{grant.allocation.plan}"' in text
