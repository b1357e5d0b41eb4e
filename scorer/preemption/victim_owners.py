"""Read the owners of victims that may be elastic before these are evicted: a part may stay."""

from collections.abc import Iterable

from linkwise.cluster.gang import GangKey
from linkwise.cluster.objects.metadata import Owner
from linkwise.planning.gang.placed_units import PlacedUnit
from linkwise.runtime.process.backoff import Backoff
from linkwise.workloads.registry import kind_of
from scorer.cache.informers import Informers
from scorer.queue.gang_size import GangSizeResolver

_READ = 2.0
"""The longest wait for owners that are read [s]."""


class VictimOwners:
    """The owners that are read for units that preempt."""

    def __init__(self, informers: Informers, sizes: GangSizeResolver) -> None:
        """Read none yet; `sizes` reads how many pods an elastic gang can do without."""
        self._owners, self._sizes = informers.owners, sizes
        self._reading = Backoff(_READ, _READ, informers.changed.set)
        """Units that wait until owners of their victims are read."""
        self._read: dict[GangKey, set[str]] = {}
        """By unit that preempts: the uids of these owners. None is waited for twice."""

    def is_reading(self, key: GangKey) -> bool:
        """Return whether a unit waits for owners of its victims."""
        return key in self._reading and bool(self._read[key] - self._owners.expected.keys())

    def read(self, key: GangKey, victims: Iterable[PlacedUnit]) -> bool:
        """Read owners of victims of a unit; return whether one was not read before."""
        read = self._read.setdefault(key, set())
        unread = [
            (owner, victim.key.namespace)
            for victim in victims
            if (owner := self._owners.top(victim.pods[0].controller)) and _may_shrink(owner)
            if owner.uid not in self._owners.expected and owner.uid not in read
        ]
        for owner, namespace in unread:
            read.add(owner.uid)
            self._sizes.resolve_owner(owner, namespace)
        if unread:
            self._reading.start(key)
        return bool(unread)

    def forget(self, key: GangKey) -> None:
        """Forget what was read for a unit."""
        self._reading.reset(key)
        self._read.pop(key, None)


def _may_shrink(owner: Owner) -> bool:
    """Return whether an owner is of a kind that may be elastic."""
    kind = kind_of(owner.api_version, owner.kind)
    return kind is not None and kind.may_shrink
