"""The pods of the claims that Linkwise creates.

Such a claim is not one of others: its devices are the GPUs of its pod, whatever its record says.
"""

from dataclasses import replace

from cluster.nodes.device_claims import HeldClaim
from runtime.kube.objects import Key
from scorer.gang.pod_info import PodInfo


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
            if one is None or one.usage is None or not (one.usage.claim and one.usage.target):
                continue
            claim = one.namespace, one.usage.claim
            touched.add(claim)
            if exists:
                self._pods.setdefault(claim, {})[one.uid] = one.key
            elif claim in self._pods:
                self._pods[claim].pop(one.uid, None)
                if not self._pods[claim]:
                    del self._pods[claim]
        return touched

    def pods(self, claim: Key) -> list[Key]:
        """Return the pods that name a claim."""
        return list(self._pods.get(claim, {}).values())

    def all_pods(self) -> list[Key]:
        """Return all pods with a claim."""
        return [key for pods in self._pods.values() for key in pods.values()]

    def is_own(self, claim: HeldClaim) -> bool:
        """Return whether a claim is that of a pod which it belongs to."""
        pods = self._pods.get((claim.namespace, claim.name), {})
        return claim.owner is not None and claim.owner in pods


def with_devices(pod: PodInfo, claim: HeldClaim | None) -> PodInfo:
    """Return a pod with the devices of the claim that it names, if that belongs to it."""
    if pod.usage is None:
        return pod
    return replace(pod, usage=pod.usage.with_claim(claim))
