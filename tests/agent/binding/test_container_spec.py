"""The CDI specification of one container."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.gpu_readings import gpu

from agent.binding.cdi_spec import Edits, SpecError, encode_spec, parse_spec
from agent.binding.container_spec import Binding, container_spec, read_binding
from agent.binding.gpu_edits import edits_of
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.keys import CDI_BINDING

HERE = Path(__file__).parent
BINDING = Binding(
    "ns", "train-0", "u1", "main", "aliyun.com/gpu", frozenset({"slot-3"}), (GPUShare(1, "GPU-1"),)
)


NONE = Edits()


def written(binding=BINDING, edits=NONE, extra=NONE, version="0.5.0"):
    return json.loads(encode_spec(container_spec(binding, edits, extra, version)))


def env(spec):
    return spec["devices"][0]["containerEdits"]["env"]


def test_the_file_of_a_container_has_the_edits_of_its_gpu_and_the_common_ones():
    nvidia = parse_spec((HERE / "nvidia.yaml").read_bytes())
    golden = json.loads((HERE / "container.json").read_text())
    golden["devices"][0]["name"] = BINDING.device

    assert written(edits=edits_of(nvidia, [gpu(1)]), version=nvidia.cdi_version) == golden


def test_no_variable_of_others_follows_or_replaces_void():
    nvidia = Edits(env=("NVIDIA_VISIBLE_DEVICES=all", "PATH=/bin"))
    extra = Edits(env=("NVIDIA_VISIBLE_DEVICES=1", "CUDA_MPS_X=y"))

    assert env(written(edits=nvidia, extra=extra)) == [
        "PATH=/bin",
        "CUDA_MPS_X=y",
        "NVIDIA_VISIBLE_DEVICES=void",
    ]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("0.3.0", "0.6.0"), ("0.5.0", "0.6.0"), ("0.10.0", "0.10.0"), ("1.1.0", "1.1.0")],
)
def test_the_version_has_annotations_and_all_edits_of_the_toolkit(theirs, ours):
    assert written(version=theirs)["cdiVersion"] == ours


TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
SHARES = st.builds(
    GPUShare, st.integers(0, 15), TEXT, st.none() | st.integers(1, 99), st.none() | st.integers(1)
)
BINDINGS = st.builds(
    Binding,
    TEXT,
    TEXT,
    TEXT,
    TEXT,
    TEXT,
    st.frozensets(TEXT),
    st.lists(SHARES).map(tuple),
)


@given(BINDINGS)
def test_a_binding_is_read_back_from_its_file(binding):
    assert read_binding(encode_spec(container_spec(binding, Edits(), Edits(), "0.5.0"))) == binding


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"", "truncated", id="empty"),
        pytest.param(b"{}", "annotations", id="no annotations"),
        pytest.param(b'{"annotations":{}}', CDI_BINDING, id="no binding"),
        pytest.param(
            json.dumps({"annotations": {CDI_BINDING: "{}"}}).encode(), "namespace", id="half"
        ),
        pytest.param(b" " * (3 << 20), "at most", id="too long"),
        pytest.param(b'{"a":' + b"[" * 100_000, "recursion", id="deep"),
    ],
)
def test_a_changed_file_is_refused(data, reason):
    with pytest.raises(SpecError, match=r"(?i)" + reason):
        read_binding(data)
