import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from linkwise.manifest.value import InputError
from linkwise.views.files import source

REPOSITORY = Path(__file__).parents[3]
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

    monkeypatch.setattr("linkwise.views.files.source.read_text", refuse)

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


HEAVY = {
    *("asyncio", "highspy", "kubernetes_asyncio", "numpy", "rich", "ssl"),
    *(
        "linkwise.cluster.account.ledger",
        "linkwise.cluster.nodes.node",
        "linkwise.planning",
        "linkwise.topology.table",
    ),
    "linkwise.views.render.check_ci",
}
"""What `check` of a file needs none of; each takes 20 ms or more to import."""


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_check_imports_only_what_it_needs(output):
    code = (
        "import sys\nfrom linkwise.cli.__main__ import run\n"
        f"run(['check', '-', '-o', '{output}', '--to', '{os.devnull}'])\n"
        f"heavy = {HEAVY}\n"
        "sys.exit(repr(sorted(heavy & sys.modules.keys())))"
    )
    ran = spawn(sys.executable, "-c", code, input=WARNED, cwd=REPOSITORY)

    assert ran.stderr.splitlines()[-1] == "[]"


def test_a_check_builds_no_models_of_files_that_are_not_given():
    code = (
        "import sys\nfrom linkwise.cli.__main__ import run\nrun(['check', '-'])\n"
        "from linkwise.policy.sharing import PluginConfig\n"
        "sys.exit(repr(PluginConfig.__pydantic_complete__))"
    )
    ran = spawn(sys.executable, "-c", code, input=WARNED, cwd=REPOSITORY)

    assert ran.stderr.splitlines()[-1] == "False"


def test_the_shell_completes_names_of_the_catalogue():
    words = {"COMP_WORDS": "linkwise topology show dgx1", "COMP_CWORD": "3"}
    environment = {**os.environ, "_LINKWISE_COMPLETE": "complete_bash", **words}

    ran = spawn(SCRIPTS / "linkwise", env=environment)

    assert ran.stdout.split() == ["dgx1-p100", "dgx1-v100"]


@pytest.mark.parametrize(
    ("shell", "start"),
    [
        ("bash", "_linkwise_completion() {"),
        ("zsh", "#compdef linkwise"),
        ("fish", "complete --command linkwise "),
        ("powershell", "Import-Module PSReadLine"),
    ],
)
def test_completion_shows_the_script_of_a_shell(linkwise, shell, start):
    code, out, _ = linkwise("completion", shell)

    assert code == 0
    assert out.startswith(start)
    assert "_LINKWISE_COMPLETE" in out


def test_completion_names_the_shells(linkwise):
    code, _, err = linkwise("completion", "csh")

    assert code == 2
    assert "'bash', 'zsh', 'fish', 'powershell'" in err


def test_bash_completes_by_the_script(tmp_path):
    script = tmp_path / "completion"
    script.write_text(spawn(SCRIPTS / "linkwise", "completion", "bash").stdout)
    line = (
        f'source "{script}"; COMP_WORDS=(linkwise topology show dgx1); COMP_CWORD=3; '
        '_linkwise_completion linkwise; echo "${COMPREPLY[@]}"'
    )
    environment = {**os.environ, "PATH": f"{SCRIPTS}:{os.environ['PATH']}"}

    ran = spawn("bash", "-c", line, env=environment)

    assert ran.stdout.split() == ["dgx1-p100", "dgx1-v100"]


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        pytest.param(["chec"], ["check", ":4"], id="a command"),
        pytest.param(["topology", "show", "dgx1"], ["dgx1-p100", "dgx1-v100", ":4"], id="a name"),
        pytest.param(["check", ""], [":0"], id="files are left to the shell"),
        pytest.param(["check", "a b'c"], [":0"], id="a word with spaces and quotes"),
    ],
)
def test_kubectl_completes_its_plugin(words, lines):
    scripts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["scripts"]
    module, function = scripts["kubectl_complete-linkwise"].split(":")
    code = f"from {module} import {function}\n{function}()"

    ran = spawn(sys.executable, "-c", code, *words, cwd=REPOSITORY)

    assert ran.stdout.splitlines() == lines


def test_kubectl_completes_the_first_word_of_its_plugin():
    code = "from linkwise.cli.__main__ import complete\ncomplete()"

    ran = spawn(sys.executable, "-c", code, cwd=REPOSITORY)

    assert {"check", "simulate", ":4"} <= set(ran.stdout.split())
