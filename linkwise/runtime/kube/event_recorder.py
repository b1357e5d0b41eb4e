"""Record Events of the Kubernetes API: one object for each change, whichever replica reports it.

An Event that cannot be created is tried again for about a quarter of an hour. The namespaces take
turns, so that very many Events of one do not delay those of another.
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import Self

import structlog

from linkwise.runtime.kube.client import ApiError, Ignored, Kube, KubeError
from linkwise.runtime.kube.paths import api_path
from linkwise.runtime.process.clock import Clock, rfc3339
from linkwise.runtime.process.fair_schedule import Limits
from linkwise.runtime.process.work_queue import OnError, Retry, WorkQueue

MESSAGE_MAX = 1024
"""The API server refuses a longer message [characters]."""
_NAME_MAX = 253 - 17
_CONFLICT = 409
_LIMITS = Limits(8, of_group=4)
_RETRY = Retry(1.0, 600.0, attempts=11)
_WAITING_MAX = 256
"""Events of one namespace that are not created yet; further ones are dropped."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """The object that an Event is about."""

    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str = ""
    """Empty for a cluster-scoped object."""
    resource_version: str | None = None

    @classmethod
    def of_node(cls, name: str) -> Self:
        """Return a node, as the kubelet's own Events name it: its name is the uid, too."""
        return cls("v1", "Node", name, uid=name)

    @property
    def event_namespace(self) -> str:
        """The namespace of its Events."""
        return self.namespace or "default"


@dataclass(frozen=True, slots=True)
class Event:
    """One change of an object."""

    about: ObjectReference
    reason: str
    """In CamelCase, for programs."""
    message: str
    """For people; truncated to `MESSAGE_MAX` characters."""
    change: str
    """Identifies this change among those of the same object and reason, such as the id of a plan:
    all replicas give the Event of one change the same name, so that it is created once."""
    is_warning: bool = True

    @property
    def name(self) -> str:
        """A valid object name."""
        identity = f"{self.about.uid}/{self.reason}/{self.change}"
        digest = sha256(identity.encode()).hexdigest()[:16]
        return f"{self.about.name[:_NAME_MAX].rstrip('.-')}.{digest}"


class EventRecorder:
    """Creates Events on behalf of one replica of a component, while `run` runs."""

    def __init__(
        self,
        kube: Kube,
        component: str,
        instance: str,
        clock: Clock,
        on_fault: OnError[Event] | None = None,
    ) -> None:
        """Create nothing yet.

        Args:
            kube: The API server.
            component: Name of the program.
            instance: Name of the replica.
            clock: The wall clock [s since 1970].
            on_fault: Called with unforeseen exceptions, which else are logged.
        """
        self._kube, self._component, self._instance = kube, component, instance
        self._clock, self._on_fault = clock, on_fault or _log_error
        self._queue = WorkQueue(
            self.create, retry=_RETRY, on_error=self._failed, group=_namespace, limits=_LIMITS
        )
        self._error = ""
        """The last error, which is logged once."""

    def record(self, event: Event) -> bool:
        """Let an Event be created soon, unless any replica has created it already.

        Return False if it is dropped, because too many of its namespace wait.
        """
        if self._queue.size(_namespace(event)) >= _WAITING_MAX:
            return False
        self._queue.add(event)
        return True

    def withdraw(self, event: Event) -> None:
        """Do not create an Event that was not created yet."""
        self._queue.discard(event)

    async def run(self) -> None:
        """Create Events until cancelled."""
        await self._queue.run()

    async def create(self, event: Event) -> None:
        """Create an Event now, unless any replica has created it already.

        Raises:
            KubeError: It could not be created.
        """
        path = api_path("v1", "namespaces", event.about.event_namespace, "events")
        try:
            await self._kube.create(path, self._body(event), Ignored)
        except ApiError as error:
            if error.status != _CONFLICT:
                raise
        self._error = ""

    def _failed(self, event: Event, error: Exception, delay: float | None) -> None:
        if not isinstance(error, KubeError):
            self._on_fault(event, error, delay)
        elif delay is None or str(error) != self._error:
            _log_error(event, error, delay)
        self._error = str(error)

    def _body(self, event: Event) -> dict[str, object]:
        about, now, message = event.about, rfc3339(self._clock()), event.message
        version = {"resourceVersion": about.resource_version} if about.resource_version else {}
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": event.name, "namespace": about.event_namespace},
            "involvedObject": {
                "apiVersion": about.api_version,
                "kind": about.kind,
                "name": about.name,
                "namespace": about.namespace,
                "uid": about.uid,
                **version,
            },
            "type": "Warning" if event.is_warning else "Normal",
            "reason": event.reason,
            "message": message if len(message) <= MESSAGE_MAX else f"{message[: MESSAGE_MAX - 1]}…",
            "source": {"component": self._component, "host": self._instance},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }


def _namespace(event: Event) -> str:
    return event.about.event_namespace


def _log_error(event: Event, error: Exception, delay: float | None) -> None:
    about = f"{event.about.kind} {event.about.namespace}/{event.about.name}"
    unforeseen = None if isinstance(error, KubeError) else error
    _log.warning(
        "Could not create event",
        reason=event.reason,
        about=about,
        err=str(error),
        retry_after=delay,
        exc_info=unforeseen,
    )
