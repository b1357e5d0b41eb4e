"""PersistentVolumeClaims: which volume a pod gets by one, or what an unbound one asks for.

Source: kubernetes v1.36, `staging/src/k8s.io/api/core/v1/types.go`.
"""

from typing import NamedTuple

import msgspec

from linkwise.cluster.objects.affinity import LabelSelector
from linkwise.cluster.objects.container import Amounts
from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.cluster.objects.label_match import LabelMatch, label_match
from linkwise.cluster.objects.metadata import Metadata
from linkwise.cluster.volume_keys import BIND_COMPLETED, SELECTED_NODE, STORAGE_CLASS_BEFORE
from linkwise.cluster.volumes.names import kept_name
from linkwise.cluster.volumes.storage_amount import storage_bytes

SELECTOR_MAX = 2 << 10
"""Largest selector of an unbound claim that is kept [bytes, encoded]."""
REQUIREMENTS_MAX = 8
"""Requirements of such a selector; people write one or two."""
_MODES_MAX = 8
"""Access modes that are kept; Kubernetes has four."""
_EXCLUSIVE = "ReadWriteOncePod"


class Wanted(NamedTuple):
    """What a volume must have for an unbound claim to bind it."""

    size: int
    """[bytes]"""
    modes: tuple[str, ...]
    is_block: bool
    selector: LabelMatch | None
    """Of the labels of a volume; None: any."""
    attributes: str
    """Its VolumeAttributesClass; empty: none."""

    def modes_in(self, modes: frozenset[str]) -> bool:
        """Return whether a volume of these access modes has all of its own."""
        return modes.issuperset(self.modes)


class Claim(NamedTuple):
    """What is kept of a PersistentVolumeClaim."""

    uid: str
    volume: str
    """Name of its volume; empty: it has none yet."""
    is_bound: bool
    storage_class: str
    owner: str
    """Uid of the pod that controls it; empty: no pod does."""
    is_lost: bool
    is_ending: bool
    is_exclusive: bool
    """Only one pod may use it (ReadWriteOncePod)."""
    selected_node: str | None
    """The node for which its volume is being provisioned."""
    wanted: Wanted | None
    """None: it is bound, or is too large to be compared with volumes."""


class _Resources(KubeObject, frozen=True):
    requests: Amounts | None = None


class _Spec(KubeObject, frozen=True):
    access_modes: list[str] | None = None
    selector: LabelSelector | None = None
    resources: _Resources | None = None
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class _Status(KubeObject, frozen=True):
    phase: str = ""


class ClaimObject(KubeObject, frozen=True):
    """The fields of a PersistentVolumeClaim that Linkwise reads."""

    kind: str = "PersistentVolumeClaim"
    metadata: Metadata = Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def content(self) -> Claim:
        """What is kept of it."""
        spec, metadata = self.spec, self.metadata
        annotations = metadata.annotations or {}
        class_name = annotations.get(STORAGE_CLASS_BEFORE, spec.storage_class_name or "")
        selected = annotations.get(SELECTED_NODE)
        is_bound = bool(spec.volume_name) and BIND_COMPLETED in annotations
        return Claim(
            uid=metadata.uid,
            volume=kept_name(spec.volume_name),
            is_bound=is_bound,
            storage_class=kept_name(class_name),
            owner=metadata.controlling_pod or "",
            is_lost=self.status.phase == "Lost",
            is_ending=metadata.deletion_timestamp is not None,
            is_exclusive=_EXCLUSIVE in (spec.access_modes or ()),
            selected_node=None if selected is None else kept_name(selected),
            wanted=None if is_bound else self._wanted,
        )

    @property
    def _wanted(self) -> Wanted | None:
        spec = self.spec
        modes = sorted({kept_name(mode) for mode in spec.access_modes or ()})
        if len(modes) > _MODES_MAX or (spec.selector and _is_long(spec.selector)):
            return None
        return Wanted(
            size=storage_bytes(spec.resources.requests if spec.resources else None),
            modes=tuple(modes),
            is_block=spec.volume_mode == "Block",
            selector=label_match(spec.selector, {}) if spec.selector else None,
            attributes=kept_name(spec.volume_attributes_class_name or ""),
        )


def _is_long(selector: LabelSelector) -> bool:
    length = len(selector.match_labels or ()) + len(selector.match_expressions or ())
    return length > REQUIREMENTS_MAX or len(msgspec.msgpack.encode(selector)) > SELECTOR_MAX
