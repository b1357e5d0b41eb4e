"""Find the complete matrices in a text of `nvidia-smi topo`."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from linkwise.topology.cells import (
    ELLIPSIS,
    Header,
    Row,
    clean,
    is_cell,
    is_label,
    is_row,
    read_header,
    read_row,
)
from linkwise.topology.machine import MAX_GPUS, Level, TopologyError
from linkwise.topology.vendors import other_vendor, unknown_word

LEVELS: Mapping[str, Level] = {level.name: level for level in Level if level} | {"SOC": Level.SYS}
"""The words for PCIe levels; drivers before 2017 wrote SOC for SYS."""

_COMMAND = re.compile(
    r"\btopo\b.{0,40}?\s(?:(-mp|--matrix_pcie?)|-m|--matrix"
    r"|-?-p2p(?:_status)?[\s=]+[\"']?([rwnap]))(?![a-z])",
    re.IGNORECASE,
)
"""A command that prints a matrix, with the capability that `-p2p` asks for."""
_TITLE = re.compile(r"\bp2p\b.{0,20}?\b(nvlink|atomic|read|write|prop)", re.IGNORECASE)
"""What people write above a matrix of `-p2p` instead; its first letter is that of the command."""

_PASTE = "paste the whole output of `nvidia-smi topo -m`"


@dataclass(frozen=True, slots=True)
class Block:
    """A header and the GPU rows under it, as they stand in the text."""

    header: Header
    rows: tuple[Row, ...]
    capability: str = ""
    """The letter after `-p2p` in the command above it, or `-mp`; empty: neither is there."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A matrix whose rows and columns are there for every GPU that it is read for."""

    header: Header
    rows: Mapping[int, Row]
    """Whole rows by GPU number."""
    columns: int
    """Number of GPUs the header names; more than `rows` where the text is partial."""
    left_out: str
    """Missing facts about the other GPUs; empty if none."""
    capability: str = ""
    """The letter after `-p2p` in its command, or `-mp`; empty: it is not known."""

    @property
    def gpus(self) -> tuple[int, ...]:
        """Numbers of the GPUs with a whole row, ascending."""
        return tuple(sorted(self.rows))

    @property
    def words(self) -> frozenset[str]:
        """Every word between two GPUs."""
        return frozenset(
            self.word(i, f"GPU{j}") for i in self.rows for j in range(self.columns) if i != j
        )

    @property
    def is_p2p(self) -> bool:
        """This is a matrix of `topo -p2p`, not one of links."""
        return bool(self.words) and not any(is_link(word) for word in self.words)

    @property
    def tells_peer_access(self) -> bool:
        """This is a matrix of reads, writes or both; NVLink (`n`) and atomics (`a`) are others."""
        return self.is_p2p and self.capability not in {"n", "a"}

    def word(self, gpu: int, device: str) -> str:
        """Return the word in a GPU's row under a device."""
        return self.rows[gpu].cells[self.header.devices.index(device)]


def link_count(word: str) -> int:
    """Return the number of NVLinks of a cell."""
    return int(word[2:]) if word.startswith("NV") else 0


def is_link(word: str) -> bool:
    """Return whether a cell is about links, and not about peer access."""
    return word.startswith("NV") or word in LEVELS


def blocks_of(text: str) -> list[Block]:
    """Return the matrices of a text that have at least one GPU row, in order.

    Raises:
        TopologyError: There is none; the message describes the text.
    """
    lines = [(number, clean(line)) for number, line in enumerate(text.splitlines(), 1)]
    blocks = [block for block in _blocks(lines) if block.rows]
    if not blocks:
        raise TopologyError(_what_instead(text, lines))
    if problem := _of_another_vendor(text, lines):
        raise TopologyError(problem)
    return blocks


def _of_another_vendor(text: str, lines: Sequence[tuple[int, str]]) -> str | None:
    """Say that a text is about GPUs of another vendor than NVIDIA; None if it seems not so."""
    if problem := unknown_word(lines):
        return problem
    if (vendor := other_vendor(text)) is None:
        return None
    return f"this is about GPUs of {vendor}, which are not read; only NVIDIA GPUs are"


def _blocks(lines: Sequence[tuple[int, str]]) -> Iterator[Block]:
    header: Header | None = None
    rows: list[Row] = []
    capability = asked = ""
    for number, line in lines:
        if found := read_header(number, line):
            if header:
                yield Block(header, tuple(rows), capability)
            header, rows, capability, asked = found, [], asked, ""
        elif header and (row := read_row(number, line, header)):
            rows.append(row)
        elif command := _COMMAND.search(line):
            asked = "-mp" if command[1] else (command[2] or "").lower()
        elif title := _TITLE.search(line):
            asked = title[1][0].lower()
    if header:
        yield Block(header, tuple(rows), capability)


def _what_instead(text: str, lines: Sequence[tuple[int, str]]) -> str:
    """Say what is missing in a text without a matrix."""
    if re.search(r"ROCm|XGMI|rocm-smi|amd-smi", text):
        return "this is the output of AMD's rocm-smi, which is not read; only NVIDIA GPUs are"
    if problem := _of_another_vendor(text, lines):
        return problem
    headers = [found for number, line in lines if (found := read_header(number, line))]
    if headers:
        names = [name for name in headers[0].devices if name.startswith("GPU")]
        return (
            f"line {headers[0].line} names the columns {_span(names)}, but no row of a GPU follows:"
            f" {_PASTE}"
        )
    for number, line in lines:
        if is_row(line):
            return f"the header line above the GPU row in line {number} is missing: {_PASTE}"
    return (
        "no GPU matrix found: expected a header line `GPU0 GPU1 …` and one row for each GPU; "
        + _PASTE
    )


def grid_of(block: Block, *, partial: bool) -> Grid:
    """Return a block as a grid.

    Args:
        block: With at least one row.
        partial: Leave out the GPUs whose row is cut or missing, if any are whole.

    Raises:
        TopologyError: A row is cut, missing, doubled, shifted or re-wrapped, or the columns are
            not GPU0 to GPUn-1.
    """
    header = block.header
    count = _count_columns(header)
    for row in block.rows:
        _check_row(row, header)
    rows = {row.gpu: row for row in block.rows}
    if len(rows) < len(block.rows):
        raise TopologyError(f"the matrix in line {header.line} has two rows of one GPU; {_PASTE}")
    cut = {gpu: names for gpu, row in sorted(rows.items()) if (names := _cut(row, header))}
    whole = {gpu: row for gpu, row in sorted(rows.items()) if gpu < count and gpu not in cut}
    left_out = _left_out(rows, cut, count)
    if left_out and not (partial and whole):
        offer = f", or read {_list(whole)} alone with --partial" if whole else ""
        raise TopologyError(
            f"the matrix in line {header.line} is not whole: {left_out}; {_PASTE}{offer}"
        )
    grid = Grid(header, whole, count, left_out, block.capability)
    if any(is_link(word) for word in grid.words) and not all(is_link(w) for w in grid.words):
        raise TopologyError(f"the matrix in line {header.line} mixes links and peer access")
    return grid


def _count_columns(header: Header) -> int:
    gpus = sorted(int(name[3:]) for name in header.devices if name.startswith("GPU"))
    if len(gpus) > MAX_GPUS:
        raise TopologyError(
            f"line {header.line} names {len(gpus)} GPUs; a machine has at most {MAX_GPUS}"
        )
    if gpus != list(range(len(gpus))):
        raise TopologyError(
            f"line {header.line} names the columns {', '.join(f'GPU{g}' for g in gpus)}; expected"
            f" GPU0 to GPU{len(gpus) - 1}, each once: {_PASTE}"
        )
    return len(gpus)


def _check_row(row: Row, header: Header) -> None:
    """Refuse a row whose cells do not stand under their columns."""
    if any(is_label(a) and is_cell(b) for a, b in pairwise(row.tail)):
        raise TopologyError(
            f"line {row.line} holds more than one row, as the lines were re-wrapped; {_PASTE}"
        )
    if row.tail and is_cell(row.tail[0]):
        raise TopologyError(
            f"row GPU{row.gpu} in line {row.line} has more cells than the header in line"
            f" {header.line} has columns; {_PASTE}"
        )
    for device, word in zip(header.devices, row.cells, strict=False):
        if (word == "X") != (device == f"GPU{row.gpu}"):
            raise TopologyError(
                f"row GPU{row.gpu} in line {row.line} has {word} under {device}: its cells are"
                f" shifted; {_PASTE}"
            )


def _cut(row: Row, header: Header) -> list[str]:
    """Return the devices that a row has no cell for."""
    return [
        device
        for at, device in enumerate(header.devices)
        if device not in ELLIPSIS and (at >= len(row.cells) or row.cells[at] in ELLIPSIS)
    ]


def _left_out(rows: Mapping[int, Row], cut: Mapping[int, Sequence[str]], count: int) -> str:
    """Say which rows, cells and columns are missing, or nothing."""
    parts = [f"row GPU{gpu} has no cell for {_span(names)}" for gpu, names in cut.items()]
    if missing := [gpu for gpu in range(count) if gpu not in rows]:
        parts.append(f"rows missing: {_list(missing)}")
    if beyond := sorted(gpu for gpu in rows if gpu >= count):
        parts.append(f"columns missing: {_list(beyond)}")
    return "; ".join(parts)


def _list(gpus: Iterable[int]) -> str:
    return ", ".join(f"GPU{gpu}" for gpu in gpus)


def _span(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
