"""Names of CDI devices and of their files. Each set of device ids of a resource has one device."""

from collections.abc import Iterable
from hashlib import sha256

from linkwise.cluster.keys import CDI_KIND

_FILE_PREFIX = f"{CDI_KIND.replace('/', '-')}-"
_FILE_SUFFIX = ".json"


def device_name(resource: str, device_ids: Iterable[str]) -> str:
    """Return the name of the CDI device of a set of device ids; their order does not matter.

    It begins with a letter, which CDI required before version 0.5.0.
    """
    text = "\0".join((resource, *sorted(set(device_ids))))
    return f"d{sha256(text.encode()).hexdigest()[:32]}"


def qualified_name(name: str) -> str:
    """Return the name by which a container runtime finds a device, such as `vendor/class=name`."""
    return f"{CDI_KIND}={name}"


def file_name(name: str) -> str:
    """Return the name of the file that holds the CDI specification of a device."""
    return f"{_FILE_PREFIX}{name}{_FILE_SUFFIX}"


def is_ours(file: str) -> bool:
    """Return whether a file name is one that `file_name` makes."""
    return file.startswith(_FILE_PREFIX) and file.endswith(_FILE_SUFFIX)
