import re

import pytest

from linkwise.manifest.value import InputError
from linkwise.replay.job import FOREVER, Shape
from linkwise.replay.traces.openb import OPENB
from linkwise.replay.traces.read import (
    SORTED_MAX,
    TraceReader,
    fleet_format_of,
    format_of,
    read_nodes,
)
from tools.bench.traces import OPENB_HEADER, openb_lines

POD = "pod-0,4000,15258,1,220,,BE,Running,100,160,110\n"
NODES = "sn,cpu_milli,memory_mib,gpu,model\n"


def reader(*lines, header=OPENB_HEADER):
    return TraceReader("t.csv", lambda: iter([header, *lines]), OPENB)


def jobs(*lines):
    return list(reader(*lines).jobs(is_sorted=True))


def test_a_pod_of_openb():
    (job,) = jobs("pod-0,4000,15258,1,220,V100M16|V100M32,BE,Running,100,160,110\n")

    assert (job.name, job.submit, job.duration) == ("pod-0", 100, 50)
    models = frozenset({"V100M16", "V100M32"})
    assert job.shape == Shape(1, 220, 4000, 15258 << 20, models)


@pytest.mark.parametrize(
    ("line", "shape", "duration"),
    [
        ("p,0,0,8,1000,nan,LS,Running,100,160,\n", Shape(8), 60),
        # gpu_milli of pods with several GPUs is that of each.
        ("p,0,0,2,500,,LS,Running,100,160,100\n", Shape(2), 60),
        ("p,0,0,1,1000,,LS,Running,100,,100\n", Shape(1), FOREVER),
        ("p,0,0,1,1000,,LS,Running,100,90,95\n", Shape(1), 0),
    ],
    ids=["no scheduled time", "several GPUs", "no end", "ends before it begins"],
)
def test_variants(line, shape, duration):
    (job,) = jobs(line)
    assert (job.shape, job.duration) == (shape, duration)


def test_what_is_left_out_is_counted():
    survey = reader(POD, "p,1,1,0,0,,LS,Running,1,2,1\n", "p,1,1,1,9,,LS,Running,,2,1\n").survey()

    assert survey.jobs == 1
    assert survey.left_out == {"without GPUs": 1, "without a submit time": 1}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("p,1,1,1\n", "t.csv:3: 4 fields, but the header has 11. Is the file complete?"),
        ("p,1,1,x,9,,LS,R,1,2,1\n", "t.csv:3: num_gpu is 'x'; a number to "),
        ("p,1,1,1.5,9,,LS,R,1,2,1\n", "t.csv:3: num_gpu is '1.5'; a whole number to 16"),
        ("p,1,1,17,9,,LS,R,1,2,1\n", "t.csv:3: num_gpu is '17'; a whole number to 16"),
        ("p,1,1,1,0,,LS,R,1,2,1\n", "t.csv:3: gpu_milli is 0 for a pod with GPUs"),
        ("p,1,1,1,1001,,LS,R,1,2,1\n", "t.csv:3: gpu_milli is '1001'"),
        ("p,-1,1,1,9,,LS,R,1,2,1\n", "t.csv:3: cpu_milli is '-1'"),
        ("p,1,1,1,9,,LS,R,inf,2,1\n", "t.csv:3: creation_time is 'inf'"),
        ("p,1,1,1,9,,LS,R,1e300,2,1\n", "t.csv:3: creation_time is '1e300'"),
        ('p,1,1,1,9,"' + "x" * 200_000 + '",LS,R,1,2,1\n', "t.csv:3: field larger than"),
        ("p,1,1,1,9," + "x" * 5000 + ",LS,R,1,2,1\n", "t.csv:3: a field is longer"),
    ],
    ids=lambda value: value[:30],
)
def test_a_wrong_line_is_named(line, message):
    with pytest.raises(InputError, match=re.escape(message)):
        reader(POD, line).survey()


def test_missing_columns_are_named():
    with pytest.raises(InputError, match=r"t.csv:1: the columns .*gpu_milli"):
        reader(header="name,num_gpu\n").survey()


def test_an_empty_trace_is_an_error():
    with pytest.raises(InputError, match="there is no job with GPUs"):
        reader().survey()


def test_unsorted_jobs_are_sorted():
    lines = [
        "b,1,1,1,9,,LS,R,200,300,200\n",
        "a,1,1,1,9,,LS,R,100,300,200\n",
        "c,1,1,1,9,,LS,R,200,300,200\n",
    ]
    trace = reader(*lines)
    survey = trace.survey()

    assert (survey.is_sorted, survey.first, survey.last, survey.span) == (False, 100, 200, 100)
    assert [job.name for job in trace.jobs(is_sorted=False)] == ["a", "b", "c"]


def test_too_many_unsorted_jobs_are_an_error(monkeypatch):
    monkeypatch.setattr("linkwise.replay.traces.read.SORTED_MAX", 1)
    lines = ["b,1,1,1,9,,LS,R,200,300,200\n", "a,1,1,1,9,,LS,R,100,300,200\n"]

    with pytest.raises(InputError, match="2 jobs that are not sorted"):
        reader(*lines).survey()
    assert SORTED_MAX > 1


def test_a_sorted_trace_is_read_line_by_line():
    read = []

    def lines():
        for line in openb_lines(5000):
            read.append(line)
            yield line

    trace = TraceReader("t.csv", lines, OPENB)
    next(iter(trace.jobs(is_sorted=True)))
    assert len(read) < 100


def test_the_format_is_recognised_by_its_columns():
    assert format_of("extra, " + OPENB_HEADER.strip(), "t.csv") is OPENB
    with pytest.raises(InputError, match=r"t\.csv:1: these are not the columns of a known trace"):
        format_of("a,b,c", "t.csv")


def test_nodes_of_openb():
    assert fleet_format_of(NODES) is OPENB
    assert fleet_format_of("apiVersion: v1") is None
    lines = [NODES, "n0,32000,262144,0,\n", "n1,96000,786432,8,V100M32\n"]
    (node,) = read_nodes(lines, "n.csv", OPENB)

    assert (node.name, node.gpus, node.model) == ("n1", 8, "V100M32")
    assert (node.cpu, node.memory) == (96_000, 786_432 << 20)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["n,1,1,2,A\n", "n,1,1,2,A\n"], "n.csv:3: there is a node n already"),
        (["n,1,1,0,\n"], "n.csv: there is no node with GPUs"),
        (["n,1,1,17,\n"], "n.csv:2: gpu is '17'"),
    ],
)
def test_wrong_nodes_are_named(lines, message):
    with pytest.raises(InputError, match=re.escape(message)):
        read_nodes([NODES, *lines], "n.csv", OPENB)
