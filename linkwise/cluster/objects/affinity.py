"""Typed label selectors, node selectors and affinity, decoded from bytes."""

from collections.abc import Sequence

from linkwise.cluster.objects.kube_object import KubeObject, Labels


class Requirement(KubeObject, frozen=True):
    """One requirement of a label selector, or of a node selector term."""

    key: str
    operator: str
    values: list[str] | None = None


class LabelSelector(KubeObject, frozen=True):
    """A label selector."""

    match_labels: Labels | None = None
    match_expressions: list[Requirement] | None = None


class NodeSelectorTerm(KubeObject, frozen=True):
    """A node selector term."""

    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeSelector(KubeObject, frozen=True):
    """ORed node selector terms."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class NodeAffinity(KubeObject, frozen=True):
    """The required part of a node affinity."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class PodAffinityTerm(KubeObject, frozen=True):
    """A term of the affinity, or anti-affinity, of a pod to other pods."""

    label_selector: LabelSelector | None = None
    """None selects no pod, an empty one all pods."""
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    """None adds no namespace, an empty one all."""
    topology_key: str = ""
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class PreferredTerm(KubeObject, frozen=True):
    """A preferred term; only the presence is read."""


class PodAffinity(KubeObject, frozen=True):
    """Affinity, or anti-affinity, of a pod to other pods."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredTerm] | None = None

    @property
    def required(self) -> Sequence[PodAffinityTerm]:
        """The required terms, which are ANDed."""
        return self.required_during_scheduling_ignored_during_execution or ()


class NewAffinity(KubeObject, frozen=True):
    """Affinity of a pod that is being created; pod (anti-)affinity is not read."""

    node_affinity: NodeAffinity | None = None


class Affinity(NewAffinity, frozen=True):
    """Affinity of an existing pod."""

    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(KubeObject, frozen=True):
    """How evenly pods are spread over the values of a node label."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    """None selects no pod, an empty one all pods."""
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class Toleration(KubeObject, frozen=True):
    """A toleration."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
