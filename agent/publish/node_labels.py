"""Labels of the node about its GPUs and driver, by server-side apply, and its mode in use.

A label of another field manager is left to it: `kubectl`, the cloud provider or GPU feature
discovery. A label without an owner is ours.
"""

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from agent.driver.reading import DriverReading
from linkwise.cluster.keys import (
    AGENT,
    DRIVER_VERSION,
    GFD_COUNT,
    GFD_DRIVER,
    GFD_MEMORY,
    GFD_PRODUCT,
    MODE_IN_USE,
    MODEL_SERIES,
)
from linkwise.runtime.kube.client import ApiError, Ignored, Kube
from linkwise.runtime.kube.paths import api_path

FIELD_MANAGER = AGENT
LABELS = (MODEL_SERIES, DRIVER_VERSION, GFD_PRODUCT, GFD_COUNT, GFD_MEMORY, GFD_DRIVER)
"""The only labels that the agent writes."""
SERIES = {"Tesla T4": "T4", "NVIDIA A10": "A10", "NVIDIA L20": "L20"}
"""Name in ACS's catalogue by product name of the driver. The products of the other series are not
documented."""

_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_CONFLICT = 409


class _LabelFields(Struct, frozen=True):
    labels: dict[str, object] = field(name="f:labels", default_factory=dict)


class _Fields(Struct, frozen=True):
    metadata: _LabelFields = field(name="f:metadata", default=_LabelFields())


class _ManagedFields(Struct, frozen=True, rename="camel"):
    manager: str = ""
    operation: str = ""
    fields: _Fields = field(name="fieldsV1", default=_Fields())

    @property
    def is_ours(self) -> bool:
        return (self.manager, self.operation) == (FIELD_MANAGER, "Apply")

    @property
    def labels(self) -> frozenset[str]:
        return frozenset(name.removeprefix("f:") for name in self.fields.metadata.labels)


class _NodeMetadata(Struct, frozen=True, rename="camel"):
    name: str
    uid: str
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    managed_fields: list[_ManagedFields] | None = None


class LabelledNode(Struct, frozen=True):
    """The labels of a Node with their field managers, and its annotations."""

    metadata: _NodeMetadata


def gpu_labels(reading: DriverReading | None, *, open_modules: bool = False) -> dict[str, str]:
    """Return the labels that a reading of the driver gives; none without GPUs.

    A value that no label can have is left out, as are model and memory of GPUs that differ.

    Args:
        reading: A reading of the driver.
        open_modules: Its kernel modules are the open ones, which ACS names with a suffix.
    """
    if reading is None or not reading.gpus:
        return {}
    model = _common(gpu.model for gpu in reading.gpus)
    memory = _common(str(gpu.memory >> 20) for gpu in reading.gpus)
    labels = {
        MODEL_SERIES: SERIES.get(model, ""),
        DRIVER_VERSION: f"{reading.driver}-open" if open_modules else reading.driver,
        # In the format of GPU feature discovery: memory in MiB, hyphens for blanks.
        GFD_PRODUCT: model.replace(" ", "-"),
        GFD_COUNT: str(len(reading.gpus)),
        GFD_MEMORY: memory,
        GFD_DRIVER: reading.driver,
    }
    return {key: value for key, value in labels.items() if _LABEL_VALUE.fullmatch(value)}


def labels_patch(node: LabelledNode, wanted: Mapping[str, str]) -> dict[str, object] | None:
    """Return the object to apply so that a node has our labels; None if it has them.

    Labels that are missing in `wanted` are removed if they are ours.
    """
    present, managers = node.metadata.labels or {}, node.metadata.managed_fields or []
    ours = frozenset[str]().union(*(each.labels for each in managers if each.is_ours))
    others = frozenset[str]().union(*(each.labels for each in managers if not each.is_ours))
    foreign = others | (present.keys() - ours)
    labels = {key: value for key, value in wanted.items() if key not in foreign}
    if ours == labels.keys() and all(present.get(key) == labels[key] for key in labels):
        return None
    # With the uid, a Node of the same name that was registered since is not changed.
    metadata = {"name": node.metadata.name, "uid": node.metadata.uid, "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


async def read_node_labels(kube: Kube, node: str) -> LabelledNode:
    """Return the labels of a node.

    Raises:
        KubeError: The API server cannot be reached, or the node does not exist.
    """
    return await kube.get(api_path("v1", "nodes", node), LabelledNode)


async def publish_labels(kube: Kube, node: LabelledNode, wanted: Mapping[str, str]) -> bool:
    """Apply our labels where they differ; return whether they were written.

    Labels that another client has set since the node was read are left to the next call.

    Raises:
        KubeError: The API server cannot be reached, or refuses.
    """
    patch = labels_patch(node, wanted)
    if patch is None:
        return False
    params = {"fieldManager": FIELD_MANAGER, "force": "false"}
    path = api_path("v1", "nodes", node.metadata.name)
    try:
        await kube.patch(path, patch, Ignored, kind="apply", params=params)
    except ApiError as error:
        if error.status != _CONFLICT:
            raise
        return False
    return True


async def publish_mode_in_use(kube: Kube, node: LabelledNode, mode: str) -> bool:
    """Write which mode containers use, where it differs; return whether it was written.

    Raises:
        KubeError: The API server cannot be reached, or refuses.
    """
    if (node.metadata.annotations or {}).get(MODE_IN_USE) == mode:
        return False
    # A Node of the same name that was registered since is not changed.
    metadata = {"uid": node.metadata.uid, "annotations": {MODE_IN_USE: mode}}
    path = api_path("v1", "nodes", node.metadata.name)
    await kube.patch(path, {"metadata": metadata}, Ignored, kind="merge")
    return True


def _common(values: Iterable[str]) -> str:
    """Return the value that all have; empty if they differ."""
    first, *others = dict.fromkeys(values)
    return "" if others else first
