"""The child process of `linkwise.runtime.process.worker`: it runs jobs in sequence within limits.

Started as `python -m linkwise.runtime.process.worker_process <bytes> <modules>`. It reads frames
from its standard input and writes frames to its standard output: a status byte (answers only), four
bytes of length, the content. A job is a pickled function with its arguments; it returns bytes.
"""

import os
import pickle
import resource
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

READY, DONE, FAILED, NO_MEMORY, TOO_LARGE = b"R", b"D", b"F", b"M", b"L"
LENGTH = 4
"""Size of the field with a frame's length, big-endian [bytes]."""
MAX_RESULT_BYTES = 16 << 20
"""Longest result of a job [bytes]; the parent keeps it in memory."""
_LONGEST_TRACE = 4000
"""Longest traceback that is sent to the parent; its end is kept [characters]."""
_NICE = 5
"""Added to the niceness, so that the parent has priority on a busy processor."""
_STATM = Path("/proc/self/statm")


def main() -> int:
    """Run jobs until the input ends; return the exit code."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Output of a library must not be read as a response.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    growth, *modules = sys.argv[1:]
    for name in modules:
        import_module(name)
    os.nice(_NICE)
    _grow_at_most(int(growth))
    _write(answers, READY, b"")
    while head := sys.stdin.buffer.read(LENGTH):
        status, content = _run_job(sys.stdin.buffer.read(int.from_bytes(head)))
        _write(answers, status, content)
        if status == NO_MEMORY:
            # The process may be in an inconsistent state; the parent starts another one.
            return 1
    return 0


def _run_job(job: bytes) -> tuple[bytes, bytes]:
    try:
        function, arguments = pickle.loads(job)  # noqa: S301 - written by the parent.
        content = function(*arguments)
    except MemoryError:
        return NO_MEMORY, b""
    except Exception:  # noqa: BLE001 - the parent reports it.
        return FAILED, traceback.format_exc()[-_LONGEST_TRACE:].encode(errors="replace")
    return (TOO_LARGE, b"") if len(content) > MAX_RESULT_BYTES else (DONE, content)


def _grow_at_most(growth: int) -> None:
    """Limit the address space to its present size plus `growth` [bytes]; on Linux only."""
    if _STATM.exists():
        used = int(_STATM.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + growth, used + growth))


def _write(answers: BinaryIO, status: bytes, content: bytes) -> None:
    answers.write(status + len(content).to_bytes(LENGTH) + content)
    answers.flush()


if __name__ == "__main__":
    sys.exit(main())
