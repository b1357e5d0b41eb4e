"""Refuse the machine of a node that changes too often: the tables of each one cost seconds."""

from collections import deque
from collections.abc import Callable

from linkwise.topology.machine import Machine
from linkwise.topology.table import machine_class

CHANGES_MAX = 3
"""Changes within `WINDOW` after which a machine is refused."""
WINDOW = 600.0
"""For as long, a machine must stay the same before it is used again [s]."""

_REASON = (
    f"its agent or driver published another machine {CHANGES_MAX} times in {WINDOW / 60:g} "
    "minutes, so the node is not used until the machine stays the same for as long: look at their "
    "logs, and at the writers of its ConfigMap and ResourceSlices"
)


class MachineChanges:
    """When the machines changed that nodes published.

    Deleted nodes are kept: a node that is created again counts as the same.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start without nodes.

        Args:
            clock: A monotonic clock [s].
        """
        self._clock = clock
        self._machines: dict[str, Machine] = {}
        """The last machine of each node."""
        self._changes: dict[str, deque[float]] = {}
        """The times of the last changes of each node [s]."""
        self._until: dict[str, float] = {}
        """The end of the last refusal of each node [s]."""

    def note(self, node: str, machine: Machine, *, is_counted: bool) -> None:
        """Note the machine of a node.

        Args:
            node: Its name.
            machine: Its machine now, as its agent or driver publishes it.
            is_counted: A change counts; False: another policy may have changed it.
        """
        new = machine_class(machine)
        before = self._machines.get(node)
        self._machines[node] = new
        if before is None or before == new or not is_counted:
            return
        now = self._clock()
        times = self._changes.setdefault(node, deque(maxlen=CHANGES_MAX))
        times.append(now)
        is_often = len(times) == CHANGES_MAX and now - times[0] < WINDOW
        if is_often or now < self._until.get(node, 0):
            self._until[node] = now + WINDOW

    def refusal(self, node: str) -> tuple[str, float] | None:
        """Return why the machine of a node is refused, and for how long [s]; None: it is used."""
        left = self._until.get(node, 0) - self._clock()
        return (_REASON, left) if left > 0 else None
