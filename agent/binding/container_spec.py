"""CDI specification of one container: the edits of its GPUs, and a record of their holder."""

from dataclasses import dataclass

import msgspec
from msgspec import Struct

from agent.binding.cdi_spec import MAX_BYTES, Device, Edits, Spec, SpecError, merge_edits
from agent.binding.names import device_name
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.container_variables import ENV_VISIBLE_DEVICES
from linkwise.cluster.keys import CDI_BINDING, CDI_KIND

OLDEST_VERSION = "0.6.0"
"""The first version with annotations."""


@dataclass(frozen=True, slots=True)
class Binding:
    """The GPUs of one container."""

    namespace: str
    pod: str
    uid: str
    """UID of the pod."""
    container: str
    resource: str
    device_ids: frozenset[str]
    """Of the resource, as the kubelet allocated them."""
    gpus: tuple[GPUShare, ...]

    @property
    def device(self) -> str:
        """Name of its CDI device."""
        return device_name(self.resource, self.device_ids)


class _Annotated(Struct, frozen=True):
    """The parts of a specification that `read_binding` needs; others are skipped."""

    annotations: dict[str, str]


def container_spec(binding: Binding, edits: Edits, extra: Edits, version: str) -> Spec:
    """Return the specification of a container.

    Args:
        binding: The container and its GPUs.
        edits: Edits of the GPUs.
        extra: Other edits of the container; they take precedence.
        version: CDI version of the specification that the edits come from.
    """
    # Last, so that no variable of the pod or of NVIDIA's specification adds GPUs.
    void = Edits(env=(f"{ENV_VISIBLE_DEVICES}=void",))
    return Spec(
        cdi_version=max(version, OLDEST_VERSION, key=_numbers),
        kind=CDI_KIND,
        devices=(Device(binding.device, merge_edits([edits, extra, void])),),
        annotations={CDI_BINDING: msgspec.json.encode(binding, order="deterministic").decode()},
    )


def read_binding(data: bytes) -> Binding:
    """Return the binding in a file of ours.

    Raises:
        SpecError: The file is not one of ours, or it was changed.
    """
    if len(data) > MAX_BYTES:
        raise SpecError(f"{len(data)} bytes; at most {MAX_BYTES} are read")
    try:
        annotations = msgspec.json.decode(data, type=_Annotated).annotations
        return msgspec.json.decode(annotations[CDI_BINDING], type=Binding)
    except KeyError:
        raise SpecError(f"the annotation {CDI_BINDING} is missing") from None
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise SpecError(str(error)) from error


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))
