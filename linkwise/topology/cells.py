"""Tokenize a line of `nvidia-smi topo -m`, however it was pasted."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ELLIPSIS = ("...", "…")
"""Placeholder for omitted columns."""

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\[[0-9;]*m")
_MARKS = " \t\xa0/#>*;-"

_GAP = re.compile(r"[\s|]*")
_COLUMN = re.compile(
    r"GPU(?P<gpu>[0-9]{1,4})(?![0-9])"
    # `mlx5_0` is tried first, so that two such names glued together come apart.
    r"|(?P<nic>NIC[0-9]+|mlx[0-9]+_(?:bond_)?[0-9]+|[a-z][a-z_]*[0-9][a-z0-9_]*)"
    r"|(?P<cut>\.\.\.|…)"
    r"|(?P<cpu>CPU\s*Affinity)|(?P<numa>NUMA\s*Affinity)|(?P<memory>GPU\s*NUMA\s*ID)"
)
_TITLES = ("GPU", "NIC", "CPUAffinity", "NUMAAffinity", "GPUNUMAID")
_LABEL = re.compile(r"GPU([0-9]{1,4})(?![0-9])")
_CELL = re.compile(
    r"X|NV[0-9]{1,2}|SYS|SOC|NODE|PHB|PXB|PIX|PSB|OK|CNS|GNS|TNS|NS|DR|U(?![A-Za-z])|\.\.\.|…"
)
_AFFINITY = re.compile(r"[0-9][0-9,-]*|N/A")


@dataclass(frozen=True, slots=True)
class Header:
    """The line that names the columns of a matrix."""

    line: int
    """Line of the text, counted from 1."""
    devices: tuple[str, ...]
    """`GPU0`, `NIC0`, `mlx5_0`, and an ellipsis between them, left to right."""
    before: tuple[str, ...]
    """Kinds of the affinity columns left of the devices: `cpu`, `numa` or `memory`."""
    after: tuple[str, ...]
    """Kinds of the affinity columns right of the devices."""


@dataclass(frozen=True, slots=True)
class Row:
    """The line of one GPU."""

    line: int
    gpu: int
    cells: tuple[str, ...]
    """One word for each device of the header, from the left; fewer where the row is cut."""
    tail: tuple[str, ...]
    """The words after the cells."""
    cpu: str | None
    """CPUs near the GPU, as written; None if unknown."""
    numa: str | None
    """NUMA node of the GPU, as written; None if unknown."""


def clean(line: str) -> str:
    """Strip colours, comment prefixes and the blanks around a line."""
    return _ANSI.sub("", line).lstrip(_MARKS).rstrip()


def read_header(number: int, line: str) -> Header | None:
    """Return the header in a cleaned line, or None when the line is something else."""
    names: list[tuple[str, str]] = []
    at = _end(_GAP, line, 0)
    while found := _COLUMN.match(line, at):
        kind = str(found.lastgroup)
        names.append((kind, f"GPU{int(found[kind])}" if kind == "gpu" else found[kind]))
        at = _end(_GAP, line, found.end())
    if line[at:] and not _is_cut_title(line[at:]):
        return None
    if not any(kind == "gpu" for kind, _ in names):
        return None
    devices = [i for i, (kind, _) in enumerate(names) if kind in {"gpu", "nic"}]
    first, last = devices[0], devices[-1]
    return Header(
        number,
        tuple(name for kind, name in names[first : last + 1] if kind in {"gpu", "nic", "cut"}),
        tuple(kind for kind, _ in names[:first]),
        tuple(kind for kind, _ in names[last + 1 :] if kind != "cut"),
    )


def read_row(number: int, line: str, header: Header) -> Row | None:
    """Return the row of a GPU in a cleaned line, or None when the line is something else."""
    fields = _fields(line)
    left, fields = fields[: len(header.before)], fields[len(header.before) :]
    label = _LABEL.match(fields[0]) if fields else None
    if label is None:
        return None
    words = _words([fields[0][label.end() :], *fields[1:]])
    cells, rest = _take_cells(words, len(header.devices))
    if not cells:
        return None
    rest = rest[1:] if rest[:1] in [[dots] for dots in ELLIPSIS] else rest
    positional = "\t" in line or line.startswith("|")
    affinity = dict(zip(header.before, left, strict=False)) | _affinity(
        rest, header.after, positional=positional
    )
    return Row(
        number,
        int(label[1]),
        cells,
        tuple(word for word in rest if word),
        _known(affinity.get("cpu")),
        _known(affinity.get("numa")),
    )


def is_row(line: str) -> bool:
    """Return whether a cleaned line looks like the row of a GPU."""
    return read_row(0, line, Header(0, ("GPU0",), (), ())) is not None


def is_cell(word: str) -> bool:
    """Return whether a word is what a matrix holds between two devices."""
    return _CELL.fullmatch(word) is not None


def is_label(word: str) -> bool:
    """Return whether a word is the name of a GPU."""
    return _LABEL.fullmatch(word) is not None


def _end(pattern: re.Pattern[str], line: str, at: int) -> int:
    """Return where a pattern that may be empty ends."""
    found = pattern.match(line, at)
    return found.end() if found else at


def _is_cut_title(rest: str) -> bool:
    """Return whether the rest of a header is the start of a column's title, cut by an edge."""
    letters = "".join(rest.split())
    return any(title.startswith(letters) for title in _TITLES)


def _fields(line: str) -> list[str]:
    if line.startswith("|"):
        return [field.strip() for field in line.removeprefix("|").removesuffix("|").split("|")]
    return [field.strip() for field in line.split("\t")] if "\t" in line else line.split()


def _words(fields: Iterable[str]) -> list[str]:
    """Split fields into words, and glued cells from each other; an empty field stays one word."""
    return [
        piece for field in fields for word in (field.split() or [""]) for piece in _unglue(word)
    ]


def _unglue(word: str) -> list[str]:
    pieces: list[str] = []
    at = 0
    while found := _CELL.match(word, at):
        pieces.append(found.group())
        at = found.end()
    rest = word[at:]
    # It is ambiguous where the digits of NV4 end and those of 12-15 begin.
    if rest and (not _AFFINITY.fullmatch(rest) or (pieces and pieces[-1].startswith("NV"))):
        return [word]
    return [*pieces, rest] if rest or not pieces else pieces


def _take_cells(words: Sequence[str], count: int) -> tuple[tuple[str, ...], list[str]]:
    """Return up to `count` cells from the left, and what follows them."""
    cells: list[str] = []
    for at, word in enumerate(words):
        if len(cells) == count or (word and not is_cell(word)):
            return tuple(cells), list(words[at:])
        if word:
            cells.append(word)
    return tuple(cells), []


def _affinity(words: Sequence[str], kinds: tuple[str, ...], *, positional: bool) -> dict[str, str]:
    """Separate the affinity columns of a row from the words after its cells.

    Tabs and bars keep the place of an empty column; blanks do not. There, fewer words than columns
    leave open which one is missing, so only the first is used, to distinguish rows.
    """
    if positional and kinds:
        return dict(zip(kinds, words, strict=False))
    values: list[str] = []
    for word in words:
        if not _AFFINITY.fullmatch(word):
            break
        values.append(word)
    kinds = kinds or ("cpu", "numa", "memory")[: len(values)]
    if len(values) >= len(kinds):
        return dict(zip(kinds, values, strict=False))
    if values and (len(values) > 1 or len(kinds) < 3 or "-" in values[0]):
        return {"cpu": values[0]}
    return {}


def _known(value: str | None) -> str | None:
    return value if value and value != "N/A" else None
