"""Events about a node."""

from collections.abc import Iterable

import structlog

from agent.control.desired_state import Problem
from linkwise.runtime.kube.event_recorder import Event, EventRecorder, ObjectReference
from linkwise.runtime.process.clock import Clock

_log = structlog.get_logger()


class NodeEvents:
    """Events about one node."""

    def __init__(self, recorder: EventRecorder, node: str, clock: Clock) -> None:
        """Create nothing yet.

        Args:
            recorder: Creates the Events.
            node: Name of the node.
            clock: The wall clock [s since 1970]; a problem that returns has another Event.
        """
        self._recorder, self._clock = recorder, clock
        self._about = ObjectReference.of_node(node)
        self._present: dict[Problem, Event] = {}
        """The problems of the last report, with their Events."""
        self._last: Event | None = None
        """The last Event that is not about a problem."""

    def report(self, problems: Iterable[Problem]) -> None:
        """Let an Event be created for each problem that the last report did not have."""
        present = dict.fromkeys(problems)
        for problem in self._present.keys() - present.keys():
            self._recorder.withdraw(self._present.pop(problem))
        for problem in present.keys() - self._present.keys():
            _log.warning("Problem of the node", reason=problem.reason, message=problem.message)
            change = f"{problem.message}/{self._clock()}"
            event = Event(self._about, problem.reason, problem.message, change)
            self._present[problem] = event
            self._recorder.record(event)

    def add(self, event: Event) -> None:
        """Let another Event be created; it replaces one of this kind that was not created yet."""
        if self._last is not None:
            self._recorder.withdraw(self._last)
        self._last = event
        self._recorder.record(event)
