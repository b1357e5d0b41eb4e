"""The `linkwise` command as a process: each failure is one line, and tells its exit code."""

import gc
import os
import signal
import sys

import typer

from cli.commands.app import app
from cli.commands.conventions import separated
from cli.render.output import complain, sentence
from manifest.value import InputError

EXIT_UNREADABLE = 2
"""Usage, or input that cannot be read."""


def run(arguments: list[str], name: str = "linkwise") -> int:
    """Run one command line; return its exit code. Every failure is one line on standard error."""
    try:
        words = list(separated(arguments))
        code = app(words, prog_name=name, standalone_mode=False, color=_colour())
        sys.stdout.flush()
    except InputError as error:
        complain(str(error))
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else name
        complain(f"{sentence(_problem(error))} See {command} --help.")
    except OSError as error:
        complain(f"the answer cannot be written: {error.strerror or error}. Name another place.")
    except Exception as error:  # noqa: BLE001 - nobody shall see a traceback for an answer
        what = f"{type(error).__name__}: {error}".partition("\n")[0]
        complain(f"internal error: {what}. Please report it, with the command line and its files.")
    else:
        return int(code or 0)
    return EXIT_UNREADABLE


def _colour() -> bool | None:
    """Return False where people want no colour; None: a terminal has it, a pipe has not."""
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None


def _problem(error: typer.TyperException) -> str:
    """Return what is wrong with a command line, without the words of the library's validator."""
    return " ".join(error.format_message().split()).replace("Value error, ", "")


def main() -> None:
    """Run the command line of this process."""
    # A reader that goes away, such as head, ends us as it ends other programs: without a word.
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    # A command lives for a second, of which looking for cycles of garbage would take a tenth.
    gc.disable()
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")
    is_plugin = sys.argv[0].endswith("kubectl-linkwise")
    sys.exit(run(sys.argv[1:], "kubectl linkwise" if is_plugin else "linkwise"))


if __name__ == "__main__":
    main()
