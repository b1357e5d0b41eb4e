import textwrap

import pytest

from linkwise.manifest.objects import objects_in
from linkwise.manifest.workload import expanded

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {LABELS}
  annotations: {ANNOTATIONS}
spec:
  template:
    metadata:
      labels: {INNER}
      annotations: {NOTES}
    spec:
      containers:
      - name: main
        RESOURCES
"""


def warned(text):
    return expanded(objects_in(text, "f"), "team").warnings


def deployment(labels="", annotations="", inner="", notes="", resources="image: x"):
    text = DEPLOYMENT.replace("LABELS", labels).replace("ANNOTATIONS", annotations)
    return text.replace("INNER", inner).replace("NOTES", notes).replace("RESOURCES", resources)


@pytest.mark.parametrize(
    "pair",
    [
        "alibabacloud.com/compute-class: gpu",
        "alibabacloud.com/gpu-model-series: T4",
        "aliyun.com/gpu-count: '2'",
        "pod-group.scheduling.sigs.k8s.io/name: bert",
    ],
)
@pytest.mark.parametrize(("part", "line"), [("labels", 5), ("annotations", 6)])
def test_labels_of_a_workload_are_warned_of(pair, part, line):
    key = pair.partition(":")[0]

    assert warned(deployment(**{part: pair})) == (
        f"f:{line}: {part[:-1]} {key} has no effect here: pods do not get it. "
        f"Write {key} in spec.template.metadata.labels.",
    )


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (
            {"notes": "aliyun.com/gpu-count: '2'"},
            "f:11: annotation aliyun.com/gpu-count has no effect. Write aliyun.com/gpu-count among "
            "the labels.",
        ),
        (
            {"inner": "alibabacloud.com/compute-clas: gpu"},
            "f:10: label alibabacloud.com/compute-clas is not known. "
            "Write alibabacloud.com/compute-class.",
        ),
        (
            {"inner": "aliyun.com/gpu-counts: '2'"},
            "f:10: label aliyun.com/gpu-counts is not known. Write aliyun.com/gpu-count.",
        ),
        (
            {"inner": "linkwise.dev/gang-size: '4'"},
            "f:10: label linkwise.dev/gang-size has no effect. Write linkwise.dev/gang-size among "
            "the annotations.",
        ),
        (
            {"notes": "linkwise.dev/links: nvlink"},
            "f:11: annotation linkwise.dev/links is not known. Write linkwise.dev/link.",
        ),
        (
            {"notes": "gpu-topology-replica: '4'"},
            "f:11: annotation gpu-topology-replica has no effect. Write gpu-topology-replica among "
            "the labels.",
        ),
        (
            {"inner": "gang.scheduling.koordinator.sh/name: bert"},
            "f:10: label gang.scheduling.koordinator.sh/name has no effect. Write "
            "gang.scheduling.koordinator.sh/name among the annotations.",
        ),
        (
            {"inner": "ack.node.gpu.schedule: topology"},
            "f:10: label ack.node.gpu.schedule has no effect. Write ack.node.gpu.schedule in "
            "spec.nodeSelector.",
        ),
        (
            {"inner": "aliyun.com/gpu-mem: '3'"},
            "f:10: label aliyun.com/gpu-mem has no effect. Write aliyun.com/gpu-mem in "
            "resources.limits of a container.",
        ),
        (
            {"inner": "alibabacloud.com/gpu-model-series: T4"},
            "f:10: label alibabacloud.com/gpu-model-series has an effect beside "
            "alibabacloud.com/compute-class only. Write this label, too, unless a profile adds it.",
        ),
        (
            {"resources": "resource: {limits: {aliyun.com/gpu: 1}}"},
            "f:15: field spec.template.spec.containers[0].resource is unknown to Kubernetes: "
            "kubectl refuses it, and other clients lose it. Write resources.",
        ),
        (
            {"resources": "limits: {aliyun.com/gpu: 1}"},
            "f:15: field spec.template.spec.containers[0].limits is unknown to Kubernetes: "
            "kubectl refuses it, and other clients lose it. Write resources.limits.",
        ),
    ],
)
def test_field_without_effect_in_a_template_is_a_warning(where, message):
    assert warned(deployment(**where)) == (message,)


def test_what_has_an_effect_is_not_warned_of():
    labels = "alibabacloud.com/compute-class: gpu, aliyun.com/gpu-count: '2', app: x, a.b/class: y"

    assert warned(deployment(labels="app: x", inner=labels)) == ()


def test_a_pod_is_its_own_template():
    pod = """\
        apiVersion: v1
        kind: Pod
        metadata: {name: a, labels: {alibabacloud.com/compute-class: gpu}}
        spec: {containers: []}
    """

    assert warned(textwrap.dedent(pod)) == ()


def test_labels_of_a_workload_in_a_list_are_warned_of():
    item = textwrap.indent(deployment(labels="aliyun.com/gpu-count: '2'"), "  ")
    text = f"apiVersion: v1\nkind: List\nitems:\n- {item.lstrip()}"

    assert warned(text) == (
        "f:8: label aliyun.com/gpu-count has no effect here: pods do not get it. "
        "Write aliyun.com/gpu-count in items[0].spec.template.metadata.labels.",
    )


@pytest.mark.parametrize(
    ("pair", "where"),
    [
        ("aliyun.com/gpu: '2'", "spec.template.spec.containers: resources.limits"),
        ("linkwise.dev/link: nvlink", "spec.template.metadata.annotations"),
        ("ack.node.gpu.schedule: share", "spec.template.spec.nodeSelector"),
    ],
)
def test_keys_of_a_workload_are_warned_of_with_the_place_in_its_pods(pair, where):
    (message,) = warned(deployment(labels=pair))

    assert message.endswith(f"Write {pair.partition(':')[0]} in {where}.")


def test_labels_of_pods_select_no_nodes():
    """Nodes have the labels of a GPU model and of their mode, too."""
    key = "alibabacloud.com/compute-class"
    on_nodes = "alibabacloud.com/gpu-model-series: T4, ack.node.gpu.schedule: share"
    selector = f"{{{key}: gpu, {on_nodes}}}"
    text = deployment().replace("    spec:\n", f"    spec:\n      nodeSelector: {selector}\n")

    assert warned(text) == (
        f"f:13: nodeSelector {key} only selects nodes by labels. Write {key} among the labels.",
    )


def test_a_key_that_the_template_has_too_is_no_warning():
    key = "alibabacloud.com/compute-class: gpu"

    assert warned(deployment(labels=key, inner=key)) == ()


def test_a_label_that_takes_a_job_out_of_its_gang_has_an_effect():
    assert warned(deployment(inner="linkwise.dev/gang: 'false'")) == ()
