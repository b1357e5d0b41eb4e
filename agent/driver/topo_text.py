"""A reading from the texts of `nvidia-smi`, for nodes whose NVML library cannot be loaded."""

import csv
import re

from agent.driver.reading import GPU, DriverError, DriverReading, bus_id_of
from linkwise.topology.constants import architecture
from linkwise.topology.machine import TopologyError
from linkwise.topology.matrix import read_matrix

QUERY = (
    "--query-gpu=index,uuid,pci.bus_id,memory.total,mig.mode.current,driver_version,name",
    "--format=csv,noheader,nounits",
)
"""Arguments for the first text of `read_texts`."""
APPS_QUERY = ("--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader")
"""Arguments for the text of `processes_in`."""

_CUDA = re.compile(r"CUDA(?: DRIVER)? Version\s*:\s*([0-9]{1,3}\.[0-9]{1,3})")
_COLUMNS = 7


def read_texts(query: str, topo: str, banner: str) -> DriverReading:
    """Return the reading that three texts describe.

    Args:
        query: Output of `nvidia-smi` with `QUERY`.
        topo: Output of `nvidia-smi topo -m`.
        banner: Output of `nvidia-smi`, for the version of CUDA; may be empty.

    Raises:
        DriverError: The texts are no description of the same GPUs.
    """
    rows = [[cell.strip() for cell in row] for row in csv.reader(query.splitlines()) if row]
    if not rows or any(len(row) != _COLUMNS for row in rows):
        raise DriverError(f"nvidia-smi lists no GPUs, but {query.strip()[:120]!r}")
    try:
        machine = read_matrix(topo, model=_known(rows[0][-1]))
    except TopologyError as error:
        raise DriverError(f"`nvidia-smi topo -m`: {error}") from error
    if machine.n != len(rows):
        raise DriverError(f"nvidia-smi lists {len(rows)} GPUs, its matrix has {machine.n}")
    cuda = _CUDA.search(banner)
    return DriverReading(
        driver=rows[0][5],
        cuda=cuda[1] if cuda else "",
        gpus=tuple(_gpu(i, row, machine.gpus[i].numa) for i, row in enumerate(rows)),
        levels=machine.levels,
        links=machine.links,
        switched=machine.switched,
        warnings=(*machine.warnings, "read from the text of nvidia-smi: NVML is missing"),
    )


def processes_in(text: str, gpus: tuple[GPU, ...]) -> tuple[tuple[int, int], ...]:
    """Return the GPU index and the process id of each line of `nvidia-smi` with `APPS_QUERY`."""
    index = {gpu.uuid: gpu.i for gpu in gpus}
    found = re.findall(r"^\s*(\S{1,80}),\s*([0-9]{1,10})\s*$", text, re.MULTILINE)
    return tuple((index[uuid], int(pid)) for uuid, pid in found if uuid in index)


def _known(model: str) -> str | None:
    """Return a model whose number of NVLinks is known, or None."""
    try:
        architecture(model)
    except TopologyError:
        return None
    return model


def _gpu(i: int, row: list[str], numa: int) -> GPU:
    _, uuid, bus_id, memory, mig, _, model = row
    return GPU(
        i=i,
        uuid=uuid,
        bus_id=bus_id_of(bus_id),
        model=model,
        memory=int(memory) << 20 if re.fullmatch("[0-9]{1,9}", memory) else 0,
        numa=numa if numa >= 0 else None,
        mig=mig == "Enabled",
    )
