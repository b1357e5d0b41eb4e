"""Publish the state of certificates: Events on the CA's Secret, and a ConfigMap without keys."""

from collections.abc import Callable
from datetime import datetime

import msgspec
import structlog

from certs.store import CA_SECRET
from linkwise.cluster.keys import CERTS, CERTS_KEY
from linkwise.cluster.objects.certificate_state import CertificateState
from linkwise.runtime.kube.client import ApiError, Ignored, Kube, KubeError
from linkwise.runtime.kube.event_recorder import Event, EventRecorder, ObjectReference
from linkwise.runtime.kube.objects import ConfigMap
from linkwise.runtime.kube.paths import api_path

_log = structlog.get_logger()
_MAX_EVENTS = 1000
_ABSENT = (404, 409)
"""The ConfigMap does not exist, or another replica has written it."""


class Reporter:
    """Writes what has happened; a failure is logged and does not affect certificates."""

    def __init__(self, kube: Kube, recorder: EventRecorder, namespace: str) -> None:
        self._kube, self._recorder, self._namespace = kube, recorder, namespace
        self._path = api_path("v1", "namespaces", namespace, "configmaps", CERTS)
        self._recorded: set[str] = set()

    async def record(
        self, uid: str, reason: str, message: str, change: str, *, is_warning: bool = False
    ) -> None:
        """Create an Event on the CA's Secret, once for each change and reason.

        Args:
            uid: Of the Secret.
            reason: In CamelCase.
            message: For people.
            change: Identifies the change; the same in all replicas.
            is_warning: Whether an administrator may have to act.
        """
        about = ObjectReference("v1", "Secret", CA_SECRET, uid, self._namespace)
        event = Event(about, reason, message, change, is_warning)
        if event.name in self._recorded:
            return
        if len(self._recorded) >= _MAX_EVENTS:
            self._recorded.clear()
        try:
            await self._recorder.create(event)
        except KubeError as error:
            _log.warning("Could not create event", reason=reason, err=str(error))
            return
        self._recorded.add(event.name)

    async def publish(self, now: float, build: Callable[[float], CertificateState]) -> float:
        """Write the state where it differs from the published one; return when its phase began.

        Args:
            now: [s since 1970].
            build: Returns the state; its argument is the time at which the phase began, which is
                that of the published state unless the phase or the CAs have changed.
        """
        try:
            found = await self._kube.find(self._path, ConfigMap)
            since, state = now, build(now)
            published = _state(found) if found else None
            if published and _identity(published) == _identity(state):
                since = datetime.fromisoformat(published.since).timestamp()
                state = build(since)
            text = msgspec.json.encode(state).decode()
            if found and _text(found) != text:
                metadata = {"resourceVersion": found.metadata.resource_version}
                patch = {"metadata": metadata, "data": {CERTS_KEY: text}}
                await self._kube.patch(self._path, patch, Ignored, kind="merge")
        except KubeError as error:
            if not (isinstance(error, ApiError) and error.status in _ABSENT):
                _log.warning("Could not publish certificate status", err=str(error))
            return now
        return since


def _identity(state: CertificateState) -> tuple[object, ...]:
    """Return the parts of a state that change with each phase."""
    return state.mode, state.phase, state.authorities


def _state(found: ConfigMap) -> CertificateState | None:
    try:
        state = msgspec.json.decode(_text(found), type=CertificateState)
        datetime.fromisoformat(state.since)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    return state


def _text(found: ConfigMap) -> str:
    return (found.data or {}).get(CERTS_KEY, "")
