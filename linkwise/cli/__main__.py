"""The process of the `linkwise` command: each failure is one line and an exit code.

The command is imported when it runs, after `main` has switched garbage collection off.
"""

import gc
import io
import os
import shlex
import signal
import sys
from contextlib import redirect_stdout, suppress
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import typer


def run(arguments: list[str], name: str = "linkwise") -> int:
    """Run a command line; return its exit code. A failure is one line on standard error."""
    from linkwise.cli.output_options import split_short_options
    from linkwise.cli.root import app
    from linkwise.manifest.value import InputError
    from linkwise.views.output.printer import EXIT_UNREADABLE, complain, sentence

    try:
        words = list(split_short_options(arguments))
        code = app(words, prog_name=name, standalone_mode=False, color=_colour())
        sys.stdout.flush()
    except InputError as error:
        complain(str(error))
    except _usage_errors() as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else name
        complain(f"{sentence(_problem(error))} See {command} --help.")
    except OSError as error:
        complain(f"the answer cannot be written: {error.strerror or error}. Name another place.")
    except ModuleNotFoundError as error:
        complain(
            f"the Python package {error.name} is not installed. Install the command again: "
            "pip install --force-reinstall linkwise"
        )
    except Exception as error:  # noqa: BLE001 - users get a line, not a traceback
        problem = f"{type(error).__name__}: {error}".partition("\n")[0]
        complain(
            f"internal error: {problem}. Please report it, with the command line and its files."
        )
    else:
        return int(code or 0)
    return EXIT_UNREADABLE


def _colour() -> bool | None:
    """Return whether output has colour; None: only on a terminal. `NO_COLOR` takes precedence."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return False if os.environ.get("TERM") == "dumb" else None


def _usage_errors() -> "type[typer.BadParameter]":
    """Return the class of all errors of a command line: in old versions of typer it is click's."""
    import typer

    return cast("type[typer.BadParameter]", typer.BadParameter.__base__)


def _problem(error: "typer.BadParameter") -> str:
    """Return the problem of a command line, without the prefix of the library's validator."""
    return " ".join(error.format_message().split()).replace("Value error, ", "")


def main() -> None:
    """Run the command line of this process."""
    # A closed pipe, as by `head`, ends the process without a message, like other programs.
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    # Plugins of pydantic, of which none is ours, are searched in all installed packages.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # A command runs for less than a second; garbage collection would take a tenth of it.
    gc.disable()
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")
    is_plugin = sys.argv[0].endswith("kubectl-linkwise")
    sys.exit(run(sys.argv[1:], "kubectl linkwise" if is_plugin else "linkwise"))


def complete() -> None:
    """Complete a word of `kubectl linkwise`, for kubectl: its last argument is the word so far.

    A line for each completion, then `:4`; or `:0`, for which the shell completes file names.
    """
    from linkwise.cli.root import app

    words = ["linkwise", *(sys.argv[1:] or [""])]
    os.environ |= {
        "_LINKWISE_COMPLETE": "complete_bash",
        "COMP_WORDS": shlex.join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    written = io.StringIO()
    with redirect_stdout(written), suppress(SystemExit):
        app(prog_name="linkwise")
    found = written.getvalue()
    sys.stdout.write(f"{found.rstrip()}\n:4\n" if found.strip() else ":0\n")


if __name__ == "__main__":
    main()
