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
from cluster.record import Allocation
from runtime.clock import Clock
from runtime.kube import ApiError, Kube, KubeError
from scorer.outcome import Placement
from scorer.seen import Seen
from scorer.writes import placing

_FENCE = "linkwise-fence"
"""The policy that refuses what a past leader writes."""
_PAUSE = 2.0
"""Before each read of a pod whose write had no answer: as long as a write may take [s]."""

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
    card_memory: int | None
    """Of the cards that a share lies on [GiB]."""


class Committer:
    """Who writes on pods, for one tenure of the Lease."""

    def __init__(self, kube: Kube, term: int, clock: Clock) -> None:
        """Say whom to write to, and under which term."""
        self._kube, self._term, self._clock = kube, term, clock

    async def commit(self, grants: Sequence[Grant]) -> list[Seen]:
        """Give all pods what is theirs, concurrently; return those that could not be given.

        Raises:
            Deposed: Another process leads.
        """
        done = await asyncio.gather(*(self._give(grant) for grant in grants))
        return [grant.pod for grant, given in zip(grants, done, strict=True) if not given]

    async def _give(self, grant: Grant) -> bool:
        pod = grant.placement.member.pod
        steps = placing(
            pod,
            grant.allocation,
            term=self._term,
            now_ns=int(self._clock() * 1e9),
            card_memory=grant.card_memory,
            placement=grant.placement,
        )
        path = f"/api/v1/namespaces/{grant.pod.namespace}/pods/{grant.pod.name}"
        try:
            await self._kube.patch(path, steps, _Pod, kind="json")
        except ApiError as error:
            if _FENCE in error.message:
                raise Deposed(error.message) from error
            _log.warning("Could not place pod", pod="/".join(grant.pod.key), err=str(error))
            return False
        except KubeError as error:
            _log.warning("No answer for pod", pod="/".join(grant.pod.key), err=str(error))
            return await self._settled(path, grant)
        return True

    async def _settled(self, path: str, grant: Grant) -> bool:
        """Return whether a write without an answer was carried out, once a read tells."""
        while True:
            await asyncio.sleep(_PAUSE)
            try:
                found = await self._kube.get(path, _Pod)
            except ApiError as error:
                if error.status == 404:
                    return False
            except KubeError:
                pass
            else:
                return _has(found, grant)


def _has(found: _Pod, grant: Grant) -> bool:
    if found.metadata.uid != grant.pod.uid:
        return False
    text = (found.metadata.annotations or {}).get(ALLOCATION)
    return text is not None and f'"{grant.allocation.plan}"' in text
