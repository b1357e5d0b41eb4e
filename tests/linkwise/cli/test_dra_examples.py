"""The examples of NVIDIA's DRA driver and of Kubernetes: what is placed, and what is left."""

import json
from pathlib import Path

import pytest
import yaml
from support.dra_examples import example

CLUSTER = Path(__file__).parents[3] / "docs/examples/claims-cluster.yaml"
POLICY = "placement: {templates: auto}\ngangs: {kinds: [MPIJob, PyTorchJob]}\n"
GATES = [{"name": "linkwise.dev/gang"}]
H100 = "NVIDIA H100 80GB HBM3", "81559Mi"
A100 = "NVIDIA A100-SXM4-40GB", "40Gi"
NONE = "no node of Linkwise has GPUs that satisfy the selectors"


@pytest.fixture
def check(linkwise, write):
    """Check a manifest on a node of eight GPUs; the policy places claims of templates."""

    def check_text(text, product=H100):
        cluster = CLUSTER.read_text()
        for old, new in zip(H100, product, strict=True):
            cluster = cluster.replace(old, new)
        for name, content in {"cluster": cluster, "policy": POLICY, "job": text}.items():
            write(f"{name}.yaml", content)
        options = ("--cluster", "cluster.yaml", "--policy", "policy.yaml", "-o", "json")
        code, out, err = linkwise("check", "job.yaml", *options)
        assert err == ""
        return code, json.loads(out)["items"]

    return check_text


def gpus_of(item):
    """Return the number of GPUs that each pod of a checked template would have now."""
    return [len(pod["gpus"]) for pod in item["placement"]["pods"]]


TWO_REQUESTS = {"shared-gpus/ts-gpu": 1, "shared-gpus/mps-gpu": 1}
PLACED = [
    pytest.param("gpu-test1", H100, [{"gpu/gpu": 1}] * 2, [1, 1], id="gpu-test1"),
    pytest.param("gpu-test2", H100, [{"shared-gpu/gpu": 1}], [1], id="gpu-test2"),
    pytest.param("gpu-test3", H100, [{"shared-gpu/gpu": 1}] * 2, [1, 1], id="gpu-test3"),
    pytest.param("gpu-test5", H100, [TWO_REQUESTS], [2], id="gpu-test5"),
    pytest.param("gpu-test7", H100, [{"gpu0/gpu": 1, "gpu1/gpu": 1}], [2], id="gpu-test7"),
    pytest.param("gpu-test-count", H100, [{"gpu/gpu": 2}], [2], id="gpu-test-count"),
    pytest.param("a100-pod", A100, [{"gpu/gpu": 1}], [1], id="by product"),
    pytest.param("large-gpu-pod", H100, [{"gpu/gpu": 1}], [1], id="by memory"),
    pytest.param(
        "nvidia-dra-job",
        (H100[0], "64Gi"),
        [{"separate-gpu-claim/gpu-claim": 1}],
        [1, 1],
        id="a Job of Kubernetes' documents",
    ),
    pytest.param("mpi-job", H100, [{"gpu/gpu": 1}], [1] * 4, id="MPIJob"),
    pytest.param("pytorch-job", H100, [{"gpu/gpu": 1}] * 2, [1] * 4, id="PyTorchJob"),
]


@pytest.mark.parametrize(("name", "product", "claimed", "gpus"), PLACED)
def test_whole_gpus_of_an_example_are_placed(check, name, product, claimed, gpus):
    code, items = check(example(name), product)

    assert code == 0
    assert not any(one["findings"] for one in items)
    annotations = [one["patched"]["metadata"].get("annotations", {}) for one in items]
    texts = [one["linkwise.dev/claimed-gpus"] for one in annotations if one]
    amounts = [json.loads(text) for text in texts]
    assert [without_selectors(one) for one in amounts] == claimed
    ours = [one for one in items if one["placement"]]
    assert [one["patched"]["spec"]["schedulingGates"] for one in ours] == [GATES] * len(claimed)
    assert [each for one in ours for each in gpus_of(one)] == gpus


def without_selectors(amounts):
    return {key: value for key, value in amounts.items() if key != "selectors"}


LEFT = [
    pytest.param(
        "gpu-test4",
        H100,
        "template mig-devices: class 'mig.nvidia.com' has a selector of devices that are no whole"
        " GPUs",
        id="gpu-test4",
    ),
    pytest.param("gpu-test6", H100, NONE, id="gpu-test6"),
    pytest.param("a100-pod", H100, NONE, id="by product"),
    pytest.param("large-gpu-pod", A100, NONE, id="by memory"),
    pytest.param("hopper-80g-pod", H100, NONE, id="80 GiB, of which an H100 has a little less"),
    pytest.param("nvidia-dra-job", H100, NONE, id="a Job of Kubernetes' documents"),
    pytest.param(
        "first-available",
        H100,
        "template gpus: request 'gpu' has alternatives (firstAvailable)",
        id="firstAvailable",
    ),
    pytest.param(
        "admin-access",
        H100,
        "template all-gpus: request 'gpu' has adminAccess",
        id="adminAccess",
    ),
]


@pytest.mark.parametrize(("name", "product", "reason"), LEFT)
def test_an_example_is_left_to_the_scheduler_with_the_reason(check, name, product, reason):
    code, (item,) = check(example(name), product)

    assert (code, item["verdict"]) == (0, "allowed")
    assert [one["code"] for one in item["findings"]] == ["LW125"]
    assert item["findings"][0]["message"].endswith(f"to kube-scheduler: {reason}")
    assert item["patched"]["metadata"]["annotations"] == {"linkwise.dev/left-to-scheduler": reason}
    assert "schedulingGates" not in item["patched"]["spec"]


def test_an_example_with_devices_of_another_driver_is_not_concerned(check):
    code, (item,) = check(example("example-dra-job"))

    assert (code, item["verdict"], item["findings"]) == (0, "skipped", [])


def test_gpus_without_the_attribute_of_a_selector_are_not_chosen(check):
    """The driver does not publish `index` any more, which gpu-test6 asks for."""
    code, (item,) = check(example("gpu-test6"), A100)

    assert (code, item["findings"], item["placement"]["never"]) == (1, [], True)
    assert "no GPU for which the selectors of the claim hold" in item["placement"]["reason"]


@pytest.mark.parametrize(
    "name", ["gpu-test1", "gpu-test4", "gpu-test5", "gpu-test6", "first-available", "admin-access"]
)
@pytest.mark.parametrize("version", ["v1alpha3", "v1beta1"])
def test_an_example_in_the_form_of_older_versions_has_the_same_result(check, name, version):
    assert results(check, in_form_of(version, example(name))) == results(check, example(name))


def results(check, text):
    """Return what a check says of each pod, without lines of the manifest."""
    _, items = check(text)
    pods = [one["patched"] for one in items]
    messages = [[each["message"] for each in one["findings"]] for one in items]
    return messages, [(one["metadata"].get("annotations"), one["spec"]) for one in pods]


def in_form_of(version, text):
    """Return an example in the form of older versions, where requests have no `exactly`."""
    documents = list(yaml.safe_load_all(text))
    for one in documents:
        if one["kind"] == "ResourceClaimTemplate":
            one["apiVersion"] = f"resource.k8s.io/{version}"
            for request in one["spec"]["spec"]["devices"]["requests"]:
                request.update(request.pop("exactly", {}))
    return yaml.safe_dump_all(documents)
