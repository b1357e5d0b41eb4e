"""Create pods one by one, and read them."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from controlplane.api import Api, ApiError, Object, refusal
from controlplane.process import wait_until


@dataclass(frozen=True, slots=True)
class Pods:
    """The pods of one namespace."""

    api: Api
    namespace: str

    @property
    def path(self) -> str:
        """Where they are."""
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def create(
        self,
        *limits: Mapping[str, object],
        name: str = "pod",
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        spec: Mapping[str, object] | None = None,
        **query: str,
    ) -> Object:
        """Create a pod that has one container for each of `limits`, and return what was made."""
        containers = [container(each, f"c{index}") for index, each in enumerate(limits)]
        given = {"containers": containers, **(spec or {})}
        body = a_pod(name, labels=labels, annotations=annotations, **given)
        return self.api.create(self.path, body, **query)

    def refusal(self, *limits: Mapping[str, object], **given: object) -> str:
        """Return why no such pod is created; empty when one is."""
        return refusal(lambda: self.create(*limits, **given))

    def clear(self) -> None:
        """Delete all, and wait until they are gone."""

        def gone() -> bool:
            # Of thousands, one request does not see the end.
            with suppress(OSError, ApiError):
                self.api.delete(self.path, gracePeriodSeconds="0")
            return not self.api.get(self.path, limit="1")["items"]

        wait_until(gone, f"the pods of {self.namespace} are gone", 300)

    def all(self) -> dict[str, Object]:
        """Return all of them, by name."""
        return {one["metadata"]["name"]: one for one in self.api.get(self.path)["items"]}

    def bound(self) -> set[str]:
        """Return the names of those that have a node."""
        return {name for name, pod in self.all().items() if pod["spec"].get("nodeName")}


def a_pod(
    name: str,
    limits: Mapping[str, object] | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: object,
) -> Object:
    """Return a pod of one container; `spec` adds fields, or replaces the container."""
    metadata = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"containers": [container(limits)], **spec}}


def container(limits: Mapping[str, object] | None = None, name: str = "main") -> Object:
    """Return a container that asks for something."""
    quantities = {key: str(value) for key, value in (limits or {}).items()}
    return {"name": name, "image": "registry.example/none", "resources": {"limits": quantities}}


def gates(pod: Object) -> list[str]:
    """Return the names of the gates that hold a pod back."""
    return [gate["name"] for gate in pod["spec"].get("schedulingGates", [])]


def requirement(key: str, operator: str, *values: str) -> Object:
    """Return a matchExpressions item; without values as Kubernetes wants it for `Exists`."""
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def terms(*of_each: Sequence[Object]) -> Object:
    """Return the spec of a pod that requires one term for each list of requirements."""
    given = [{"matchExpressions": list(one)} if one else {} for one in of_each]
    needed = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": given}}
    return {"affinity": {"nodeAffinity": needed}}


def with_disk(name: str, *, reads: bool = False) -> dict[str, object]:
    """Return the spec of a pod with a disk, which only pods that all read have on one node.

    The planner leaves disks that a pod names without a claim to kube-scheduler.
    """
    disk = {"pdName": name, "readOnly": reads}
    return {"volumes": [{"name": name, "gcePersistentDisk": disk}]}


def write_disk(pods: Pods, name: str, *nodes: str) -> None:
    """Run a pod without GPUs on each of these nodes, which writes a disk.

    kube-scheduler binds no pod there that reads the disk, which the planner does not see.
    """
    for node in nodes:
        pods.api.create(pods.path, a_pod(f"on-{node}", nodeName=node, **with_disk(name)))


def required(pod: Object) -> dict[str, list[str]]:
    """Return the required node affinity of a pod, as values of labels by `In`."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    return {
        one["key"]: one["values"]
        for term in terms.get("nodeSelectorTerms", [])
        for one in term["matchExpressions"]
    }


def variables(pod: Object, index: int = 0) -> dict[str, object]:
    """Return the variables of a container: values, or their sources."""
    env = pod["spec"]["containers"][index].get("env", [])
    return {one["name"]: one.get("value") or one.get("valueFrom") for one in env}
