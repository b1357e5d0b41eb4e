"""A pod that is too large to be reviewed in time is denied, and the answer is small."""

import json

import pytest
from support.admission import admitted, codes, outcome_of, review_response
from support.builders import a_container, a_pod

from linkwise.admission.decide.outcome import Verdict
from linkwise.admission.read.work_limits import MAX_COMMAS, MAX_OPERATIONS, MAX_PARTS
from linkwise.cluster import container_variables, keys
from linkwise.cluster.finding import Code
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.policy.snapshot import PolicySnapshot

GPU = {keys.GPU_WHOLE: 1}


def with_env(variables, containers=1, name="V"):
    env = [{"name": name, "value": "x"}] * (variables // containers)
    made = [{**a_container(GPU, name=f"c{i}"), "env": env} for i in range(containers)]
    return {**a_pod(GPU), "spec": {"containers": made}}


def review(pod):
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    request = {"uid": "42", "kind": kind, "operation": "CREATE", "namespace": "a", "object": pod}
    text = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    answer = review_response(
        json.dumps(text).encode(),
        namespaces={"a": {}},
        policy=PolicySnapshot(),
        capacity=Capacity(),
    )
    return answer, json.loads(answer)["response"]


def too_large(pod):
    outcome = outcome_of(pod)
    return outcome.verdict is Verdict.DENIED and codes(outcome) == [Code.UNREADABLE]


def test_pod_with_too_many_parts_is_denied():
    assert not too_large(with_env(MAX_PARTS - 3))
    assert too_large(with_env(MAX_PARTS))


def test_pod_without_gpus_may_have_any_number_of_parts():
    pod = a_pod({"cpu": 1})
    pod["spec"]["containers"][0]["env"] = [{"name": "V"}] * (MAX_PARTS + 1)

    assert outcome_of(pod).verdict is Verdict.SKIPPED


CLAIMING = [{"resources": {"claims": [{"name": "a"}] * 256}}] * 4


def test_every_kind_of_part_counts():
    terms = [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"] * MAX_PARTS}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    spec = a_pod(GPU)["spec"]
    for extra in (
        {"initContainers": [{"env": [{"name": "V"}] * MAX_PARTS}]},
        {"initContainers": [{"volumeMounts": [{}] * MAX_PARTS}]},
        {"affinity": {"nodeAffinity": required}},
        {"nodeSelector": {f"a{i}": "" for i in range(MAX_PARTS)}},
        {"schedulingGates": [{"name": "g"}] * MAX_PARTS},
        {"resourceClaims": [{"name": "a"}] * (MAX_PARTS // 2), "initContainers": CLAIMING},
    ):
        assert too_large({**a_pod(GPU), "spec": {**spec, **extra}}), extra.keys()


def test_pod_that_needs_too_many_operations_is_denied():
    annotations = {f"{keys.VISIBLE_DEVICES_OF}{i}": "0" for i in range(MAX_OPERATIONS + 1)}

    assert admitted(with_env(MAX_OPERATIONS - 100, name=container_variables.ENV_VISIBLE_DEVICES))
    assert too_large(with_env(MAX_OPERATIONS + 1, name=container_variables.ENV_VISIBLE_DEVICES))
    assert too_large(a_pod(GPU, annotations=annotations))


def test_pod_whose_terms_need_too_many_operations_is_denied():
    pod = a_pod({keys.NVIDIA_GPU: 1})
    terms = [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}] * (MAX_OPERATIONS + 1)
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod["metadata"]["labels"] = {keys.COMPUTE_CLASS: "gpu", keys.MODEL_SERIES: "T4"}
    pod["spec"]["affinity"] = {"nodeAffinity": required}

    assert too_large(pod)


def test_body_with_too_many_values_is_denied():
    pod = a_pod(GPU)
    pod["spec"]["volumes"] = [{}] * (MAX_COMMAS - 100)
    assert review(pod)[1]["allowed"]

    pod["spec"]["volumes"] += [{}] * 200
    response = review(pod)[1]
    assert not response["allowed"]
    assert f"more than {MAX_COMMAS} values" in response["status"]["message"]


def test_answer_shows_the_first_errors_and_their_number():
    limits = {keys.GPU_CORE: "3" * 60, "x" * 317: 1}
    made = [a_container(limits, name="c" * 300) for _ in range(400)]

    answer, response = review({**a_pod(GPU), "spec": {"containers": made}})

    assert len(answer) < 1 << 20
    assert response["status"]["message"].startswith("800 problems: (1) spec.containers[0]")
    assert len(response["status"]["details"]["causes"]) == 50


@pytest.mark.parametrize(
    ("part", "longest"),
    [
        ("container", 317),
        ("generateName", 317),
        ("label", 317),
        ("annotation", 317),
        ("resource", 317),
        ("amount", 1024),
    ],
)
def test_long_name_key_or_amount_is_denied(part, longest):
    long = "1" * (longest + 1)
    pod = a_pod({long if part == "resource" else "a/b": long if part == "amount" else 1})
    pod["metadata"] |= {
        "generateName": long if part == "generateName" else "p",
        "labels": {"a": long if part == "label" else "b"},
        "annotations": {long if part == "annotation" else "a": ""},
    }
    if part == "container":
        pod["spec"]["containers"][0]["name"] = long

    response = review(pod)[1]

    assert not response["allowed"]
    assert f"length <= {longest}" in response["status"]["message"]


def test_number_of_very_many_digits_is_denied():
    response = review(a_pod({keys.GPU_WHOLE: 10**19}))[1]

    assert not response["allowed"]
    assert "Expected `int` <= 9223372036854775807" in response["status"]["message"]


@pytest.mark.parametrize("place", ["link", "size", "model", "driver", "wanted model"])
def test_long_text_of_a_pod_is_not_repeated_in_messages(place):
    long = "\x85" * 100_000
    annotations = {keys.GANG: "g", keys.GANG_SIZE: "2"}
    labels = {keys.COMPUTE_CLASS: "gpu", keys.MODEL_SERIES: "T4"} if "model" in place else {}
    selector = {}
    if place in {"link", "size"}:
        annotations[keys.LINK if place == "link" else keys.GANG_SIZE] = long
    else:
        selector[keys.DRIVER_VERSION if place == "driver" else keys.MODEL_SERIES] = long
    pod = a_pod(GPU, annotations=annotations, labels=labels)
    pod["spec"]["nodeSelector"] = selector

    findings = outcome_of(pod).findings

    assert findings
    assert all(len(finding.message) < 2000 for finding in findings)


def test_pod_affinity_is_not_decoded():
    pod = a_pod(GPU)
    pod["spec"]["affinity"] = {"podAffinity": "not even an object"}

    assert review(pod)[1]["allowed"]
