import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.files import source
from manifest.value import InputError

REPOSITORY = Path(__file__).parents[2]
SKIPPED = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: []}\n"
DENIED = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"
    "spec: {containers: [{name: c, resources: {limits: {aliyun.com/gpu: 0.5}}}]}\n"
)
WARNED = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"
    "spec: {containers: [{name: c, env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}],"
    " resources: {limits: {aliyun.com/gpu: 1}}}]}\n"
)


@pytest.mark.parametrize(
    ("texts", "arguments", "code"),
    [
        pytest.param([SKIPPED], [], 0, id="clean"),
        pytest.param([WARNED], [], 0, id="warnings are no failure"),
        pytest.param([WARNED], ["--strict"], 3, id="unless strict"),
        pytest.param([DENIED], [], 1, id="denied"),
        pytest.param([DENIED, WARNED], ["--strict"], 1, id="denied beats warnings"),
        pytest.param([DENIED, "a: ["], ["--strict"], 2, id="unreadable beats denied"),
        pytest.param([SKIPPED], ["--sticrt"], 2, id="usage"),
        pytest.param([], [], 2, id="no file"),
    ],
)
def test_exit_code_depends_on_the_results(linkwise, write, texts, arguments, code):
    names = [str(write(f"{i}.yaml", text)) for i, text in enumerate(texts)]

    ran = linkwise("check", *names, *arguments, "-o", "json")

    assert ran.code == code
    assert (ran.out == "") is (code == 2)
    if code == 2:
        assert ran.err.startswith("linkwise: ")
        assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["chek"], "No such command 'chek'. Did you mean 'check', 'schema'? See linkwise --help."),
        (
            ["check", "--foo"],
            "No such option: --foo (Possible options: --to). See linkwise check --help.",
        ),
        (["topology", "best"], "Missing option '--count'. See linkwise topology best --help."),
        (["topology", "show"], "no file is named. Write FILE or -f FILE; - is a pipe."),
        (["check"], "no file is named. Write FILE or -f FILE; - is a pipe."),
        (["policy", "lint", "a", "-f", "b"], "two files are named. "),
        (["check", "x", "-o", "xml"], "Invalid value for '--output' / '-o': 'xml' is not one of "),
        (
            ["topology", "best", "dgx1-v100", "--count", "x"],
            "Invalid value for '--count': 'x' is no number of GPUs; write 1 or more. See ",
        ),
        (
            ["topology", "best", "dgx1-v100", "--count", "0"],
            "Invalid value for '--count': '0' is no number of GPUs; write 1 or more. See ",
        ),
    ],
)
def test_wrong_command_line_is_one_line(linkwise, arguments, complaint):
    code, out, err = linkwise(*arguments)

    assert (code, out) == (2, "")
    assert err.startswith(f"linkwise: {complaint}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["topology"],
        ["topology", "show"],
        ["topology", "best"],
        ["topology", "list"],
        ["check"],
        ["policy"],
        ["policy", "lint"],
    ],
    ids=" ".join,
)
def test_every_command_has_help_with_an_example(linkwise, command):
    code, out, _ = linkwise(*command, "--help")

    assert code == 0
    assert out.startswith("Usage: linkwise")
    assert "Example: " in out


def test_a_noun_alone_shows_its_help(linkwise):
    assert "lint" in linkwise("policy").out
    assert "topology" in linkwise().out


def test_internal_error_is_one_line(linkwise, monkeypatch):
    monkeypatch.setattr(source, "Path", lambda _name: 1 / 0)

    code, out, err = linkwise("check", "job.yaml")

    assert (code, out) == (2, "")
    assert err == (
        "linkwise: internal error: ZeroDivisionError: division by zero. Please report it, "
        "with the command line and its files.\n"
    )


def test_complaints_are_lines_of_their_own(linkwise, monkeypatch):
    def refuse(_name):
        raise InputError("f:1: two\nlines.")

    monkeypatch.setattr("cli.files.source.read_text", refuse)

    assert linkwise("check", "f").err.count("\n") == 1


SCRIPTS = Path(sys.executable).parent


def spawn(*command, **options):
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.run(command, check=False, **options)  # noqa: S603 - our own command


@pytest.fixture(scope="module", autouse=True)
def installed():
    if not (SCRIPTS / "linkwise").exists():
        pytest.skip("the command is not installed beside this Python")


def test_the_installed_command_checks_a_pipe():
    ran = spawn(SCRIPTS / "linkwise", "check", "-", "-o", "json", input=DENIED)

    assert ran.returncode == 1
    assert ran.stderr == ""
    assert json.loads(ran.stdout)["items"][0]["verdict"] == "denied"


def test_kubectl_finds_it_as_a_plugin():
    ran = spawn(SCRIPTS / "kubectl-linkwise", "--help")

    assert ran.stdout.startswith("Usage: kubectl linkwise ")


def test_closed_pipe_ends_the_process_silently():
    read, write = os.pipe()
    os.close(read)
    ran = spawn(SCRIPTS / "linkwise", "topology", "list", "-o", "json", stdout=write)
    os.close(write)

    assert ran.stderr == ""
    assert ran.returncode not in {0, 1, 2, 3}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_an_answer_that_cannot_be_written_is_a_failure():
    with Path("/dev/full").open("w") as full:
        ran = spawn(SCRIPTS / "linkwise", "topology", "list", stdout=full)

    assert ran.returncode == 2
    assert ran.stderr.startswith("linkwise: the answer cannot be written: ")
    assert ran.stderr.count("\n") == 1


def test_a_check_imports_nothing_that_computes_bandwidths():
    code = (
        "import sys\nfrom cli.__main__ import run\n"
        "run(['check', '-', '-o', 'json'])\n"
        "heavy = {'numpy', 'highspy', 'rich', 'topology.table', 'cluster.ledger', 'cluster.node'}\n"
        "sys.exit(repr(sorted(heavy & sys.modules.keys())))"
    )
    ran = spawn(sys.executable, "-c", code, input=SKIPPED, cwd=REPOSITORY)

    assert ran.stderr.strip() == "[]"


def test_the_shell_completes_names_of_the_catalogue():
    words = {"COMP_WORDS": "linkwise topology show dgx1", "COMP_CWORD": "3"}
    environment = {**os.environ, "_LINKWISE_COMPLETE": "complete_bash", **words}

    ran = spawn(SCRIPTS / "linkwise", env=environment)

    assert ran.stdout.split() == ["dgx1-p100", "dgx1-v100"]
