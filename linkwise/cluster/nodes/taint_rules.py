"""DeviceTaintRules: taints on devices by objects of their own, beside those in slices.

Source: kubernetes v1.36, `staging/src/k8s.io/api/resource/v1beta2/types.go`.
"""

from msgspec import Struct

from linkwise.cluster.keys import DRA_GPU_DRIVER
from linkwise.cluster.nodes.resource_slice import hinders, taint_text
from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.cluster.objects.metadata import Metadata
from linkwise.cluster.objects.time import seconds_of

VERSIONS = ("v1", "v1beta2")
"""Versions of the API that may serve rules, the newest first: Kubernetes 1.37, and 1.36."""
NO_SCHEDULE = "NoSchedule"


class TaintRule(Struct, frozen=True, gc=False):
    """A rule about devices of NVIDIA's driver."""

    pool: str | None
    """None: of every pool."""
    device: str | None
    """None: every device."""
    taint: str
    """The taint as kubectl writes it."""
    hinders: bool
    """The devices are not to be used. Our own taints do not say so."""

    def selects(self, pool: str, device: str) -> bool:
        """Return whether it is about a device."""
        return self.pool in {None, pool} and self.device in {None, device}


class Selector(KubeObject, frozen=True, omit_defaults=True):
    """The devices of a rule; a field that is None selects all."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class _Taint(KubeObject, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class _RuleSpec(KubeObject, frozen=True):
    device_selector: Selector | None = None
    taint: _Taint = _Taint()


class RuleObject(KubeObject, frozen=True):
    """The fields of a DeviceTaintRule that Linkwise reads."""

    kind: str = "DeviceTaintRule"
    metadata: Metadata = Metadata()
    spec: _RuleSpec = _RuleSpec()

    @property
    def content(self) -> TaintRule | None:
        """The rule; None if it is not about GPUs. A rule without a selector is about no device."""
        selector, taint = self.spec.device_selector, self.spec.taint
        if selector is None or selector.driver not in {None, DRA_GPU_DRIVER}:
            return None
        text = taint_text(taint.key, taint.value, taint.effect)
        is_fault = hinders(taint.key, taint.effect)
        return TaintRule(selector.pool, selector.device, text, is_fault)

    @property
    def created(self) -> float:
        """When it was created [s since 1970]; 0 if that cannot be read."""
        return seconds_of(self.metadata.creation_timestamp) or 0.0
