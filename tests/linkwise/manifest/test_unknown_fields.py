"""Unknown fields of pods, as kubectl treats them."""

import json
from pathlib import Path

import pytest
from support.documents import ARENA

from linkwise.manifest.objects import objects_in
from linkwise.manifest.workload import expanded

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


def unknown(text):
    warnings = expanded(objects_in(text, "f"), "team").warnings
    return [each for each in warnings if "is unknown to Kubernetes" in each]


def a_pod(**spec):
    container = {"name": "main", "image": "x", **spec.pop("container", {})}
    spec = {"containers": [container], **spec}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})


@pytest.mark.parametrize(
    ("pod", "field", "fix"),
    [
        (a_pod(foo=1), "spec.foo", "Remove it"),
        (a_pod(nodeselector={"a": "b"}), "spec.nodeselector", "Write nodeSelector"),
        (a_pod(container={"cmd": ["x"]}), "spec.containers[0].cmd", "Remove it"),
        (
            a_pod(container={"resources": {"limit": {"cpu": 1}}}),
            "spec.containers[0].resources.limit",
            "Write limits",
        ),
        (
            a_pod(container={"env": [{"name": "A", "valueForm": {}}]}),
            "spec.containers[0].env[0].valueForm",
            "Write valueFrom",
        ),
        (
            a_pod(volumes=[{"name": "v", "emptyDir": {"size": "1Gi"}}]),
            "spec.volumes[0].emptyDir.size",
            "Remove it",
        ),
        (a_pod(labels={"a": "b"}), "spec.labels", "Write metadata.labels"),
        (
            a_pod(container={"resources": {"aliyun.com/gpu": 1}}),
            "spec.containers[0].resources[aliyun.com/gpu]",
            "Write aliyun.com/gpu in resources.limits of a container",
        ),
    ],
)
def test_an_unknown_field_is_a_warning_with_the_field_that_is_meant(pod, field, fix):
    assert unknown(pod) == [
        f"f:1: field {field} is unknown to Kubernetes: kubectl refuses it, and other clients lose "
        f"it. {fix}."
    ]


def test_values_that_users_name_are_no_fields():
    spec = {"nodeSelector": {"foo": "x"}, "container": {"resources": {"limits": {"bar/baz": 1}}}}

    assert unknown(a_pod(**spec, overhead={"foo": "1"})) == []


def test_the_templates_of_workloads_are_looked_at_and_guessed_ones_are_not():
    template = {"spec": {"containers": [{"name": "main"}], "foo": 1}}
    job = {"metadata": {"name": "j"}, "spec": {"template": template}}

    (message,) = unknown(json.dumps({"apiVersion": "batch/v1", "kind": "Job", **job}))

    assert "spec.template.spec.foo" in message
    assert unknown(json.dumps({"apiVersion": "example.org/v1", "kind": "Trainer", **job})) == []


def test_fields_beside_the_spec_are_looked_at():
    key = "alibabacloud.com/compute-class"
    template = {"metadata": {"lables": {}, key: "gpu"}, "spec": {"containers": []}, "labels": {}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "nme": "k"}}
    found = unknown(json.dumps({**job, "labels": {}, "spec": {"template": template}}))

    assert [(each.split()[2], each.rpartition("Write ")[2]) for each in found] == [
        ("labels", "metadata.labels."),
        ("metadata.nme", "name."),
        ("spec.template.labels", "metadata.labels."),
        ("spec.template.metadata.lables", "labels."),
        (f"spec.template.metadata[{key}]", f"{key} among the labels."),
    ]


def test_only_the_first_of_many_are_named():
    assert len(unknown(a_pod(**{f"x{i}": 1 for i in range(100)}))) == 8


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.name)
def test_the_examples_have_no_unknown_field(file):
    assert unknown(file.read_text(encoding="utf-8")) == []


def test_the_job_of_arena_has_no_unknown_field():
    assert unknown(ARENA) == []
