"""Read a machine from `nvidia-smi topo -m` or an NCCL topology file."""

import re

from linkwise.topology.grid import blocks_of
from linkwise.topology.machine import MAX_TEXT, Machine, TopologyError
from linkwise.topology.matrix import read_matrix
from linkwise.topology.nccl import read_nccl

_BLANK = "\ufeff \t\r\n"
_XML = re.compile(r"(?:<\?xml|<!DOCTYPE|<system)\b")
_END = "</system>"


def read_machine(text: str, *, model: str | None = None, partial: bool = False) -> Machine:
    """Read a machine from a matrix or from XML, which other text may surround.

    Of a text with both, the one that begins it counts, or else the matrix.

    Args:
        text: What a file or a clipboard holds.
        model: Product name of the GPUs, which determines speed and number of their NVLinks.
        partial: Of a matrix that is not whole, read the GPUs whose rows are.

    Raises:
        TopologyError: The text is no machine; the message says what is missing and where.
    """
    bare = text.lstrip(_BLANK)
    if _XML.match(bare):
        return read_nccl(_document(bare), model=model)
    if len(text) <= MAX_TEXT and not _has_matrix(text):
        if begin := _XML.search(text):
            return read_nccl(_document(text[begin.start() :]), model=model)
        if bare.startswith("<"):
            return read_nccl(bare, model=model)
    return read_matrix(text, model=model, partial=partial)


def _document(text: str) -> str:
    """Return a document without the text that follows its end."""
    end = text.find(_END)
    return text if end < 0 else text[: end + len(_END)]


def _has_matrix(text: str) -> bool:
    try:
        return bool(blocks_of(text))
    except TopologyError:
        return False
