"""`python -m fuzz.once TARGET FILE`: runs a target on one input, and tells how long it took [s].

Of the processor, and without counting what code is reached, which doubles the time.
"""

import sys
import time
from pathlib import Path

from fuzz.targets import TARGETS


def main(name: str, path: Path) -> None:
    """Run the target; what it raises is raised."""
    data = path.read_bytes()
    began = time.process_time()
    TARGETS[name](data)
    print(time.process_time() - began)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
