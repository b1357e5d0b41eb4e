"""The Lease of the leading scorer, with its address."""

from collections.abc import Mapping
from typing import TypeVar

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
    VAIN_PREEMPTIONS,
)
from linkwise.cluster.nodes.gpu_kinds import decode_kinds
from linkwise.cluster.objects.metadata import Metadata
from linkwise.cluster.objects.quantity import count
from linkwise.runtime.kube.paths import api_path

LEASE = api_path("coordination.k8s.io/v1", "namespaces", POLICY_NAMESPACE, "leases", SCORER)


_reasons = msgspec.json.Decoder(dict[str, str])
_times = msgspec.json.Decoder(dict[str, dict[str, float]])
_digests = msgspec.json.Decoder(dict[str, dict[str, str]])
T = TypeVar("T")


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
        return self._decoded(REFUSED_MACHINES, _reasons)

    @property
    def unfenced_nodes(self) -> Mapping[str, str]:
        """By node: why claims of others may get its GPUs; empty if that cannot be read."""
        return self._decoded(UNFENCED_NODES, _reasons)

    @property
    def excluded_nodes(self) -> Mapping[str, Mapping[str, float]]:
        """By id of a unit and node: until when [s since 1970]; empty if that cannot be read."""
        return self._decoded(EXCLUDED_NODES, _times)

    @property
    def vain_preemptions(self) -> Mapping[str, Mapping[str, str]]:
        """By id of a unit and node: its digest when evictions there did not help; empty: unread."""
        return self._decoded(VAIN_PREEMPTIONS, _digests)

    def _decoded(self, key: str, decoder: msgspec.json.Decoder[dict[str, T]]) -> Mapping[str, T]:
        text = (self.metadata.annotations or {}).get(key, "")
        try:
            return decoder.decode(text) if text else {}
        except msgspec.MsgspecError:
            return {}
