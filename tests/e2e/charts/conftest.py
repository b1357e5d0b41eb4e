"""Helm, and a control plane without nodes that the chart is installed on."""

import os
import subprocess
from pathlib import Path

import pytest
from controlplane.chart import IMAGE, RELEASE
from controlplane.chart_objects import by_identity, documents
from controlplane.chart_programs import chart_binaries
from controlplane.manifests import DEFINITIONS, GANGS, NAMESPACE, NAMESPACES, ROOT, names
from controlplane.process import wait_until
from controlplane.required import required

from linkwise.cluster import keys


@pytest.fixture(scope="session")
def programs():
    """Helm and kubeconform."""
    return required(chart_binaries)


@pytest.fixture(scope="session")
def chart(programs):
    """Renders the chart: its objects by identity."""
    return lambda *options: by_identity(documents(programs["helm"], "--no-hooks", *options))


@pytest.fixture(scope="module")
def helm(plane_of_its_own, programs):
    """Runs Helm as an administrator, in the namespace of Linkwise."""
    options = (f"--kubeconfig={plane_of_its_own.kubeconfig}", f"--namespace={NAMESPACE}")

    def run(command, *arguments):
        image = [IMAGE] if command in {"install", "upgrade"} else []
        argv = (programs["helm"], command, *arguments, *image, *options)
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=400)

    return run


@pytest.fixture
def plane(plane_of_its_own, helm):
    """The control plane; at the end nothing of the release is left."""
    yield plane_of_its_own
    helm("uninstall", RELEASE, "--no-hooks", "--ignore-not-found", "--wait")
    # `--wait` may end before a namespace or a definition does.
    wait_until(lambda: keys.AGENT not in names(plane_of_its_own, NAMESPACES), "no agent is left")
    wait_until(lambda: GANGS not in names(plane_of_its_own, DEFINITIONS), "the kind is gone")


@pytest.fixture
def stop(plane_of_its_own):
    """Runs the emergency stop."""
    kubectl = Path(plane_of_its_own.site.binaries["kubectl"]).parent
    environment = {
        **os.environ,
        "PATH": f"{kubectl}:{os.environ['PATH']}",
        "KUBECONFIG": str(plane_of_its_own.kubeconfig),
    }

    def run():
        argv = [ROOT / "manifests/emergency-stop"]
        return subprocess.run(
            argv, env=environment, capture_output=True, text=True, check=False, timeout=300
        )

    return run


@pytest.fixture
def namespace_of():
    """Makes a namespace of the test's own, and returns the path of its pods."""
    made = []

    def make(api):
        name = api.create("/api/v1/namespaces", {"metadata": {"generateName": "e2e-"}})["metadata"]
        made.append((api, f"/api/v1/namespaces/{name['name']}"))
        accounts = f"{made[-1][1]}/serviceaccounts"
        wait_until(lambda: bool(api.get(accounts)["items"]), "it has a ServiceAccount")
        return f"{made[-1][1]}/pods"

    yield make
    for api, path in made:
        api.delete(path)
