"""Machines of the catalogue by the product and the number of their GPUs.

Only boards on which every vendor links the GPUs in one way, in the order of their indices. Cards,
and boards of which clouds give out parts, are linked differently from machine to machine.
"""

from dataclasses import replace
from functools import lru_cache

from linkwise.topology.catalogue import entry
from linkwise.topology.machine import Machine

PRODUCTS = {
    ("Tesla-P100-SXM2-16GB", 8): ("dgx1-p100", 16),
    ("Tesla-V100-SXM2-16GB", 8): ("dgx1-v100", 16),
    ("Tesla-V100-SXM2-32GB", 8): ("dgx1-v100", 32),
    ("Tesla-V100-SXM3-32GB", 16): ("dgx2", 32),
    ("A100-SXM4-40GB", 8): ("dgx-a100", 40),
    ("NVIDIA-A100-SXM4-40GB", 8): ("dgx-a100", 40),
    ("A100-SXM-80GB", 8): ("hgx-a100", 80),
    ("NVIDIA-A100-SXM4-80GB", 8): ("hgx-a100", 80),
    ("NVIDIA-H100-80GB-HBM3", 8): ("dgx-h100", 80),
    ("NVIDIA-H200", 8): ("hgx-h200", 140),
    ("NVIDIA-B200", 8): ("b200", 179),
    ("NVIDIA-GB200", 4): ("gb200-tray", 185),
    ("NVIDIA-GH200-120GB", 4): ("gh200x4", 96),
}
"""Name in the catalogue and memory of a GPU [GiB], by product and number of GPUs. The product is
that of the driver, with hyphens for blanks, as GPU feature discovery writes it."""

_TOLERANCE = 1 << 10
"""Of the memory: drivers reserve different amounts [MiB]."""


@lru_cache(maxsize=256)
def machine_of_product(product: str, count: int) -> Machine | None:
    """Return the machine that has so many GPUs of a product; None if it is not certain.

    It has no NICs: they differ from vendor to vendor.
    """
    name, memory = PRODUCTS.get((product, count), (None, 0))
    if name is None:
        return None
    machine = entry(name).machine
    gpus = tuple(replace(gpu, memory=memory) for gpu in machine.gpus)
    return replace(machine, nics=(), gpus=gpus)


def has_memory(machine: Machine, memory: int) -> bool:
    """Return whether the GPUs of a machine have about this memory [MiB]."""
    return all(abs((gib << 10) - memory) <= _TOLERANCE for gib in machine.memory)
