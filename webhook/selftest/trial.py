"""Dry runs that show that API servers call the webhook: of a pod to refuse, of a gang to change."""

from collections.abc import Mapping

from msgspec import Struct

from linkwise.admission.patch.device_variables import NO_GPU
from linkwise.cluster import keys
from linkwise.cluster.container_variables import ENV_VISIBLE_DEVICES
from linkwise.runtime.kube.client import ApiError, Kube
from linkwise.runtime.kube.paths import api_path

CODE = "LW101"
"""Of the finding about the refused pod."""
_DRY_RUN = {"dryRun": "All"}
_GANG = {keys.POD_GROUP_NAME: "linkwise-test", keys.POD_GROUP_MIN_AVAILABLE: "2"}


class _Variable(Struct, frozen=True):
    name: str
    value: str = ""


class _Container(Struct, frozen=True):
    env: tuple[_Variable, ...] = ()


class _Spec(Struct, frozen=True):
    containers: tuple[_Container, ...]


class _Pod(Struct, frozen=True):
    spec: _Spec


async def complaints(kube: Kube, namespace: str) -> list[str]:
    """Return what is wrong with admission, one line for each dry run; nothing is created.

    Args:
        kube: The API server.
        namespace: Of the pods.

    Raises:
        KubeError: The API server does not answer.
    """
    pods = api_path("v1", "namespaces", namespace, "pods")
    found = [await _refusal(kube, pods)]
    found += [await _change(kube, pods, f"linkwise-test-{index}") for index in (0, 1)]
    return [line for line in found if line]


async def _refusal(kube: Kube, pods: str) -> str:
    """Ask for 22 % of a card, which is no valid share."""
    pod = _pod("linkwise-test", {}, {keys.GPU_CORE: "22", keys.GPU_MEM: "1"})
    try:
        await kube.create(pods, pod, _Pod, params=_DRY_RUN)
    except ApiError as error:
        return "" if CODE in error.message else f"the pod to be refused with {CODE}: {error}"
    return f"a pod was admitted that is to be refused with {CODE}: the webhook was not called"


async def _change(kube: Kube, pods: str, name: str) -> str:
    """Ask for a member of a gang of two without GPUs, which gets none."""
    pod = _pod(name, _GANG, {"cpu": "1m"})
    try:
        answer = await kube.create(pods, pod, _Pod, params=_DRY_RUN)
    except ApiError as error:
        return f"{name} of a gang without GPUs was refused: {error}"
    env = {one.name: one.value for one in answer.spec.containers[0].env}
    if env.get(ENV_VISIBLE_DEVICES) == NO_GPU:
        return ""
    return f"{name} of a gang without GPUs was admitted unchanged: the webhook was not called"


def _pod(name: str, labels: Mapping[str, str], limits: Mapping[str, str]) -> object:
    container = {
        "name": "main",
        "image": "none",
        "resources": {"limits": limits},
        # What the Pod Security level of the namespace may require.
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    metadata = {"name": name, "labels": labels}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container]},
    }
