"""Matrices of a reading from what each GPU reports of its links."""

from collections.abc import Sequence
from dataclasses import dataclass

from agent.driver.reading import GPU, DriverReading
from linkwise.topology.machine import Level


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """The other end of one active NVLink."""

    switch: bool | None
    """It is an NVSwitch; False: a GPU; None: unknown."""
    bus_id: str
    """Empty if unknown."""


Ends = Sequence[Sequence[LinkEnd] | None]
"""Active NVLinks of each GPU; None for a GPU that does not answer."""


@dataclass(frozen=True, slots=True)
class Links:
    """NVLinks of all GPUs."""

    matrix: tuple[tuple[int, ...], ...]
    switched: bool
    warnings: tuple[str, ...]


def links_of(gpus: Sequence[GPU], ends: Ends, last: DriverReading | None) -> Links:
    """Return the NVLinks of each pair.

    A pair with a GPU that does not answer keeps the links of the last reading. A pair that reports
    different numbers each way has the smaller one.
    """
    by_bus_id = {gpu.bus_id: i for i, gpu in enumerate(gpus) if gpu.bus_id}
    n = len(gpus)
    mesh = [[0] * n for _ in gpus]
    switch = [0] * n
    for i, links in enumerate(ends):
        for end in links or ():
            if not end.switch and end.bus_id in by_bus_id:
                mesh[i][by_bus_id[end.bus_id]] += 1
            elif end.switch is not False:  # A GPU without an index belongs to another machine.
                switch[i] += 1
    switched = any(switch) or (None in ends and last is not None and last.switched)
    matrix = [[0] * n for _ in gpus]
    warnings = []
    for i in range(n):
        for j in range(i):
            there, back = (switch[i], switch[j]) if switched else (mesh[i][j], mesh[j][i])
            if ends[i] is None or ends[j] is None:
                there = back = last.links[i][j] if last else 0
            elif there != back and not switched:
                warnings.append(
                    f"GPU{j} and GPU{i} report {back} and {there} NVLinks to each other: counted as"
                    f" {min(there, back)}"
                )
            matrix[i][j] = matrix[j][i] = min(there, back)
    return Links(tuple(map(tuple, matrix)), switched, tuple(warnings))


def levels_of(
    reported: Sequence[Sequence[Level]], last: DriverReading | None
) -> tuple[tuple[tuple[Level, ...], ...], tuple[str, ...]]:
    """Return the PCIe level of each pair, the last one if it is not reported now, and warnings."""
    n = len(reported)
    matrix = [[Level.UNKNOWN] * n for _ in range(n)]
    unknown = False
    for i in range(n):
        for j in range(i):
            level = reported[i][j] or (last.levels[i][j] if last else Level.UNKNOWN)
            matrix[i][j] = matrix[j][i] = level
            unknown |= level is Level.UNKNOWN
    warnings = ("the driver does not report the PCIe level of some pairs",) if unknown else ()
    return tuple(map(tuple, matrix)), warnings
