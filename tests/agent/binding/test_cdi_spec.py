"""CDI specifications: reading, merging and writing."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.gpu_readings import gpu
from support.nvidia_cdi import as_yaml, nvidia_spec

from agent.binding.cdi_spec import (
    MAX_BYTES,
    DeviceNode,
    Edits,
    Hook,
    Mount,
    Spec,
    SpecError,
    encode_spec,
    merge_edits,
    parse_spec,
)

SPEC = nvidia_spec([gpu(0), gpu(1)])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(as_yaml(SPEC), id="YAML"),
        pytest.param(json.dumps(SPEC).encode(), id="JSON"),
        pytest.param(json.dumps(SPEC, indent=2).encode(), id="JSON with indents"),
    ],
)
def test_a_specification_keeps_all_its_fields(data):
    assert json.loads(encode_spec(parse_spec(data))) == SPEC


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"", "0 YAML documents", id="empty"),
        pytest.param(b"a: 1\n---\nb: 2\n", "2 YAML documents", id="two documents"),
        pytest.param(b"\xff\xfe", "utf-8", id="not UTF-8"),
        pytest.param(b"{", "truncated", id="half JSON"),
        pytest.param(b"a: [1", "line 2", id="half YAML"),
        pytest.param(b"{" * 100_000, "malformed", id="JSON of braces"),
        pytest.param(b'{"x":' + b"[" * 100_000, "x", id="deep JSON"),
        pytest.param(b"[" * 100_000, "nested deeper", id="deep YAML"),
        pytest.param(b" " * (MAX_BYTES + 1), "at most", id="too long"),
        pytest.param(as_yaml({**SPEC, "devices": 3}), "devices", id="devices are no list"),
        pytest.param(as_yaml({**SPEC, "newField": 3}), "newField", id="unknown field"),
        pytest.param(as_yaml({**SPEC, "cdiVersion": "x"}), "cdiVersion", id="no version"),
        pytest.param(as_yaml({**SPEC, "containerEdits": {"env": ["A"]}}), "env", id="no variable"),
        pytest.param(
            as_yaml({**SPEC, "containerEdits": {"deviceNodes": [{"path": ""}]}}),
            "deviceNodes",
            id="node without a path",
        ),
    ],
)
def test_a_broken_specification_is_refused_with_a_reason(data, reason):
    with pytest.raises(SpecError, match=r"(?i)" + reason):
        parse_spec(data)


@given(st.binary(max_size=200) | st.text("{}[]-:&*! \n\"'ab01", max_size=200).map(str.encode))
def test_any_bytes_are_a_specification_or_a_spec_error(data):
    try:
        parsed = parse_spec(data)
    except SpecError:
        return
    assert isinstance(parsed, Spec)


@given(position=st.integers(0, 10_000), byte=st.integers(0, 255), cut=st.booleans())
def test_a_damaged_specification_is_read_or_refused(position, byte, cut):
    data = bytearray(as_yaml(SPEC))
    position %= len(data)
    data[position] = byte
    try:
        parsed = parse_spec(bytes(data[:position] if cut else data))
    except SpecError:
        return
    assert isinstance(parsed, Spec)


def test_later_edits_replace_variables_nodes_and_mounts_of_earlier_ones():
    first = Edits(
        env=("A=1", "B=1"),
        device_nodes=(DeviceNode("/dev/x", major=1),),
        mounts=(Mount("/old", "/m"),),
        hooks=(Hook("createContainer", "/h", ("a",)),),
        additional_gids=(4,),
    )
    second = Edits(
        env=("A=2",),
        device_nodes=(DeviceNode("/dev/y"), DeviceNode("/dev/x", major=2)),
        mounts=(Mount("/new", "/m"),),
        hooks=(Hook("createContainer", "/h", ("b",)), Hook("createContainer", "/h", ("a",))),
        additional_gids=(4, 5),
    )

    assert merge_edits([first, second]) == Edits(
        env=("B=1", "A=2"),
        device_nodes=(DeviceNode("/dev/x", major=2), DeviceNode("/dev/y")),
        mounts=(Mount("/new", "/m"),),
        hooks=(Hook("createContainer", "/h", ("a",)), Hook("createContainer", "/h", ("b",))),
        additional_gids=(4, 5),
    )


def test_every_kind_of_edit_survives_a_merge():
    edits = msgspec.convert(
        {
            "env": ["A=1"],
            "deviceNodes": [{"path": "/dev/x", "fileMode": 438}],
            "netDevices": [{"hostInterfaceName": "eth1", "name": "net1"}],
            "mounts": [{"hostPath": "/a", "containerPath": "/b", "options": ["ro"]}],
            "hooks": [{"hookName": "poststop", "path": "/h", "timeout": 3}],
            "additionalGids": [44],
            "intelRdt": {"closID": "x"},
        },
        Edits,
    )

    assert merge_edits([edits, Edits()]) == edits
    assert all(getattr(edits, name) for name in Edits.__struct_fields__)
