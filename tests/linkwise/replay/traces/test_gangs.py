import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkwise.manifest.value import InputError
from linkwise.replay.job import FOREVER, Shape
from linkwise.replay.traces.formats import FORMATS
from linkwise.replay.traces.gangs import GFS, PHILLY
from linkwise.replay.traces.read import TraceReader, fleet_format_of, format_of, read_nodes
from tools.bench.traces import philly_lines

HEADERS = {
    "philly": "timestamp,duration,num_gpus,gpu_time,vc",
    "helios": "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,"
    "duration,queue",
    "acme": "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,"
    "duration,queue,gpu_time",
    "gfs": "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,"
    "duration,job_type",
    "dlrm": "instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,"
    "rdma_limit,memory_request,memory_limit,disk_request,disk_limit,max_instance_per_node,"
    "creation_time,scheduled_time,deletion_time",
}
"""As the documentation of each trace has them; the lines below are written for these tests."""


def read(name, line):
    text = [HEADERS[name] + "\n", line + "\n"]
    known = format_of(text[0], "t.csv")
    assert known.name == name
    reader = TraceReader("t.csv", lambda: iter(text), known)
    jobs = list(reader.jobs(is_sorted=True))
    return jobs[0] if jobs else reader


DAY = 86_400
"""[s]"""


@pytest.mark.parametrize(
    ("name", "line", "submit", "duration", "shape"),
    [
        ("philly", "1970-01-02 00:00:10,60.5,1,60.5,abc", DAY + 10, 60.5, Shape(1)),
        ("philly", "1970-01-02 00:00:10,60.0,8,480.0,abc", DAY + 10, 60, Shape(8)),
        ("philly", "1970-01-02 00:00:10,60.0,64,480.0,abc", DAY + 10, 60, Shape(8, pods=8)),
        ("philly", "1970-01-02 00:00:10,60.0,12,480.0,abc", DAY + 10, 60, Shape(6, pods=2)),
        (
            "helios",
            "7,u1,vc1,16,64,2,COMPLETED,1970-01-02 00:00:00,x,x,90,0",
            DAY,
            90,
            Shape(8, cpu=32_000, pods=2),
        ),
        (
            "acme",
            "8,u1,1,8,128,Other,FAILED,1970-01-02 08:00:00+08:00,1970-01-02 08:00:32+08:00,"
            "1970-01-02 08:02:29+08:00,149,32,936.0",
            DAY,
            117,
            Shape(8, cpu=128_000),
        ),
        (
            "gfs",
            "9,13,A10,20,1,16,3600,41060,Spot",
            3600,
            41_060,
            Shape(1, cpu=20_000, models=frozenset({"A10"}), pods=16),
        ),
        (
            "dlrm",
            "i1,HN,app_0,12,12,1,1,25,25,120.0,120.0,680.0,800.0,8,100.0,101.0,400.0",
            100,
            300,
            Shape(1, cpu=12_000, memory=120 << 30, rdma=25, application="app_0", most_per_node=8),
        ),
        (
            "dlrm",
            "i2,HN,app_0,12,12,1,1,,,120.0,120.0,680.0,800.0,-1,,,",
            0,
            FOREVER,
            Shape(1, cpu=12_000, memory=120 << 30),
        ),
    ],
)
def test_a_line_of_the_documented_format(name, line, submit, duration, shape):
    job = read(name, line)

    assert (job.submit, job.duration, job.shape) == (submit, duration, shape)


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("philly", "1970-01-02 00:00:10,60.0,0,0.0,abc", "without GPUs"),
        ("philly", "1970-01-02 00:00:10,,1,0.0,abc", "without a duration"),
        ("philly", ",60.0,1,0.0,abc", "without a submit time"),
        ("helios", "7,u,v,1,1,2,X,1970-01-02 00:00:00,x,x,90,0", "with more nodes than GPUs"),
        (
            "acme",
            "8,u,1,8,9,Other,CANCELLED,1970-01-02 00:00:00,,1970-01-02 00:00:09,9,9,0",
            "without a duration",
        ),
        ("gfs", "9,13,A10,20,0.5,1,0,41060,HP", "with a part of a GPU"),
        ("gfs", "9,13,,20,0,1,0,41060,HP", "without GPUs"),
        ("dlrm", "i3,CN,app_1,64,64,0,0,1,1,320.0,320.0,2.0,3.0,-1,1.0,1.0,2.0", "without GPUs"),
    ],
)
def test_what_is_no_job_is_left_out(name, line, reason):
    assert [each.reason for each in read(name, line)._each()] == [reason]


def test_a_wrong_time_is_named():
    with pytest.raises(InputError, match=r"t\.csv:2: timestamp is 'yesterday'"):
        read("philly", "yesterday,60.0,1,60.0,abc")


def test_an_amount_beyond_all_reason_is_named():
    line = "i1,HN,app_0,12,12,1,1,25,25,1e14,120.0,680.0,800.0,8,100.0,101.0,400.0"
    with pytest.raises(InputError, match="memory_request is '1e14'; a number to 1,048,576"):
        read("dlrm", line)


def test_nodes_of_the_spot_trace():
    header = "node_name,gpu_model,gpu_capacity_num,cpu_num\n"
    assert fleet_format_of(header) is GFS
    (node,) = read_nodes([header, "3,A100-SXM4-80GB,8,128\n"], "n.csv", GFS)

    assert (node.name, node.gpus, node.model, node.cpu) == ("node-3", 8, "A100-SXM4-80GB", 128_000)


VALUES = ["", "0", "1", "8", "1.5", "-1", "nan", "1e400", "1970-01-02 00:00:00", "0001-01-01", "x"]


@settings(deadline=None, max_examples=300)
@given(known=st.sampled_from(FORMATS), data=st.data())
def test_any_line_is_read_or_named(known, data):
    size, field = len(known.columns), st.one_of(st.sampled_from(VALUES), st.text(max_size=8))
    fields = data.draw(st.lists(field, min_size=size - 1, max_size=size))
    text = [",".join(known.columns) + "\n", ",".join(fields) + "\n"]
    reader = TraceReader("t.csv", lambda: iter(text), known)

    try:
        jobs = list(reader.jobs(is_sorted=False))
    except InputError as error:
        where = str(error)
    else:
        where = "t.csv:"
        assert all(job.shape.gpus >= 1 and job.duration >= 0 for job in jobs)
    assert where.startswith("t.csv:")


@pytest.mark.parametrize(("kind", "priority"), [("HP", 1), ("Spot", 0)])
def test_jobs_of_high_priority_come_before_spot_jobs(kind, priority):
    assert read("gfs", f"9,13,A10,20,1,16,3600,41060,{kind}").shape.priority == priority


@pytest.mark.parametrize("kind", ["", "spot", "Low"])
def test_another_type_of_job_is_refused(kind):
    with pytest.raises(InputError, match=r"t.csv:2: job_type is '.*'; HP or Spot is expected"):
        read("gfs", f"9,13,A10,20,1,16,3600,41060,{kind}")


def test_each_format_has_a_source():
    assert {known.name for known in FORMATS} == {"openb", "philly-json", "history", *HEADERS}
    published = [known for known in FORMATS if known.name != "history"]
    assert all("/" in known.source for known in published)
    assert all(known.columns for known in FORMATS)


def test_the_synthetic_trace_is_in_the_order_of_submit_times_beyond_a_month():
    lines = list(philly_lines(45_000))
    survey = TraceReader("philly.csv", lambda: iter(lines), PHILLY).survey()

    assert survey.is_sorted
    assert survey.span > 31 * 86_400
