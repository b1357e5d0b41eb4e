"""GPUs that NVIDIA's plugin chooses: every command states a bandwidth only if it is known."""

import json

import pytest
from support.builders import a_pod
from support.fleet_map import text_of_map

from linkwise.cluster import keys

NODE = """
apiVersion: linkwise.dev/v1alpha1
kind: Cluster
nodes:
  - {name: dgx, machine: dgx-h100, cpu: 96, memory: 768Gi}
"""
WHOLE, PART = 4, 3
"""Workers with two GPUs each, on a node with eight."""
BANDWIDTH = {WHOLE: 211.9, PART: None}
NOTE = {WHOLE: None, PART: "GPUs unknown"}
UNKNOWN = "The bandwidth is not known: NVIDIA's plugin chooses the GPUs of dgx."
sizes = pytest.mark.parametrize("size", [WHOLE, PART], ids=["whole node", "part of a node"])


def pods(size: int, *, placed: bool) -> str:
    """Return the pods of a gang as documents; with their record if they are placed."""
    marks = {keys.GANG: "train", keys.GANG_SIZE: str(size)}
    record = {"v": 1, "node": "dgx", "gpus": None, "count": 2}
    annotations = {**marks, keys.ALLOCATION: json.dumps(record)} if placed else marks
    home = {"nodeName": "dgx"} if placed else {}
    made = (
        a_pod({keys.NVIDIA_GPU: 2}, name=f"w-{i}", annotations=annotations, **home)
        for i in range(size)
    )
    return "".join(f"---\n{json.dumps(pod)}\n" for pod in made)


def states(out: str, size: int) -> bool:
    """Return whether a text states the bandwidth of the whole node, or that it is not known."""
    is_known = "211.9 GB/s" in out
    assert is_known is (UNKNOWN not in out)
    return is_known is (size == WHOLE)


@pytest.fixture
def call(linkwise, write):
    """Run a command on new pods or, with their record, on placed ones."""

    def run(size, *arguments, placed=False):
        made = pods(size, placed=placed)
        write("pods.yaml", made)
        write("cluster.yaml", NODE + made * placed)
        files = [] if placed else ["pods.yaml"]
        ran = linkwise(*arguments, *files, "--cluster", "cluster.yaml")
        assert ran.code == 0, ran.err
        return ran.out

    return run


@sizes
def test_simulate(call, size):
    (gang,) = json.loads(call(size, "simulate", "-o", "json"))["gangs"]

    assert (gang["bandwidth"], gang["bandwidth_note"]) == (BANDWIDTH[size], NOTE[size])
    assert gang["counts"] == {"dgx": 2 * size}
    shown = call(size, "simulate")
    assert states(shown, size)
    assert "w-0  dgx   2, chosen by NVIDIA's plugin\n" in shown


@sizes
def test_check(call, size):
    document = json.loads(call(size, "check", "-o", "json"))

    for item in document["items"]:
        fit = item["placement"]
        assert (fit["bandwidth"], fit["bandwidth_note"]) == (BANDWIDTH[size], NOTE[size])
        assert fit["pods"][0]["count"] == 2
    shown = call(size, "check")
    assert states(shown, size)
    assert "2, chosen by NVIDIA's plugin" in shown


@sizes
@pytest.mark.parametrize("name", ["gang", "pod"])
def test_explain(call, size, name):
    what = (name, "default/train" if name == "gang" else "default/w-0")

    (unit,) = json.loads(call(size, "explain", *what, "-o", "json", placed=True))["items"]

    assert unit["state"] == "placed"
    assert (unit["bandwidth"], unit["bandwidth_note"]) == (BANDWIDTH[size], NOTE[size])
    assert {each["count"] for each in unit["pods"]} == {2}
    shown = call(size, "explain", *what, placed=True)
    assert states(shown, size)
    assert "2, chosen by NVIDIA's plugin  bound" in shown


@sizes
def test_inspect(call, size):
    (node,) = json.loads(call(size, "inspect", "-o", "json", placed=True))["nodes"]

    assert {each["bandwidth"] for each in node["counted"]} == {BANDWIDTH[size]}
    shown = call(size, "inspect", placed=True)
    assert ("211.9 GB/s" if size == WHOLE else "bandwidth not known") in shown
    assert ("bandwidth not known" in shown) is (size == PART)


@sizes
def test_page_of_simulate(call, size):
    shown = call(size, "simulate", "-o", "html")

    assert ("The bandwidth is not known: NVIDIA&#x27;s plugin chooses the GPUs." in shown) is (
        size == PART
    )
    assert (">211.9 GB/s<" in shown) is (size == WHOLE)
    assert f"{2 * size} GPUs, chosen by NVIDIA&#x27;s plugin" in shown


@sizes
@pytest.mark.parametrize("command", ["inspect", "simulate"])
def test_map_of_a_page(call, size, command):
    shown = text_of_map(call(size, command, "-o", "html", placed=command == "inspect"))

    sentences = {
        WHOLE: "Gang default/train has all 8 GPUs: 211.9 GB/s.",
        PART: "Gang default/train: the bandwidth is not known, since NVIDIA's plugin chooses",
    }
    assert {each: sentence in shown for each, sentence in sentences.items()} == {
        each: each == size for each in sentences
    }
