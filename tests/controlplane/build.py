"""Build the programs of a control plane where they are missing: `python -m controlplane.build`.

Without Go nothing is built, and the tests that need the programs are skipped.
"""

import sys

from controlplane.binaries import BuildError, MissingError, binaries


def main() -> int:
    """Build, and return the exit code."""
    try:
        binaries(lambda line: print(line, flush=True))
    except MissingError as missing:
        print(missing)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
