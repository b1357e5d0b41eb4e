"""The PersistentVolumeClaims that a pod names."""

from typing import NamedTuple

from linkwise.cluster.objects.pod import PodSpec
from linkwise.cluster.volumes.names import kept_name

CLAIMS_MAX = 64
"""Claims of a pod that are compared with nodes; people name one to five."""


class NamedClaim(NamedTuple):
    """A claim that a pod names."""

    name: str
    volume: str
    """The generic ephemeral volume for which it is made; empty: it is a claim of its own."""


def claims_of(spec: PodSpec, pod: str) -> tuple[NamedClaim, ...]:
    """Return the claims that a pod names, each once; at most one more than `CLAIMS_MAX`.

    Args:
        spec: Of the pod.
        pod: Its name, after which the claims of its ephemeral volumes are named.
    """
    found: dict[str, NamedClaim] = {}
    for volume in spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            name, made_for = kept_name(volume.persistent_volume_claim.claim_name), ""
        elif volume.ephemeral is not None:
            name, made_for = kept_name(f"{pod}-{volume.name}"), kept_name(volume.name)
        else:
            continue
        found.setdefault(name, NamedClaim(name, made_for))
        if len(found) > CLAIMS_MAX:
            break
    return tuple(found.values())


def names_of_claims(spec: PodSpec, pod: str) -> tuple[str, ...]:
    """Return the names of the claims that a pod names, at most `CLAIMS_MAX`; as `claims_of`."""
    if not spec.volumes:
        return ()
    return tuple(claim.name for claim in claims_of(spec, pod)[:CLAIMS_MAX])
