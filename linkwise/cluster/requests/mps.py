"""Limits of clients of NVIDIA's Multi-Process Service, as environment variables.

Source: CUDA documentation, "Multi-Process Service", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE and
CUDA_MPS_PINNED_DEVICE_MEM_LIMIT. Devices are numbered as the container sees them.
"""

import re

from linkwise.cluster.container_variables import ENV_MPS_MEMORY, ENV_MPS_THREADS
from linkwise.cluster.requests.request import ContainerRequest
from linkwise.topology.machine import MAX_GPUS

PIPES = "/tmp/nvidia-mps"  # noqa: S108 - the default of CUDA_MPS_PIPE_DIRECTORY.
"""Directory in which clients search the pipes of the control daemon."""
MIB_PER_GIB = 1024
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
"""[bytes]"""
# Python's own white space has characters that float() refuses, such as U+001F.
_DEVICE_LIMIT = re.compile(
    r"\s*([0-9]{1,4})\s*=\s*([0-9]{1,18})([KMG]?)B?\s*", re.IGNORECASE | re.ASCII
)
_PERCENT = re.compile(r"\s*[0-9]{1,3}(\.[0-9]{1,6})?\s*", re.ASCII)


def limits(container: ContainerRequest, cards: int) -> dict[str, str]:
    """Return the variables that limit a container to its share.

    Args:
        container: Request of the container, over all cards.
        cards: Number of cards of the share.

    Returns:
        Variable to value, without limits that were not requested. Empty for more cards than any
        machine has: such a pod fits nowhere, and the list would be unbounded.
    """
    if cards > MAX_GPUS:
        return {}
    cards = max(cards, 1)
    variables = {}
    if container.core:
        variables[ENV_MPS_THREADS] = str(container.core // cards)
    if container.memory:
        each = container.memory * MIB_PER_GIB // cards
        variables[ENV_MPS_MEMORY] = ",".join(f"{card}={each}M" for card in range(cards))
    return variables


def is_tighter(name: str, theirs: str, ours: str) -> bool:
    """Return whether a limit by a user is at most ours; False if it is unreadable."""
    if name == ENV_MPS_THREADS:
        return bool(_PERCENT.fullmatch(theirs)) and 0 < float(theirs) <= float(ours)
    allowed, wanted = _memory(ours), _memory(theirs)
    return wanted is not None and allowed is not None and _within(wanted, allowed)


def _within(wanted: dict[int, int], allowed: dict[int, int]) -> bool:
    # A device without an entry is unlimited.
    return all(device in wanted and wanted[device] <= most for device, most in allowed.items())


def _memory(text: str) -> dict[int, int] | None:
    """Return device to limit [bytes]; None where the text is not one."""
    found: dict[int, int] = {}
    for part in text.split(","):
        match = _DEVICE_LIMIT.fullmatch(part)
        if match is None:
            return None
        device, amount, unit = match.groups()
        found[int(device)] = int(amount) * _UNITS[unit.upper()]
    return found
