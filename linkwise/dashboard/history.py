"""The map, the pending units and the usage of the last hour, as bounded differences. Pure."""

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from itertools import takewhile
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from linkwise.cluster.gang import GangKey
from linkwise.dashboard.moment import Moment, UnitRow
from linkwise.views.render.page.rows import NodeRow

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

SECONDS = 3600.0
"""The time that is kept [s]."""
BYTES = 16 << 20
"""The size of all differences together, as JSON [bytes]."""
SAMPLES = 3600


class Sample(Struct, frozen=True, array_like=True):
    """The totals of the cluster at one moment."""

    at: float
    """[s since 1970]"""
    gpus: int
    free: int
    stranded: int
    waiting: int
    sets: tuple[int, ...]
    """The number of free sets of each size, as in `Moment.free_sets`."""


class Change(NamedTuple):
    """What a version replaced."""

    version: int
    at: float
    before: Mapping[str, NodeRow | None]
    """The rows as they were; None: there was no such node."""
    units_before: Mapping[GangKey, UnitRow | None]
    """The pending units as they were; None: it did not wait."""
    usage_before: Mapping[str, int | None]
    """By namespace: its whole GPUs as they were; None: it had none."""
    size: int


class History:
    """The map now, and its differences to earlier versions."""

    def __init__(self, *, seconds: float = SECONDS, max_bytes: int = BYTES) -> None:
        """Start without a moment.

        Args:
            seconds: The time that is kept [s].
            max_bytes: The size of all differences together; the oldest are dropped [bytes].
        """
        self._seconds, self._max_bytes = seconds, max_bytes
        self._changes: deque[Change] = deque()
        self._size = 0
        self._usage: Mapping[str, int] = {}
        self.rows: Mapping[str, NodeRow] = {}
        self._units: Mapping[GangKey, UnitRow] = {}
        self.version = 0
        self.samples: deque[Sample] = deque(maxlen=SAMPLES)

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes that are kept, the oldest first."""
        return tuple(self._changes)

    @property
    def start(self) -> float | None:
        """The first moment that can be shown [s since 1970]; None before the first one."""
        return self._changes[0].at if self._changes else None

    def add(self, moment: Moment) -> None:
        """Add the next moment, as a new version."""
        usage = {each.namespace: each.gpus for each in moment.usage if each.gpus}
        before = _replaced(self.rows, moment.rows) if self.version else {}
        units = _replaced(self._units, moment.units) if self.version else {}
        used = _replaced(self._usage, usage) if self.version else {}
        self.version += 1
        size = sum(
            len(msgspec.json.encode(list(each.items()))) for each in (before, units, used) if each
        )
        self._changes.append(Change(self.version, moment.at, before, units, used, size))
        self._size += size
        self.rows, self._units, self._usage = moment.rows, moment.units, usage
        self._sample(moment)
        self._forget(moment.at)

    def changed_since(self, version: int) -> set[str] | None:
        """Return the nodes that changed after a version; None if it is not kept."""
        if version == self.version:
            return set()
        if not self._changes or not self._changes[0].version <= version < self.version:
            return None
        later = (change.before for change in self._changes if change.version > version)
        return {name for before in later for name in before}

    def at(self, time: float) -> dict[str, NodeRow]:
        """Return the map at an earlier time [s since 1970]; the oldest that is kept if need be."""
        return _restored(self.rows, (change.before for change in self._after(time)))

    def waiting_at(self, time: float) -> list[UnitRow]:
        """Return the units that waited at an earlier time, by priority, then by age."""
        units = _restored(self._units, (change.units_before for change in self._after(time)))
        return sorted(
            units.values(), key=lambda unit: (-unit.priority, unit.since, unit.namespace, unit.name)
        )

    def window(self, now: float) -> float:
        """Return when the time begins that is kept [s since 1970]."""
        return max(now - self._seconds, self.start if self.start is not None else now)

    def gpu_seconds(self, since: float, until: float) -> dict[str, float]:
        """Return the time of whole GPUs of each namespace in a part of what is kept [s].

        Args:
            since: Its beginning [s since 1970].
            until: Its end [s since 1970]; after the last moment, its GPUs are held still.

        Cost: the namespaces, and their changes that are kept.
        """
        if not self._changes:
            return {}
        totals: dict[str, float] = {}
        # Backwards: each number of GPUs holds from the change that made it until the next one.
        usage, ends = dict(self._usage), dict.fromkeys(self._usage, until)

        def count(namespace: str, begin: float) -> None:
            time = ends[namespace] - max(begin, since)
            if time > 0:
                totals[namespace] = totals.get(namespace, 0.0) + usage[namespace] * time

        for change in reversed(self._changes):
            for namespace, gpus in change.usage_before.items():
                if namespace in usage:
                    count(namespace, change.at)
                    del usage[namespace]
                if gpus:
                    usage[namespace], ends[namespace] = gpus, min(until, change.at)
        for namespace in usage:
            count(namespace, self._changes[0].at)
        return totals

    def _after(self, time: float) -> Iterable[Change]:
        """Return the changes after a time, the newest first."""
        return takewhile(lambda change: change.at > time, reversed(self._changes))

    def _sample(self, moment: Moment) -> None:
        """Keep the totals, at most once a second."""
        rows = moment.rows.values()
        sample = Sample(
            moment.at,
            sum(len(row.states) for row in rows),
            sum(row.free for row in rows),
            sum(row.stranded for row in rows),
            moment.waiting,
            moment.free_sets,
        )
        if len(self.samples) > 1 and sample.at - self.samples[-2].at < 1:
            self.samples.pop()
        self.samples.append(sample)

    def _forget(self, now: float) -> None:
        while len(self._changes) > 1 and (
            self._size > self._max_bytes or self._changes[1].at <= now - self._seconds
        ):
            self._size -= self._changes.popleft().size
            # What the oldest version replaced cannot be shown any more.
            first = self._changes[0]
            self._size -= first.size
            self._changes[0] = first._replace(before={}, units_before={}, usage_before={}, size=0)
        while len(self.samples) > 1 and self.samples[1].at <= now - self._seconds:
            self.samples.popleft()


def _replaced(old: Mapping[K, V], new: Mapping[K, V]) -> dict[K, V | None]:
    """Return the old values of all that differs; None: there was none."""
    # Most values are the same objects, which is faster to see than that they are equal.
    others = {key: value for key, value in new.items() if old.get(key) is not value}
    changed = [key for key, value in others.items() if old.get(key) != value]
    return {key: old.get(key) for key in (*changed, *(old.keys() - new.keys()))}


def _restored(now: Mapping[K, V], replaced: Iterable[Mapping[K, V | None]]) -> dict[K, V]:
    """Return the values before changes.

    Args:
        now: The values after them.
        replaced: What each change replaced, the newest first.
    """
    values = dict(now)
    for before in replaced:
        for key, value in before.items():
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
    return values
