"""`make up` and `make down`, in a folder of the test's own."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from controlplane.process import answered_in_time, wait_until

TESTS = Path(__file__).parents[1]


def argv(module, folder):
    code = f"import pathlib, signal, sys, controlplane.{module} as made; "
    # As in a terminal; what is started in the background ignores Ctrl-C.
    code += "signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += f"sys.exit(made.main(pathlib.Path({str(folder)!r})))"
    return [sys.executable, "-c", code]


def call(module, folder, **environment):
    return subprocess.run(
        argv(module, folder),
        cwd=TESTS,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def processes(folder):
    return json.loads((folder / "status.json").read_text())["processes"]


def runs(process):
    try:
        line = Path(f"/proc/{process['pid']}/cmdline").read_bytes()
    except OSError:
        return False
    return line.startswith(process["argv"][0].encode())


def nothing_runs_in(folder):
    """Whether no process has the folder's name in its command line or its environment."""
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        try:
            environment = (one / "cmdline").read_bytes() + (one / "environ").read_bytes()
        except OSError:
            continue
        if os.fsencode(folder) in environment:
            found.append(one)
    return not found


def commands(text):
    return [line.strip() for line in text.splitlines() if line.startswith("  ")]


def pasted(text):
    shell = ["bash", "-c", text]
    return subprocess.run(shell, cwd=TESTS, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "up"
    yield folder
    call("down", folder)


@pytest.fixture(scope="module")
def up(plane, tmp_path_factory):  # noqa: ARG001 - where there are no programs it is skipped.
    folder = tmp_path_factory.mktemp("made") / "up"
    try:
        yield folder, call("up", folder, NODES="3", MACHINE="dgx-a100")
    finally:
        call("down", folder)


def test_processes_of_make_up_keep_running_with_the_requested_nodes(plane, up):
    folder, made = up
    assert (made.returncode, made.stderr) == (0, "")
    names = [one["name"] for one in processes(folder)]
    assert (names[:2], names[-2:]) == (["etcd", "kube-apiserver"], ["webhook", "scorer"])
    assert all(runs(one) and one["urls"] and Path(one["log"]).exists() for one in processes(folder))
    kubectl = [plane.site.binaries["kubectl"], f"--kubeconfig={folder / 'kubeconfig'}"]
    nodes = subprocess.check_output([*kubectl, "get", "nodes", "--output=name"], text=True)
    assert nodes.split() == ["node/gpu-0", "node/gpu-1", "node/gpu-2"]


def test_the_commands_that_up_prints_work_as_they_stand(up):
    folder, made = up
    export, *others = commands(made.stdout)

    gangs, inspected, applied = (pasted(f"{export}\n{command}") for command in others[:3])
    # What was applied counts from a moment on.
    dry = f"{export}\n{others[3]} --dry-run=server"
    wait_until(lambda: "1.5.0" in pasted(dry).stdout, "the profile is in force")
    created, denied = (pasted(f"{export}\n{command}") for command in others[3:5])
    checked = answered_in_time(lambda: pasted(f"{export}\n{others[5]}"))
    (gang,) = gangs.stdout.splitlines()[1:]
    assert gang.split()[1:5] == ["4/4", "Placed", "gpu-0", "160"]
    assert "0 1 2 3  whole  160.0 GB/s  gang default/mpijob-vgg16" in inspected.stdout
    assert (export, applied.returncode) == (f"export KUBECONFIG={folder / 'kubeconfig'}", 0)
    assert "alibabacloud.com/gpu-driver-version: 1.5.0" in created.stdout
    assert "key: alibabacloud.com/node-type" in created.stdout
    assert "LW111" in created.stderr
    assert denied.returncode == 1
    assert "write 20 or 25 [LW101]" in denied.stderr
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "profile gpu-hpn-driver does not match" in checked.stdout
    assert checked.stdout.endswith("2 pod templates: 2 allowed\n")


def test_the_guide_to_dry_runs_gets_the_authority_and_the_name_that_are_right(plane, up):
    folder, made = up
    export, *_, check = commands(made.stdout)
    guide = (TESTS.parent / "docs/dry-run.md").read_text()
    (get_authority,) = re.findall(r"^kubectl get mutating.*", guide, re.MULTILINE)
    (name,) = re.findall(r"--tls-server-name \S+$", guide, re.MULTILINE)
    programs = Path(plane.site.binaries["kubectl"]).parent
    (folder / "ca.crt").unlink()

    lines = [export, f"PATH=$PATH:{programs}", f"(cd {folder}; {get_authority})", f"{check} {name}"]
    ran = answered_in_time(lambda: pasted("\n".join(lines)))

    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_second_up_says_the_same_again_and_starts_nothing(up):
    folder, made = up
    before = processes(folder)

    again = call("up", folder)

    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout.startswith("It runs already")
    assert commands(again.stdout) == commands(made.stdout)
    assert processes(folder) == before


def test_down_removes_processes_that_run_ended_or_are_paused(plane, folder):  # noqa: ARG001
    assert call("up", folder).returncode == 0
    made = {one["name"]: one for one in processes(folder)}
    for name, number in (("etcd", 9), ("webhook", 9), ("kwok", signal.SIGSTOP)):
        os.kill(made[name]["pid"], number)
    wait_until(lambda: not runs(made["webhook"]), "the webhook is dead")

    second = call("up", folder)
    assert second.returncode == 1
    assert second.stderr.endswith("but etcd, webhook ended: begin with `make down`\n")
    down = call("down", folder)
    assert (down.returncode, down.stderr) == (0, "")
    assert not any(runs(one) for one in made.values())
    assert nothing_runs_in(folder)
    assert not folder.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "killed"])
def test_an_up_that_is_ended_halfway_leaves_nothing_running(plane, folder, number):  # noqa: ARG001
    with subprocess.Popen(
        argv("up", folder),
        cwd=TESTS,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as up:
        while "Installing" not in up.stdout.readline():
            assert up.poll() is None
        up.send_signal(number)
        _, error = up.communicate()

    wait_until(lambda: nothing_runs_in(folder), "all has ended")
    if number is signal.SIGINT:
        assert (up.returncode, error) == (1, "interrupted: nothing is left running\n")
    else:
        assert "half made: remove it with `make down`" in call("up", folder).stderr
        assert call("down", folder).returncode == 0
    assert not folder.exists()


def test_up_with_claims_nodes_places_a_gang_by_claims(plane, folder):  # noqa: ARG001
    made = call("up", folder, NODES="claims")
    assert (made.returncode, made.stderr) == (0, "")
    export, claims, explained, inspected, rules = commands(made.stdout)

    shown = {
        command: pasted(f"{export}\n{command}") for command in (claims, explained, inspected, rules)
    }

    assert {command: one.stderr for command, one in shown.items() if one.returncode} == {}
    rows = [row.split() for row in shown[claims].stdout.splitlines()[1:]]
    assert {row[0] for row in rows} == {f"vgg16-{index}" for index in range(4)}
    assert len({row[1] for row in rows}) == 1
    assert "55.2 GB/s" in shown[explained].stdout
    assert "gang default/mpijob-vgg16" in shown[inspected].stdout
    assert len(shown[rules].stdout.splitlines()) == 3


@pytest.mark.parametrize(
    ("option", "message"),
    [
        pytest.param({"NODES": "few"}, "NODES=few is no number", id="count"),
        pytest.param({"MACHINE": "abacus"}, "'abacus'", id="machine"),
        pytest.param({"MODE": "best"}, "mode: must be 'default'", id="mode"),
        pytest.param(
            {"NODES": "real", "MODE": "mps"}, "leave out MACHINE", id="mode of a real one"
        ),
        pytest.param(
            {"NODES": "claims", "MACHINE": "dgx-h100"}, "two DGX-1 V100", id="machine of claims"
        ),
    ],
)
def test_invalid_nodes_are_reported_in_one_line_and_nothing_starts(folder, option, message):
    up = call("up", folder, **option)
    assert (up.returncode, up.stdout, up.stderr.count("\n")) == (1, "", 1)
    assert message in up.stderr
    assert not folder.exists()
