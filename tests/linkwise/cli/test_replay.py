import copy
import json
import multiprocessing
import re
import signal
import sys
from collections import Counter
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest

from linkwise.cli.schema import KINDS
from tools.bench.traces import openb_lines

NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(
    f"n{i},96000,786432,{gpus},G2\n" for i, gpus in enumerate((8, 4, 2, 0))
)
CLUSTER = """\
apiVersion: linkwise.dev/v1alpha1
kind: Cluster
nodes:
- {name: gpu, count: 2, machine: dgx1-v100, mode: topology, used: [{gpu: 0}]}
- {name: plain}
"""


@pytest.fixture
def replay(linkwise, write, monkeypatch):
    """Replays a synthetic trace on three nodes with GPUs, in this process."""
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    write("pods.csv", "".join(openb_lines(150, seed=3)))
    write("nodes.csv", NODES)
    write("cluster.yaml", CLUSTER)

    def call(*arguments, fleet="nodes.csv"):
        return linkwise("replay", "pods.csv", "--fleet", fleet, *arguments)

    return call


class Tags(HTMLParser):
    """Counts elements, and finds those that are not closed."""

    def __init__(self):
        super().__init__()
        self.count, self.open = Counter(), []

    def handle_starttag(self, tag, _):
        self.count[tag] += 1
        if tag not in {"meta", "input"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def without_times(document):
    """Return a document without the figures that depend on the machine."""
    kept = copy.deepcopy(document)
    for policy in kept["policies"]:
        for run in policy["runs"]:
            del run["seconds"], run["decisions_per_second"]
    return kept


def closed(schema):
    for definition in schema["$defs"].values():
        if "properties" in definition:
            definition["additionalProperties"] = False
    return schema


@pytest.mark.parametrize("more", [(), ("--until", "full"), ("--load", "0.8", "--until", "10m")])
def test_the_document_follows_its_schema_and_the_seed(replay, more):
    arguments = ("-o", "json", "--seeds", "2", "--policies", "linkwise,random", *more)
    ran = replay(*arguments)

    assert (ran.code, ran.err) == (0, "")
    document = json.loads(ran.out)
    jsonschema.validate(document, closed(KINDS["Replay"]()))
    assert document["trace"]["format"] == "openb"
    assert document["fleet"] == {"nodes": 3, "gpus": 14, "shared": True}
    assert [p["policy"] for p in document["policies"]] == ["linkwise", "random"]
    assert [run["seed"] for run in document["policies"][0]["runs"]] == [0, 1]
    assert without_times(json.loads(replay(*arguments).out)) == without_times(document)


def test_several_processes_find_the_same_as_one(replay, monkeypatch):
    arguments = ("-o", "json", "--seeds", "2", "--policies", "best-fit")
    one = json.loads(replay(*arguments).out)
    monkeypatch.setattr("os.cpu_count", lambda: 2)

    assert without_times(json.loads(replay(*arguments).out)) == without_times(one)


def test_the_table_has_a_line_for_each_policy(replay):
    ran = replay("--policies", "linkwise,best-fit")

    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0].startswith("Alibaba, GPU sharing, 2023: 137 jobs, over 0.4 hours; 3 nodes")
    assert lines[1] == "left out: 13 lines without GPUs"
    assert [line.split()[0] for line in lines[3:6]] == ["POLICY", "linkwise", "best-fit"]


@pytest.mark.parametrize("more", [(), ("--until", "full")])
def test_the_page_has_tables_and_a_chart_of_each_policy(replay, more):
    ran = replay("-o", "html", "--policies", "linkwise,best-fit", "--seeds", "2", *more)

    assert (ran.code, ran.err) == (0, "")
    parser = Tags()
    parser.feed(ran.out)
    charts = 2 if more else 3
    assert parser.count["figure"] == 2 * charts
    # A curve of each seed.
    assert parser.count["polyline"] == 2 * 2 * charts
    assert parser.open == []
    assert "linkwise replay pods.csv --fleet nodes.csv" in ran.out
    assert "nan" not in ran.out


@pytest.fixture
def gfs(linkwise, write):
    """Replays a job of high priority that needs the GPUs of a spot job."""
    header = "job_name,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type"
    write("jobs.csv", f"{header}\n1,A10,8,8,1,0,7200,Spot\n2,A10,8,8,1,3600,60,HP\n")
    write("fleet.csv", "node_name,gpu_model,gpu_capacity_num,cpu_num\n0,A10,8,64\n")
    return lambda *options: linkwise("replay", "jobs.csv", "--fleet", "fleet.csv", *options)


def test_evictions_are_in_the_document_and_on_the_page(gfs):
    document = json.loads(gfs("-o", "json", "--policies", "linkwise,best-fit").out)

    jsonschema.validate(document, closed(KINDS["Replay"]()))
    ours, other = (policy["runs"][0] for policy in document["policies"])
    assert (ours["evictions"], ours["gpu_seconds_lost"]) == (1, 8 * 3600)
    assert ours["high_priority_wait"] == {"jobs": 1, "mean": 0, "longest": 0}
    assert (other["evictions"], other["high_priority_wait"]["mean"]) == (0, 3600)
    assert '<th scope="col">GPU hours lost</th>' in gfs("-o", "html").out


def test_quietly_only_the_tables_are_shown(replay):
    assert replay("-q", "--policies", "best-fit").out.startswith("POLICY ")


@pytest.mark.parametrize(
    ("fleet", "nodes", "split"),
    [("cluster.yaml", 2, None), ("3xdgx-a100", 3, None), ("3xdgx-a100/2", 3, 0)],
    ids=["file", "machines", "racks"],
)
def test_other_fleets(replay, fleet, nodes, split):
    ran = replay("-o", "json", "--policies", "best-fit", fleet=fleet)

    assert ran.err == ""
    document = json.loads(ran.out)
    assert document["fleet"] == {"nodes": nodes, "gpus": 8 * nodes, "shared": True}
    assert document["policies"][0]["runs"][0]["split_over_domains"] == split


@pytest.fixture
def interrupt(monkeypatch):
    """Presses Ctrl-C when so many jobs have arrived; 137 are one run."""

    def after(jobs):
        @contextmanager
        def bar(*_):
            arrived = 0

            def advance(more):
                nonlocal arrived
                arrived += more
                if arrived >= jobs:
                    raise KeyboardInterrupt

            yield advance

        monkeypatch.setattr("linkwise.cli.replay.progress_bar", bar)

    yield after
    monkeypatch.undo()


def test_an_interrupt_shows_what_is_there(replay, interrupt):
    interrupt(150)
    ran = replay("-o", "json", "--policies", "best-fit,random")

    assert (ran.code, ran.err) == (
        1,
        "linkwise: interrupted: only the runs that were done are shown.\n",
    )
    document = json.loads(ran.out)
    assert document["complete"] is False
    assert [policy["policy"] for policy in document["policies"]] == ["best-fit"]


def test_processes_leave_an_interrupt_to_the_one_that_started_them(replay, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    handler, ignored = signal.getsignal(signal.SIGINT), []

    @contextmanager
    def bar(*_):
        yield observe

    def observe(_):
        assert signal.getsignal(signal.SIGINT) is handler
        for child in multiprocessing.active_children():
            status = Path(f"/proc/{child.pid}/status").read_text(encoding="utf-8")
            mask = next(line for line in status.splitlines() if line.startswith("SigIgn"))
            ignored.append(int(mask.split()[1], 16) >> (signal.SIGINT - 1) & 1)

    monkeypatch.setattr("linkwise.cli.replay.progress_bar", bar)
    assert replay("--policies", "best-fit,random").code == 0
    assert ignored
    assert all(ignored)


@pytest.mark.parametrize("output", ["table", "json", "html"])
def test_an_interrupt_before_the_first_run_shows_no_policy(replay, interrupt, output):
    interrupt(1)
    ran = replay("-o", output, "--policies", "best-fit")

    assert ran.code == 1
    assert ran.out


@pytest.mark.parametrize(
    ("processes", "more"),
    [(1, ()), (2, ()), (1, ("--until", "full")), (1, ("--until", "10m"))],
)
def test_the_bar_counts_the_jobs_of_all_runs(replay, monkeypatch, processes, more):
    monkeypatch.setattr("os.cpu_count", lambda: processes)
    totals, arrived = [], []

    @contextmanager
    def bar(_, total):
        totals.append(total)
        yield arrived.append

    monkeypatch.setattr("linkwise.cli.replay.progress_bar", bar)
    ran = replay("-o", "json", "--policies", "best-fit,random", *more)

    runs = [run for policy in json.loads(ran.out)["policies"] for run in policy["runs"]]
    assert sum(arrived) == sum(run["arrived"] for run in runs)
    assert totals[0] / 3 < sum(arrived) < totals[0] * 3
    assert more or sum(arrived) == totals[0]


def test_runs_that_are_kept_are_not_repeated(replay, interrupt, tmp_path):
    arguments = ("-o", "json", "--seeds", "2", "--policies", "best-fit,random")
    whole = json.loads(replay(*arguments).out)
    interrupt(300)
    assert replay(*arguments, "--append", "runs.jsonl").code == 1
    kept = (tmp_path / "runs.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(kept) == 3

    # The same command carries out the other runs; a third one has nothing left to do.
    interrupt(300)
    ran = replay(*arguments, "--append", "runs.jsonl")
    assert ran.code == 0
    assert without_times(json.loads(ran.out)) == without_times(whole)
    assert (tmp_path / "runs.jsonl").read_text(encoding="utf-8").splitlines()[:3] == kept
    interrupt(0)
    assert replay(*arguments, "--append", "runs.jsonl").out == ran.out


def test_a_policy_is_added_to_those_of_the_file(replay):
    replay("--policies", "best-fit", "--append", "runs.jsonl")
    replay("--policies", "best-fit", "--append", "runs.jsonl", "--load", "0.5")
    ran = replay("--policies", "random", "--append", "runs.jsonl", "-o", "json")

    document = json.loads(ran.out)
    assert [p["policy"] for p in document["policies"]] == ["random", "best-fit"]
    assert [len(p["runs"]) for p in document["policies"]] == [1, 1]
    assert document["load"] is None


def _other_line(text, number, old, new):
    lines = text.splitlines()
    assert old in lines[number]
    lines[number] = lines[number].replace(old, new)
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[: len(text) // 2], "runs.jsonl:2: this is no line of a file of --app"),
        (lambda _: "name,cpu\n", "runs.jsonl:1: this is no line of a file of --append: JSON is "),
        (lambda text: _other_line(text, 0, '"version":"', '"version":"9'), "runs.jsonl:1: its ru"),
        (lambda text: _other_line(text, 1, '"seed":0', '"seed":"x"'), "runs.jsonl:2: this is no"),
        (lambda text: _other_line(text, 1, '">8"', '"9"'), "runs.jsonl:2: this is no line of a "),
        (lambda text: _other_line(text, 1, '">8"', '"1"'), "runs.jsonl:2: this is no line of a "),
        (lambda _: "[" * 100_000, "runs.jsonl:1: this is no line of a file of --append"),
    ],
    ids=["cut", "other", "version", "type", "size", "sizes", "deep"],
)
def test_a_file_that_has_no_runs_is_refused_and_kept(replay, write, tmp_path, change, message):
    replay("--policies", "best-fit", "--append", "runs.jsonl")
    text = change((tmp_path / "runs.jsonl").read_text(encoding="utf-8"))
    write("runs.jsonl", text)

    ran = replay("--policies", "best-fit", "--append", "runs.jsonl")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"linkwise: {message}")
    assert (tmp_path / "runs.jsonl").read_text(encoding="utf-8") == text


def test_runs_of_another_trace_or_fleet_are_refused(replay, write):
    kept = ("--policies", "best-fit", "--append", "runs.jsonl")
    replay(*kept)
    for fleet in ("cluster.yaml", "3xdgx-a100"):
        ran = replay(*kept, fleet=fleet)
        assert ran.code == 2
        assert ran.err.startswith("linkwise: runs.jsonl:1: its runs are of another fleet.")

    write("pods.csv", "".join(openb_lines(150, seed=4)))
    assert "its runs are of another trace." in replay(*kept).err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("-", "--append: runs are kept in a file; name one instead of a pipe."),
        ("none/runs.jsonl", "none/runs.jsonl: no such file or directory"),
        (".", ".: is a directory"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_runs(replay, name, message):
    ran = replay("--policies", "best-fit", "--append", name)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"linkwise: {message}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policies", "best-fitt"), "--policies: 'best-fitt' is not known. Did you mean best-"),
        (("--policies", ","), "--policies names none; known are linkwise, "),
        (("--until", "soon"), "--until is 'soon'; write a time such as 12h or 7d, or full."),
        (("--until", "full", "--load", "1"), "--load: jobs that never end offer no load;"),
    ],
)
def test_wrong_options(replay, arguments, message):
    ran = replay(*arguments)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"linkwise: {message}")


OWN = """
from linkwise.replay.policies.policy import PodByPod, lowest_indices

def first(_):
    return PodByPod(lambda view, shape, rows: int(rows[0]), lowest_indices)

def raises(_):
    return PodByPod(lambda view, shape, rows: int(rows[1000]), lowest_indices)

class Twice:
    def __init__(self, _):
        self.known = None

    def place(self, snapshot, shape, members):
        self.known = self.known or first(None).place(snapshot, shape, members)
        return self.known

def nothing(_):
    return None
"""


@pytest.fixture
def own(replay, write, monkeypatch):
    """Replays a policy of a module in the current directory."""
    monkeypatch.setattr(sys, "path", sys.path.copy())
    write("own_policies.py", OWN)
    write("own_broken.py", "1 / 0")
    return lambda name, *more: replay("--policies", name, "-o", "json", *more)


def test_a_policy_of_ones_own_runs_in_several_processes(own, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    ran = own("own_policies:first", "--seeds", "2")

    assert (ran.code, ran.err) == (0, "")
    (policy,) = json.loads(ran.out)["policies"]
    assert policy["policy"] == "own_policies:first"
    assert [run["started"] for run in policy["runs"]] == [137, 137]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:first", r"'nowhere' cannot be imported: ModuleNotFoundError\("),
        (":first", "'' cannot be imported: ValueError"),
        ("own_broken:first", "'own_broken' cannot be imported: ZeroDivisionError"),
        ("own_policies:second", "/.*/own_policies.py has no function 'second'"),
        ("own_policies:OWN", "/.*/own_policies.py has no function 'OWN'"),
        ("sys:nothing", "module 'sys' has no function 'nothing'"),
        ("own_policies:nothing", "own_policies:nothing returns a NoneType, which has no method"),
        ("own_policies:raises", r"own_policies:raises failed at /.*/own_policies.py:8: IndexErr"),
        ("own_policies:Twice", "own_policies:Twice failed: LedgerError"),
    ],
)
def test_what_is_no_policy_is_refused(own, name, message):
    ran = own(name)

    assert (ran.code, ran.out) == (2, "")
    assert re.match(f"linkwise: --policies: {message}", ran.err)


@pytest.mark.parametrize(
    ("trace", "fleet", "message"),
    [
        ("none.csv", "nodes.csv", "none.csv: no such file or directory"),
        ("-", "nodes.csv", "a trace is read once for each run"),
        ("nodes.csv", "nodes.csv", "nodes.csv:1: these are not the columns of a known trace. K"),
        ("pods.csv", "none.csv", "none.csv: no such file or directory"),
        ("pods.csv", "5xdgx9", "dgx9: no such file or directory"),
        ("pods.csv", "empty.csv", "empty.csv"),
        ("cut.csv", "nodes.csv", "cut.csv:3: 3 fields, but the header has 11"),
        ("binary.csv", "nodes.csv", "binary.csv:1: this is no UTF-8 text"),
        ("long.csv", "nodes.csv", "long.csv:1: a line of more than 65,536 characters"),
    ],
)
def test_wrong_files(linkwise, write, trace, fleet, message):
    lines = list(openb_lines(5))
    write("pods.csv", "".join(lines))
    write("cut.csv", "".join(lines[:2]) + "pod-9,4000,1")
    write("long.csv", "x" * 70_000)
    write("binary.csv", "").write_bytes(b"\xff\xfe\x00")
    write("nodes.csv", NODES)
    write("empty.csv", "")

    ran = linkwise("replay", trace, "--fleet", fleet)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"linkwise: {message}")


def test_a_fleet_is_required(linkwise, write):
    write("pods.csv", "".join(openb_lines(5)))

    ran = linkwise("replay", "pods.csv")
    assert ran.code == 2
    assert ran.err.startswith("linkwise: no fleet is named. Add --fleet: ")
