"""`linkwise replay`: compares scheduling policies on a trace, on a simulated fleet."""

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from typer import echo

from linkwise.manifest.value import InputError
from linkwise.replay.job import FOREVER
from linkwise.replay.policies.own import is_own
from linkwise.replay.policies.registry import POLICIES, factory_of
from linkwise.replay.run import Scenario, Task
from linkwise.views.analysis.replay_runs import ReplayInputs, ReplayResults, carry_out_all
from linkwise.views.analysis.replay_store import open_store
from linkwise.views.files.trace_file import open_trace, read_fleet
from linkwise.views.output.printer import Format, emit, warn
from linkwise.views.output.progress import progress_bar
from linkwise.views.render import replay_json, replay_text
from linkwise.views.render.page.caption import Caption
from linkwise.views.render.page.replay import replay_page

FULL = "full"
"""The value of `--until` by which jobs never end."""

_SPAN = re.compile(r"([0-9]{1,9})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line."""

    fleet: str | None
    policies: str
    load: float | None
    seeds: int
    until: str | None
    append: str | None

    @property
    def words(self) -> list[str]:
        """The options as they can be typed again."""
        named = {
            "--fleet": self.fleet,
            "--load": self.load,
            "--until": self.until,
            "--append": self.append,
        }
        given = [word for name, value in named.items() if value for word in (name, f"{value}")]
        return [*given, "--policies", self.policies, "--seeds", f"{self.seeds}"]


def show_replay(trace: str, options: Options, output: str, *, clock: float) -> int:
    """Replay a trace and show the comparison; return the exit code.

    Args:
        trace: The file of the trace.
        options: The options.
        output: `table`, `json` or `html`.
        clock: The time [s since 1970].

    Raises:
        InputError: An option, the trace or the fleet is wrong.
    """
    policies, until = _policies(options.policies), _until(options.until)
    if options.until == FULL and options.load is not None:
        raise InputError("--load: jobs that never end offer no load; leave out one of the two.")
    reader = open_trace(trace)
    fleet = read_fleet(options.fleet)
    survey = reader.survey()
    scenario = Scenario(
        shared=survey.has_shares,
        fills=options.until == FULL,
        load=options.load,
        until=until,
    )
    inputs = ReplayInputs(reader, survey, fleet, scenario)
    results = _results(inputs, policies, options)
    if not results.is_complete:
        warn("interrupted: only the runs that were done are shown.")
    if output == "json":
        emit(replay_json.document(inputs, results), Format.JSON)
    elif output == "html":
        caption = Caption(
            ("linkwise", "replay", trace, *options.words), clock, (trace, options.fleet or "")
        )
        echo(replay_page(inputs, results, caption), nl=False)
    else:
        replay_text.show(inputs, results)
    return 0 if results.is_complete else 1


def _results(inputs: ReplayInputs, policies: Sequence[str], options: Options) -> ReplayResults:
    """Carry out the runs that are not done yet."""
    store = open_store(options.append, inputs) if options.append else None
    results = ReplayResults({policy: {} for policy in policies})
    for stored in store.runs if store else ():
        results.add(stored)
    seeds = range(options.seeds)
    wanted = (Task(policy, seed) for seed in seeds for policy in policies)
    tasks = [task for task in wanted if task.seed not in results.runs[task.policy]]
    keep = store.add if store else None
    with progress_bar("Replaying", len(tasks) * inputs.jobs) as advance:
        carry_out_all(inputs, tasks, results, keep, advance)
    return results


def _policies(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError(f"--policies names none; known are {', '.join(POLICIES)}.")
    for name in names:
        if is_own(name):
            _allow_imports_from_here()
            factory_of(name)
        elif name not in POLICIES:
            raise InputError(f"--policies: {name[:40]!r} is not known. {_hint(name, POLICIES)}")
    return list(dict.fromkeys(names))


def _allow_imports_from_here() -> None:
    """Let modules of the current directory be imported, after all others; processes inherit it."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)


def _hint(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"Did you mean {close[0]}?" if close else f"Known are {', '.join(known)}."


def _until(text: str | None) -> float:
    if text is None or text == FULL:
        return FOREVER
    span = _SPAN.fullmatch(text)
    if span is None:
        raise InputError(f"--until is {text[:40]!r}; write a time such as 12h or 7d, or {FULL}.")
    return int(span[1]) * _SECONDS[span[2]]
