"""Report a package that is not installed in one line; a server imports this module first."""

import sys
from types import TracebackType

_show_traceback = sys.excepthook


def _report(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    if name is None:
        _show_traceback(kind, error, traceback)
        return
    package = name.partition(".")[0]
    sys.stderr.write(
        f"the Python package {package} is not installed. Run the image of Linkwise, or install "
        "what it has: pip install -r requirements/image.txt\n"
    )


sys.excepthook = _report
