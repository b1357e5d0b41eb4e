"""The ways of a GPU into its container, and annotations that bypass them."""

import pytest
from support.admission import ARENA, a_snapshot, admitted, codes, outcome_of
from support.builders import TIMESLICED, a_container, a_pod

from linkwise.cluster import keys
from linkwise.cluster.finding import Code, Severity

RUNTIME_CLASS = a_snapshot("containers: {gpuInjection: runtimeClass}")
NRI = a_snapshot("containers: {gpuInjection: nri}")
WHOLE = {keys.GPU_WHOLE: 1}
LONGEST = "c" * 53
"""With the prefix, 63 characters: the longest name of an annotation."""

PLACED = [
    pytest.param(a_pod(WHOLE), id="whole GPUs"),
    pytest.param(a_pod({keys.GPU_MEM: 4}), id="share"),
    pytest.param(a_pod({keys.NVIDIA_GPU_SHARED: 1}, **TIMESLICED), id="replicas"),
]


@pytest.mark.parametrize("pod", PLACED)
def test_runtime_class_is_set_by_policy(pod):
    assert admitted(pod, RUNTIME_CLASS)["spec"]["runtimeClassName"] == "nvidia"


@pytest.mark.parametrize("policy", [a_snapshot(), NRI], ids=["agent", "nri"])
@pytest.mark.parametrize("pod", PLACED)
def test_runtime_class_is_not_set_otherwise(pod, policy):
    assert "runtimeClassName" not in admitted(pod, policy)["spec"]


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(a_pod({keys.NVIDIA_GPU: 1}), id="NVIDIA's plugin chooses"),
        pytest.param(a_pod(labels=ARENA), id="gang without GPUs"),
        pytest.param(a_pod(labels={keys.COMPUTE_CLASS: "gpu"}), id="no GPU"),
    ],
)
def test_runtime_class_is_not_set_on_pods_without_chosen_gpus(pod):
    assert "runtimeClassName" not in admitted(pod, RUNTIME_CLASS)["spec"]


@pytest.mark.parametrize(
    ("own", "findings"),
    [pytest.param("nvidia", [], id="nvidia"), pytest.param("gvisor", [Code.INJECTION], id="other")],
)
def test_runtime_class_of_the_pod_stays(own, findings):
    pod = a_pod(WHOLE, runtimeClassName=own)
    outcome = outcome_of(pod, RUNTIME_CLASS)

    assert codes(outcome, Severity.WARNING) == findings
    assert admitted(pod, RUNTIME_CLASS)["spec"]["runtimeClassName"] == own
    assert codes(outcome_of(pod)) == []


@pytest.mark.parametrize(
    ("name", "findings"),
    [
        pytest.param(LONGEST, [], id="longest"),
        pytest.param(LONGEST + "c", [Code.INJECTION], id="too long"),
    ],
)
def test_nri_limits_the_names_of_containers_with_gpus(name, findings):
    other = a_container(name="o" * 63)
    pod = a_pod(containers=[a_container(WHOLE, name=name), other])

    assert codes(outcome_of(pod, NRI), Severity.ERROR) == findings
    assert codes(outcome_of(pod)) == []


CDI_KEYS = [
    "cdi.k8s.io/any",
    "nvidia.cdi.k8s.io",
    "nvidia.cdi.k8s.io/pod",
    "nvidia.cdi.k8s.io/container.c0",
]


@pytest.mark.parametrize("key", CDI_KEYS)
@pytest.mark.parametrize(
    "pod",
    [*PLACED, pytest.param(a_pod(labels=ARENA), id="gang without GPUs")],
)
def test_cdi_annotations_of_users_are_denied(pod, key):
    annotations = {**pod["metadata"].get("annotations", {}), key: "nvidia.com/gpu=all"}
    pod = {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}
    outcome = outcome_of(pod)

    (finding,) = (each for each in outcome.findings if each.severity is Severity.ERROR)
    assert finding.code is Code.CDI_ANNOTATION
    assert finding.field == f"metadata.annotations[{key}]"


def test_cdi_annotations_of_a_profile_are_denied():
    profile = {"name": "all", "effect": {"annotations": {CDI_KEYS[0]: "nvidia.com/gpu=all"}}}

    assert codes(outcome_of(a_pod(WHOLE), a_snapshot("", [profile]))) == [Code.CDI_ANNOTATION]


@pytest.mark.parametrize("key", ["nvidia.cdi.k8s.io/container.c0", "cdi.k8s.io/any"])
def test_cdi_annotations_are_kept_where_linkwise_chooses_no_gpus(key):
    pod = a_pod({keys.NVIDIA_GPU: 1}, annotations={key: "nvidia.com/gpu=0"})

    assert codes(outcome_of(pod)) == []


def test_similar_annotations_are_kept():
    pod = a_pod(WHOLE, annotations={"cdi.k8s.io.example.com/a": "1", "my-cdi.k8s.io/a": "1"})

    assert codes(outcome_of(pod)) == []
