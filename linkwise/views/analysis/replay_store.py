"""Keeps the runs of a replay in a file, so that no later command repeats them.

The first line says of what the runs are; each other line is a run.
"""

from dataclasses import dataclass
from importlib.metadata import version
from typing import Self, TypeVar

import msgspec
from msgspec import Struct

from linkwise.manifest.value import InputError
from linkwise.replay.job import FOREVER
from linkwise.replay.measures import Measures, Size
from linkwise.replay.run import Scenario, Task
from linkwise.views.analysis.replay_runs import ReplayInputs, RunResult
from linkwise.views.files.source import STDIN, read_text_if_any, write_text
from linkwise.views.files.trace_file import digest_of

T = TypeVar("T", bound=Struct)


class _Origin(Struct, frozen=True, kw_only=True, tag_field="kind", tag="ReplayRuns"):
    """What all runs of a file have in common."""

    version: str
    """Of Linkwise."""
    trace: str
    """The digest of its lines."""
    fleet: str
    """The digest of its nodes."""


class _Scenario(Struct, frozen=True):
    load: float | None
    fills: bool
    until: float | None
    """[s]; None: all jobs arrive."""

    @classmethod
    def of(cls, scenario: Scenario) -> Self:
        """Return the part of a scenario that is not that of the trace."""
        until = None if scenario.until == FOREVER else scenario.until
        return cls(scenario.load, scenario.fills, until)


class _Run(Struct, frozen=True, kw_only=True):
    policy: str
    seed: int
    scenario: _Scenario
    seconds: float
    measures: Measures

    def __post_init__(self) -> None:
        if set(self.measures.waits) != set(Size):
            raise ValueError("the waiting times of some sizes are missing")


@dataclass(slots=True)
class RunStore:
    """The file of the runs."""

    name: str
    scenario: Scenario
    """Of this command; the file may have runs of others, too."""
    lines: list[str]
    """The text of the file."""
    runs: list[RunResult]
    """The runs of this scenario."""

    def add(self, result: RunResult) -> None:
        """Add a run to the file, which is replaced as a whole.

        Raises:
            InputError: The file cannot be written.
        """
        run = _Run(
            policy=result.task.policy,
            seed=result.task.seed,
            scenario=_Scenario.of(self.scenario),
            seconds=result.seconds,
            measures=result.measures,
        )
        self.lines.append(_line(run))
        self.write()

    def write(self) -> None:
        """Write the file."""
        write_text(self.name, "".join(f"{line}\n" for line in self.lines))


def open_store(name: str, inputs: ReplayInputs) -> RunStore:
    """Return the runs of a file, which is created where there is none.

    Raises:
        InputError: It cannot be read or written, or has runs of another trace, fleet or version.
    """
    if name == STDIN:
        raise InputError("--append: runs are kept in a file; name one instead of a pipe.")
    own = _Origin(
        version=version("linkwise"), trace=digest_of(inputs.reader), fleet=inputs.fleet.digest
    )
    text = read_text_if_any(name)
    lines = (text or "").splitlines() or [_line(own)]
    _require_same(own, _read(lines[0], f"{name}:1", _Origin), name)
    stored = [_read(line, f"{name}:{i}", _Run) for i, line in enumerate(lines[1:], start=2)]
    scenario = _Scenario.of(inputs.scenario)
    runs = [
        RunResult(Task(run.policy, run.seed), run.measures, run.seconds)
        for run in stored
        if run.scenario == scenario
    ]
    store = RunStore(name, inputs.scenario, lines, runs)
    # A file that cannot be written ends the command before its runs, not after the first one.
    store.write()
    return store


def _require_same(own: _Origin, found: _Origin, name: str) -> None:
    for fact in ("version", "trace", "fleet"):
        if getattr(found, fact) != getattr(own, fact):
            other = (
                f"version {found.version} of Linkwise" if fact == "version" else f"another {fact}"
            )
            raise InputError(f"{name}:1: its runs are of {other}. Name another file.")


def _line(value: Struct) -> str:
    return msgspec.json.encode(value).decode()


def _read(line: str, place: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"{place}: this is no line of a file of --append: {error}.") from None
