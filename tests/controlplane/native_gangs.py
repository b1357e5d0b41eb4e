"""Kubernetes' own gangs, which every version has behind other gates and in another API version."""

from controlplane.api import Object
from controlplane.binaries import KUBERNETES

from linkwise.cluster import keys

_GATES = {
    "1.36": ("GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling"),
    "1.37": ("GenericWorkload", "TopologyAwareWorkloadScheduling"),
}
API = keys.NATIVE_GROUP_API_BEFORE if KUBERNETES == "1.36" else keys.NATIVE_GROUP_API
SIZE_CHANGES = KUBERNETES != "1.36"
"""The `minCount` of a PodGroup can be changed."""


def flags() -> dict[str, list[str]]:
    """Return the flags of the programs that know gangs, as `control_plane` takes them."""
    gates = f"--feature-gates={','.join(f'{name}=true' for name in _GATES[KUBERNETES])}"
    return {"kube_apiserver": [gates, f"--runtime-config={API}=true"], "kube_scheduler": [gates]}


def groups_of(namespace: str) -> str:
    """Return the path of a namespace's PodGroups."""
    return f"/apis/{API}/namespaces/{namespace}/podgroups"


def pod_group(name: str, count: int, *, node: bool = False) -> Object:
    """Return a PodGroup of at least `count` pods; `node`: all of them on one node."""
    spec: Object = {"schedulingPolicy": {"gang": {"minCount": count}}}
    if node:
        spec["schedulingConstraints"] = {"topology": [{"key": keys.HOSTNAME}]}
    return {"metadata": {"name": name}, "spec": spec}
