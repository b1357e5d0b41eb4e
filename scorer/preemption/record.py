"""The record of all nominations, an annotation of the Lease: the next leader carries them on.

It is written before the first eviction, and only while the Lease has the term of the writer. So a
past leader that was stopped for a while adds nothing once another one leads, and that one reads all
that was recorded before.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import msgspec
import structlog
from msgspec import Struct

from linkwise.cluster.gang import GangKey
from linkwise.cluster.keys import NOMINATIONS
from linkwise.cluster.scorer_lease import ScorerLease
from linkwise.planning.gang.crd_plan import PlannedPod
from linkwise.runtime.kube.client import Kube, KubeError
from linkwise.runtime.process.clock import loop_time
from scorer.commit.handle import Handle
from scorer.metrics import Stage
from scorer.queue.fault_isolation import FAULT
from scorer.report.lease_annotations import annotate_lease

LONGEST = 184 * 1024
"""The longest text [characters], about 3,800 evicted pods. The API server accepts 256 KiB of
annotations, and the others of the Lease have up to 69 KiB."""
_PAUSE, _PAUSE_MAX = 0.2, 10.0
"""The least time between two writes [s], longer after one that was refused. Each may delay a
renewal of the Lease."""

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


class RecordWriter:
    """Writes the record of one term: one write at a time, all nominations in each."""

    def __init__(self, handle: Handle, text: Callable[[], str]) -> None:
        """Write nothing yet; `text` returns the record as it should be."""
        self._kube, self._term, self._faults = handle.kube, handle.term, handle.faults
        self._text, self._on_change = text, handle.informers.changed.set
        self._written: str | None = None
        """None: it is not known what is written."""
        self._lock, self._pause, self._not_before = asyncio.Lock(), _PAUSE, 0.0

    def due(self) -> list[Coroutine[Any, Any, object]]:
        """Return the write that is due; it is repeated if it is refused."""
        is_due = self._text() != self._written and not self._lock.locked()
        return [self.write()] if is_due else []

    async def write(self) -> str | None:
        """Write the record as it is now; return why it is not written, or None."""
        async with self._lock:
            await asyncio.sleep(max(0.0, self._not_before - loop_time()))
            if (text := self._text()) == self._written:
                return None
            why: str | None = FAULT
            with self._faults.isolate(Stage.PREEMPT, "record"):
                why = await write_records(self._kube, text, self._term)
            self._written = None if why else text
            self._pause = min(2 * self._pause, _PAUSE_MAX) if why else _PAUSE
            self._not_before = loop_time() + self._pause
        self._on_change()
        return why


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


def records_of(lease: ScorerLease) -> tuple[Record, ...]:
    """Return the nominations of the last leader; none where they cannot be decoded."""
    text = (lease.metadata.annotations or {}).get(NOMINATIONS, "")
    try:
        return _decoder.decode(text) if text else ()
    except msgspec.MsgspecError as error:
        _log.error("Nominations of the last leader are not readable", err=str(error))
        return ()


_decoder = msgspec.json.Decoder(tuple[Record, ...])
