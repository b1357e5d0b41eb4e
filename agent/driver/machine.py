"""The machine that a reading of the driver describes."""

from itertools import combinations

from agent.driver.reading import GPU, DriverReading
from linkwise.topology.constants import constants_of_models
from linkwise.topology.machine import NIC, Level, Machine, gpu_records


def machine_of(reading: DriverReading, nics: tuple[NIC, ...]) -> Machine:
    """Return the machine, unhealthy GPUs included.

    A pair without peer access has no NVLink and meets at the host bridge at best: it talks through
    host memory. Memory is rounded down, so that no more is offered than there is.

    Args:
        reading: One reading of the driver.
        nics: Network cards with one level for each GPU.

    Raises:
        TopologyError: More GPUs than a machine can have.
    """
    gpus = reading.gpus
    links, levels = [list(row) for row in reading.links], [list(row) for row in reading.levels]
    denied = _denied(reading)
    for i, j in denied:
        links[i][j] = links[j][i] = 0
        levels[i][j] = levels[j][i] = min(levels[i][j], Level.PHB)
    models = sorted({gpu.model for gpu in gpus if gpu.model})
    numa, warnings = _numa(gpus)
    return Machine(
        links=tuple(map(tuple, links)),
        levels=tuple(map(tuple, levels)),
        gpus=gpu_records(
            numa,
            [gpu.uuid for gpu in gpus],
            [gpu.bus_id for gpu in gpus],
            [gpu.memory >> 30 for gpu in gpus],
        ),
        constants=constants_of_models(*models),
        switched=reading.switched,
        nics=nics,
        model=models[0] if len(models) == 1 else None,
        warnings=(
            *reading.warnings,
            *(f"no peer access between GPU{i} and GPU{j}: through host memory" for i, j in denied),
            *warnings,
            *([f"GPUs of different models: {', '.join(models)}"] if len(models) > 1 else []),
        ),
    )


def pair_bandwidth(machine: Machine) -> tuple[tuple[float, ...], ...]:
    """Return the modelled bandwidth of each pair [GB/s], shape (n, n), 0 on the diagonal.

    The same values as `linkwise.topology.table.Table.bandwidth`, without its dependencies.
    """
    gpus = range(machine.n)
    return tuple(tuple(round(_bandwidth(machine, i, j), 6) for j in gpus) for i in gpus)


def _bandwidth(machine: Machine, i: int, j: int) -> float:
    if i == j:
        return 0.0
    count = machine.links[i][j]
    if count and machine.switched:
        count = min(max(machine.links[i]), max(machine.links[j]))
    if count:
        return machine.constants.nvlink * count
    return machine.pcie_speed(machine.levels[i][j])


def _denied(reading: DriverReading) -> list[tuple[int, int]]:
    """Return the pairs whose links or levels are of no use for want of peer access."""
    if not reading.peer_access:
        return []
    return [
        (i, j)
        for i, j in combinations(range(len(reading.gpus)), 2)
        if not (reading.peer_access[i][j] and reading.peer_access[j][i])
        and (reading.links[i][j] or reading.levels[i][j] > Level.PHB)
    ]


def _numa(gpus: tuple[GPU, ...]) -> tuple[tuple[int, ...], list[str]]:
    """Return the NUMA node of each GPU: one for all if no node is known."""
    unknown = [f"GPU{gpu.i}" for gpu in gpus if gpu.numa is None]
    if len(unknown) == len(gpus):
        return (0,) * len(gpus), []
    warning = f"the NUMA node of {', '.join(unknown)} is unknown: counted as one of its own"
    numa = tuple(-1 if gpu.numa is None else gpu.numa for gpu in gpus)
    return numa, [warning] if unknown else []
