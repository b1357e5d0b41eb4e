"""Build the programs of a control plane, of others, of a chart and of a node, where missing.

Run as `python -m controlplane.build`, or with `core` for those of a control plane alone. Without Go
nothing is built, and the tests that need the programs are skipped. The programs of a node are built
where one can run.
"""

import sys

from controlplane.binaries import (
    BuildError,
    MissingError,
    binaries,
    node_binaries,
)
from controlplane.chart_programs import chart_binaries
from controlplane.node.machine import unavailable
from controlplane.other_programs import (
    autoscaler_binaries,
    cert_manager_binaries,
    other_binaries,
)


def main(*, core: bool) -> int:
    """Build all, or only the programs of a control plane; return the exit code."""
    try:
        binaries(_say)
        if core:
            return 0
        other_binaries(_say)
        chart_binaries(_say)
        autoscaler_binaries(_say)
        cert_manager_binaries(_say)
        if reason := unavailable():
            _say(f"programs of a node are not built: {reason}")
        else:
            node_binaries(_say)
    except MissingError as missing:
        print(missing)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main(core=sys.argv[1:] == ["core"]))
