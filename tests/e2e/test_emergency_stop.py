"""The emergency stop on a real API server: what it takes out of the way, and what it leaves."""

import base64
import os
import shutil
import subprocess

import pytest
from controlplane.api import ApiError, refusal
from controlplane.manifests import BASE, MUTATING, NOT_FENCE, ROOT, complaints, install
from controlplane.process import wait_until
from controlplane.webhook import PATIENT, register, run_webhook

from linkwise.cluster import keys

SCRIPT = ROOT / "manifests/emergency-stop"
GPU = {keys.GPU_WHOLE: "1"}
OTHER = {"name": "example.com/other"}
GATES = "/spec/schedulingGates"
KINDS = (
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
)
ADMISSION = "/apis/admissionregistration.k8s.io/v1"


@pytest.fixture(scope="module")
def running(plane):
    with run_webhook(plane) as running:
        yield running


@pytest.fixture
def webhook(running):
    """The webhook; what the test before took out is installed again."""
    install(running.plane)
    bundle = base64.b64encode(running.ca.cert_pem).decode()
    register(running.plane, running.ports[0], bundle, seconds=PATIENT)
    return running


@pytest.fixture
def stop(plane, tmp_path):
    """Runs the script with nothing at hand but kubectl and what every POSIX system has."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("grep", "sed", "tail", "sleep"):
        (tools / name).symlink_to(shutil.which(name))
    (tools / "kubectl").symlink_to(plane.site.binaries["kubectl"])

    def run(*options, **environment):
        given = {"PATH": str(tools), "HOME": str(tmp_path), "KUBECONFIG": str(plane.kubeconfig)}
        return subprocess.run(
            [SCRIPT, *options],
            env=given | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    return run


def pod(name, limits=None, **spec):
    container = {"name": "main", "image": "registry.example/none"}
    container["resources"] = {"limits": limits or {}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def gates(api, path):
    return {
        one["metadata"]["name"]: [gate["name"] for gate in one["spec"].get("schedulingGates", [])]
        for one in api.get(path)["items"]
    }


def left(api):
    chosen = {"labelSelector": f"app.kubernetes.io/name=linkwise,{NOT_FENCE}"}
    return [item for kind in KINDS for item in api.get(f"{ADMISSION}/{kind}", **chosen)["items"]]


def passes(api, path, body):
    try:
        api.create(path, body, dryRun="All")
    except ApiError:
        return False
    return True


def test_emergency_stop_releases_our_pods_and_not_those_held_by_others(webhook, namespace, stop):
    api = webhook.plane.api
    path = f"/api/v1/namespaces/{namespace}/pods"
    api.create(path, pod("ours", GPU))
    api.create(path, pod("first", GPU, schedulingGates=[OTHER]))
    api.create(path, pod("last", GPU, schedulingGates=[{"name": keys.GANG}, OTHER]))
    api.create(path, pod("theirs", schedulingGates=[OTHER]))
    api.create(path, pod("plain"))
    before = gates(api, path)
    assert before["ours"] == [keys.GANG]
    assert set(before["first"]) == set(before["last"]) == {keys.GANG, OTHER["name"]}

    stopped = stop()

    assert (stopped.returncode, complaints(stopped.stderr)) == (0, "")
    assert gates(api, path) == {
        "ours": [],
        "first": [OTHER["name"]],
        "last": [OTHER["name"]],
        "theirs": [OTHER["name"]],
        "plain": [],
    }
    assert left(api) == []
    assert f"removing the scheduling gate {keys.GANG} from 3 pods" in stopped.stdout
    named = [line.strip() for line in stopped.stdout.splitlines() if line.startswith("  ")]
    assert named == [f"{namespace}/{name}" for name in ("first", "last", "ours")]
    assert 'mutatingwebhookconfiguration.admissionregistration.k8s.io "linkwise" deleted' in (
        stopped.stdout
    )
    # Pods that ask for GPUs are created unchanged, for every user.
    wait_until(lambda: passes(api, path, pod("after", GPU)), "nothing is in the way")
    assert "schedulingGates" not in api.create(path, pod("after", GPU))["spec"]

    again = stop()

    assert (again.returncode, complaints(again.stderr)) == (0, "")
    assert "from 0 pods" in again.stdout


def test_applying_the_manifests_again_restores_deleted_objects(webhook, namespace, stop):
    api = webhook.plane.api
    path = f"/api/v1/namespaces/{namespace}/pods"
    stop()
    assert left(api) == []

    assert webhook.plane.kubectl("apply", "-k", str(BASE)).returncode == 0

    assert len(left(api)) == 10
    # No server listens at the registered address: pods that must be placed are rejected again.
    assert "service" in api.get(MUTATING)["webhooks"][0]["clientConfig"]
    wait_until(lambda: not passes(api, path, pod("held", GPU)), "the policy is in force")


def test_many_pods_of_several_namespaces_are_let_go(webhook, namespace, stop):
    api = webhook.plane.api
    other = api.create("/api/v1/namespaces", {"metadata": {"generateName": "e2e-"}})
    paths = [f"/api/v1/namespaces/{one}/pods" for one in (namespace, other["metadata"]["name"])]
    accounts = paths[1].replace("pods", "serviceaccounts")
    wait_until(lambda: bool(api.get(accounts)["items"]), "the namespace has a ServiceAccount")
    for number in range(60):
        for path in paths:
            api.create(path, pod(f"pod-{number}", GPU))

    stopped = stop()

    assert (stopped.returncode, complaints(stopped.stderr)) == (0, "")
    assert "from 120 pods" in stopped.stdout
    assert [each for path in paths for each in gates(api, path).values() if each] == []
    api.delete(f"/api/v1/namespaces/{other['metadata']['name']}")


def test_options_reach_kubectl_and_a_failure_is_reported_before_any_change(webhook, stop):
    api = webhook.plane.api
    failed = stop("--context=nowhere")

    assert failed.returncode != 0
    assert "nowhere" in failed.stderr
    assert len(left(api)) == 10


def test_script_fails_with_a_reason_without_permission_to_patch_pods(
    webhook, namespace, stop, tmp_path
):
    plane = webhook.plane
    api = plane.api
    path = f"/api/v1/namespaces/{namespace}/pods"
    api.create(path, pod("held", GPU))
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rules = [
        {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    ]
    name = {"metadata": {"name": "no-patch"}}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "no-patch"}
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    api.create(f"{rbac}/clusterroles", {**name, "rules": rules})
    binding = {**name, "roleRef": role, "subjects": [subject]}
    api.create(f"{rbac}/clusterrolebindings", binding)
    try:
        token = plane.token(namespace, "default")
        # A user's token in the file would win.
        config = tmp_path / "config"
        config.write_text(plane.kubeconfig.read_text().replace(plane.tokens["admin"], token))
        may = plane.api_as(token)
        registered = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
        wait_until(lambda: refusal(lambda: may.get(registered)) == "", "the role is in force")
        # The pause between two attempts is what takes long.
        (tmp_path / "bin/sleep").unlink()
        (tmp_path / "bin/sleep").symlink_to(shutil.which("true"))

        failed = stop(KUBECONFIG=os.fspath(config))
    finally:
        for kind in ("clusterroles", "clusterrolebindings"):
            api.delete(f"{rbac}/{kind}/no-patch")

    assert failed.returncode == 1
    assert "1 pods still have the gate" in failed.stderr
    assert "cannot patch" in failed.stderr
