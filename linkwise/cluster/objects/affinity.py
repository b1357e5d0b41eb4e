"""Typed label selectors, node selectors and affinity, decoded from bytes."""

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


class NewAffinity(KubeObject, frozen=True):
    """Affinity of a pod that is being created; pod (anti-)affinity is not read."""

    node_affinity: NodeAffinity | None = None


class Affinity(NewAffinity, frozen=True):
    """Affinity; of pod (anti-)affinity only the presence is read."""

    pod_affinity: dict[str, object] | None = None
    pod_anti_affinity: dict[str, object] | None = None


class Toleration(KubeObject, frozen=True):
    """A toleration."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
