"""The checkpoint of the kubelet's device manager."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import JSON

from agent.kubelet.checkpoint import AllocatedDevices, read_checkpoint

ENTRY = {
    "PodUID": "u1",
    "ContainerName": "fetch",
    "ResourceName": "aliyun.com/gpu",
    "DeviceIDs": {"0": ["slot-1"], "1": ["slot-4", "slot-5"]},
    "AllocResp": "Cg==",
}


def checkpoint(entries):
    data = {"PodDeviceEntries": entries, "RegisteredDevices": {"aliyun.com/gpu": ["slot-1"]}}
    return json.dumps({"Data": data, "Checksum": 4027430163}).encode()


def test_devices_of_all_numa_nodes_belong_to_one_container():
    assert read_checkpoint(checkpoint([ENTRY])) == (
        AllocatedDevices(
            "u1", "fetch", "aliyun.com/gpu", frozenset({"slot-1", "slot-4", "slot-5"})
        ),
    )


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(checkpoint(None), id="no entries"),
        pytest.param(checkpoint([{**ENTRY, "PodUID": 3}]), id="other format"),
        pytest.param(b"[" * 100_000, id="deep"),
    ],
)
def test_an_empty_or_unreadable_checkpoint_has_no_devices(data):
    assert read_checkpoint(data) == ()


@given(JSON.map(json.dumps).map(str.encode) | st.binary())
def test_any_bytes_are_read(data):
    assert isinstance(read_checkpoint(data), tuple)
