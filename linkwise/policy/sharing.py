"""The `sharing` section, and the configuration file of NVIDIA's device plugin (time-slicing, MPS).

Source: NVIDIA/k8s-device-plugin, `api/config/v1/{config,sharing,replicas}.go`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from linkwise.cluster.keys import DEVICE_PLUGIN_CONFIG, NVIDIA_PREFIX
from linkwise.policy.wire import Labels, NonEmpty, Wire

RENAMED_SUFFIX = ".shared"
_REPLICAS_MIN = 2


def _several(replicas: int) -> int:
    if replicas < _REPLICAS_MIN:
        raise ValueError(
            f"must be greater than or equal to {_REPLICAS_MIN}; write 2 or more, or remove the "
            "entry, since a GPU that is not listed is given out whole"
        )
    return replicas


class SharedResource(Wire):
    """A shared resource and its replicas per device."""

    name: str
    replicas: Annotated[
        int, AfterValidator(_several), Field(json_schema_extra={"minimum": _REPLICAS_MIN})
    ]
    rename: str | None = None
    """Ignored with a warning, as in NVIDIA's plugin."""
    devices: object = None
    """Ignored with a warning, as in NVIDIA's plugin."""

    @property
    def full_name(self) -> str:
        """The name with its domain, which is optional in the file."""
        return self.name if "/" in self.name else NVIDIA_PREFIX + self.name


class Strategy(Wire):
    """Time-slicing or MPS."""

    rename_by_default: bool = False
    fail_requests_greater_than_one: bool | None = None
    """None: false for time-slicing, true for MPS."""
    resources: Annotated[tuple[SharedResource, ...], NonEmpty]


class PluginSharing(Wire):
    """The `sharing` section of the plugin's file."""

    time_slicing: Strategy | None = None
    mps: Strategy | None = None

    @model_validator(mode="after")
    def _one_strategy(self) -> Self:
        if self.time_slicing and self.mps:
            raise ValueError("timeSlicing and mps exclude each other; keep one of them")
        return self


class PluginConfig(Wire):
    """The configuration file of the plugin; only `sharing` concerns pods."""

    version: Literal["v1"] = "v1"
    flags: object = None
    resources: object = None
    imex: object = None
    sharing: PluginSharing = PluginSharing()


class SharingGroup(Wire):
    """Nodes with the same sharing configuration."""

    node_labels: Labels = Field(default_factory=dict)
    """Labels of the nodes; empty: all nodes."""
    config: PluginConfig
    """Configuration of the plugin on these nodes."""


class Sharing(Wire):
    """Sharing of GPUs per node group; the first matching group applies."""

    groups: tuple[SharingGroup, ...] = ()
    rename: bool = False
    """Rewrite `nvidia.com/gpu` to `nvidia.com/gpu.shared` and back, depending on the nodes."""
    memory_fraction: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Part of the memory of a time-sliced GPU that is divided among its pods; the rest is for their
    CUDA contexts."""
    compute_by_mps: bool = False
    """Nodes of mode `mps` accept pods that request compute."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A shared resource of a node group."""

    resource: str
    """The name in pods, with `.shared` if the plugin renames."""
    device: str
    """The name before renaming."""
    strategy: Literal["time-slicing", "mps"]
    """Value of the node label `nvidia.com/gpu.sharing-strategy`."""
    replicas: int
    """Pods that share one GPU."""
    fails_above_one: bool
    """A container that requests more than one fails on the node."""


def plugin_groups(configs: Mapping[str, PluginConfig]) -> tuple[SharingGroup, ...]:
    """Return the node groups of the ConfigMap of a device plugin.

    A single file applies to all nodes. Of several, each applies to the nodes whose label names
    its key.

    Args:
        configs: The files by their key in the ConfigMap.
    """
    several = len(configs) > 1
    return tuple(
        SharingGroup(node_labels={DEVICE_PLUGIN_CONFIG: key} if several else {}, config=config)
        for key, config in configs.items()
    )


def shared_by(group: SharingGroup) -> Iterator[Shared]:
    """Yield the shared resources of a group."""
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
