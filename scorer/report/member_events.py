"""Events about the first waiting pod of each unit, with the reason each time that it changes.

`kubectl describe pod` shows only `SchedulingGated` otherwise. One pod of a unit is enough, so that
a gang of any size costs as many Events as a single pod. A condition would be a write of the pod
that every watch of pods receives; describe and dashboards show Events, and these expire.
"""

from collections.abc import Callable
from dataclasses import dataclass

from linkwise.cluster.gang import GangKey
from linkwise.planning.gang.events import reason_of_member
from linkwise.runtime.kube.event_recorder import Event
from linkwise.runtime.process.clock import loop_time
from scorer.report.status_update import StatusUpdate, about_pod

BURST = 5
"""Events of one unit at once."""
REFILL = 300.0
"""Until one more Event of a unit is allowed [s], as client-go limits those of one object."""
DROPPED_RETRY = 30.0
"""Until an Event is recorded again that was dropped [s]: too many of its namespace waited."""


@dataclass(slots=True)
class _Unit:
    """What the Events of one unit have said."""

    since: float
    """The last time at which `tokens` was computed, of the loop's clock [s]."""
    tokens: float = BURST
    created: int = 0
    uid: str = ""
    """The pod that the last Event was about."""
    text: str = ""


class MemberEvents:
    """Records these Events, for one term of the Lease."""

    def __init__(
        self, record: Callable[[Event], bool], term: int, clock: Callable[[], float] = loop_time
    ) -> None:
        """Record nothing yet.

        Args:
            record: Creates an Event soon; False: it drops it.
            term: Of the Lease.
            clock: Seconds; never goes back.
        """
        self._record, self._term, self._clock = record, term, clock
        self._units: dict[GangKey, _Unit] = {}

    def record(self, update: StatusUpdate) -> float:
        """Record the reason of an update on its first waiting pod, unless that was said last.

        Args:
            update: The latest result of planning the unit.

        Returns:
            After how long to call it again [s], since the unit or its namespace has had too many
            Events; or 0.
        """
        if not update.waits:
            return 0.0
        pod, text = update.unit.waiting[0], update.reason
        unit = self._units.setdefault(update.unit.key, _Unit(self._clock()))
        if (unit.uid, unit.text) == (pod.uid, text):
            return 0.0
        if delay := self._delay(unit):
            return delay
        message = reason_of_member(update.unit.key.name if update.unit.is_gang else "", text)
        # Term and count distinguish a reason that holds again: describe lists Events by times.
        change = f"{self._term}-{unit.created}: {text}"
        if not self._record(Event(about_pod(pod), message.reason, message.text, change)):
            return DROPPED_RETRY
        unit.uid, unit.text, unit.created = pod.uid, text, unit.created + 1
        unit.tokens -= 1
        return 0.0

    def forget(self, key: GangKey) -> None:
        """Drop what is kept of a unit without pods."""
        self._units.pop(key, None)

    def _delay(self, unit: _Unit) -> float:
        """Return after how long an Event of a unit is allowed [s]."""
        now = self._clock()
        unit.tokens = min(BURST, unit.tokens + (now - unit.since) / REFILL)
        unit.since = now
        return max(0.0, 1 - unit.tokens) * REFILL
