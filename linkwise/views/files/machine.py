"""Finds a machine by its name in the catalogue, or reads it from a file or a pipe."""

import re
from dataclasses import replace
from difflib import get_close_matches

from linkwise.manifest.value import InputError
from linkwise.topology.catalogue import NAMES, entry
from linkwise.topology.constants import architecture
from linkwise.topology.machine import Machine, TopologyError
from linkwise.topology.read import read_machine
from linkwise.views.files.source import STDIN, beside, read_text, shown_name

_LINE = re.compile(r"\bline ([0-9]+)")
"""The line number in an error message."""


def find_machine(
    name: str, *, model: str | None = None, partial: bool = False, near: str | None = None
) -> Machine:
    """Return the machine of a name; names of the catalogue come before files.

    Args:
        name: A name of the catalogue, a file with `nvidia-smi topo -m` text or NCCL XML, or `-`.
        model: Product name of the GPUs, which decides the speed of their links.
        partial: Read the complete lines of a text that is cut off.
        near: The file that names the machine; a relative path is relative to its folder.

    Raises:
        InputError: There is no such machine, the text is not a topology, or the model is unknown.
    """
    if model is not None:
        try:
            architecture(model)
        except TopologyError as error:
            raise InputError(f"--gpu-model: {_sentence(error)}") from None
    if name in NAMES:
        return _with_model(entry(name).machine, model)
    path = beside(near, name) if near else name
    text = _text(name, path)
    try:
        return read_machine(text, model=model, partial=partial)
    except TopologyError as error:
        line = _LINE.search(str(error))
        where = f"{shown_name(path)}:{line[1] if line else 1}"
        raise InputError(f"{where}: {_sentence(error)}") from None


def _with_model(machine: Machine, model: str | None) -> Machine:
    if model is None:
        return machine
    known = architecture(model)
    constants = replace(machine.constants, nvlink=known.nvlink, pcie=known.pcie)
    return replace(machine, constants=constants, model=model)


def _text(name: str, path: str) -> str:
    try:
        return read_text(path)
    except InputError as error:
        if path == STDIN or "/" in name or "." in name:
            raise
        close = get_close_matches(name, NAMES, n=1)
        hint = f"Did you mean {close[0]}?" if close else "See linkwise topology list."
        raise InputError(f"{error} It is no name of the catalogue either. {hint}") from None


def _sentence(error: TopologyError) -> str:
    return f"{str(error).rstrip('.')}."
