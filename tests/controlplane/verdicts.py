"""Ask kube-scheduler whether it takes pods on the nodes to which Linkwise would pin them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
from controlplane.api import Object
from controlplane.pods import Pods
from controlplane.process import NotReadyError, wait_until

from linkwise.cluster.objects.pod import Pod
from linkwise.planning.gang.patches import allocation_patch


def refusal(pods: Pods, body: Object, node: str) -> str | None:
    """Return why kube-scheduler refuses a pod on a node; None: it was bound there.

    Args:
        pods: Of the namespace in which it is made; it is gone afterwards.
        body: The pod, behind our gate.
        node: The node to which it is pinned.
    """
    with _pinned(pods, [body], [node]) as found:
        wait_until(lambda: all(map(_is_judged, found())), f"the pod is judged on {node}")
        [pod] = found()
    return None if pod["spec"].get("nodeName") else _message(pod)


def refusals(pods: Pods, bodies: Sequence[Object], nodes: Sequence[str]) -> list[str]:
    """Return why kube-scheduler does not bind all of some pods; empty: it bound them.

    One that it refuses has time until it is tried again beside those that were bound meanwhile.

    Args:
        pods: Of the namespace in which they are made; they are gone afterwards.
        bodies: The pods, behind our gate; all are pinned before the first is bound.
        nodes: The node of each.
    """
    with _pinned(pods, bodies, nodes) as found:
        try:
            wait_until(lambda: all(pod["spec"].get("nodeName") for pod in found()), "all are bound")
        except NotReadyError:
            return [message for pod in found() if (message := _message(pod))] or ["not judged"]
    return []


@contextmanager
def _pinned(
    pods: Pods, bodies: Sequence[Object], nodes: Sequence[str]
) -> Iterator[Callable[[], list[Object]]]:
    """Yield a function that returns the pods as they are now."""
    names = [str(body["metadata"]["name"]) for body in bodies]
    made = [msgspec.convert(pods.api.create(pods.path, body), Pod) for body in bodies]
    for name, pod, node in zip(names, made, nodes, strict=True):
        pods.api.patch(f"{pods.path}/{name}", allocation_patch(pod, node, {}), "json")
    yield lambda: [pods.api.get(f"{pods.path}/{name}") for name in names]
    for name in names:
        pods.api.delete(f"{pods.path}/{name}", gracePeriodSeconds="0")
    wait_until(lambda: pods.all().keys().isdisjoint(names), f"{names} are gone")


def _is_judged(pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName")) or _message(pod) is not None


def _message(pod: Object) -> str | None:
    for condition in pod["status"].get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return str(condition["message"])
    return None
