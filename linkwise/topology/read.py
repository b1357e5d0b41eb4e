"""Read a machine from `nvidia-smi topo -m` or an NCCL topology file."""

from linkwise.topology.machine import Machine
from linkwise.topology.matrix import read_matrix
from linkwise.topology.nccl import read_nccl


def read_machine(text: str, *, model: str | None = None, partial: bool = False) -> Machine:
    """Read a machine; XML is recognised by its first character.

    Args:
        text: What a file or a clipboard holds.
        model: Product name of the GPUs, which determines speed and number of their NVLinks.
        partial: Of a matrix that is not whole, read the GPUs whose rows are.

    Raises:
        TopologyError: The text is no machine; the message says what is missing and where.
    """
    if text.lstrip("\ufeff \t\r\n").startswith("<"):
        return read_nccl(text.lstrip("\ufeff \t\r\n"), model=model)
    return read_matrix(text, model=model, partial=partial)
