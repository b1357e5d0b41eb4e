"""CPU time of processes."""

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu(pid: int) -> float:
    """Return the processor time that a process has taken so far, all its threads together [s].

    See proc(5), `stat`.
    """
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
