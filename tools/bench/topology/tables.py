"""Build time of the tables of a machine, and of a choice."""

from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter

from linkwise.topology import packing, table
from linkwise.topology.bandwidth import bandwidths
from linkwise.topology.canonical import class_of
from linkwise.topology.catalogue import entry
from linkwise.topology.choice import ChoiceMode, ChoiceRequest, choose
from linkwise.topology.disjoint import best_disjoint
from linkwise.topology.machine import GPU, Level, Machine
from linkwise.topology.per_table import empty_caches
from linkwise.topology.table import Table, table_of

LOOK_UPS = 10_000


def rows() -> Iterator[tuple[str, str, Callable[[], float]]]:
    """Yield the measurements."""
    yield "class table and all choices, 8 GPUs, direct mesh, cold", "≤ 1 s", _direct_mesh
    yield "A, V_2 and V_4 of every set, 16 GPUs on PCIe", "≤ 0.5 s", _pcie
    # Building is not measured below: it happens off the request path.
    built = table_of(_sixteen())
    built.prepare()
    for mode in ChoiceMode:
        yield f"first choice of 8 of 16 GPUs, {mode}", "≤ 5 ms", partial(_first, built, mode)
    yield "choice from the table", "≤ 2 µs", partial(_look_up, built)


def _direct_mesh() -> float:
    """Build all that decisions on a DGX-1 need, and make every one of them, with nothing cached."""
    for cache in (packing.largest_packing, class_of, table.class_bandwidths):
        cache.cache_clear()
    machine = entry("dgx1-v100").machine
    start = perf_counter()
    built = Table(machine)
    built.prepare()
    for mode in ChoiceMode:
        for free in range(1 << machine.n):
            for k in range(1, free.bit_count() + 1):
                choose(built, ChoiceRequest(free, k, mode=mode))
    return perf_counter() - start


def _pcie() -> float:
    machine = _sixteen()
    start = perf_counter()
    a, _ = bandwidths(machine)
    for j in (2, 4):
        best_disjoint(a, machine.n, j)
    return perf_counter() - start


def _first(built: Table, mode: ChoiceMode) -> float:
    empty_caches()
    start = perf_counter()
    choose(built, ChoiceRequest(0xFFFF, 8, mode=mode))
    return perf_counter() - start


def _look_up(built: Table) -> float:
    request = ChoiceRequest(0xFFFF, 8)
    choose(built, request)
    start = perf_counter()
    for _ in range(LOOK_UPS):
        choose(built, request)
    return (perf_counter() - start) / LOOK_UPS


def _sixteen() -> Machine:
    """Return 16 GPUs in pairs on PCIe switches, four switches on each of two sockets."""

    def level(i: int, j: int) -> Level:
        if i // 8 != j // 8:
            return Level.SYS
        return Level.PIX if i // 2 == j // 2 else Level.PHB

    gpus = range(16)
    return Machine(
        links=((0,) * 16,) * 16,
        levels=tuple(tuple(level(i, j) if i != j else Level.UNKNOWN for j in gpus) for i in gpus),
        gpus=tuple(GPU(i // 8) for i in gpus),
    )
