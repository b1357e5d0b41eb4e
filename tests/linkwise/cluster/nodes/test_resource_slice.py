"""Devices in ResourceSlices."""

import pytest
from support.dra import PRODUCT, a_device, a_slice, read_slice

from linkwise.cluster.nodes.resource_slice import DEVICES_MAX


def read_device(raw):
    [device] = read_slice(a_slice(raw)).devices
    return device


def test_a_gpu_is_read_as_the_driver_writes_it():
    device = read_device(a_device(3, counters=("gpu-3-counter-set",)))

    assert (device.name, device.kind, device.uuid, device.product) == (
        "gpu-3",
        "gpu",
        "GPU-3",
        PRODUCT,
    )
    assert (device.bus_id, device.pcie_root, device.numa) == ("0000:28:00.0", "pci0000:28", 0)
    assert (device.driver, device.memory) == ("550.163.1", 81559 << 20)
    assert (device.counters, device.is_shared, device.taint) == (
        ("gpu-3-counter-set",),
        False,
        None,
    )


@pytest.mark.parametrize(
    ("attributes", "field", "value"),
    [
        ({"uuid": None, "gpu.nvidia.com/uuid": "GPU-q"}, "uuid", "GPU-q"),
        ({"uuid": None, "other.example/uuid": "GPU-q"}, "uuid", None),
        ({"uuid": "MIG-x", "parentUUID": "GPU-p"}, "gpu_uuid", "GPU-p"),
        (
            {"resource.kubernetes.io/pciBusID": None, "pcieBusID": "0000:AF:00.0"},
            "bus_id",
            "0000:af:00.0",
        ),
        ({"resource.kubernetes.io/numaNode": None, "numa": 1}, "numa", 1),
        ({"resource.kubernetes.io/numaNode": -1}, "numa", None),
        ({"uuid": "u" * 100}, "uuid", "u" * 64),
        ({"memory": "80Gi"}, "memory", 80 << 30),
        ({"memory": "much"}, "memory", None),
        ({"memory": None}, "memory", None),
        ({"type": "vfio"}, "is_gpu", False),
        ({"shared": True}, "is_shared", True),
    ],
    ids=[
        "qualified name",
        "name of another domain",
        "UUID of a MIG device's GPU",
        "bus id of older drivers",
        "NUMA node of older drivers",
        "no NUMA node",
        "long text",
        "memory",
        "memory that is no quantity",
        "no memory",
        "for a VM",
        "shared",
    ],
)
def test_attributes(attributes, field, value):
    assert getattr(read_device(a_device(0, **attributes)), field) == value


@pytest.mark.parametrize(
    ("taint", "text"),
    [
        (("nvidia.com/xid", "79", "NoExecute"), "nvidia.com/xid=79:NoExecute"),
        (("nvidia.com/gone", "", "NoSchedule"), "nvidia.com/gone:NoSchedule"),
        (("nvidia.com/warm", "", "None"), None),
        (("linkwise.dev/placed", "", "NoSchedule"), None),
        (("linkwise.dev/busy", "", "NoSchedule"), None),
    ],
    ids=["fault", "without a value", "only a note", "our own", "our own of a busy GPU"],
)
def test_a_taint_hinders_by_its_effect(taint, text):
    assert read_device(a_device(0, taints=[("a", "", "None"), taint])).taint == text


def test_a_slice_has_at_most_128_devices():
    devices = [a_device(i, bus=0) for i in range(DEVICES_MAX + 1)]
    assert len(read_slice(a_slice(*devices)).devices) == DEVICES_MAX


@pytest.mark.parametrize(
    "fields", [{"driver": "other.example"}, {"node": ""}], ids=["driver", "no node of its own"]
)
def test_other_slices_are_ignored(fields):
    assert read_slice(a_slice(a_device(0), **fields)) is None
