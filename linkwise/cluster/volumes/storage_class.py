"""StorageClasses: when a claim of a class is bound, and where a volume can be provisioned.

Source: kubernetes v1.36, `staging/src/k8s.io/api/storage/v1/types.go`.
"""

from typing import NamedTuple

from linkwise.cluster.objects.affinity import NodeSelectorTerm, Requirement
from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.cluster.objects.metadata import Metadata
from linkwise.cluster.volume_keys import NO_PROVISIONER
from linkwise.cluster.volumes.names import kept_name
from linkwise.cluster.volumes.node_choice import NodeChoice, choice_of


class StorageClass(NamedTuple):
    """What is kept of a StorageClass."""

    waits_for_pod: bool
    """A claim is bound once its pod has a node (WaitForFirstConsumer)."""
    provisioner: str
    """Makes its volumes; empty: none does, so that claims bind volumes that exist."""
    topologies: NodeChoice | None
    """The nodes for which volumes can be made; None: all."""


class _TopologyRequirement(KubeObject, frozen=True):
    key: str = ""
    values: list[str] | None = None


class _TopologyTerm(KubeObject, frozen=True):
    match_label_expressions: list[_TopologyRequirement] | None = None


class StorageClassObject(KubeObject, frozen=True):
    """The fields of a StorageClass that Linkwise reads."""

    kind: str = "StorageClass"
    metadata: Metadata = Metadata()
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[_TopologyTerm] | None = None

    @property
    def content(self) -> StorageClass:
        """What is kept of it."""
        provisioner = "" if self.provisioner == NO_PROVISIONER else kept_name(self.provisioner)
        terms = self.allowed_topologies
        return StorageClass(
            waits_for_pod=self.volume_binding_mode == "WaitForFirstConsumer",
            provisioner=provisioner,
            topologies=choice_of(map(_node_term, terms)) if terms else None,
        )


def _node_term(term: _TopologyTerm) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        match_expressions=[
            Requirement(key=one.key, operator="In", values=one.values)
            for one in term.match_label_expressions or ()
        ]
    )
