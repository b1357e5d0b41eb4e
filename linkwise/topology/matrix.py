"""Read a machine from the text of `nvidia-smi topo -m`.

The first matrix of links is the machine. A later one without NVLinks (`topo -mp`) adds the PCIe
level of NVLink pairs, and those of peer access (`topo -p2p`, of `r`, `w` or `p`) mark the pairs
that have none. Those of NVLink (`n`) and atomics (`a`) say nothing about peer access.
"""

import re
from itertools import combinations
from typing import TypeVar

from linkwise.topology.constants import UNKNOWN_ARCHITECTURE, Constants, architecture
from linkwise.topology.grid import LEVELS, Block, Grid, blocks_of, grid_of, link_count
from linkwise.topology.machine import GPU, MAX_TEXT, NIC, Level, Machine, TopologyError

_LEGEND = re.compile(r"^[ \t#>*;-]{0,40}PIX[ \t]{0,20}=", re.MULTILINE)
_NVLINK = re.compile(r"\bNV#?[ \t]{0,20}=|\bNV(?:#|[0-9])|\bSOC\b")
"""The line about NVLinks in the legend, which `topo -m` prints on each machine; or a link, or the
word of drivers before them."""

T = TypeVar("T")

Pair = tuple[int, int]
"""Numbers of two GPUs, the lower one first."""


def read_matrix(text: str, *, model: str | None = None, partial: bool = False) -> Machine:
    """Read the text of `nvidia-smi topo -m`, as printed or as people paste it.

    Args:
        text: May hold comment prefixes, colours, a Markdown table, a legend and other text.
        model: Product name of the GPUs, which determines speed and number of their NVLinks.
        partial: Read the GPUs whose rows are whole when others are cut or missing.

    Raises:
        TopologyError: No machine, or not all of one: the message says what is missing and where.

    Cost: linear in the length of the text.
    """
    if len(text) > MAX_TEXT:
        raise TopologyError(f"the text has {len(text):,} characters; at most {MAX_TEXT:,} are read")
    known = UNKNOWN_ARCHITECTURE if model is None else architecture(model)
    blocks = blocks_of(text)
    at, grid = _first_of_links(blocks, partial=partial)
    links, levels, warnings = _pairs(grid)
    if grid.left_out:
        warnings.insert(0, _kept(grid))
    switched = any(_row_sum(grid, links, gpu) > known.links for gpu in grid.gpus)
    others, ignored = _others(grid, blocks[:at] + blocks[at + 1 :], partial=partial)
    for other in others:
        if not other.is_p2p:
            _add_levels(other, levels)
    # Peer access comes last: it caps levels, also those of `topo -mp`.
    warnings += _deny_peers([one for one in others if one.tells_peer_access], links, levels)
    warnings += _left_out_links(grid, text, others)
    numa, unknown_numa = _numa(grid)
    return Machine(
        links=_square(grid, links, 0),
        levels=_square(grid, levels, Level.UNKNOWN),
        gpus=tuple(map(GPU, numa)),
        constants=Constants(nvlink=known.nvlink, pcie=known.pcie),
        switched=switched,
        nics=_nics(grid),
        model=model,
        warnings=(*warnings, *ignored, *unknown_numa),
    )


def _first_of_links(blocks: list[Block], *, partial: bool) -> tuple[int, Grid]:
    """Return the first matrix that is not about peer access, and its place."""
    for at, block in enumerate(blocks):
        grid = grid_of(block, partial=partial)
        if not grid.is_p2p:
            return at, grid
    raise TopologyError(
        f"line {blocks[0].header.line} begins a matrix of peer access (`topo -p2p`), which has no"
        " links; add the output of `nvidia-smi topo -m`"
    )


def _pairs(grid: Grid) -> tuple[dict[Pair, int], dict[Pair, Level], list[str]]:
    """Return NVLinks and PCIe level of every pair, and what its two cells do not agree on."""
    links: dict[Pair, int] = {}
    levels: dict[Pair, Level] = {}
    warnings: list[str] = []
    for i, j in combinations(grid.gpus, 2):
        there, back = grid.word(i, f"GPU{j}"), grid.word(j, f"GPU{i}")
        given = [LEVELS[word] for word in (there, back) if word in LEVELS]
        alike = link_count(there) == link_count(back)
        links[i, j] = link_count(there) if alike else 0
        levels[i, j] = min(given, default=Level.UNKNOWN)
        if not alike:
            warnings.append(
                f"GPU{i} and GPU{j} are linked by {there} one way and {back} the other: counted as"
                " not linked by NVLink"
            )
        elif len(set(given)) > 1:
            warnings.append(
                f"GPU{i} and GPU{j} meet at {there} one way and {back} the other: counted as"
                f" {levels[i, j].name}"
            )
    return links, levels, warnings


def _row_sum(grid: Grid, links: dict[Pair, int], gpu: int) -> int:
    """Sum the NVLinks in a GPU's row, over the GPUs that were left out too."""
    others = (other for other in range(grid.columns) if other != gpu)
    return sum(
        links.get((min(gpu, other), max(gpu, other)), link_count(grid.word(gpu, f"GPU{other}")))
        for other in others
    )


def _others(grid: Grid, blocks: list[Block], *, partial: bool) -> tuple[list[Grid], list[str]]:
    """Return the further matrices with more data about the machine, and why others do not."""
    grids: list[Grid] = []
    warnings: list[str] = []
    for block in blocks:
        why = ""
        try:
            other = grid_of(block, partial=partial)
        except TopologyError as error:
            why = str(error)
        else:
            if other.columns != grid.columns or not set(grid.gpus) <= set(other.gpus):
                why = "it is about other GPUs"
            elif any(link_count(word) for word in other.words):
                why = "the first one is the machine"
            else:
                grids.append(other)
        if why:
            warnings.append(f"ignored the matrix in line {block.header.line}: {why}")
    return grids, warnings


def _add_levels(other: Grid, levels: dict[Pair, Level]) -> None:
    """Fill in the levels that NVLinks hid."""
    for pair, level in _pairs(other)[1].items():
        if levels.get(pair) is Level.UNKNOWN:
            levels[pair] = level


def _deny_peers(others: list[Grid], links: dict[Pair, int], levels: dict[Pair, Level]) -> list[str]:
    """Take links and switches from pairs without peer access: they talk through host memory."""
    denied: dict[Pair, None] = {}
    for other in others:
        for i, j in links:
            if {other.word(i, f"GPU{j}"), other.word(j, f"GPU{i}")} != {"OK"}:
                denied[i, j] = None
    for pair in denied:
        links[pair] = 0
        levels[pair] = min(levels[pair], Level.PHB)
    if not denied:
        return []
    pairs = [f"GPU{i}-GPU{j}" for i, j in sorted(denied)]
    names = ", ".join(pairs[:4]) + (", …" if pairs[4:] else "")
    warnings = [f"no peer access between {names}: through host memory"]
    # Of reads, drivers mostly say what does not support them: the chipset, the GPU, the topology.
    unnamed = [one for one in others if not one.capability and "NS" in one.words <= {"OK", "NS"}]
    if unnamed:
        warnings.append(
            f"the matrix in line {unnamed[0].header.line} is taken for that of `topo -p2p r`: no"
            " command above it says so; leave it out if it is of NVLink (`n`) or atomics (`a`)"
        )
    return warnings


def _left_out_links(grid: Grid, text: str, others: list[Grid]) -> list[str]:
    """Say that a matrix of `topo -mp` has no NVLinks, whatever the machine has."""
    is_without = grid.capability == "-mp" or bool(_LEGEND.search(text) and not _NVLINK.search(text))
    if not is_without or any(link_count(word) for word in grid.words):
        return []
    nvlink = frozenset[str]().union(*(one.words for one in others if one.capability == "n"))
    if nvlink and "OK" not in nvlink:
        return []
    known = "there are some, by `topo -p2p n`" if nvlink else "the machine may have some"
    return [
        f"this is the output of `topo -mp`, which leaves NVLinks out: {known}; add the output of"
        " `nvidia-smi topo -m`"
    ]


def _numa(grid: Grid) -> tuple[tuple[int, ...], list[str]]:
    """Return the NUMA node of each GPU: as given, else one per CPU affinity, else one."""
    rows = [grid.rows[gpu] for gpu in grid.gpus]
    given = [row.numa for row in rows]
    if not any(given):
        given = [row.cpu for row in rows]
    if not any(given):
        return (0,) * len(rows), []
    if all(value is None or (value.isdecimal() and len(value) < 10) for value in given):
        numbers = {value: int(value) for value in given if value}
    else:
        numbers = {value: at for at, value in enumerate(dict.fromkeys(v for v in given if v))}
    silent = [f"GPU{row.gpu}" for row, value in zip(rows, given, strict=True) if value is None]
    warning = f"the NUMA node of {', '.join(silent)} is unknown: counted as one of its own"
    return tuple(numbers[v] if v else -1 for v in given), [warning] if silent else []


def _nics(grid: Grid) -> tuple[NIC, ...]:
    names = [name for name in grid.header.devices if name[:3] != "GPU" and name[0].isalpha()]
    return tuple(
        NIC(name, tuple(LEVELS.get(grid.word(gpu, name), Level.UNKNOWN) for gpu in grid.gpus))
        for name in names
    )


def _square(grid: Grid, pairs: dict[Pair, T], diagonal: T) -> tuple[tuple[T, ...], ...]:
    return tuple(
        tuple(diagonal if i == j else pairs[min(i, j), max(i, j)] for j in grid.gpus)
        for i in grid.gpus
    )


def _kept(grid: Grid) -> str:
    gpus = ", ".join(f"GPU{gpu}" for gpu in grid.gpus)
    renumbered = grid.gpus != tuple(range(len(grid.gpus)))
    numbered = ", numbered from 0" if renumbered else ""
    return f"partial: {grid.left_out}; only {gpus} of {grid.columns} GPUs are read{numbered}"
