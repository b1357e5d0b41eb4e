"""Kill processes when the process that started them has ended, for whatever reason.

Reads `+PID` and `-PID` lines from its standard input; when that closes, it kills what is left.
"""

import os
import signal
import sys


def main() -> None:
    """Read the list of processes, and kill them when the pipe is closed."""
    pids: set[int] = set()
    for line in sys.stdin:
        (pids.add if line.startswith("+") else pids.discard)(int(line[1:]))
    for pid in pids:
        # Each leads a group of its own, so that its children go with it.
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


if __name__ == "__main__":
    main()
