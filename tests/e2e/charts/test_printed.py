"""Commands of Helm that the documents print, run as they stand."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from controlplane.manifests import NAMESPACE, NAMESPACES, ROOT, names
from controlplane.process import wait_until
from controlplane.uninstall_hook import HookKubelet
from support.printed import commands

from linkwise.cluster import keys

OPERATIONS = "docs/operations/install.md"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
VALUES = {"image": {"repository": "registry.example/linkwise"}, "webhook": {"replicas": 3}}


@pytest.fixture
def shell(plane_of_its_own, programs, tmp_path):
    """Runs commands in a folder with the chart, as an administrator."""
    shutil.copytree(ROOT / "charts", tmp_path / "charts")
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(VALUES))
    folder = Path(programs["helm"]).parent
    environment = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "KUBECONFIG": str(plane_of_its_own.kubeconfig),
    }

    def run(command):
        return subprocess.run(
            ["sh", "-c", command],  # noqa: S607
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    return run


@pytest.mark.parametrize("page", [OPERATIONS, "README.md"])
def test_printed_commands_install_and_remove_linkwise(plane, shell, page):
    api = plane.api
    (remove,) = [line for line in commands(OPERATIONS) if line.startswith("helm uninstall")]
    steps = [line for line in commands(page) if line.startswith(("helm ", "cat > values.yaml"))]
    for step in steps:
        if step != remove:
            ran = shell(step)
            assert (ran.returncode, ran.stderr) == (0, ""), step
    pods = [one["spec"]["template"]["spec"] for one in api.get(DEPLOYMENTS)["items"]]

    with HookKubelet(plane):
        ran = shell(f"{remove} --wait")

    assert {container["image"] for pod in pods for container in pod["containers"]} == {
        "registry.example/linkwise:0.1.0"
    }
    assert ran.returncode == 0, ran.stderr
    assert api.get(DEPLOYMENTS)["items"] == []
    # --wait does not wait until a namespace has ended.
    wait_until(lambda: keys.AGENT not in names(plane, NAMESPACES), "the agent's namespace is gone")
