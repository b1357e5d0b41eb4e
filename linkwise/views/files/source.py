"""Reads and writes the files that are named on the command line; `-` is standard input."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath

from linkwise.manifest.objects import objects_in, objects_of_large
from linkwise.manifest.value import InputError, Value
from linkwise.views.files.printed_text import hint_about
from linkwise.views.output.printer import write
from linkwise.views.output.progress import with_progress

STDIN = "-"
DEFAULT_NAMESPACE = "default"
MAX_BYTES = 256 * 1024 * 1024
"""Largest file that is read. The objects of a cluster of 5,000 nodes are about 100 MB."""

LINE_MAX = 1 << 16
"""Longest line of a file that is read line by line [characters]."""

_MANIFESTS = {".yaml", ".yml", ".json"}
"""Files of these kinds are read from a folder, as by kubectl."""
_NAME_ONE = "Write FILE or -f FILE; - is a pipe."


def read_text(name: str) -> str:
    """Return the text of a file, or of standard input for `-`.

    Raises:
        InputError: The file does not exist, cannot be read, or is not text.
    """
    shown = shown_name(name)
    try:
        raw = _read_bytes(name)
    except (OSError, ValueError) as error:
        # A name with a NUL is a ValueError.
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise InputError(
            f"{shown}: {reason}. Name a file that can be read, or - for a pipe."
        ) from None
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{shown}:1: the text is UTF-16. Save it as UTF-8.")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(f"{shown}:{line}: this is no UTF-8 text. Name a text file.") from None
    return text.removeprefix("\ufeff")


def read_text_if_any(name: str) -> str | None:
    """Return the text of a file, or None where there is no file of this name.

    Raises:
        InputError: As `read_text`.
    """
    try:
        Path(name).lstat()
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        pass
    return read_text(name)


def stream_lines(name: str) -> Iterator[str]:
    """Yield the lines of a text file of any size, while it is read.

    Raises:
        InputError: The file cannot be read, is not text, or has a line of more than
            `LINE_MAX` characters.
    """
    shown, number = shown_name(name), 0
    try:
        with Path(name).open(encoding="utf-8-sig", newline="") as file:
            while line := file.readline(LINE_MAX + 1):
                number += 1
                if len(line) > LINE_MAX:
                    problem = f"a line of more than {LINE_MAX:,} characters"
                    raise InputError(f"{shown}:{number}: {problem}. Name a trace.")
                yield line
    except UnicodeDecodeError:
        raise InputError(f"{shown}:{number + 1}: this is no UTF-8 text. Name a trace.") from None
    except (OSError, ValueError) as error:
        # A name with a NUL is a ValueError.
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise InputError(f"{shown}: {reason}. Name a file that can be read.") from None


def write_text(name: str | None, text: str) -> None:
    """Write a text to a file atomically, or to standard output if no file is named.

    A device, a pipe and the target of a link are written in place.

    Raises:
        InputError: The file cannot be written.
    """
    if name is None or name == STDIN:
        write(text)
        return
    path = Path(name)
    try:
        # A rename would replace a device, a pipe or a link by a file.
        if path.is_symlink() or (path.exists() and not path.is_file()):
            path.write_text(text, encoding="utf-8")
        else:
            _replace_text(path, text)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"{name}: {reason}. Name a file that can be written.") from None


@contextmanager
def line_writer(name: str | None) -> Iterator[Callable[[str], None]]:
    """Write lines one by one to a new file, or to standard output if no file is named.

    What was collected for days is never replaced. A file into which the block wrote nothing is
    removed, so that the command can be repeated.

    The block gets the function that writes a line, after which the line is in the file.

    Raises:
        InputError: The file cannot be written.
    """
    if name is None or name == STDIN:
        yield write
        return
    try:
        path = Path(name)
        # A device or a pipe is there before.
        mode = "w" if path.exists() and not path.is_file() else "x"
        with path.open(mode, encoding="utf-8", buffering=1) as file:

            def write_line(line: str) -> None:
                file.write(line)

            try:
                yield write_line
            finally:
                if mode == "x" and file.tell() == 0:
                    path.unlink()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"{name}: {reason}. Name a file that can be written.") from None


def _replace_text(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.draft")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def only_file(*names: str | None) -> str:
    """Return the one file that a command line names, as FILE or by -f.

    Raises:
        InputError: It names none, or several.
    """
    named = [name for name in names if name is not None]
    if len(named) != 1:
        raise InputError(f"{'two files are' if named else 'no file is'} named. {_NAME_ONE}")
    return named[0]


def all_files(
    names: Iterable[str], *, recursive: bool, exclude: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return the files that a command line names, with the manifests of its folders.

    Args:
        names: Files, folders and `-`.
        recursive: Read folders and their subfolders; files are sorted by name.
        exclude: Globs of files and subfolders that are left out.

    Raises:
        InputError: It names no file, a folder without `recursive`, or a folder without manifests;
            or all files are excluded.
    """
    files = [found for name in names for found in _files_of(name, recursive=recursive)]
    if not files:
        raise InputError(f"no file is named. {_NAME_ONE}")
    globs = tuple(exclude)
    kept = [file for file, inner in files if not _matches(inner, globs)]
    if not kept:
        raise InputError(
            f"no file is left: --exclude leaves out all {len(files)}. Name a file that no glob "
            "matches."
        )
    return tuple(dict.fromkeys(kept))


def _matches(path: PurePath, globs: tuple[str, ...]) -> bool:
    """Return whether a glob matches the end of a path, or of one of its parents."""
    try:
        return any(part.match(glob) for glob in globs for part in (path, *path.parents))
    except ValueError:
        raise InputError("--exclude is empty. Write a glob, such as values.yaml.") from None


def _files_of(name: str, *, recursive: bool) -> list[tuple[str, PurePath]]:
    """Return the files of a name; each with the path that globs are compared with."""
    path = Path(name)
    itself = [(name, PurePath("" if name == STDIN else name))]
    try:
        if name == STDIN or not path.is_dir():
            return itself
    except ValueError:
        # A name with a NUL; reading it reports that.
        return itself
    if not recursive:
        raise InputError(f"{name}: is a directory. Add -R to read the manifests in it.")
    found = (file for file in path.rglob("*") if file.suffix in _MANIFESTS and not file.is_dir())
    files = sorted((str(file), PurePath(file.relative_to(path))) for file in found)
    if not files:
        raise InputError(f"{name}: no manifest is in this directory. Name one with .yaml or .json.")
    return files


def shown_name(name: str) -> str:
    """Return a file's name for messages."""
    return "<stdin>" if name == STDIN else name


def beside(name: str, path: str) -> str:
    """Return a path that is relative to the folder of a file."""
    return path if name == STDIN else str(Path(name).parent / path)


def read_readable(names: Sequence[str]) -> tuple[list[Value], list[str]]:
    """Return the Kubernetes objects of files, and why the other files cannot be read."""
    objects: list[Value] = []
    unreadable: list[str] = []
    for name in with_progress(names, "Reading files"):
        try:
            objects += read_objects(name)
        except InputError as error:
            unreadable.append(str(error))
    return objects, unreadable


def read_objects(name: str) -> list[Value]:
    """Return the Kubernetes objects of a file; a List is replaced by its items.

    Raises:
        InputError: As `read_text`, or it is neither YAML nor JSON, is empty, or contains
            something else than Kubernetes objects.
    """
    text = read_text(name)
    try:
        return objects_in(text, shown_name(name))
    except InputError as error:
        raise InputError(f"{error}{hint_about(text)}") from None


def stream_objects(name: str) -> Iterator[Value]:
    """Yield the Kubernetes objects of a large file one by one, with a progress bar.

    Raises:
        InputError: As `read_objects`.
    """
    return with_progress(_objects_or_hint(name), f"Reading {name}")


def _objects_or_hint(name: str) -> Iterator[Value]:
    text = read_text(name)
    try:
        yield from objects_of_large(text, shown_name(name))
    except InputError as error:
        raise InputError(f"{error}{hint_about(text)}") from None


def _read_bytes(name: str) -> bytes:
    """Return the bytes of a file, or of standard input for `-`; also of a device without an end."""
    if name == STDIN:
        from typer import get_binary_stream  # noqa: PLC0415 - servers have no typer

        raw = get_binary_stream("stdin").read(MAX_BYTES + 1)
    else:
        with Path(name).open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise InputError(
            f"{shown_name(name)}: more than {MAX_BYTES >> 20} MiB. Name a smaller file."
        )
    return raw
