"""Jobs of Philly, Microsoft, as its own JSON: `cluster_job_log` of `msr-fiddle/philly-traces`.

M. Jeon et al., USENIX ATC 2019; keys are those of its README. As in its notebook, a job has the
GPUs of its first attempt, and runs from the start of the first to the end of the last one. The
servers of an attempt are the choice of Philly's scheduler, so that they are not read.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from linkwise.manifest.value import InputError
from linkwise.replay.job import FOREVER, Job
from linkwise.replay.traces.format import GPUS_MAX, NEVER_RAN, NOT_SUBMITTED, LeftOut, TraceFormat
from linkwise.replay.traces.gangs import PHILLY, workers
from linkwise.replay.traces.table import Row

_JOB_MAX = 1 << 20
"""Characters of a job."""
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}]')
"""A string, in which braces do not count, or a brace."""
_BETWEEN = " \t\r\n,[]"


class _Server(msgspec.Struct, frozen=True):
    gpus: list[str]


class _Attempt(msgspec.Struct, frozen=True):
    start_time: str | None = None
    end_time: str | None = None
    detail: list[_Server] = []


class _Record(msgspec.Struct, frozen=True):
    jobid: str
    submitted_time: str | None
    attempts: list[_Attempt]


class _Text(NamedTuple):
    line: int
    """The line where it ends."""
    json: str


def records(lines: Iterable[str], file: str, _columns: Sequence[str]) -> Iterator[Row]:
    """Yield the jobs of a JSON list, each as one row.

    Raises:
        InputError: The text is no list of jobs, or a job is incomplete, wrong or too long.
    """
    decode = msgspec.json.Decoder(_Record).decode
    for text in _objects(lines, file):
        try:
            record = decode(text.json)
        except (msgspec.DecodeError, RecursionError) as error:
            problem = f"the job that ends here is wrong: {error}"
            raise InputError(f"{file}:{text.line}: {problem}.") from None
        attempts = record.attempts or [_Attempt()]
        fields = {
            "jobid": record.jobid,
            "submitted_time": record.submitted_time or "",
            "start_time": attempts[0].start_time or "",
            "end_time": attempts[-1].end_time or "",
            "gpus": str(sum(len(server.gpus) for server in attempts[0].detail)),
        }
        yield Row(file, text.line, fields)


def _objects(lines: Iterable[str], file: str) -> Iterator[_Text]:
    """Yield the text of each object of a JSON list."""
    number, depth, size, last = 0, 0, 0, ""
    parts: list[str] = []
    for number, line in enumerate(lines, start=1):
        begin = end = 0
        for token in _TOKEN.finditer(line):
            brace = token[0]
            if brace == "{":
                if not depth:
                    _require_between(line[end : token.start()], file, number)
                    begin = token.start()
                depth += 1
            elif brace == "}" and depth:
                depth -= 1
                if not depth:
                    end = token.end()
                    yield _Text(number, "".join([*parts, line[begin:end]]))
                    parts, size = [], 0
        if depth:
            parts.append(line[begin:])
            size += len(line)
            if size > _JOB_MAX:
                raise InputError(f"{file}:{number}: a job of more than {_JOB_MAX:,} characters.")
        else:
            _require_between(line[end:], file, number)
            last = line.rstrip()[-1:] or last
    if depth or last != "]":
        raise InputError(f"{file}:{number}: the list of jobs does not end. Is the file complete?")


def _require_between(text: str, file: str, line: int) -> None:
    if other := text.strip(_BETWEEN):
        raise InputError(f"{file}:{line}: {other[:40]!r} is no job; a list of objects is expected.")


def _read(row: Row) -> Job | LeftOut:
    submit, start, end = (row.time(f"{name}_time") for name in ("submitted", "start", "end"))
    if submit is None or start is None:
        return NOT_SUBMITTED if submit is None else NEVER_RAN
    shape = workers(row.whole("gpus", GPUS_MAX), 0)
    if isinstance(shape, LeftOut):
        return shape
    # A last attempt without an end still ran when the log was written.
    duration = FOREVER if end is None else max(0.0, end - start)
    return Job(row.text("jobid") or f"line-{row.line}", submit, duration, shape)


PHILLY_JSON = TraceFormat(
    "philly-json",
    PHILLY.title,
    "msr-fiddle/philly-traces, cluster_job_log",
    ("jobid", "submitted_time", "attempts"),
    _read,
    rows=records,
)
