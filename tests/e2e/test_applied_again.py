"""An unchanged manifest that is applied again, by each way of people and of GitOps tools."""

import json

import pytest
from controlplane.pods import a_pod, container, requirement, terms
from controlplane.process import wait_until

from linkwise.cluster import keys

pytestmark = [pytest.mark.usefixtures("placing"), pytest.mark.versions]

LAST = "kubectl.kubernetes.io/last-applied-configuration"


def manifest(pods, name="train"):
    """Return a pod whose variables and node affinity admission changes."""
    first = container({keys.GPU_WHOLE: 2}, "main")
    first["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, {"name": "A", "value": "a"}]
    second = container({}, "side")
    second["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    affinity = terms([requirement(keys.HOSTNAME, "Exists")])
    body = a_pod(name, containers=[first, second], **affinity)
    body["metadata"]["namespace"] = pods.namespace
    return {"apiVersion": "v1", "kind": "Pod", **body}


def unchanged(pod):
    """Return what an update that changes nothing keeps."""
    annotations = {
        key: text for key, text in pod["metadata"].get("annotations", {}).items() if key != LAST
    }
    return pod["spec"], pod["metadata"].get("labels"), annotations


def applied(plane, body, *options):
    done = plane.kubectl("apply", *options, "--filename=-", stdin=json.dumps(body))
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize(
    # The scorer's node affinity is a field of its own to kubectl, as to all that apply.
    "options",
    [(), ("--server-side", "--force-conflicts")],
    ids=["apply", "server-side apply"],
)
@pytest.mark.parametrize("is_bound", [False, True], ids=["waits", "is bound"])
def test_a_pod_whose_manifest_is_applied_again_is_unchanged(
    plane, pods, machines, options, is_bound
):
    if is_bound:
        machines(1)
    body = manifest(pods)
    applied(plane, body, *options)
    if is_bound:
        wait_until(lambda: bool(pods.all()["train"]["spec"].get("nodeName")), "it is bound", 60)
    before = pods.all()["train"]

    applied(plane, body, *options)
    differs = plane.kubectl("diff", *options, "--filename=-", stdin=json.dumps(body))

    assert unchanged(pods.all()["train"]) == unchanged(before)
    assert (differs.returncode, differs.stdout) == (0, ""), differs.stderr


def test_a_server_side_apply_without_force_is_refused_where_check_says_so(plane, pods, machines):
    machines(1)
    body = manifest(pods)
    applied(plane, body, "--server-side")
    wait_until(lambda: bool(pods.all()["train"]["spec"].get("nodeName")), "it is bound", 60)

    again = plane.kubectl("apply", "--server-side", "--filename=-", stdin=json.dumps(body))

    assert again.returncode != 0
    assert "conflict" in again.stderr
    assert "nodeAffinity" in again.stderr


def test_the_dry_run_of_gitops_tools_shows_no_difference(pods, machines):
    """Argo CD and Flux compare the result of a server-side apply as a dry run with the pod."""
    machines(1)
    body, path = manifest(pods), f"{pods.path}/train"
    query = {"fieldManager": "argocd-controller", "force": "true"}
    pods.api.patch(path, body, "apply", **query)
    wait_until(lambda: bool(pods.all()["train"]["spec"].get("nodeName")), "it is bound", 60)

    predicted = pods.api.patch(path, body, "apply", dryRun="All", **query)

    assert unchanged(predicted) == unchanged(pods.all()["train"])


def test_a_change_of_the_manifest_is_refused_as_before(plane, pods):
    body = manifest(pods)
    applied(plane, body)
    body["spec"]["containers"][0]["env"][1]["value"] = "b"

    done = plane.kubectl("apply", "--filename=-", stdin=json.dumps(body))

    assert done.returncode != 0
    assert "Forbidden" in done.stderr or "may not" in done.stderr
