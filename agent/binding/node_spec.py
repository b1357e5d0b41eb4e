"""NVIDIA's CDI specification of this node: found in the CDI folders, else generated."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from agent.binding.cdi_spec import Spec, SpecError, parse_spec
from agent.binding.gpu_edits import problem_of
from agent.binding.names import is_ours
from agent.binding.spec_files import read_file
from agent.driver.reading import DriverReading
from agent.host.command import host_command
from agent.host.program import run_program
from linkwise.cluster.keys import NVIDIA_CDI_KIND
from linkwise.runtime.process.backoff import Backoff

_log = structlog.get_logger()
_SUFFIXES = (".json", ".yaml")
_PATH = (
    "/usr/local/nvidia/toolkit:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    ":/run/current-system/sw/bin"
)


@dataclass(frozen=True, slots=True)
class Toolkit:
    """NVIDIA's `nvidia-ctk` on the node."""

    host_root: Path
    """Root of the node's file system, as this process sees it."""
    output: Path
    """File that it writes, as the node sees it. Outside of CDI folders: two files there that define
    one device make it unusable."""
    program: str = "nvidia-ctk"
    """Name or path on the node."""
    timeout: float = 30
    """[s]"""

    @property
    def file(self) -> Path:
        """The output, as this process sees it."""
        return self.host_root / self.output.relative_to("/")

    async def generate(self) -> str | None:
        """Write the output; return why that failed, or None."""
        words = (self.program, "cdi", "generate", f"--output={self.output}")
        command = host_command(self.host_root, words)
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            return f"{self.program} cannot write {self.file}: {error}"
        result = await run_program(command, {"PATH": _PATH}, "", self.timeout)
        last = result.output.strip().splitlines()[-1:]
        if result.problem and last:
            return f"{self.program} failed: {last[0][:300]}"
        return result.problem


class NodeSpec:
    """NVIDIA's CDI specification that fits the driver, or the reason why there is none."""

    def __init__(self, folders: Sequence[Path], toolkit: Toolkit, backoff: Backoff) -> None:
        """Read nothing yet.

        Args:
            folders: CDI folders of the node, as this process sees them.
            toolkit: It generates a specification if none in the folders fits.
            backoff: Delays the next generation after one without success, by the reading.
        """
        self._folders, self._toolkit, self._backoff = folders, toolkit, backoff
        self._cache: dict[Path, tuple[tuple[int, int, int], Spec | str]] = {}
        self.spec: Spec | None = None
        self.reason: str = "NVIDIA's CDI specification has not been searched yet"
        """Why there is no specification: problem and remedy, for people."""
        self.searched = False

    async def refresh(self, reading: DriverReading) -> None:
        """Find a specification that fits a reading of the driver; generate one if none does.

        Never raises. A generation without success is repeated for another reading, or after the
        backoff.
        """
        spec, problems = await asyncio.to_thread(self._find, reading)
        if spec is None:
            problem = await self._generate(reading)
            if problem is None:
                spec, problems = await asyncio.to_thread(self._find, reading)
            problems += [problem] if problem else []
        reason = "" if spec else _reason(self._folders, problems)
        if spec:
            self._backoff.reset(reading)
        elif reason != self.reason:
            _log.warning("No CDI specification of NVIDIA", reason=reason)
        self.spec, self.reason, self.searched = spec, reason, True

    async def _generate(self, reading: DriverReading) -> str | None:
        if reading in self._backoff:
            return self._backoff.reason(reading)
        problem = await self._toolkit.generate()
        # It may also have written one that does not fit.
        self._backoff.start(reading, problem or "")
        return problem

    def _find(self, reading: DriverReading) -> tuple[Spec | None, list[str]]:
        """Return the newest specification that fits, and the problems of the others."""
        problems = []
        self._cache = dict(self._read())
        newest_first = sorted(self._cache.items(), key=lambda item: item[1][0], reverse=True)
        for path, (_, spec) in newest_first:
            if isinstance(spec, str):
                problems.append(f"{path}: {spec}")
            elif spec.kind == NVIDIA_CDI_KIND:
                problem = problem_of(spec, reading)
                if problem is None:
                    return spec, []
                problems.append(f"{path}: {problem}")
        return None, problems

    def _read(self) -> Iterator[tuple[Path, tuple[tuple[int, int, int], Spec | str]]]:
        for path in self._files():
            try:
                status = path.stat()
                version = (status.st_mtime_ns, status.st_size, status.st_ino)
                known = self._cache.get(path)
                yield path, known if known and known[0] == version else (version, _parse(path))
            except OSError as error:
                _log.warning("Unreadable CDI file", file=str(path), reason=str(error))

    def _files(self) -> Iterator[Path]:
        if self._toolkit.file.exists():
            yield self._toolkit.file
        for folder in dict.fromkeys(self._folders):
            if folder.is_dir():
                for path in folder.iterdir():
                    if path.suffix in _SUFFIXES and not is_ours(path.name):
                        yield path


def _parse(path: Path) -> Spec | str:
    try:
        return parse_spec(read_file(path))
    except SpecError as error:
        return str(error)


def _reason(folders: Sequence[Path], problems: Sequence[str]) -> str:
    searched = ", ".join(map(str, folders))
    detail = "; ".join(problem[:500] for problem in problems[:4])
    return (
        f"no CDI specification of {NVIDIA_CDI_KIND} in {searched} fits the driver ({detail}): "
        "install NVIDIA's container toolkit, or write one with "
        "`nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"
    )
