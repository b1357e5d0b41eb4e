"""The order in which keys are processed, fair between their groups. Pure.

A key is queued once, however often it is added, and is not taken twice at the same time. Of the
keys that are due, those of the lowest rank come first. Of one rank, the groups take turns: a
group with very many keys does not delay the keys of others.
"""

import heapq
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import count
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

URGENT = -1
"""The rank of a key that precedes all others, and does not wait for the end of its backoff."""


_NONE: OrderedDict[str, OrderedDict[Any, None]] = OrderedDict()


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is processed at the same time."""

    running: int = 1
    of_group: int | None = None
    """Of these, keys of one group; None: any number."""


@dataclass(frozen=True, slots=True, eq=False)
class _Item(Generic[K]):
    """One turn of a key."""

    key: K
    due: float
    rank: int


class FairSchedule(Generic[K]):
    """The keys that are queued, and those that are being processed. All times are arguments [s]."""

    def __init__(self, group: Callable[[K], str], limits: Limits) -> None:
        """Start without keys.

        Args:
            group: Returns the group of a key, such as its namespace.
            limits: Of the keys that are taken and not finished.
        """
        self._group, self._limits = group, limits
        self._items: dict[K, _Item[K]] = {}
        self._delayed: list[tuple[float, int, _Item[K]]] = []
        """A heap. An item that is not in `_items` any more is ignored."""
        self._ready: dict[int, OrderedDict[str, OrderedDict[K, None]]] = {}
        """By rank and group, in the order of their turns: the keys that are due."""
        self._running: set[K] = set()
        self._sizes: Counter[str] = Counter()
        """By group: the keys that are queued."""
        self._busy: Counter[str] = Counter()
        """By group: the keys that are being processed."""
        self._rests: dict[str, float] = {}
        """By group: until when none of its keys is taken."""
        self._numbers = count()

    def __contains__(self, key: K) -> bool:
        """Return whether a key is queued."""
        return key in self._items

    def size(self, group: str) -> int:
        """Return how many keys of a group are queued or being processed."""
        return self._sizes[group] + self._busy[group]

    def add(self, key: K, due: float, rank: int = 0) -> None:
        """Queue a key; one that is queued keeps the earlier time and the lower rank."""
        item = self._items.get(key)
        if item is not None:
            due, rank = min(item.due, due), min(item.rank, rank)
            if (due, rank) == (item.due, item.rank):
                return
        self.discard(key)
        item = self._items[key] = _Item(key, due, rank)
        self._sizes[self._group(key)] += 1
        if key not in self._running:
            self._delay(item)

    def postpone(self, key: K, due: float) -> None:
        """Queue a key whose processing failed, not before a time, unless it is urgent."""
        item = self._items.get(key)
        rank = item.rank if item else 0
        if rank != URGENT:
            self.discard(key)
            self.add(key, due, rank)

    def discard(self, key: K) -> None:
        """Remove a key from the queue; its processing is not ended."""
        item, group = self._items.pop(key, None), self._group(key)
        if item is None:
            return
        _subtract(self._sizes, group)
        groups = self._ready.get(item.rank, _NONE)
        if keys := groups.get(group):
            keys.pop(key, None)
            if not keys:
                del groups[group]

    def take(self, now: float) -> K | None:
        """Return the next key to process, until it is finished; None: there is none now.

        Cost: linear in the groups that have keys to process, at most.
        """
        self._promote(now)
        if len(self._running) >= self._limits.running:
            return None
        for _, groups in sorted(self._ready.items()):
            for group, keys in groups.items():
                if not self._is_blocked(group, now):
                    key = next(iter(keys))
                    groups.move_to_end(group)
                    self.discard(key)
                    self._running.add(key)
                    self._busy[group] += 1
                    return key
        return None

    def finish(self, key: K) -> None:
        """Record that a key was processed."""
        self._running.discard(key)
        _subtract(self._busy, self._group(key))
        if item := self._items.get(key):
            self._delay(item)

    def rest(self, group: str, now: float, seconds: float) -> None:
        """Take no key of a group for a time."""
        self._rests = {name: until for name, until in self._rests.items() if until > now}
        self._rests[group] = max(now + seconds, self._rests.get(group, now))

    def time_left(self, now: float) -> float | None:
        """Return the time until `take` may return a key, unless one is finished; None: never."""
        if len(self._running) >= self._limits.running:
            return None
        groups = (group for groups in self._ready.values() for group in groups)
        # The keys of a full group wait until one is finished, not until the end of its rest.
        times = [self._rests.get(group, now) for group in groups if not self._is_full(group)]
        if self._delayed:
            times.append(self._delayed[0][0])
        return max(0.0, min(times) - now) if times else None

    def _is_blocked(self, group: str, now: float) -> bool:
        return self._is_full(group) or self._rests.get(group, now) > now

    def _is_full(self, group: str) -> bool:
        limit = self._limits.of_group
        return limit is not None and self._busy[group] >= limit

    def _delay(self, item: _Item[K]) -> None:
        heapq.heappush(self._delayed, (item.due, next(self._numbers), item))
        if len(self._delayed) > 2 * len(self._items) + 16:
            # Most of it was discarded.
            current = [entry for entry in self._delayed if self._is_current(entry[2])]
            self._delayed = current
            heapq.heapify(current)

    def _is_current(self, item: _Item[K]) -> bool:
        return self._items.get(item.key) is item

    def _promote(self, now: float) -> None:
        """Make the keys ready that are due."""
        while self._delayed and (
            self._delayed[0][0] <= now or not self._is_current(self._delayed[0][2])
        ):
            item = heapq.heappop(self._delayed)[2]
            if self._is_current(item):
                groups = self._ready.setdefault(item.rank, OrderedDict())
                groups.setdefault(self._group(item.key), OrderedDict())[item.key] = None


def _subtract(counts: Counter[str], group: str) -> None:
    counts[group] -= 1
    if not counts[group]:
        del counts[group]
