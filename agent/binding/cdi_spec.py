"""CDI specifications: read from JSON or YAML, merge their edits, write as JSON.

Format: SPEC.md of the Container Device Interface, version 1.1.0. A runtime refuses a specification
with unknown fields, and so does this reader: an edit that it skipped would be lost.
"""

from collections.abc import Iterable
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from linkwise.manifest.place import SourceError
from linkwise.manifest.yaml_text import read_yaml

MAX_BYTES = 2 << 20
"""Longest specification that is read; one of 16 GPUs has 0.2 MB."""

_Text: TypeAlias = Annotated[str, Meta(min_length=1)]
_Variable: TypeAlias = Annotated[str, Meta(pattern="^[^=]+=")]
_Version: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}$")]
_UInt32: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 32)]


class SpecError(ValueError):
    """A CDI specification cannot be used; the message has the reason."""


class _Part(
    Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True, gc=False
):
    """A part of a specification."""


class DeviceNode(_Part, frozen=True):
    """A device node in the container."""

    path: _Text
    """In the container."""
    host_path: str | None = None
    """On the host, if it differs."""
    type: str | None = None
    major: int | None = None
    minor: int | None = None
    file_mode: _UInt32 | None = None
    permissions: str | None = None
    uid: _UInt32 | None = None
    gid: _UInt32 | None = None


class NetDevice(_Part, frozen=True):
    """A network device that is moved into the container."""

    host_interface_name: _Text
    name: _Text


class Mount(_Part, frozen=True):
    """A mount in the container."""

    host_path: _Text
    container_path: _Text
    options: tuple[str, ...] = ()
    type: str | None = None


class Hook(_Part, frozen=True):
    """A program that the runtime starts."""

    hook_name: Literal[
        "prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"
    ]
    path: _Text
    args: tuple[str, ...] = ()
    env: tuple[_Variable, ...] = ()
    timeout: int | None = None


class Edits(_Part, frozen=True):
    """Changes to the OCI specification of a container."""

    env: tuple[_Variable, ...] = ()
    """As `NAME=value`; they replace variables of the container."""
    device_nodes: tuple[DeviceNode, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    additional_gids: tuple[_UInt32, ...] = ()
    intel_rdt: dict[str, object] | None = None


class Device(_Part, frozen=True):
    """A device, by the name that containers ask for."""

    name: _Text
    container_edits: Edits = Edits()
    annotations: dict[str, str] = {}


class Spec(_Part, frozen=True):
    """A CDI specification."""

    cdi_version: _Version
    kind: _Text
    """Vendor and class of its devices, such as `vendor.com/class`."""
    devices: tuple[Device, ...]
    container_edits: Edits = Edits()
    """Edits of every container that has one of the devices."""
    annotations: dict[str, str] = {}


def parse_spec(data: bytes) -> Spec:
    """Return the specification of a file, which is YAML unless it begins with a brace.

    Raises:
        SpecError: The file is too long, neither JSON nor YAML, or no CDI specification.

    Cost: linear; 50 ms for the YAML of 8 GPUs.
    """
    if len(data) > MAX_BYTES:
        raise SpecError(f"{len(data)} bytes; at most {MAX_BYTES} are read")
    try:
        if data.lstrip().startswith(b"{"):
            return msgspec.json.decode(data, type=Spec)
        documents = read_yaml(data.decode())
        if len(documents) != 1:
            raise SpecError(f"{len(documents)} YAML documents; a specification is one")
        return msgspec.convert(documents[0][0], Spec)
    except (msgspec.MsgspecError, SourceError, UnicodeError, RecursionError) as error:
        raise SpecError(str(error)) from error


def encode_spec(spec: Spec) -> bytes:
    """Return the file of a specification, as JSON."""
    return msgspec.json.encode(spec, order="deterministic")


def merge_edits(parts: Iterable[Edits]) -> Edits:
    """Return the edits of several devices as one.

    A runtime applies the parts in order, so of two variables of one name, or of two nodes or mounts
    of one path, the later one takes effect and is kept. Equal hooks run once.
    """
    env: dict[str, str] = {}
    nodes: dict[str, DeviceNode] = {}
    net_devices: dict[NetDevice, None] = {}
    mounts: dict[str, Mount] = {}
    hooks: dict[Hook, None] = {}
    gids: dict[int, None] = {}
    intel_rdt = None
    for part in parts:
        for variable in part.env:
            name = variable.partition("=")[0]
            env.pop(name, None)
            env[name] = variable
        nodes |= {node.path: node for node in part.device_nodes}
        net_devices |= dict.fromkeys(part.net_devices)
        mounts |= {mount.container_path: mount for mount in part.mounts}
        hooks |= dict.fromkeys(part.hooks)
        gids |= dict.fromkeys(part.additional_gids)
        intel_rdt = part.intel_rdt or intel_rdt
    return Edits(
        tuple(env.values()),
        tuple(nodes.values()),
        tuple(net_devices),
        tuple(mounts.values()),
        tuple(hooks),
        tuple(gids),
        intel_rdt,
    )
