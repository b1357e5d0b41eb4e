"""The chart on a real API server: installed, upgraded to other values, rolled back."""

import base64
import json
import subprocess

import pytest
import yaml
from controlplane.chart import CHART, IMAGE, RELEASE, rendered
from controlplane.installation import SECRET_PATH, certs_process
from controlplane.manifests import BASE, MUTATING, NAMESPACE, VALIDATING
from controlplane.process import answers, wait_until

from certs.leaf import read_leaf
from linkwise.cluster import keys

VALUES = "--set=policy.gangs.ageingMinutes=5,webhook.replicas=3"
SCHEDULER = (
    "--set=scheduler.enabled=true,scheduler.image.repository=registry.example/kube-scheduler"
)
KINDS = (
    "namespaces,resourcequotas,configmaps,serviceaccounts,services,deployments,daemonsets,poddisruptionbudgets,networkpolicies,"
    "roles,rolebindings,clusterroles,clusterrolebindings,crds,flowschemas,"
    "mutatingwebhookconfigurations,validatingwebhookconfigurations,"
    "validatingadmissionpolicies,validatingadmissionpolicybindings,"
    "mutatingadmissionpolicies,mutatingadmissionpolicybindings"
)


@pytest.fixture
def certs(plane, tmp_path):
    """Starts certs under its account, and waits until API servers would trust its CA."""
    started = []

    def start():
        process = certs_process(plane, tmp_path)
        plane.processes.start(process)
        started.append(process)
        process.wait_ready(lambda: answers(f"{process.urls[0]}/readyz"))
        trusted = read_leaf(plane.api.get(SECRET_PATH)["data"]).trusted
        wait_until(lambda: bundles(plane) == {trusted}, "all registrations trust the CA")

    yield start
    for process in started:
        plane.processes.stop(process)


def bundles(plane):
    hooks = [hook for path in (MUTATING, VALIDATING) for hook in plane.api.get(path)["webhooks"]]
    return {base64.b64decode(hook["clientConfig"].get("caBundle", "")) for hook in hooks}


def shipped(plane):
    """Return the identities of the objects of Linkwise that there are."""
    found = json.loads(plane.kubectl("get", KINDS, "-A", "-o", "json").stdout)["items"]
    return {identity(one) for one in found if is_released(one)}


def is_released(one):
    return "meta.helm.sh/release-name" in one["metadata"].get("annotations", {})


def identity(one):
    return one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]


def objects(programs, chart, *options):
    texts = rendered(programs["helm"], "--no-hooks", *options, chart=chart).values()
    return {identity(one): one for each in texts for one in map(yaml.safe_load, each)}


def policy(plane):
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{keys.POLICY_NAME}"
    return yaml.safe_load(plane.api.get(path)["data"][keys.POLICY_KEY])


def scorer_containers(plane):
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/linkwise-scorer"
    pod = plane.api.get(path)["spec"]["template"]["spec"]
    return [container["name"] for container in pod["containers"]]


def succeed(ran):
    assert (ran.returncode, ran.stderr) == (0, "")


def test_upgrade_to_other_values_and_rollback_keep_trust_and_policy(plane, helm, certs, programs):
    succeed(helm("install", RELEASE, str(CHART), "--create-namespace", VALUES))
    certs()
    trusted = bundles(plane)
    assert shipped(plane) == objects(programs, CHART, VALUES).keys()

    succeed(helm("upgrade", RELEASE, str(CHART), "--reset-then-reuse-values", SCHEDULER))

    new = objects(programs, CHART, VALUES, SCHEDULER)
    assert shipped(plane) == new.keys()
    assert bundles(plane) == trusted
    assert policy(plane)["gangs"] == {"ageingMinutes": 5}
    assert policy(plane)["placement"] == {"mode": "scheduler"}
    assert scorer_containers(plane) == ["scorer", "scheduler"]

    succeed(helm("rollback", RELEASE, "1"))

    assert shipped(plane) == objects(programs, CHART, VALUES).keys()
    assert bundles(plane) == trusted
    assert policy(plane)["gangs"] == {"ageingMinutes": 5}
    assert "placement" not in policy(plane)
    assert scorer_containers(plane) == ["scorer"]


def test_interrupted_upgrade_is_ended_by_a_rollback(plane, helm, programs):
    succeed(helm("install", RELEASE, str(CHART), "--create-namespace", VALUES))
    # No kubelet makes its pods ready, so that it waits.
    argv = (
        programs["helm"], "upgrade", RELEASE, str(CHART), f"--namespace={NAMESPACE}",
        f"--kubeconfig={plane.kubeconfig}", "--set=policy.gangs.ageingMinutes=7", IMAGE, "--wait",
    )  # fmt: skip
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as upgrade:
        wait_until(lambda: policy(plane)["gangs"] == {"ageingMinutes": 7}, "it is half done")
        upgrade.kill()

    refused = helm("upgrade", RELEASE, str(CHART))
    succeed(helm("rollback", RELEASE))

    assert "another operation (install/upgrade/rollback) is in progress" in refused.stderr
    assert policy(plane)["gangs"] == {"ageingMinutes": 5}
    succeed(helm("upgrade", RELEASE, str(CHART)))


def test_upgrade_to_the_same_version_and_values_changes_no_object(plane, helm):
    succeed(helm("install", RELEASE, str(CHART), "--create-namespace"))
    versions = dict(generations(plane))

    succeed(helm("upgrade", RELEASE, str(CHART)))

    assert dict(generations(plane)) == versions


def generations(plane):
    found = json.loads(plane.kubectl("get", KINDS, "-A", "-o", "json").stdout)["items"]
    for one in found:
        if is_released(one):
            yield identity(one), one["metadata"].get("generation")


def test_objects_that_kubectl_applied_are_taken_over(plane, helm, programs):
    assert plane.kubectl("apply", "-k", str(BASE)).returncode == 0

    refused = helm("install", RELEASE, str(CHART))
    succeed(helm("install", RELEASE, str(CHART), "--take-ownership", "--force-conflicts"))

    assert "exists and cannot be imported into the current release" in refused.stderr
    assert shipped(plane) == objects(programs, CHART).keys()
