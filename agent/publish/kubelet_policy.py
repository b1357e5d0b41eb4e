"""Read the policies of the kubelet from its files.

The CPU manager writes its policy to its state. That of the Topology Manager is only in the
configuration; flags and drop-in files, which take precedence, are not read.
"""

from functools import lru_cache
from pathlib import Path

import msgspec
from msgspec import Struct

from agent.binding.spec_files import read_file
from linkwise.cluster.nodes.kubelet_policy import CPUManager, KubeletPolicy, TopologyManager
from linkwise.manifest.place import SourceError
from linkwise.manifest.yaml_text import read_yaml

_MAX_CONFIG = 64 << 10
"""Longest configuration that is read [bytes]; usual ones have 2,000."""


class _State(Struct, frozen=True, rename="camel"):
    policy_name: CPUManager


class _Config(Struct, frozen=True, rename="camel", tag_field="kind", tag="KubeletConfiguration"):
    topology_manager_policy: TopologyManager = TopologyManager.NONE


def read_kubelet_policy(folder: Path) -> KubeletPolicy:
    """Return the policies of a kubelet; one is unknown where its file is missing or unreadable.

    Args:
        folder: The kubelet's folder, such as `/var/lib/kubelet`.
    """
    return KubeletPolicy(
        _cpu_manager(_content(folder / "cpu_manager_state")),
        _topology_manager(_content(folder / "config.yaml")),
    )


def _content(path: Path) -> bytes:
    """Return the content of a regular file; none of one that cannot be read."""
    try:
        return read_file(path)
    except OSError:
        return b""


def _cpu_manager(state: bytes) -> CPUManager | None:
    try:
        return msgspec.json.decode(state, type=_State).policy_name
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


@lru_cache(maxsize=1)
def _topology_manager(config: bytes) -> TopologyManager | None:
    """Return the policy in a configuration; one that has not changed is not parsed again."""
    if len(config) > _MAX_CONFIG:
        return None
    try:
        documents = read_yaml(config.decode())
        if len(documents) != 1:
            return None
        return msgspec.convert(documents[0][0], _Config).topology_manager_policy
    except (msgspec.MsgspecError, SourceError, UnicodeError, RecursionError):
        return None
