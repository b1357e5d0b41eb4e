"""The files of our CDI specifications, in a folder that other vendors share."""

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import structlog

from agent.binding.cdi_spec import MAX_BYTES, SpecError
from agent.binding.container_spec import Binding, read_binding
from agent.binding.errors import BindError
from agent.binding.names import file_name, is_ours

_log = structlog.get_logger()
_NEW = ".tmp"
"""Suffix of a file that is being written."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_Version = tuple[int, int, int]


class SpecFiles:
    """One file for each container with GPUs; files of others are never touched."""

    def __init__(self, folder: Path) -> None:
        """Read nothing yet.

        Args:
            folder: A CDI folder of the container runtime; it is created with the first file.
        """
        self._folder = folder
        self._read: dict[str, tuple[_Version, Binding | None]] | None = None
        """By file name; None before the first scan."""

    def bindings(self) -> dict[str, Binding | None]:
        """Return the binding in each of our files by file name; None if it cannot be used.

        Files that a process has not finished, because it was killed, are removed.

        Raises:
            BindError: The folder cannot be read.

        Cost: only changed files are read.
        """
        with self._errors():
            self._read = dict(self._scan(self._read or {}))
        return self.known()

    def known(self) -> dict[str, Binding | None]:
        """Return the bindings of the last scan, with the writes of this process since.

        Raises:
            BindError: There was no scan yet, and the folder cannot be read.

        Cost: no system call.
        """
        if self._read is None:
            return self.bindings()
        return {name: binding for name, (_, binding) in self._read.items()}

    def get(self, device: str) -> Binding | None:
        """Return the binding in the file of a device, or None."""
        return self.bindings().get(file_name(device))

    def write(self, device: str, spec: bytes) -> None:
        """Create or replace the file of a device atomically.

        Raises:
            BindError: It cannot be written.
        """
        path = self._folder / file_name(device)
        # Runtimes read files that end in .json or .yaml.
        new = path.with_suffix(_NEW)
        with self._errors():
            self._folder.mkdir(parents=True, exist_ok=True)
            try:
                new.write_bytes(spec)
                new.replace(path)
            finally:
                new.unlink(missing_ok=True)
            if self._read is not None:
                self._read[path.name] = _version(path.stat()), _read(path)

    def remove(self, file: str) -> None:
        """Remove a file of ours, if it exists.

        Raises:
            BindError: It cannot be removed.
        """
        with self._errors():
            (self._folder / file).unlink(missing_ok=True)
            if self._read is not None:
                self._read.pop(file, None)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            advice = (
                "free space in the file system of"
                if error.errno in _FULL
                else "let the agent write to"
            )
            raise BindError(
                f"the folder of CDI files cannot be used: {error}; {advice} {self._folder}"
            ) from error

    def _scan(
        self, before: Mapping[str, tuple[_Version, Binding | None]]
    ) -> Iterator[tuple[str, tuple[_Version, Binding | None]]]:
        if not self._folder.is_dir():
            return
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.endswith(_NEW) and is_ours(f"{entry.name[: -len(_NEW)]}.json"):
                    with suppress(OSError):
                        Path(entry.path).unlink()
                if is_ours(entry.name):
                    version = _version(entry.stat(follow_symlinks=False))
                    known = before.get(entry.name)
                    if known and known[0] == version:
                        yield entry.name, known
                    else:
                        yield entry.name, (version, _read(Path(entry.path)))


def read_file(path: Path) -> bytes:
    """Return the first `MAX_BYTES` + 1 bytes of a regular file.

    A pipe, whose reader may wait for ever, is not waited for.

    Raises:
        OSError: It cannot be read, or is no regular file.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return file.read(MAX_BYTES + 1)


def _version(status: os.stat_result) -> _Version:
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(path: Path) -> Binding | None:
    try:
        binding = read_binding(read_file(path))
    except (OSError, SpecError) as error:
        _log.warning("Unreadable CDI file", file=str(path), reason=str(error))
        return None
    if file_name(binding.device) != path.name:
        _log.warning("Unreadable CDI file", file=str(path), reason="it is named after other ids")
        return None
    return binding
