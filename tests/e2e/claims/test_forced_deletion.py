"""The policy that refuses to delete pods with claims by force."""

import pytest
from controlplane.api import refusal
from controlplane.claims_nodes import recorded
from controlplane.manifests import ROOT
from controlplane.pods import container
from controlplane.process import wait_until

from linkwise.cluster import keys

POLICY = str(ROOT / "manifests/forced-deletion")
COLLECTOR = "system:serviceaccount:kube-system:pod-garbage-collector"
AT_ONCE = "the GPUs of the pod would be given away"

pytestmark = pytest.mark.versions


@pytest.fixture
def running(plane, pods, machines):
    """A pod with a claim that runs, and one without, while the policy is in force."""
    machines(1)
    pods.create({keys.NVIDIA_GPU: 2}, name="trainer")
    pods.create({"cpu": 1}, name="plain")
    wait_until(lambda: {"trainer", "plain"} <= runs(pods), "both run")
    assert recorded(pods)["trainer"]
    applied = plane.kubectl("apply", "-k", POLICY)
    assert applied.returncode == 0, applied.stderr
    # API servers apply it when their watches deliver it.
    wait_until(lambda: AT_ONCE in refusal(lambda: delete(pods, "trainer", dryRun="All")), "it is")
    wait_until(lambda: "grace" in refusal(lambda: evict(pods, "none")), "it is in force")
    yield pods
    plane.kubectl("delete", "-k", POLICY)
    wait_until(lambda: "grace" not in refusal(lambda: evict(pods, "none")), "it is not in force")


def runs(pods):
    return {name for name, pod in pods.all().items() if pod["status"]["phase"] == "Running"}


def delete(pods, name, **options):
    pods.api.delete(f"{pods.path}/{name}", gracePeriodSeconds="0", **options)


def evict(pods, name, seconds=0):
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": pods.namespace},
        "deleteOptions": {"gracePeriodSeconds": seconds},
    }
    pods.api.create(f"{pods.path}/{name}/eviction", body)


def test_a_pod_with_claims_is_not_deleted_by_force(running):
    assert AT_ONCE in refusal(lambda: delete(running, "trainer"))
    assert "grace period 0" in refusal(lambda: evict(running, "trainer"))
    delete(running, "plain")
    wait_until(lambda: "plain" not in running.all(), "a pod without claims is deleted")
    assert "trainer" in runs(running)


def test_a_pod_with_claims_is_deleted_and_evicted_as_usual(running):
    running.create({keys.NVIDIA_GPU: 2}, name="second")
    wait_until(lambda: "second" in runs(running), "it runs")
    running.api.delete(f"{running.path}/trainer")
    evict(running, "second", seconds=1)
    wait_until(lambda: not {"trainer", "second"} & running.all().keys(), "both are gone")


def test_the_garbage_collector_of_pods_deletes_by_force(plane, running):
    argv = ("delete", "pod", "trainer", "--force", "--grace-period=0", f"--as={COLLECTOR}")
    deleted = plane.kubectl(*argv, f"--namespace={running.namespace}")
    assert deleted.returncode == 0, deleted.stderr
    assert "trainer" not in running.all()


def test_a_pod_with_claims_that_is_always_deleted_by_force_is_not_created(running):
    spec = {
        "containers": [container()],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "notebook"}],
        "terminationGracePeriodSeconds": 0,
    }
    assert "set at least 1" in refusal(lambda: running.create(name="never", spec=spec))
    running.create({"cpu": 1}, name="at-once", spec={"terminationGracePeriodSeconds": 0})
