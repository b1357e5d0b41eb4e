import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.any_input import is_told, ran
from support.strategies import pods

WORDS = st.sampled_from(
    (
        *("metadata", "name", "labels", "annotations", "spec", "template", "items", "replicas"),
        *("containers", "initContainers", "resources", "limits", "requests", "env", "valueFrom"),
        *("parallelism", "completionMode", "podFailurePolicy", "rules", "action", "type"),
        *("pytorchReplicaSpecs", "mpiReplicaSpecs", "Worker", "Launcher", "Master"),
        *("nodes", "machine", "mode", "used", "gpu", "mem", "onPodConditions", "value"),
        *("aliyun.com/gpu", "aliyun.com/gpu-mem", "nvidia.com/gpu"),
    )
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 300)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "4", "0.5", "1e3", "Indexed", "topology", "t4x4", "Ignore", "\x1b[31m"])
    | st.text(max_size=5)
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)
KINDS = st.sampled_from(
    [
        ("v1", "Pod"),
        ("v1", "List"),
        ("v1", "Namespace"),
        ("v1", "ConfigMap"),
        ("v1", "Node"),
        ("apps/v1", "Deployment"),
        ("apps/v1", "StatefulSet"),
        ("batch/v1", "Job"),
        ("kubeflow.org/v1", "PyTorchJob"),
        ("kubeflow.org/v1", "MPIJob"),
        ("kubeflow.org/v2beta1", "MPIJob"),
        ("kubeflow.org/v1alpha1", "MPIJob"),
        ("linkwise.dev/v1alpha1", "Cluster"),
    ]
)


@settings(max_examples=40)
@given(st.text(max_size=80))
@example("{}")
@example("--- \n--- \n")
def test_any_text_gives_an_answer_or_one_line(text):
    is_told(*ran("check", "-", "-o", "json", stdin=text))
    is_told(*ran("topology", "show", "-", "-o", "json", stdin=text))
    is_told(*ran("policy", "lint", "-", "-o", "json", stdin=text))


@settings(max_examples=60)
@given(KINDS, JSON, JSON, st.dictionaries(WORDS, JSON, max_size=3))
def test_any_object_gives_an_answer_or_one_line(kind, metadata, spec, others):
    api_version, name = kind
    named = {"name": "a", **metadata} if isinstance(metadata, dict) else metadata
    manifest = {"apiVersion": api_version, "kind": name, **others, "metadata": named, "spec": spec}

    is_told(*ran("check", "-", "-o", "json", stdin=json.dumps(manifest)))


@settings(max_examples=40)
@given(pods())
def test_any_pod_is_shown_to_people_and_to_scripts(pod):
    manifest = json.dumps({"apiVersion": "v1", "kind": "Pod", **pod})

    code, out, err = ran("check", "-", "-o", "json", stdin=manifest)
    is_told(code, out, err)
    shown = ran("check", "-", stdin=manifest)

    assert (shown[0], shown[2]) == (code, err)
    if code != 2:
        (entry,) = json.loads(out)["items"]
        assert shown[1].startswith(f"{entry['verdict']} Pod ")
        assert entry["verdict"] == "allowed" or entry["patch"] == []


POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: []}\n"


@pytest.fixture(scope="module")
def pod(tmp_path_factory):
    path = tmp_path_factory.mktemp("any") / "pod.yaml"
    path.write_text(POD)
    return str(path)


@settings(max_examples=60)
@given(kind=KINDS, fields=st.dictionaries(WORDS | st.just("status"), JSON, max_size=4))
def test_any_cluster_gives_an_answer_or_one_line(pod, kind, fields):
    api_version, name = kind
    manifest = {"apiVersion": api_version, "kind": name, "metadata": {"name": "a"}, **fields}

    is_told(*ran("check", pod, "--cluster", "-", "-o", "json", stdin=json.dumps(manifest)))
