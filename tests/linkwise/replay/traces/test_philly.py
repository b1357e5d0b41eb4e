import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkwise.manifest.value import InputError
from linkwise.replay.job import FOREVER, Shape
from linkwise.replay.traces.philly import PHILLY_JSON
from linkwise.replay.traces.read import TraceReader, format_of

DAY = 86_400
"""[s]"""


def an_attempt(start="1970-01-02 00:00:10", end="1970-01-02 00:01:10", servers=(8,)):
    detail = [
        {"ip": f"m{i}", "gpus": [f"gpu{gpu}" for gpu in range(gpus)]}
        for i, gpus in enumerate(servers)
    ]
    return {"start_time": start, "end_time": end, "detail": detail}


def a_job(*attempts, submitted="1970-01-02 00:00:00", **more):
    """Return a job with the keys of the documentation."""
    return {
        "status": "Pass",
        "vc": "ee9e8c",
        "jobid": "application_1",
        "attempts": attempts,
        "submitted_time": submitted,
        "user": "ce2f4c",
        **more,
    }


def reader(text):
    lines = text.splitlines(keepends=True)
    assert format_of(lines[0], "log") is PHILLY_JSON
    return TraceReader("log", lambda: iter(lines), PHILLY_JSON)


def read(text):
    return list(reader(text).jobs(is_sorted=True))


@pytest.mark.parametrize(
    ("attempts", "duration", "shape"),
    [
        ([an_attempt()], 60, Shape(8)),
        ([an_attempt(), an_attempt("x", "1970-01-03 00:00:10", (1,))], DAY, Shape(8)),
        ([an_attempt(servers=(8, 8))], 60, Shape(8, pods=2)),
        # Where its GPUs were is the choice of another scheduler.
        ([an_attempt(servers=(2, 1, 1))], 60, Shape(4)),
        ([an_attempt(end=None)], FOREVER, Shape(8)),
        ([an_attempt(end="None")], FOREVER, Shape(8)),
        ([an_attempt(end="1970-01-02 00:00:00")], 0, Shape(8)),
    ],
    ids=["one", "two", "two servers", "scattered", "no end", "None", "ends before it begins"],
)
def test_a_job_has_the_gpus_of_its_first_attempt_and_the_time_of_all(attempts, duration, shape):
    (job,) = read(json.dumps([a_job(*attempts)], indent=4))

    assert (job.name, job.submit) == ("application_1", DAY)
    assert (job.duration, job.shape) == (duration, shape)


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (a_job(), "without a duration"),
        (a_job(an_attempt(start=None)), "without a duration"),
        (a_job(an_attempt(), submitted=None), "without a submit time"),
        (a_job(an_attempt(servers=())), "without GPUs"),
    ],
    ids=["no attempt", "no start", "not submitted", "no servers"],
)
def test_what_is_no_job_is_counted(job, reason):
    survey = reader(json.dumps([job, a_job(an_attempt())])).survey()

    assert (survey.jobs, survey.left_out) == (1, {reason: 1})


@pytest.mark.parametrize("indent", [None, 0, 4])
def test_any_layout_is_read_and_braces_in_names_do_not_count(indent):
    names = ["}{", '"}', "\\", "][,", "ü"]
    text = json.dumps([a_job(an_attempt(), jobid=name) for name in names], indent=indent)

    assert [job.name for job in read(text)] == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[\n{\n", "log:2: the list of jobs does not end. Is the file complete?"),
        ("[\n", "log:1: the list of jobs does not end."),
        ("[\n{}\n]", "log:2: the job that ends here is wrong: Object missing required field"),
        ('[\n{"jobid": 1}\n]', "log:2: the job that ends here is wrong: Expected `str`"),
        ('[\n{"jobid": x}\n]', "log:2: the job that ends here is wrong: JSON is malformed"),
        ("[\n1, 2\n]", "log:2: '1, 2' is no job; a list of objects is expected."),
        ("[]", "log: there is no job with GPUs in it."),
        ("[\n{" + "\n\n" * (1 << 20), "a job of more than 1,048,576 characters."),
        ('[\n{"vc": ' + "[" * 500_000 + "}\n]", "log:2: the job that ends here is wrong"),
        (json.dumps([a_job(an_attempt(start="noon"))]), "log:1: start_time is 'noon'; a time like"),
    ],
    ids=lambda value: value[:25],
)
def test_a_wrong_text_is_named_with_its_line(text, message):
    with pytest.raises(InputError, match=re.escape(message)):
        reader(text).survey()


def test_a_log_is_read_job_by_job():
    taken = []

    def lines():
        for line in json.dumps([a_job(an_attempt())] * 100, indent=1).splitlines(keepends=True):
            taken.append(line)
            yield line

    next(iter(TraceReader("log", lines, PHILLY_JSON).jobs(is_sorted=True)))
    assert len(taken) < 50


@settings(deadline=None)
@given(st.text(alphabet='[]{}",:\\ \n1au', max_size=60))
def test_any_text_is_read_or_named(text):
    with pytest.raises(InputError, match=r"^log:"):
        reader("[" + text).survey()
