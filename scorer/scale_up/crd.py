"""Types of ProvisioningRequests and PodTemplates, as far as they are read or written.

A ProvisioningRequest asks cluster-autoscaler for nodes for pods that do not exist for it: it
ignores pods behind scheduling gates.

Source: `cluster-autoscaler/apis/provisioningrequest` of the autoscaler repository.
"""

from collections.abc import Mapping

from linkwise.cluster.keys import MANAGED_BY, PROVISIONING_API, SCORER
from linkwise.runtime.kube.objects import OwnerReference, Written
from linkwise.runtime.kube.paths import api_path, is_segment, path_below

POD_SETS_MAX = 32
"""Most pods that differ in a ProvisioningRequest; each of them is read."""
OURS = {MANAGED_BY: SCORER}
"""The label of the objects that the scorer creates and deletes."""
REQUESTS = api_path(PROVISIONING_API, "provisioningrequests")
"""The ProvisioningRequests of all namespaces."""
_FINAL = frozenset({"BookingExpired", "CapacityRevoked", "Failed"})
"""Conditions after which cluster-autoscaler does nothing more for a request."""


class Metadata(Written, frozen=True):
    """ObjectMeta."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    creation_timestamp: str | None = None
    labels: Mapping[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()


class TemplateReference(Written, frozen=True):
    """The name of a PodTemplate of the same namespace."""

    name: str = ""


class PodSet(Written, frozen=True):
    """A number of equal pods."""

    count: int
    pod_template_ref: TemplateReference = TemplateReference()


class _Spec(Written, frozen=True):
    pod_sets: tuple[PodSet, ...] = ()
    provisioning_class_name: str = ""


class Condition(Written, frozen=True):
    """A condition of the status."""

    type: str = ""
    status: str = ""


class _Status(Written, frozen=True):
    conditions: tuple[Condition, ...] = ()


class ProvisioningRequest(Written, frozen=True):
    """A ProvisioningRequest."""

    metadata: Metadata = Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()
    api_version: str = ""
    kind: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Its namespace and name."""
        return self.metadata.namespace, self.metadata.name

    @property
    def path(self) -> str:
        """Its path."""
        return path_below(requests_of(self.metadata.namespace), self.metadata.name)

    @property
    def templates(self) -> tuple[str, ...]:
        """The paths of its PodTemplates; anybody may have written texts that are no names."""
        names = (pods.pod_template_ref.name for pods in self.spec.pod_sets)
        collection = templates_of(self.metadata.namespace)
        return tuple(path_below(collection, name) for name in names if is_segment(name))

    @property
    def has_failed(self) -> bool:
        """No capacity was found for it, and none is looked for any more."""
        return "Failed" in self._conditions

    @property
    def is_final(self) -> bool:
        """It failed, or its capacity is not reserved for it any more."""
        return not _FINAL.isdisjoint(self._conditions)

    @property
    def _conditions(self) -> frozenset[str]:
        return frozenset(one.type for one in self.status.conditions if one.status == "True")


def requests_of(namespace: str) -> str:
    """Return the path of a namespace's ProvisioningRequests."""
    return api_path(PROVISIONING_API, "namespaces", namespace, "provisioningrequests")


def templates_of(namespace: str) -> str:
    """Return the path of a namespace's PodTemplates."""
    return api_path("v1", "namespaces", namespace, "podtemplates")


def new_request(
    metadata: Metadata, pod_sets: tuple[PodSet, ...], class_name: str
) -> ProvisioningRequest:
    """Return the object to create."""
    return ProvisioningRequest(
        metadata,
        _Spec(pod_sets, class_name),
        api_version=PROVISIONING_API,
        kind="ProvisioningRequest",
    )
