"""The record of all nominations, an annotation of the Lease: the next leader carries them on.

It is written before the first eviction, and only while the Lease has the term of the writer. So a
past leader that was stopped for a while adds nothing once another one leads, and that one reads all
that was recorded before.
"""

import asyncio
from collections.abc import Iterable

import msgspec
import structlog
from msgspec import Struct

from cluster.gang import GangKey
from cluster.keys import NOMINATIONS
from cluster.scorer_lease import LEASE, ScorerLease
from runtime.kube.client import Kube, KubeError
from scorer.gang.crd import PlannedPod
from scorer.report.lease_annotations import annotate_lease

LONGEST = 192 * 1024
"""The longest text [characters], about 4,000 evicted pods. The API server accepts 256 KiB of
annotations, and the others of the Lease have up to 49 KiB."""

_log = structlog.get_logger()


class Record(Struct, frozen=True):
    """What the next leader must know of a nomination."""

    unit: GangKey
    members: tuple[PlannedPod, ...]
    """The GPUs that are reserved for its pods."""
    victims: tuple[tuple[str, ...], ...]
    """By unit that is evicted: the uids of its pods."""
    until: float
    """Until then the GPUs are reserved [s since 1970]."""


def text_of(records: Iterable[Record]) -> str:
    """Return nominations as they are written; empty: there are none."""
    records = tuple(records)
    return msgspec.json.encode(records).decode() if records else ""


async def write_records(kube: Kube, text: str, term: int) -> str | None:
    """Write all nominations of a leader; return why they may not be written, or None.

    A Lease of another term is not changed.
    """
    try:
        await annotate_lease(kube, NOMINATIONS, text, term)
    except KubeError as error:
        return str(error)
    return None


async def read_records(kube: Kube, retry: float) -> tuple[Record, ...]:
    """Return the nominations of the last leader; none where they cannot be decoded.

    Args:
        kube: The API server.
        retry: Delay before the Lease is read again that was not read [s].
    """
    while True:
        try:
            lease = await kube.find(LEASE, ScorerLease)
        except KubeError as error:
            _log.warning("Could not read nominations", err=str(error))
            await asyncio.sleep(retry)
        else:
            annotations = (lease.metadata.annotations if lease else None) or {}
            return _records_of(annotations.get(NOMINATIONS, ""))


def _records_of(text: str) -> tuple[Record, ...]:
    try:
        return _decoder.decode(text) if text else ()
    except msgspec.MsgspecError as error:
        _log.error("Nominations of the last leader are not readable", err=str(error))
        return ()


_decoder = msgspec.json.Decoder(tuple[Record, ...])
