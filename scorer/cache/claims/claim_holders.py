"""The pods of the claims that Linkwise creates or allocates.

Such a claim is not one of others: its devices are the GPUs of its pod, whatever its record says.
"""

from collections.abc import Mapping
from dataclasses import replace

from linkwise.cluster.nodes.device_claims import HeldClaim
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.runtime.kube.objects import Key


class ClaimHolders:
    """Pods with a record of GPUs, by the claim that they name."""

    def __init__(self) -> None:
        """Start without pods."""
        self._pods: dict[Key, dict[str, Key]] = {}
        """By claim: its pods by uid. Several pods may name one."""

    def update(self, before: PodInfo | None, pod: PodInfo | None) -> set[Key]:
        """Take a changed pod; return the claims that it has or had."""
        touched = set()
        for one, exists in ((before, False), (pod, True)):
            if one is None or one.usage is None or not one.usage.target:
                continue
            for claim in ((one.namespace, name) for name in one.usage.claims):
                touched.add(claim)
                if exists:
                    self._pods.setdefault(claim, {})[one.uid] = one.key
                else:
                    self._remove(claim, one.uid)
        return touched

    def _remove(self, claim: Key, uid: str) -> None:
        if claim in self._pods:
            self._pods[claim].pop(uid, None)
            if not self._pods[claim]:
                del self._pods[claim]

    def pods(self, claim: Key) -> list[Key]:
        """Return the pods that name a claim."""
        return list(self._pods.get(claim, {}).values())

    def all_pods(self) -> list[Key]:
        """Return all pods with a claim, each once."""
        return list(dict.fromkeys(key for pods in self._pods.values() for key in pods.values()))

    def is_own(self, claim: HeldClaim) -> bool:
        """Return whether a claim is that of a pod which it belongs to."""
        pods = self._pods.get((claim.namespace, claim.name), {})
        return claim.holder in pods


def with_devices(pod: PodInfo, claims: Mapping[Key, HeldClaim]) -> PodInfo:
    """Return a pod with the devices of the claims that it names, if these belong to it.

    Args:
        pod: The pod.
        claims: All claims that hold devices.
    """
    if pod.usage is None or not pod.usage.claims:
        return pod
    return replace(pod, usage=pod.usage.with_claims(claims_of(pod, claims)))


def claims_of(pod: PodInfo, claims: Mapping[Key, HeldClaim]) -> list[HeldClaim | None]:
    """Return the claims by which a pod gets its GPUs; None for one that holds no devices.

    Args:
        pod: The pod.
        claims: All claims that hold devices.
    """
    names = pod.usage.claims if pod.usage else ()
    return [claims.get((pod.namespace, name)) for name in names]
