import json
import os
import pty
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

LINKWISE = Path(sys.executable).parent / "linkwise"
POD = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: NAME}\n"
    "spec: {containers: [{name: c, resources: {limits: {aliyun.com/gpu: AMOUNT}}}]}\n"
)
GOOD = POD.replace("AMOUNT", "1")
DENIED = POD.replace("AMOUNT", "0.5")
WARNED = (
    "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: d}\n"
    "spec: {template: {spec: {containers: [{name: c}]}}}\n"
)


@pytest.mark.parametrize(
    "words",
    [("-o", "json"), ("-ojson",), ("-o=json",), ("--output", "json"), ("--output=json",)],
    ids=" ".join,
)
@pytest.mark.parametrize(
    "command",
    [
        ("check", "pod.yaml"),
        ("simulate", "pod.yaml", "--cluster", "cluster.yaml"),
        ("inspect", "--cluster", "cluster.yaml"),
        ("topology", "show", "dgx1-v100"),
        ("topology", "best", "dgx1-v100", "--count", "2"),
        ("topology", "list"),
        ("policy", "lint", "policy.yaml"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_the_format_is_one_option_everywhere(linkwise, write, command, words):
    write("pod.yaml", GOOD)
    write("policy.yaml", "capacity: deny\n")
    write(
        "cluster.yaml",
        "apiVersion: linkwise.dev/v1alpha1\nkind: Cluster\n"
        "nodes: [{name: gpu, machine: dgx1-v100, mode: topology}]\n",
    )

    ran = linkwise(*command, *words)

    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out)["apiVersion"] == "cli.linkwise.dev/v1"


def test_what_follows_two_dashes_is_a_file_and_no_option(linkwise):
    assert linkwise("check", "--", "-o=json").err.startswith("linkwise: -o=json: no such file")


def test_the_answer_goes_to_the_file_that_is_named(linkwise, write, tmp_path):
    write("pod.yaml", DENIED)

    for answer in ("table", "json", "sarif"):
        ran = linkwise("check", "pod.yaml", "-o", answer, "--to", f"{answer}.txt")

        assert (ran.code, ran.out) == (1, "")
        written = (tmp_path / f"{answer}.txt").read_text()
        assert written == linkwise("check", "pod.yaml", "-o", answer).out


def test_unreadable_input_does_not_overwrite_the_output_file(linkwise, tmp_path):
    assert linkwise("check", "missing.yaml", "--to", "answer.txt").code == 2
    assert not (tmp_path / "answer.txt").exists()


def test_a_file_is_named_with_and_without_f(linkwise, write):
    write("a.yaml", GOOD.replace("NAME", "a"))
    write("b.yaml", GOOD.replace("NAME", "b"))

    plain = linkwise("check", "a.yaml", "b.yaml").out

    assert linkwise("check", "-f", "a.yaml", "-f", "b.yaml").out == plain
    assert linkwise("check", "a.yaml", "--filename", "b.yaml").out == plain
    assert linkwise("check", "-f=a.yaml", "-f=b.yaml").out == plain
    assert linkwise("check", "-f", "-", stdin=GOOD).out.startswith("allowed Pod default/NAME <st")
    topology = linkwise("topology", "show", "-f", "dgx1-v100")
    assert topology.out == linkwise("topology", "show", "dgx1-v100").out


def test_a_folder_is_read_with_r_alone(linkwise, write, tmp_path):
    (tmp_path / "jobs" / "more").mkdir(parents=True)
    for name in ("jobs/b.yaml", "jobs/a.json", "jobs/more/c.yml", "jobs/README.md"):
        write(name, GOOD.replace("NAME", Path(name).stem.lower()))

    alone, read = linkwise("check", "jobs"), linkwise("check", "-R", "-f", "jobs", "-o", "json")

    assert (alone.code, alone.out) == (2, "")
    assert alone.err == "linkwise: jobs: is a directory. Add -R to read the manifests in it.\n"
    assert [one["name"] for one in json.loads(read.out)["items"]] == ["a", "b", "c"]


def test_a_folder_without_manifests_is_no_clean_check(linkwise, tmp_path):
    (tmp_path / "empty").mkdir()

    assert linkwise("check", "-R", "empty").code == 2


def test_quietly_only_what_is_wrong_is_shown(linkwise, write):
    write("good.yaml", GOOD)
    write("warned.yaml", WARNED)
    write("bad.yaml", DENIED.replace("NAME", "bad"))

    assert linkwise("check", "warned.yaml").err != ""
    assert linkwise("check", "good.yaml", "warned.yaml", "-q") == (0, "", "")
    quiet = linkwise("check", "good.yaml", "bad.yaml", "--quiet")
    assert (quiet.code, quiet.err) == (1, "")
    assert quiet.out.startswith("denied Pod default/bad")
    assert "good" not in quiet.out


def test_version_option_prints_the_version(linkwise):
    assert linkwise("--version") == (0, f"linkwise {version('linkwise')}\n", "")


@pytest.mark.parametrize("command", [[], ["check"], ["topology"], ["topology", "best"]])
def test_h_is_help(linkwise, command):
    assert linkwise(*command, "-h") == linkwise(*command, "--help")


def test_help_is_as_wide_as_the_terminal(linkwise, monkeypatch):
    def longest():
        return max(map(len, linkwise("check", "-h").out.splitlines()))

    widths = []
    for columns in (60, 80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        widths.append(longest())
        assert widths[-1] <= columns

    assert widths[0] < widths[1] < widths[2]


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [
        pytest.param({"TERM": "xterm"}, True, id="a terminal"),
        pytest.param({"TERM": "xterm", "NO_COLOR": "1"}, False, id="NO_COLOR"),
        pytest.param({"TERM": "xterm", "NO_COLOR": ""}, True, id="NO_COLOR that is empty"),
        pytest.param({"TERM": "dumb"}, False, id="a dumb terminal"),
    ],
)
def test_colours_can_be_switched_off(environment, coloured):
    if not LINKWISE.exists():
        pytest.skip("the command is not installed beside this Python")
    main, terminal = pty.openpty()
    forced = {"NO_COLOR", "FORCE_COLOR"}
    inherited = {key: text for key, text in os.environ.items() if key not in forced}
    ran = subprocess.run(  # noqa: S603 - our own command
        [LINKWISE, "topology", "best", "t4x4", "--count", "2"],
        stdout=terminal,
        stderr=terminal,
        check=False,
        env=inherited | environment,
    )
    os.close(terminal)
    shown = os.read(main, 65536)
    os.close(main)

    assert ran.returncode == 0
    assert (b"\x1b[" in shown) is coloured


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, True),
        ({"FORCE_COLOR": ""}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colours_can_be_forced_in_a_pipe(linkwise, monkeypatch, environment, coloured):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, text in environment.items():
        monkeypatch.setenv(name, text)

    shown = linkwise("topology", "best", "t4x4", "--count", "2").out

    assert ("\x1b[" in shown) is coloured


@pytest.mark.parametrize(
    ("text", "gpus"),
    [("0-3", [0, 3]), ("0-1,6", [0, 1]), ("2 - 3", [2, 3]), ("1-1,5-5", [1, 5])],
)
def test_gpus_are_named_one_by_one_and_as_ranges(linkwise, text, gpus):
    ran = linkwise("topology", "best", "dgx1-v100", "--count=2", "--free", text, "-o=json")

    assert json.loads(ran.out)["gpus"] == gpus


@pytest.mark.parametrize("text", ["3-1", "0-8", "-1", "1-", "a-b", "0--1"])
def test_invalid_range_is_an_error(linkwise, text):
    ran = linkwise("topology", "best", "dgx1-v100", "--count=1", f"--free={text}")

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"linkwise: --free: {text!r} is no GPU of this machine. ")
