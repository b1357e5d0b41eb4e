"""The machine of the GPUs in a pool, from what ResourceSlices say: no NVLinks are among it."""

from dataclasses import replace

from linkwise.cluster.nodes.device_pool import GPUPool
from linkwise.cluster.nodes.resource_slice import SliceDevice
from linkwise.topology.constants import constants_of_models
from linkwise.topology.machine import GPU, Level, Machine, with_unlinked
from linkwise.topology.products import has_memory, machine_of_product


def with_gpus(machine: Machine, pool: GPUPool) -> Machine:
    """Return a machine with the UUIDs, bus ids, memory and NUMA nodes of the GPUs in a pool."""
    gpus = pool.gpus
    has_numa = all(gpu.numa is not None for gpu in gpus if gpu.name not in pool.lost)
    has_buses = all(gpu.bus_id is not None for gpu in gpus)
    has_memory = all(gpu.memory is not None for gpu in gpus)
    records = (
        GPU(
            numa=gpu.numa if has_numa and gpu.numa is not None else before.numa,
            uuid=gpu.uuid,
            bus_id=gpu.bus_id if has_buses else None,
            memory=gpu.memory >> 30 if has_memory and gpu.memory is not None else before.memory,
        )
        for gpu, before in zip(gpus, machine.gpus, strict=True)
    )
    return replace(machine, gpus=tuple(records))


def fitted(machine: Machine, pool: GPUPool) -> Machine | None:
    """Return a machine of as many GPUs as a pool; None: it is another one.

    The lost GPUs of the pool are part of it, or come in addition, without links.
    """
    lost = [i for i, gpu in enumerate(pool.gpus) if gpu.name in pool.lost]
    if machine.n == len(pool.gpus):
        return machine
    if machine.n == len(pool.gpus) - len(lost):
        return with_unlinked(machine, lost)
    return None


def catalogue_machine(pool: GPUPool) -> Machine | None:
    """Return the machine that has so many GPUs of this product; None if it is not certain.

    Its GPUs are in the order of bus ids, so these must be known. Lost ones are part of it, or come
    in addition.
    """
    gpus = pool.gpus
    present = [gpu for gpu in gpus if gpu.name not in pool.lost]
    products = {gpu.product for gpu in gpus}
    if len(products) != 1 or not all(gpu.bus_id for gpu in present):
        return None
    # GPU feature discovery, and so the catalogue, writes hyphens for the blanks of the driver.
    product = (products.pop() or "").replace(" ", "-")
    machine = machine_of_product(product, len(gpus)) or machine_of_product(product, len(present))
    if machine is None:
        return None
    is_same = all(has_memory(machine, gpu.memory >> 20) for gpu in gpus if gpu.memory is not None)
    return machine if is_same else None


def pcie_machine(pool: GPUPool) -> Machine | None:
    """Return a machine by PCIe roots and NUMA nodes alone; None where they say nothing."""
    gpus = pool.gpus
    n = range(len(gpus))
    levels = tuple(
        tuple(_level(gpus[i], gpus[j]) if i != j else Level.UNKNOWN for j in n) for i in n
    )
    if len(gpus) > 1 and not any(level for row in levels for level in row):
        return None
    products = tuple(dict.fromkeys(gpu.product for gpu in gpus if gpu.product))
    return Machine(
        links=((0,) * len(gpus),) * len(gpus),
        levels=levels,
        gpus=tuple(GPU(gpu.numa or 0) for gpu in gpus),
        constants=constants_of_models(*products),
        model=products[0] if len(products) == 1 else None,
    )


def _level(a: SliceDevice, b: SliceDevice) -> Level:
    if a.pcie_root and a.pcie_root == b.pcie_root:
        # It may be PIX as well, which has the same speed.
        return Level.PXB
    if a.numa is None or b.numa is None:
        return Level.UNKNOWN
    return Level.NODE if a.numa == b.numa else Level.SYS
