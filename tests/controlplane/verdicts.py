"""Ask kube-scheduler whether it takes pods on the nodes to which Linkwise would pin them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
from controlplane.api import Object
from controlplane.pods import Pods
from controlplane.process import NotReadyError, wait_until

from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.volume_keys import SELECTED_NODE
from linkwise.planning.gang.patches import allocation_patch


def refusal(pods: Pods, body: Object, node: str) -> str | None:
    """Return why kube-scheduler refuses a pod on a node; None: it takes the pod.

    Args:
        pods: Of the namespace in which it is made; it is gone afterwards.
        body: The pod, behind our gate.
        node: The node to which it is pinned.
    """
    claims = [one["name"] for one in body["spec"].get("volumes", ())]
    with _pinned(pods, [body], [node]) as found:
        is_taken = False

        def is_judged() -> bool:
            nonlocal is_taken
            [pod] = found()
            is_taken = bool(pod["spec"].get("nodeName")) or _is_chosen(pods, claims, node)
            return is_taken or _message(pod) is not None

        wait_until(is_judged, f"the pod is judged on {node}")
        [pod] = found()
    return None if is_taken else _message(pod)


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


def _is_chosen(pods: Pods, claims: Sequence[str], node: str) -> bool:
    """Return whether a volume is to be made for a claim on a node: then the pod fits there."""
    path = f"/api/v1/namespaces/{pods.namespace}/persistentvolumeclaims"
    found = pods.api.get(path)["items"] if claims else ()
    named = (one["metadata"] for one in found if one["metadata"]["name"] in claims)
    return any(one.get("annotations", {}).get(SELECTED_NODE) == node for one in named)


def _message(pod: Object) -> str | None:
    for condition in pod["status"].get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return str(condition["message"])
    return None
