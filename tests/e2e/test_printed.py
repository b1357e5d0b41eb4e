"""Commands that the documents print, run as they stand: on `make up`, or on an empty cluster."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from controlplane.process import answered_in_time, wait_until
from controlplane.up import STATUS
from support.printed import CHANGING, LOOKING, ROOT, blocks, commands, inline, text_of

PAGES = (
    "README.md",
    *(f"docs/{name}.md" for name in ("command", "dry-run", "live")),
    "docs/operations",
)
PAGES += ("docs/from-gpushare.md", "docs/examples/README.md")
INSTALL = "docs/operations/install.md"
NOT_RUN = {
    "make ": "tests/e2e/test_up.py does what they do",
    "NODES=claims make up": "tests/e2e/test_up.py does what it does",
    "NODES=real make up": "tests/e2e/node/test_up_in_containers.py does what it does",
    "pip": "tests/tools/release/test_wheel.py installs the wheel",
    "docker ": "it needs Docker and a registry",
    "helm ": "tests/e2e/charts/test_printed.py runs it",
    "linkwise dashboard": "it does not end by itself; tests/e2e/test_dashboard.py runs it",
    "linkwise snapshot --watch": "it does not end by itself; linkwise/cli/test_snapshot.py runs it",
    "kubectl wait -n team gang/": "an example; tests/e2e/test_gangs_api.py waits for one",
    "kubectl -n linkwise-system port-forward": "kwok's kubelets forward no ports",
    "linkwise check docs/demo/gang.yaml --server cluster": "the Service has no pods here; "
    "tests/e2e/test_check_server.py asks through it",
}
"""Why commands that begin so are not run; what is behind a forwarded port is asked where it is."""
OF_FAULTS = "kubectl get --raw /metrics | grep fail_open"
"""It shows only faults."""
REMOVING = ("manifests/emergency-stop", "kubectl delete --ignore-not-found -k")
INSTALLING = (
    "mkdir cluster-a",
    "cat > cluster-a/",
    "kubectl apply -k",
    "kubectl -n linkwise-system rollout status",
    *REMOVING,
)
"""What commands begin with that install Linkwise or remove it."""
REFUSED = "kubectl create --dry-run=server"
OFFER = {"cpu": "96", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
NODE_OF_NVIDIAS_PLUGIN = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "nvidia-0"},
    "status": {"allocatable": OFFER, "capacity": OFFER},
}


def shown(page, command):
    name = " ".join(command.partition("#")[0].partition("\n")[0].split())
    return pytest.param(command, id=f"{page}: {name}"[:90])


ON_UP = [
    shown(page, command)
    for page in PAGES
    for command in commands(page)
    if not command.startswith((*NOT_RUN, *INSTALLING))
]
ON_UP += [
    shown(page, command)
    for page in PAGES
    for command in inline(page)
    if LOOKING.fullmatch(command) and command != OF_FAULTS
]


class Shell:
    """A folder with the manifests and documents of a checkout, where commands are run."""

    def __init__(self, folder, kubeconfig, kubectl):
        self.folder = folder
        shutil.copytree(ROOT / "manifests", folder / "manifests")
        shutil.copytree(ROOT / "docs", folder / "docs")
        programs = (str(Path(sys.executable).parent), str(Path(kubectl).parent), os.environ["PATH"])
        self.environment = {**os.environ, "PATH": ":".join(programs), "KUBECONFIG": str(kubeconfig)}

    def __call__(self, command):
        shell = ["bash", "-o", "pipefail", "-c", command]
        return subprocess.run(
            shell,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )


# ---- On what `make up` starts.


def call(module, folder):
    """Do what `make up` or `make down` does, in a folder of the test's own."""
    code = f"import pathlib, sys, controlplane.{module} as made; "
    code += f"sys.exit(made.main(pathlib.Path({str(folder)!r})))"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT / "tests", check=True)


@pytest.fixture(scope="module")
def plane(plane_of_its_own):
    """Another, since a printed command removes the fence: an API server then uses an old Lease."""
    return plane_of_its_own


@pytest.fixture(scope="module")
def up(plane, tmp_path_factory):
    folder = tmp_path_factory.mktemp("printed") / "up"
    try:
        call("up", folder)
        shell = Shell(
            folder.with_name("shell"), folder / "kubeconfig", plane.site.binaries["kubectl"]
        )
        # The gang of the README needs it.
        (shell.folder / "node.json").write_text(json.dumps(NODE_OF_NVIDIAS_PLUGIN))
        made = shell("kubectl create -f node.json")
        assert made.returncode == 0, made.stderr
        (policy,) = [one for one in commands(INSTALL) if "cluster-a/policy.yaml" in one]
        (shell.folder / "policy.yaml").write_text("\n".join(policy.splitlines()[1:-1]))
        status = json.loads((folder / STATUS).read_text())
        urls = {one["name"]: one["urls"] for one in status["processes"]}
        shell.addresses = {
            "https://localhost:8444": urls["webhook"][1],
            "localhost:8444": urls["webhook"][1].removeprefix("https://"),
            "http://127.0.0.1:8081": urls["scorer"][1],
        }
        yield shell
    finally:
        call("down", folder)


def where_it_is(up, command):
    """Return a command with the addresses that ports would be forwarded to."""
    for address, there in up.addresses.items():
        command = command.replace(address, there)
    return command


@pytest.mark.parametrize("command", ON_UP)
def test_a_command_runs_as_it_is_printed(up, command):
    ran = up(where_it_is(up, command))

    if command.startswith(REFUSED):
        assert (ran.returncode, ran.stdout) == (1, "")
        assert "[LW101]" in ran.stderr
    else:
        assert ran.returncode == 0, ran.stderr
        assert "rror" not in ran.stderr


def test_the_refusal_that_operations_shows_is_what_the_api_server_answers(up):
    (expected,) = [text for text in blocks(INSTALL) if text.startswith("The Pod ")]

    (command,) = [one for one in commands(INSTALL) if one.startswith(REFUSED)]
    assert up(command).stderr == expected


def test_the_answer_that_the_guide_to_dry_runs_shows_is_the_whole_one(up):
    page = "docs/dry-run.md"
    (expected,) = [text for text in blocks(page) if text.startswith("allowed ")]
    _, token, authority, _, check, _ = commands(page)

    ran = answered_in_time(lambda: up(f"{token}\n{authority}\n{where_it_is(up, check)}"))
    assert (ran.stdout, ran.stderr) == (expected, "")


# ---- On an empty cluster.


@pytest.fixture
def empty(plane, bare, nodes, tmp_path):  # noqa: ARG001 - the fixture uninstalls.
    nodes({"name": "gpu", "count": 3, "machine": "dgx1-v100", "mode": "topology"})
    return Shell(tmp_path / "shell", plane.kubeconfig, plane.site.binaries["kubectl"])


def left(shell, folder):
    """Return what there is of the kinds that an installation has, but for the fence."""
    built = yaml.safe_load_all(shell(f"kubectl kustomize {folder}").stdout)
    # A kind that was defined here is gone with its definition.
    kinds = {one["kind"] for one in built}
    found = shell(f"kubectl get {','.join(kinds)} --all-namespaces --output=name").stdout
    return {name for name in re.findall(r"\S*linkwise\S*", found) if "linkwise-fence" not in name}


def test_an_installation_with_kustomize_holds_its_policy_and_is_removed_as_printed(empty):
    steps = [one for one in commands(INSTALL) if one.startswith(INSTALLING)]
    removing = [one for one in steps if one.startswith(REMOVING)]
    assert len(removing) == 2

    for step in (one for one in steps if one not in removing):
        ran = empty(step)
        assert ran.returncode == 0, ran.stderr
    policy = empty("kubectl -n linkwise-system get configmap linkwise -o yaml")
    images = empty("kubectl -n linkwise-system get deployments -o yaml")
    for step in removing:
        ran = empty(step)
        assert ran.returncode == 0, ran.stderr

    assert "machine: dgx1-v100" in policy.stdout
    assert "image: registry.example/linkwise:0.1.0" in images.stdout
    wait_until(lambda: left(empty, "cluster-a") == set(), "all is gone")


@pytest.mark.parametrize("folder", ["manifests/scheduler", "manifests/profiles-all"])
def test_what_is_installed_from_a_folder_is_removed_by_that_folder_and_nothing_is_left(
    empty, folder
):
    (remove,) = re.findall(
        r"`(kubectl delete --ignore-not-found -k \S+ --selector=\S+)`",
        text_of("docs/operations"),
    )

    applied = empty(f"kubectl apply -k {folder}")
    assert applied.returncode == 0, applied.stderr
    stopped = empty("manifests/emergency-stop")
    removed = empty(remove.replace("manifests/base", folder))

    assert (stopped.returncode, removed.returncode) == (0, 0), stopped.stderr + removed.stderr
    wait_until(lambda: left(empty, folder) == set(), "all is gone")


def removes_all(command):
    return " -k " in command or "delete namespace" in command


def test_commands_in_sentences_that_change_an_installation_run_as_they_are_printed(empty):
    printed = [one for one in inline("docs/operations") if CHANGING.fullmatch(one)]
    changing = [one for one in printed if "linkwise-scheduler" not in one]
    for folder in ("manifests/base", "manifests/agent"):
        assert empty(f"kubectl apply -k {folder}").returncode == 0
    # This Secret is no manifest: certs writes it.
    empty("kubectl -n linkwise-system create secret generic linkwise-ca")

    # What removes the whole installation comes last.
    failed = [
        ran.stderr
        for command in sorted(changing, key=removes_all)
        if (ran := empty(command)).returncode
    ]

    assert len(changing) == 10
    assert failed == []
    wait_until(lambda: left(empty, "manifests/base") == set(), "all is gone")


def test_what_the_scheduler_adds_goes_by_the_commands_that_lead_back_to_the_base(empty):
    page = text_of("docs/operations")
    section = page.partition("* **Back to the base**")[2].partition("\n\n")[0]
    back = re.findall(r"`(kubectl [^`]+)`", section)
    empty("kubectl apply -k manifests/base")
    before = left(empty, "manifests/scheduler")
    empty("kubectl apply -k manifests/scheduler")
    added = left(empty, "manifests/scheduler") - before

    for step in back:
        ran = empty(step)
        assert ran.returncode == 0, ran.stderr
    after = left(empty, "manifests/scheduler")
    removal = "kubectl delete --ignore-not-found -k manifests/base"
    empty(f"manifests/emergency-stop && {removal} --selector='app.kubernetes.io/component!=fence'")

    assert len(added) == 5
    assert after == before
