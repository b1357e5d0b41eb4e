"""Ends processes whose starter is gone, however it went.

Reads `+PID` and `-PID` lines from its standard input; when that closes, it kills what is left.
"""

import os
import signal
import sys


def main() -> None:
    """Keep the list, and act when the other end of the pipe is gone."""
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
