"""Statements of docs/operations about the API server, on a real one."""

# ruff: noqa: ARG001 - the webhook runs, and is called by the API server alone.

import re
from pathlib import Path

import pytest
from controlplane.api import ApiError
from controlplane.manifests import NAMESPACE
from controlplane.process import wait_until
from support.builders import a_pod

from linkwise.cluster import keys

PAGE = Path(__file__).parents[2] / "docs/operations/alerts.md"
REFUSED = {keys.GPU_MEM: 2, keys.GPU_CORE: 22}


def refusal(api, namespace, pod):
    """Return what the creation of a pod is refused with; empty when it is not."""
    body = {**pod, "metadata": {"name": pod["metadata"]["name"]}}
    body["spec"]["containers"][0]["image"] = "registry.example/none"
    try:
        api.create(f"/api/v1/namespaces/{namespace}/pods", body, dryRun="All")
    except ApiError as error:
        return error.message
    return ""


def test_metrics_of_the_api_server_that_the_page_names_are_there(plane, webhook):
    named = set(re.findall(r"`(apiserver_[a-z_]+)`", PAGE.read_text(encoding="utf-8")))
    plane.processes.stop(webhook.process)
    try:
        assert "linkwise-placed" in refusal(plane.api, "default", a_pod({keys.GPU_WHOLE: 1}))
    finally:
        plane.processes.start(webhook.process)
        webhook.process.wait_ready(lambda: webhook.ready)
    shown = plane.kubectl("get", "--raw", "/metrics").stdout
    ours = [line for line in shown.splitlines() if "linkwise" in line]
    found = {name for name in named if any(line.startswith(name) for line in ours)}

    assert named
    assert found == named


def test_a_namespace_cannot_take_itself_out_by_calling_itself_another(plane, webhook, namespace):
    path = f"/api/v1/namespaces/{namespace}"
    change = {"metadata": {"labels": {keys.NAMESPACE_NAME: "kube-system"}}}

    changed = plane.api.patch(path, change)

    assert changed["metadata"]["labels"][keys.NAMESPACE_NAME] == namespace
    assert "LW101" in refusal(plane.api, namespace, a_pod(REFUSED))


@pytest.mark.parametrize("system", ["kube-system", "kube-node-lease", NAMESPACE])
def test_pods_of_the_system_are_made_whatever_they_ask_for(plane, webhook, system):
    accounts = f"/api/v1/namespaces/{system}/serviceaccounts"
    wait_until(lambda: bool(plane.api.get(accounts)["items"]), "there is a ServiceAccount")

    assert "linkwise" not in refusal(plane.api, system, a_pod(REFUSED)).replace(NAMESPACE, "")
