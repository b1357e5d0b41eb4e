"""The delays before victims are searched for a unit again: none was found, or it was in vain."""

from collections import Counter
from collections.abc import Callable

from linkwise.cluster.gang import GangKey
from linkwise.runtime.process.backoff import Backoff
from scorer.preemption.nomination import Failure

_AGAIN, _AGAIN_MAX = 5.0, 60.0
"""Delay of a unit for which no victims were found, or whose preemption failed [s]."""
_AT_ONCE = 8
"""So often in a row other victims are searched at once for a unit; then it backs off."""
_IN_VAIN = 2
"""Sets of units that are evicted for a unit although their GPUs do not become free in time."""
_NO_MORE = (
    f"the GPUs of {_IN_VAIN} sets of units that were evicted for it did not become free in time: "
    "no others are evicted for it"
)


class SearchDelays:
    """The units for which nothing is searched for now."""

    def __init__(self, on_ready: Callable[[], None]) -> None:
        """Delay no unit; `on_ready` is called whenever a delay ends."""
        self._backoff = Backoff(_AGAIN, _AGAIN_MAX, on_ready)
        self._repeated = Counter[GangKey]()
        """How often in a row other victims were searched at once."""
        self._in_vain = Counter[GangKey]()
        """Sets of units that were evicted for a unit in vain."""

    def __contains__(self, key: GangKey) -> bool:
        """Return whether nothing is searched for a unit now."""
        return key in self._backoff or self._in_vain[key] >= _IN_VAIN

    def reason(self, key: GangKey) -> str | None:
        """Return why nothing is searched for a unit; None: nothing to say."""
        return _NO_MORE if self._in_vain[key] >= _IN_VAIN else self._backoff.reason(key) or None

    def start(self, key: GangKey, reason: str) -> None:
        """Delay the next search for a unit for which nothing was found."""
        self._backoff.start(key, reason)

    def failed(self, key: GangKey, reason: str, failure: Failure) -> None:
        """Delay the next search for a unit whose nomination ended in vain, unless it was void."""
        is_void = failure is Failure.VOID
        self._repeated[key] = self._repeated[key] + 1 if is_void else 0
        self._in_vain[key] += failure is Failure.OVERDUE
        if self._repeated[key] % (_AT_ONCE + 1) == 0:
            self._backoff.start(key, reason, at_maximum=not is_void)

    def reset(self, key: GangKey) -> None:
        """Forget a unit: it is placed, or has no pods left."""
        self._backoff.reset(key)
        self._repeated.pop(key, None)
        self._in_vain.pop(key, None)
