"""Watch claims, volumes, their classes, and how many volumes each node can attach.

They are left to kube-scheduler while they were never listed, since the right to read them is
missing (an older ClusterRole) or they are not served. What was listed once is kept, whatever comes
later: a right may be missing for a moment only, and pods that wait for a volume must not be planned
then.
"""

import asyncio
from collections.abc import Callable, Mapping, Set
from typing import Any, TypeAlias

import msgspec
import structlog
from msgspec import Raw

from linkwise.cluster.volumes.claim import Claim, ClaimObject
from linkwise.cluster.volumes.csi_node import AttachLimits, CSINodeObject
from linkwise.cluster.volumes.objects import VolumeObjects
from linkwise.cluster.volumes.storage_class import StorageClass, StorageClassObject
from linkwise.cluster.volumes.volume import PersistentVolume, VolumeObject
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.kube.decode import decode
from linkwise.runtime.kube.objects import Key
from linkwise.runtime.kube.reflector import Reflector
from scorer.cache.volumes.claim_index import ClaimIndex

Changed: TypeAlias = Callable[[Set[Key] | None], None]
"""Takes the claims of which something changed; None: of every claim."""

_claims = msgspec.json.Decoder(ClaimObject)
_volumes = msgspec.json.Decoder(VolumeObject)
_classes = msgspec.json.Decoder(StorageClassObject)
_csi_nodes = msgspec.json.Decoder(CSINodeObject)
_log = structlog.get_logger()


class VolumeInformer:
    """What is known of the volumes of a cluster."""

    def __init__(
        self,
        kube: Kube,
        on_claims: Changed,
        on_limits: Callable[[Mapping[str, AttachLimits]], None],
    ) -> None:
        """Prepare the watches.

        Args:
            kube: The API server.
            on_claims: Called after every change of a claim, or of its volume or class.
            on_limits: Takes the limits of nodes on which they changed.
        """
        self._on_claims, self._on_limits = on_claims, on_limits
        self._objects = VolumeObjects({}, {}, {})
        self._was_known = False
        self._by_volume = ClaimIndex(lambda claim: claim.volume)
        self._by_class = ClaimIndex(lambda claim: "" if claim.is_bound else claim.storage_class)
        self.claims: Reflector[Claim] = Reflector(
            kube,
            "/api/v1/persistentvolumeclaims",
            read_claim,
            on_change=self._claims_changed,
            on_forbidden=self._forbidden,
        )
        self.volumes: Reflector[PersistentVolume] = Reflector(
            kube,
            "/api/v1/persistentvolumes",
            read_volume,
            on_change=self._volumes_changed,
            on_forbidden=self._forbidden,
        )
        self.classes: Reflector[StorageClass] = Reflector(
            kube,
            "/apis/storage.k8s.io/v1/storageclasses",
            read_class,
            on_change=self._classes_changed,
            on_forbidden=self._forbidden,
        )
        self.csi_nodes: Reflector[AttachLimits] = Reflector(
            kube,
            "/apis/storage.k8s.io/v1/csinodes",
            read_limits,
            on_change=self._limits_changed,
            on_forbidden=self._limits_forbidden,
        )

    @property
    def objects(self) -> VolumeObjects | None:
        """What is known; None: volumes are left to kube-scheduler."""
        return self._objects if self._is_known else None

    @property
    def _is_known(self) -> bool:
        return all(one.synced.is_set() for one in (self.claims, self.volumes, self.classes))

    @property
    def reflectors(self) -> Mapping[str, Reflector[Any]]:
        """The watches, by resource."""
        return {
            "persistentvolumeclaims": self.claims,
            "persistentvolumes": self.volumes,
            "storageclasses": self.classes,
            "csinodes": self.csi_nodes,
        }

    def exclusive(self, claims: Set[Key]) -> Set[Key]:
        """Return those of some claims that only one pod may use."""
        known = self._objects.claims
        return {key for key in claims if (claim := known.get(key)) and claim.is_exclusive}

    async def run(self) -> None:
        """Keep the objects up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self.reflectors.values():
                group.create_task(reflector.run())

    async def answered(self) -> None:
        """Wait until everything was listed, may not be read, or is not served."""
        for reflector in self.reflectors.values():
            await reflector.answered.wait()

    def missing(self) -> str | None:
        """Return what `answered` waits for; None: nothing."""
        waiting = (one for one in self.reflectors.values() if not one.answered.is_set())
        return next((one.error or "the list is under way" for one in waiting), None)

    def _claims_changed(self, items: Mapping[Key, Claim], changed: Set[Key]) -> None:
        self._objects.claims = items
        for key in changed:
            for index in (self._by_volume, self._by_class):
                index.update(key, items.get(key))
        self._report(changed)

    def _volumes_changed(self, items: Mapping[Key, PersistentVolume], changed: Set[Key]) -> None:
        classes = self._objects.update(items, changed)
        self._report(self._by_volume.of(name for _, name in changed) | self._by_class.of(classes))

    def _classes_changed(self, items: Mapping[Key, StorageClass], changed: Set[Key]) -> None:
        self._objects.classes = items
        self._report(self._by_class.of(name for _, name in changed))

    def _limits_changed(self, items: Mapping[Key, AttachLimits], changed: Set[Key]) -> None:
        self._on_limits({key[1]: items.get(key, ()) for key in changed})

    def _forbidden(self) -> None:
        watches = (self.claims, self.volumes, self.classes)
        errors = [one.error for one in watches if one.is_forbidden and not one.synced.is_set()]
        _log.warning("Left volumes to kube-scheduler", err=errors)

    def _limits_forbidden(self) -> None:
        _log.warning("Left attach limits of nodes to kube-scheduler", err=self.csi_nodes.error)

    def _report(self, claims: Set[Key]) -> None:
        is_known = self._is_known
        if is_known != self._was_known:
            self._was_known = is_known
            self._on_claims(None)
        elif is_known and claims:
            self._on_claims(claims)


def read_claim(raw: Raw) -> Claim:
    """Return what is kept of a PersistentVolumeClaim."""
    return decode(raw, _claims).content


def read_volume(raw: Raw) -> PersistentVolume:
    """Return what is kept of a PersistentVolume."""
    return decode(raw, _volumes).content


def read_class(raw: Raw) -> StorageClass:
    """Return what is kept of a StorageClass."""
    return decode(raw, _classes).content


def read_limits(raw: Raw) -> AttachLimits | None:
    """Return the limits of a node; None: its drivers have none."""
    return decode(raw, _csi_nodes).content or None
