"""Events about a node."""

from collections.abc import Iterable

import structlog

from agent.control.desired_state import Problem
from runtime.kube.client import KubeError
from runtime.kube.event_recorder import Event, EventRecorder, ObjectReference
from runtime.process.clock import Clock

_log = structlog.get_logger()


class NodeEvents:
    """Events about one node. One that cannot be created is created later."""

    def __init__(self, events: EventRecorder, node: str, clock: Clock) -> None:
        """Create nothing yet.

        Args:
            events: Creates the Events.
            node: Name of the node.
            clock: The wall clock [s since 1970]; a problem that returns has another Event.
        """
        self._events, self._clock = events, clock
        self._about = ObjectReference.of_node(node)
        self._since: dict[Problem, float] = {}
        """Present problems, with the time at which they were first reported."""
        self._pending: dict[Problem | None, Event] = {}
        """Events to create, by problem."""
        self._error: str | None = None

    async def report(self, problems: Iterable[Problem]) -> None:
        """Create an Event for each problem that the last report did not have."""
        present = dict.fromkeys(problems)
        for problem in self._since.keys() - present.keys():
            del self._since[problem]
            self._pending.pop(problem, None)
        for problem in present.keys() - self._since.keys():
            _log.warning("Problem of the node", reason=problem.reason, message=problem.message)
            since = self._since[problem] = self._clock()
            change = f"{problem.message}/{since}"
            self._pending[problem] = Event(self._about, problem.reason, problem.message, change)
        await self._create()

    async def add(self, event: Event) -> None:
        """Create another Event; it replaces one of this kind that was not created yet."""
        self._pending[None] = event
        await self._create()

    async def _create(self) -> None:
        for key, event in tuple(self._pending.items()):
            try:
                await self._events.record(event)
            except KubeError as error:
                if str(error) != self._error:
                    _log.warning("Could not create event", reason=event.reason, err=str(error))
                self._error = str(error)
                return
            if self._pending.get(key) is event:
                del self._pending[key]
        self._error = None
