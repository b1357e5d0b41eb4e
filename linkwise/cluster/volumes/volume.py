"""PersistentVolumes: the nodes from which one can be used, and by which claim.

Source: kubernetes v1.36, `staging/src/k8s.io/api/core/v1/types.go`.
"""

from typing import NamedTuple

from linkwise.cluster.objects.affinity import NodeSelector
from linkwise.cluster.objects.container import Amounts
from linkwise.cluster.objects.kube_object import KubeObject, Labels
from linkwise.cluster.objects.metadata import Metadata
from linkwise.cluster.volume_keys import STORAGE_CLASS_BEFORE
from linkwise.cluster.volumes.names import kept_name
from linkwise.cluster.volumes.node_choice import NodeChoice, choice_of, place_choices
from linkwise.cluster.volumes.storage_amount import storage_bytes

HANDLE_MAX = 512
"""Longest handle of a volume that is kept [characters]."""
LABELS_MAX = 4 << 10
"""Labels of a free volume that are kept [characters]; with more it matches no selector."""
_MODES_MAX = 8


class Attachment(NamedTuple):
    """A volume that a CSI driver attaches to a node."""

    driver: str
    handle: str


class FreeVolume(NamedTuple):
    """What decides which unbound claim may bind a volume."""

    size: int
    """[bytes]"""
    modes: frozenset[str]
    is_block: bool
    attributes: str
    """Its VolumeAttributesClass; empty: none."""
    labels: Labels | None = None
    """None: too many are there to keep them, or it has none."""


class PersistentVolume(NamedTuple):
    """What is kept of a PersistentVolume."""

    storage_class: str
    affinity: NodeChoice | None
    """The nodes from which it can be used; None: all."""
    places: tuple[NodeChoice, ...]
    """What its labels for zones and regions require of a node."""
    attachment: Attachment | None
    claim: tuple[str, str, str] | None
    """Namespace, name and uid (which may be empty) of the claim that has it, or is to have it."""
    free: FreeVolume | None
    """None: no unbound claim may bind it."""
    is_available: bool
    """Any claim may bind it."""


class _ClaimReference(KubeObject, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _CSI(KubeObject, frozen=True):
    driver: str = ""
    volume_handle: str = ""


class _NodeAffinity(KubeObject, frozen=True):
    required: NodeSelector | None = None


class _Spec(KubeObject, frozen=True):
    access_modes: list[str] | None = None
    capacity: Amounts | None = None
    claim_ref: _ClaimReference | None = None
    csi: _CSI | None = None
    node_affinity: _NodeAffinity | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class _Status(KubeObject, frozen=True):
    phase: str = ""


class VolumeObject(KubeObject, frozen=True):
    """The fields of a PersistentVolume that Linkwise reads."""

    kind: str = "PersistentVolume"
    metadata: Metadata = Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def content(self) -> PersistentVolume:
        """What is kept of it."""
        spec, metadata = self.spec, self.metadata
        annotations, labels = metadata.annotations or {}, metadata.labels or {}
        required = spec.node_affinity.required if spec.node_affinity else None
        reference, csi = spec.claim_ref, spec.csi
        is_bound = self.status.phase in ("Bound", "Released", "Failed")
        return PersistentVolume(
            storage_class=kept_name(annotations.get(STORAGE_CLASS_BEFORE, spec.storage_class_name)),
            affinity=choice_of(required.node_selector_terms or ()) if required else None,
            places=place_choices(labels),
            attachment=Attachment(kept_name(csi.driver), csi.volume_handle[:HANDLE_MAX])
            if csi and csi.driver and csi.volume_handle
            else None,
            claim=(
                kept_name(reference.namespace),
                kept_name(reference.name),
                kept_name(reference.uid),
            )
            if reference
            else None,
            free=None if is_bound or metadata.deletion_timestamp else self._free(labels),
            is_available=self.status.phase == "Available" and reference is None,
        )

    def _free(self, labels: Labels) -> FreeVolume | None:
        spec = self.spec
        modes = frozenset(kept_name(mode) for mode in spec.access_modes or ())
        if len(modes) > _MODES_MAX:
            return None
        size = sum(len(key) + len(value) for key, value in labels.items())
        return FreeVolume(
            size=storage_bytes(spec.capacity),
            modes=modes,
            is_block=spec.volume_mode == "Block",
            attributes=kept_name(spec.volume_attributes_class_name or ""),
            labels=labels if labels and size <= LABELS_MAX else None,
        )
