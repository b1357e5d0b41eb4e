"""Build the PodTemplate of waiting pods. Pure.

A template has what decides whether a node fits: the total requests, the host ports, and the pod's
constraints as they are written. It has nothing else of the pod: no images, variables or volumes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Raw, field, json

from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.pod_demand import demand_of, requested, resource_names
from linkwise.runtime.kube.decode import decode
from linkwise.runtime.kube.objects import LabelledObject

MAX_BYTES = 64 << 10
"""Longest PodTemplate that is created [bytes]."""
_CONSTRAINTS = (
    "affinity",
    "nodeSelector",
    "priority",
    "tolerations",
    "topologySpreadConstraints",
)
_IMAGE = "none"
"""Required by the API; no pod is created from the template."""

_pods = json.Decoder(Pod)


class _Pod(LabelledObject, frozen=True):
    spec: dict[str, Raw] = field(default_factory=dict)


_raw_pods = json.Decoder(_Pod)


def pod_template(pods: Sequence[tuple[Raw, int]]) -> Mapping[str, object] | None:
    """Return the `template` of a PodTemplate for one pod as large as all the given ones together.

    Args:
        pods: The JSON of pods, at least one, and how many there are of each. All must fit the same
            node, so the constraints of the first count.

    Returns:
        None where it is longer than `MAX_BYTES`.
    """
    first = decode(pods[0][0], _raw_pods)
    container = {
        "name": "pods",
        "image": _IMAGE,
        "resources": dict.fromkeys(("requests", "limits"), _amounts(pods)),
        "ports": _ports(decode(pods[0][0], _pods)),
    }
    constraints = {name: first.spec[name] for name in _CONSTRAINTS if name in first.spec}
    template = {
        # Affinities among the pods of the request compare these.
        "metadata": {"labels": first.metadata.labels or {}},
        "spec": {"containers": [container], **constraints},
    }
    return template if len(json.encode(template)) <= MAX_BYTES else None


def _amounts(pods: Iterable[tuple[Raw, int]]) -> dict[str, str]:
    total: Counter[str] = Counter()
    for raw, count in pods:
        pod = decode(raw, _pods)
        for name in sorted(resource_names(pod)):
            total[name] += count * requested(pod, name, 1000 if name == "cpu" else 1)
    return {
        name: f"{amount}m" if name == "cpu" else str(amount)
        for name, amount in total.items()
        if amount
    }


def _ports(pod: Pod) -> list[dict[str, object]]:
    """Return the host ports; none where the pod has too many, and is not planned."""
    demand = demand_of(pod)
    return [
        {"containerPort": port, "hostPort": port, "hostIP": ip, "protocol": protocol}
        for ip, protocol, port in sorted(demand.ports)
        if not demand.has_too_many_ports
    ]
