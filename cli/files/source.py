"""Reading what people name on the command line: files, and standard input as `-`."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from typer import echo, get_binary_stream

from cli.render.progress import followed
from manifest.objects import objects_in, objects_of_large, values_in
from manifest.value import InputError, Value

STDIN = "-"
MOST_BYTES = 256 * 1024 * 1024
"""Largest file that is read. The objects of a cluster of 5,000 nodes are about 100 MB."""


_MANIFESTS = {".yaml", ".yml", ".json"}
"""As kubectl: what of a folder is read."""
_NAME_ONE = "Write FILE or -f FILE; - is a pipe."


def read_text(name: str) -> str:
    """Return the text of a file, or of standard input for `-`.

    Raises:
        InputError: There is no such file, it cannot be read, or it is no text.
    """
    shown = shown_name(name)
    try:
        raw = get_binary_stream("stdin").read() if name == STDIN else _read_bytes(Path(name))
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


def write_text(name: str | None, text: str) -> None:
    """Write a text to a file whole or not at all, or to standard output where none is named.

    Raises:
        InputError: The file cannot be written.
    """
    if name is None or name == STDIN:
        echo(text, nl=False)
        return
    path = Path(name)
    draft = path.with_name(f".{path.name}.draft")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"{name}: {reason}. Name a file that can be written.") from None


def only_file(*names: str | None) -> str:
    """Return the one file that a command line names, as FILE or with -f.

    Raises:
        InputError: It names none, or two.
    """
    named = [name for name in names if name is not None]
    if len(named) != 1:
        raise InputError(f"{'two files are' if named else 'no file is'} named. {_NAME_ONE}")
    return named[0]


def all_files(names: Iterable[str], *, recursive: bool) -> tuple[str, ...]:
    """Return the files that a command line names, and those of the folders that it names.

    Args:
        names: Files, folders and `-`.
        recursive: Whether folders are read; each with its folders, the files by their names.

    Raises:
        InputError: It names none, or a folder that is not to be read or has no manifests.
    """
    found = [file for name in names for file in _files_of(name, recursive=recursive)]
    if not found:
        raise InputError(f"no file is named. {_NAME_ONE}")
    return tuple(dict.fromkeys(found))


def _files_of(name: str, *, recursive: bool) -> list[str]:
    path = Path(name)
    try:
        if name == STDIN or not path.is_dir():
            return [name]
    except ValueError:
        # A name with a NUL; reading it says so.
        return [name]
    if not recursive:
        raise InputError(f"{name}: is a directory. Add -R to read the manifests in it.")
    files = sorted(str(one) for one in path.rglob("*") if one.suffix in _MANIFESTS)
    if not files:
        raise InputError(f"{name}: no manifest is in this directory. Name one with .yaml or .json.")
    return files


def shown_name(name: str) -> str:
    """Return a file's name as messages show it."""
    return "<stdin>" if name == STDIN else name


def beside(name: str, path: str) -> str:
    """Return a path that a file gives relative to itself."""
    return path if name == STDIN else str(Path(name).parent / path)


def read_values(name: str) -> list[Value]:
    """Return the documents of a YAML or JSON file.

    Raises:
        InputError: As `read_text`, or the text is neither, or there is nothing in it.
    """
    return values_in(read_text(name), shown_name(name))


def read_objects(name: str) -> list[Value]:
    """Return the Kubernetes objects of a file; those of a List one by one.

    Raises:
        InputError: As `read_values`, or something in it is no Kubernetes object.
    """
    return objects_in(read_text(name), shown_name(name))


def stream_objects(name: str) -> Iterator[Value]:
    """Yield the Kubernetes objects of a large file, as `read_objects`, one by one.

    Raises:
        InputError: As `read_objects`.
    """
    return followed(objects_of_large(read_text(name), shown_name(name)), f"Reading {name}")


def _read_bytes(path: Path) -> bytes:
    if path.stat().st_size > MOST_BYTES:
        raise InputError(f"{path}: more than {MOST_BYTES >> 20} MiB. Name a smaller file.")
    return path.read_bytes()
