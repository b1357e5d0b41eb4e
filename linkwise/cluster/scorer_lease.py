"""The Lease of the leading scorer, with its address."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from linkwise.cluster.cel.values import DeviceFacts
from linkwise.cluster.keys import (
    CLAIMS_NODES,
    EXCLUDED_NODES,
    GPU_KINDS,
    POLICY_NAMESPACE,
    REFUSED_MACHINES,
    SCORER,
    SCORER_ADDRESS,
    UNFENCED_NODES,
)
from linkwise.cluster.nodes.gpu_kinds import decode_kinds
from linkwise.cluster.objects.metadata import Metadata
from linkwise.cluster.objects.quantity import count
from linkwise.runtime.kube.paths import api_path

LEASE = api_path("coordination.k8s.io/v1", "namespaces", POLICY_NAMESPACE, "leases", SCORER)


_reasons = msgspec.json.Decoder(dict[str, str])
_times = msgspec.json.Decoder(dict[str, dict[str, float]])


class _Spec(Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None


class ScorerLease(Struct, frozen=True):
    """The fields of the Lease that clients of the scorer read."""

    metadata: Metadata = Metadata()
    spec: _Spec = _Spec()

    @property
    def is_held(self) -> bool:
        """True while a scorer leads."""
        return bool(self.spec.holder_identity)

    @property
    def address(self) -> str:
        """Its address as `host:port`, or empty."""
        return (self.metadata.annotations or {}).get(SCORER_ADDRESS, "")

    @property
    def claims_gpus(self) -> int:
        """GPUs of the largest claims node; 0 without one, or if that cannot be read."""
        return count((self.metadata.annotations or {}).get(CLAIMS_NODES, "")) or 0

    @property
    def gpu_kinds(self) -> tuple[DeviceFacts, ...]:
        """Kinds of GPUs of claims nodes; none if they are not known."""
        return decode_kinds((self.metadata.annotations or {}).get(GPU_KINDS, ""))

    @property
    def refused_machines(self) -> Mapping[str, str]:
        """By node: why the scorer does not use its machine; empty if that cannot be read."""
        return self._reasons(REFUSED_MACHINES)

    @property
    def unfenced_nodes(self) -> Mapping[str, str]:
        """By node: why claims of others may get its GPUs; empty if that cannot be read."""
        return self._reasons(UNFENCED_NODES)

    @property
    def excluded_nodes(self) -> Mapping[str, Mapping[str, float]]:
        """By id of a unit and node: until when [s since 1970]; empty if that cannot be read."""
        text = (self.metadata.annotations or {}).get(EXCLUDED_NODES, "")
        try:
            return _times.decode(text) if text else {}
        except msgspec.MsgspecError:
            return {}

    def _reasons(self, key: str) -> Mapping[str, str]:
        text = (self.metadata.annotations or {}).get(key, "")
        try:
            return _reasons.decode(text) if text else {}
        except msgspec.MsgspecError:
            return {}
