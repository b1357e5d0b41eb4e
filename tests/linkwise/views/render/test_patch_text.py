import pytest

from linkwise.admission.operations import Operation, add, remove
from linkwise.views.render.patch_text import LONGEST_VALUE, describe

REFERENCE = {"valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['a.b/c']"}}}


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        pytest.param(
            remove("/metadata/annotations/linkwise.dev~1term", "r"),
            ["removes metadata.annotations[linkwise.dev/term]"],
            id="removal",
        ),
        pytest.param(
            add("/metadata/labels", {"a": "1", "b": "2"}, "r"),
            ["adds label a=1", "adds label b=2"],
            id="labels",
        ),
        pytest.param(
            add("/metadata/annotations/a.b~1c", "x", "r"), ["adds annotation a.b/c=x"], id="one"
        ),
        pytest.param(
            add("/spec/schedulingGates/-", {"name": "g"}, "r"),
            ["holds the pod with gate linkwise.dev/gang until its GPUs are chosen"],
            id="gate",
        ),
        pytest.param(
            add(
                "/spec/affinity/nodeAffinity/x/0/matchExpressions/-",
                {"key": "k", "operator": "In", "values": ["a", "b"]},
                "r",
            ),
            ["requires nodes with k In (a, b)"],
            id="requirement",
        ),
        pytest.param(
            add(
                "/spec/affinity",
                {"n": [{"m": [{"key": "k", "operator": "In", "values": ["a"]}] * 2}]},
                "r",
            ),
            ["requires nodes with k In (a)"] * 2,
            id="whole affinity",
        ),
        pytest.param(
            add(
                "/spec/containers/1/env",
                [{"name": "A", "value": "1"}, {"name": "B"} | REFERENCE],
                "r",
            ),
            ["sets A=1 in containers[1]", "sets B from annotation a.b/c in containers[1]"],
            id="variables",
        ),
        pytest.param(
            Operation("replace", "/spec/initContainers/0/env/2", {"name": "A"} | REFERENCE, "r"),
            ["replaces A from annotation a.b/c in initContainers[0]"],
            id="replaced variable",
        ),
        pytest.param(
            add("/spec/schedulerName", "linkwise", "r"),
            ['sets spec.schedulerName = "linkwise"'],
            id="anything else",
        ),
        pytest.param(
            Operation("replace", "/spec/containers/0/resources/limits", {"a": 1}, "r"),
            ['replaces spec.containers[0].resources.limits = {"a": 1}'],
            id="replaced",
        ),
        pytest.param(
            add("/spec/tolerations/-", {"key": "a"}, "r"),
            ['sets spec.tolerations = {"key": "a"}'],
            id="appended",
        ),
    ],
)
def test_step_is_described_in_words(step, expected):
    assert list(describe(step)) == expected


def test_a_long_value_is_cut():
    (expected,) = describe(add("/spec/x", "y" * 200, "r"))

    assert expected.endswith("…")
    assert len(expected) == len("sets spec.x = ") + LONGEST_VALUE
