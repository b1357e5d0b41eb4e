"""Typed PriorityClasses, decoded from bytes, and the priority that they give a pod."""

from collections.abc import Mapping

from msgspec import structs

from linkwise.cluster.objects.container import Int32
from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.cluster.objects.metadata import Metadata
from linkwise.cluster.objects.pod import Pod


class PriorityClass(KubeObject, frozen=True):
    """A PriorityClass."""

    metadata: Metadata = Metadata()
    value: Int32 = 0
    global_default: bool = False
    preemption_policy: str | None = None


def prioritized(pod: Pod, classes: Mapping[str, PriorityClass]) -> Pod:
    """Return a pod with the priority of its class, as the API server sets it at creation.

    Args:
        pod: The pod; one that has a priority keeps it.
        classes: The classes, by name; an unknown one changes nothing.
    """
    spec = pod.spec
    default = next((each for each in classes.values() if each.global_default), None)
    found = classes.get(spec.priority_class_name) if spec.priority_class_name else default
    if found is None or spec.priority is not None:
        return pod
    policy = spec.preemption_policy or found.preemption_policy
    return structs.replace(
        pod, spec=structs.replace(spec, priority=found.value, preemption_policy=policy)
    )
