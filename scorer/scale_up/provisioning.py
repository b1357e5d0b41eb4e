"""Keep one ProvisioningRequest for each unit that waits for capacity.

cluster-autoscaler ignores pods behind scheduling gates, so it is asked by objects of its own API.
A request and its PodTemplates belong to the Gang of the unit, or to its only pod, and are deleted
with it; the scorer deletes them as soon as the unit is placed.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
import structlog

from linkwise.cluster.keys import API_VERSION
from linkwise.cluster.objects.kube_object import pod_path
from linkwise.cluster.objects.time import seconds_of
from linkwise.planning.gang.unit import Unit
from linkwise.runtime.kube.client import ApiError, Ignored, Kube, KubeError
from linkwise.runtime.kube.errors import is_outdated
from linkwise.runtime.kube.objects import Key, OwnerReference
from linkwise.runtime.kube.paging import Page, Params, pages
from linkwise.runtime.process.backoff import Backoff
from linkwise.runtime.process.clock import Clock
from scorer.cache.informers import Informers
from scorer.scale_up.crd import (
    OURS,
    POD_SETS_MAX,
    REQUESTS,
    Metadata,
    PodSet,
    ProvisioningRequest,
    TemplateReference,
    new_request,
    requests_of,
    templates_of,
)
from scorer.scale_up.pod_sets import UnitPods, pod_sets, request_name, stem_in, stem_of
from scorer.scale_up.pod_template import pod_template

_TOTAL_MAX = 64
_NAMESPACE_MAX = 8
_CREATED_MAX = 8
"""Requests that exist: of all namespaces, and of one; and that are created in one pass."""
_DELETED_MAX = 64
"""Requests that are deleted in one pass."""
_PAGE, _LISTED_MAX, _PAGE_BYTES = 20, 1000, 32 << 20
"""A ProvisioningRequest has up to 1.5 MiB, and others may write it."""
_POD_BYTES = 2 << 20
_RETRY_AFTER = 600.0
"""Time since its creation after which a failed request is replaced [s]."""
_REPEAT_AFTER = 3600.0
"""The same for a request whose capacity was added, and is not reserved any more [s]. It is long,
because nodes that a unit does not fit are idle meanwhile."""
_ERROR_RETRY, _ERROR_RETRY_MAX = 30.0, 600.0
"""Delays after a request could not be created [s]."""

_log = structlog.get_logger()


class ProvisioningRequests:
    """The ProvisioningRequests of this scorer, for one term of the Lease."""

    def __init__(self, reading: Kube, writing: Kube, informers: Informers, clock: Clock) -> None:
        """Ask for nothing yet.

        Args:
            reading: The API server, for reads.
            writing: The same with a short timeout, for writes.
            informers: The policy and the Gangs.
            clock: The wall clock [s since 1970].
        """
        self._reading, self._writing = reading, writing
        self._informers, self._clock = informers, clock
        self._backoff = Backoff(_ERROR_RETRY, _ERROR_RETRY_MAX, lambda: None)
        self._is_clean = False
        """No request is left while none is wanted."""
        self._is_missing = False
        """The API is not served."""

    async def reconcile(self, units: Iterable[Unit], lacking: Sequence[Unit] | None) -> None:
        """Create missing requests, and delete those that are not needed any more.

        Args:
            units: All units that wait.
            lacking: Those that wait for capacity, in order; None where none may ask.

        Raises:
            KubeError: The requests could not be listed, or one could not be deleted.
        """
        if lacking is None and self._is_clean:
            return
        try:
            requests = await self._list()
        except ApiError as error:
            # Without the rights, no request was created.
            if lacking is None and error.status == 403:
                self._is_clean = True
                return
            raise
        if requests is None:
            return
        self._is_clean = lacking is None and not requests
        class_name = self._informers.policy.policy.autoscaling.provisioning_class
        kept = frozenset[Key]() if lacking is None else _kept(requests, units, lacking)
        wanted = {
            (unit.key.namespace, request_name(unit, class_name)): unit
            for unit in _bounded(lacking or (), kept)
        }
        needed = kept | wanted.keys()
        await self._delete(
            [one for key, one in requests.items() if key not in needed or self._is_due(one)]
        )
        await self._create(
            {key: unit for key, unit in wanted.items() if key not in requests}, class_name
        )

    async def _list(self) -> dict[Key, ProvisioningRequest] | None:
        """Return our requests; None where the API is not served."""
        found: list[ProvisioningRequest] = []
        params = {"labelSelector": ",".join(map("=".join, OURS.items())), "limit": str(_PAGE)}
        try:
            async for page in pages(self._page, params):
                found += page.items or ()
                if len(found) >= _LISTED_MAX:
                    break
        except ApiError as error:
            if error.status != 404:
                raise
            if not self._is_missing:
                _log.warning("ProvisioningRequests are not served")
            self._is_missing, self._is_clean = True, True
            return None
        self._is_missing = False
        return {one.key: one for one in found if OURS.items() <= one.metadata.labels.items()}

    async def _page(self, params: Params) -> Page[ProvisioningRequest]:
        page = Page[ProvisioningRequest]
        return await self._reading.get(REQUESTS, page, params=params, max_bytes=_PAGE_BYTES)

    async def _delete(self, obsolete: Sequence[ProvisioningRequest]) -> None:
        for request in obsolete[:_DELETED_MAX]:
            body = {"preconditions": {"uid": request.metadata.uid}}
            for path in (request.path, *request.templates[:POD_SETS_MAX]):
                try:
                    await self._writing.delete(path, body=body if path == request.path else None)
                except ApiError as error:
                    if not is_outdated(error):
                        raise
            _log.info("Deleted ProvisioningRequest", request="/".join(request.key))

    def _is_due(self, request: ProvisioningRequest) -> bool:
        """Return whether a request ended so long ago that it is replaced."""
        created = seconds_of(request.metadata.creation_timestamp)
        if not request.is_final or created is None:
            return False
        return self._clock() - created >= (_RETRY_AFTER if request.has_failed else _REPEAT_AFTER)

    async def _create(self, missing: Mapping[Key, Unit], class_name: str) -> None:
        due = [
            (key, unit, owner)
            for key, unit in missing.items()
            if key not in self._backoff and (owner := self._owner(unit)) is not None
        ]
        for key, unit, owner in due[:_CREATED_MAX]:
            try:
                if not await self._create_one(key, unit, owner, class_name):
                    # It must not delay the others.
                    self._backoff.start(key)
            except KubeError as error:
                delay = self._backoff.start(key)
                _log.warning(
                    "Could not ask for nodes",
                    request="/".join(key),
                    err=str(error),
                    retry_after=delay,
                )

    async def _create_one(
        self, key: Key, unit: Unit, owner: OwnerReference, class_name: str
    ) -> bool:
        """Create a request and its templates; return whether it is a new one."""
        namespace, name = key
        groups = pod_sets(unit)
        # Of members that must share a node, one template adds up all that differ.
        if sum(len(group.pods) for group in groups) > POD_SETS_MAX:
            return False
        sets: list[PodSet] = []
        for number, group in enumerate(groups):
            template = await self._template(namespace, group)
            if template is None:
                return False
            metadata = Metadata(f"{name}-{number}", labels=OURS, owner_references=(owner,))
            await self._ensure(
                templates_of(namespace), {"metadata": metadata, "template": template}
            )
            sets.append(PodSet(group.count, TemplateReference(metadata.name)))
        # The templates exist before: cluster-autoscaler fails a request without them.
        metadata = Metadata(name, labels=OURS, owner_references=(owner,))
        request = new_request(metadata, tuple(sets), class_name)
        if not await self._ensure(requests_of(namespace), request):
            # Another client has created one of this name.
            return False
        _log.info("Created ProvisioningRequest", request="/".join(key), pods=len(unit.waiting))
        return True

    def _owner(self, unit: Unit) -> OwnerReference | None:
        """Return the object with which the request is deleted; None: it does not exist yet."""
        if not unit.is_gang:
            pod = unit.waiting[0]
            return OwnerReference("v1", "Pod", pod.name, pod.uid)
        gang = self._informers.gang(unit.key)
        if gang is None:
            return None
        return OwnerReference(API_VERSION, "Gang", gang.metadata.name, gang.metadata.uid)

    async def _template(self, namespace: str, group: UnitPods) -> Mapping[str, object] | None:
        pods: list[tuple[msgspec.Raw, int]] = []
        for pod, count in group.pods:
            # What the scorer keeps of a pod lacks resources of others and affinities to pods.
            raw = await self._reading.get(
                pod_path(namespace, pod), msgspec.Raw, max_bytes=_POD_BYTES
            )
            pods.append((raw, count))
        return pod_template(pods)

    async def _ensure(self, path: str, body: object) -> bool:
        """Create an object; return False where it exists, as after an answer that was lost."""
        try:
            await self._writing.create(path, body, Ignored)
        except ApiError as error:
            if error.status != 409:
                raise
            return False
        return True


def _kept(
    requests: Iterable[Key], units: Iterable[Unit], lacking: Iterable[Unit]
) -> frozenset[Key]:
    """Return the requests of units that lack something else for a moment, such as a member."""
    keys = {unit.key for unit in lacking}
    stems = {(unit.key.namespace, stem_of(unit)) for unit in units if unit.key not in keys}
    return frozenset(key for key in requests if (key[0], stem_in(key[1])) in stems)


def _bounded(units: Iterable[Unit], kept: Collection[Key]) -> list[Unit]:
    """Return the first units for which there is room beside the kept requests."""
    bounded: list[Unit] = []
    by_namespace = Counter(namespace for namespace, _ in kept)
    for unit in units:
        namespace = unit.key.namespace
        if by_namespace[namespace] < _NAMESPACE_MAX and len(kept) + len(bounded) < _TOTAL_MAX:
            by_namespace[namespace] += 1
            bounded.append(unit)
    return bounded
