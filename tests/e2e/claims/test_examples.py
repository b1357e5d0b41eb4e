"""The examples of NVIDIA's DRA driver, as people apply them: the devices that their pods get."""

import pytest
from controlplane.claims_nodes import recorded, wait_until_templates_are_placed
from controlplane.dra import SLICES, claims_of
from controlplane.process import wait_until
from support.dra_examples import path_of

from linkwise.cluster import keys

PATIENCE = 120
POLICY = """
apiVersion: linkwise.dev/v1alpha1
kind: Policy
placement: {templates: auto}
"""

pytestmark = [pytest.mark.versions, pytest.mark.usefixtures("rights")]


@pytest.fixture
def node(policy, machines, pods):
    """A node with eight A100; the policy places claims of templates."""
    policy(POLICY)
    (name,) = machines(1, "dgx-a100")
    wait_until_templates_are_placed(pods)
    return name


@pytest.fixture
def paste(plane, pods, node):  # noqa: ARG001 - the pods are for its GPUs.
    """Apply an example, which is deleted after the test."""
    applied = []

    def apply(name):
        path = f"--filename={path_of(name)}"
        made = plane.kubectl("apply", f"--namespace={pods.namespace}", path)
        applied.append(path)
        assert made.returncode == 0, made.stderr

    yield apply
    for path in applied:
        plane.kubectl("delete", f"--namespace={pods.namespace}", "--wait=false", path)
    pods.clear()


@pytest.fixture
def run(paste, pods, claims, node):
    """Apply an example, and wait until its pods run with the GPUs of their records.

    Returns the GPUs of each pod by their indices, and its claim, by the name of the pod.
    """

    def apply(name, count):
        paste(name)

        def runs():
            phases = [pod["status"]["phase"] for pod in pods.all().values()]
            held = claims.allocated(pods.namespace)
            return phases == ["Running"] * count and len(held) == count and held == recorded(pods)

        wait_until(runs, f"{count} pods run with the GPUs of their records", PATIENCE)
        index = {gpu.uuid: i for i, gpu in enumerate(claims.gpus[node])}
        held = claims.allocated(pods.namespace).items()
        found = pods.api.get(claims_of(pods.namespace))["items"]
        assert len(found) == count
        return (
            {pod: sorted(index[uuid] for uuid in uuids) for pod, uuids in held},
            {one["status"]["reservedFor"][0]["name"]: one for one in found},
        )

    return apply


def allocated(claim):
    return claim["status"]["allocation"]["devices"]


def sharing(claim):
    """Return the strategy by which each request shares its GPU, as the driver reads it."""
    return {
        request: one["opaque"]["parameters"]["sharing"]["strategy"]
        for one in allocated(claim)["config"]
        if one["source"] == "FromClaim" and one["opaque"]["driver"] == keys.DRA_GPU_DRIVER
        for request in one["requests"]
    }


def test_each_of_two_pods_has_a_gpu_of_its_own(run):
    gpus, _ = run("gpu-test1", 2)

    assert gpus.keys() == {"pod1", "pod2"}
    assert [len(each) for each in gpus.values()] == [1, 1]
    assert gpus["pod1"] != gpus["pod2"]


def test_two_containers_of_a_pod_share_one_gpu(run, pods):
    gpus, claims = run("gpu-test2", 1)

    assert len(gpus["pod"]) == 1
    assert [one["request"] for one in allocated(claims["pod"])["results"]] == ["gpu"]
    containers = pods.all()["pod"]["spec"]["containers"]
    assert [one["resources"]["claims"] for one in containers] == [[{"name": "shared-gpu"}]] * 2


def test_two_pods_share_the_gpu_of_a_claim_that_both_name(paste, pods):
    paste("gpu-test3")

    def runs():
        return [pod["status"]["phase"] for pod in pods.all().values()] == ["Running"] * 2

    wait_until(runs, "both pods run", PATIENCE)
    (claim,) = pods.api.get(claims_of(pods.namespace))["items"]
    assert len(allocated(claim)["results"]) == 1
    assert sorted(user["name"] for user in claim["status"]["reservedFor"]) == ["pod1", "pod2"]
    assert len(recorded(pods)) == 1


def test_gpus_that_containers_share_by_time_slicing_and_mps_have_that_configuration(run):
    gpus, claims = run("gpu-test5", 1)

    assert len(gpus["pod0"]) == 2
    requests = [one["request"] for one in allocated(claims["pod0"])["results"]]
    assert sorted(requests) == ["mps-gpu", "ts-gpu"]
    assert sharing(claims["pod0"]) == {"mps-gpu": "MPS", "ts-gpu": "TimeSlicing"}


def test_pods_have_the_gpus_that_product_and_index_select(run, plane, claims, node):
    """The driver published the index of each GPU when this example was written."""
    publish_indices(plane.api, claims, node)

    gpus, made = run("gpu-test6", 4)

    assert sorted(gpus.values()) == [[0], [2], [4], [6]]
    assert [sharing(one) for one in made.values()] == [{"gpu": "TimeSlicing"}] * 4


def publish_indices(api, claims, node):
    (published,) = api.get(SLICES, fieldSelector=f"spec.nodeName={node}")["items"]
    index = {f"gpu-{gpu.minor}": i for i, gpu in enumerate(claims.gpus[node])}
    for device in published["spec"]["devices"]:
        device["attributes"]["index"] = {"int": index[device["name"]]}
    api.update(f"{SLICES}/{published['metadata']['name']}", published)
