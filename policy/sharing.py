"""How GPUs are shared by time-slicing or MPS: the file of NVIDIA's device plugin, as it is.

Source: NVIDIA/k8s-device-plugin, `api/config/v1/{config,sharing,replicas}.go`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from cluster.keys import DEVICE_PLUGIN_CONFIG, NVIDIA_PREFIX
from policy.wire import Labels, NonEmpty, Wire

RENAMED_SUFFIX = ".shared"


class SharedResource(Wire):
    """A resource, and how many pods share one device of it."""

    name: str
    replicas: Annotated[int, Field(ge=2)]
    rename: str | None = None
    """Warned of and ignored, as NVIDIA's plugin does."""
    devices: object = None
    """Warned of and ignored, as NVIDIA's plugin does."""

    @property
    def full_name(self) -> str:
        """The name with its domain, which the file may leave out."""
        return self.name if "/" in self.name else NVIDIA_PREFIX + self.name


class Strategy(Wire):
    """Time-slicing or MPS."""

    rename_by_default: bool = False
    fail_requests_greater_than_one: bool | None = None
    """None: false for time-slicing, true for MPS."""
    resources: Annotated[tuple[SharedResource, ...], NonEmpty]


class PluginSharing(Wire):
    """The `sharing` of the plugin's file."""

    time_slicing: Strategy | None = None
    mps: Strategy | None = None

    @model_validator(mode="after")
    def _one_strategy(self) -> Self:
        if self.time_slicing and self.mps:
            raise ValueError("timeSlicing and mps exclude each other; keep one of them")
        return self


class PluginConfig(Wire):
    """The plugin's file. Of its parts only `sharing` says anything about pods."""

    version: Literal["v1"] = "v1"
    flags: object = None
    resources: object = None
    imex: object = None
    sharing: PluginSharing = PluginSharing()


class SharingGroup(Wire):
    """Nodes that share their GPUs alike."""

    node_labels: Labels = Field(default_factory=dict)
    """Labels of the nodes; none: all nodes."""
    config: PluginConfig
    """What the plugin on these nodes reads."""


class Sharing(Wire):
    """How GPUs are shared, per node group; a node belongs to the first that fits."""

    groups: tuple[SharingGroup, ...] = ()
    rename: bool = False
    """Rewrite `nvidia.com/gpu` to `nvidia.com/gpu.shared`, and back, to what nodes offer."""
    memory_fraction: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Part of a time-sliced GPU's memory that its pods may have together; the rest is for the
    contexts that each of them opens."""
    compute_by_mps: bool = False
    """Nodes of mode `mps` may take pods that ask for compute."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A shared resource that some nodes offer."""

    resource: str
    """The name that pods ask for, `.shared` included where the plugin renames."""
    device: str
    """The name before renaming."""
    strategy: Literal["time-slicing", "mps"]
    """As the node label `nvidia.com/gpu.sharing-strategy` has it."""
    replicas: int
    """Pods that share one GPU."""
    fails_above_one: bool
    """A container that asks for more than one fails on the node."""


def plugin_groups(configs: Mapping[str, PluginConfig]) -> tuple[SharingGroup, ...]:
    """Return the groups of nodes that the files of a plugin's ConfigMap stand for.

    A single file is that of all nodes. Of several, each is for the nodes whose label names its key.

    Args:
        configs: The files by their key in the ConfigMap.
    """
    several = len(configs) > 1
    return tuple(
        SharingGroup(node_labels={DEVICE_PLUGIN_CONFIG: key} if several else {}, config=config)
        for key, config in configs.items()
    )


def shared_by(group: SharingGroup) -> Iterator[Shared]:
    """Yield what the nodes of a group offer."""
    sharing = group.config.sharing
    if sharing.time_slicing:
        yield from _offers(sharing.time_slicing, "time-slicing")
    if sharing.mps:
        yield from _offers(sharing.mps, "mps")


def _offers(strategy: Strategy, name: Literal["time-slicing", "mps"]) -> Iterator[Shared]:
    fails = strategy.fail_requests_greater_than_one
    for resource in strategy.resources:
        device = resource.full_name
        yield Shared(
            device + RENAMED_SUFFIX if strategy.rename_by_default else device,
            device,
            name,
            resource.replicas,
            name == "mps" if fails is None else fails,
        )
