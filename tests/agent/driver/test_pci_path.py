"""PCIe levels from paths in sysfs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.driver.pci_path import meeting_level
from linkwise.topology.machine import Level

GPU = "/sys/devices/pci0000:00/0000:00:02.0/0000:05:00.0/0000:06:08.0/0000:07:00.0"
PATHS = [
    pytest.param("0000:00:02.0/0000:05:00.0/0000:06:10.0/0000:0a:00.0", Level.PIX, id="switch"),
    pytest.param("0000:00:02.0/0000:05:00.0/0000:06:08.0/0000:07:00.1", Level.PIX, id="function"),
    pytest.param(
        "0000:00:02.0/0000:05:00.0/0000:06:10.0/0000:0a:00.0/0000:0b:00.0/0000:0c:00.0",
        Level.PXB,
        id="cascaded switches",
    ),
    pytest.param("0000:00:03.0/0000:0d:00.0", Level.PHB, id="other root port"),
]


@pytest.mark.parametrize(("path", "level"), PATHS)
def test_level_below_one_host_bridge(path, level):
    other = f"/sys/devices/pci0000:00/{path}"

    assert meeting_level(GPU, other, same_numa=True) is level
    assert meeting_level(other, GPU, same_numa=False) is level


@pytest.mark.parametrize(("same_numa", "level"), [(True, Level.NODE), (False, Level.SYS)])
def test_level_of_two_host_bridges(same_numa, level):
    other = "/sys/devices/pci0000:80/0000:80:02.0/0000:85:00.0"

    assert meeting_level(GPU, other, same_numa=same_numa) is level


def test_host_bridge_behind_another_device_counts():
    here = "/sys/devices/pci0000:00/0000:00:0e.0/pci10000:00/10000:00:02.0/10000:01:00.0"
    there = "/sys/devices/pci0000:00/0000:00:0e.0/pci10000:00/10000:00:03.0/10000:02:00.0"

    assert meeting_level(here, there, same_numa=True) is Level.PHB


@pytest.mark.parametrize("path", ["", "/sys/devices/virtual/net/lo", "/sys/devices/pci/x"])
def test_level_of_a_path_without_a_host_bridge_is_unknown(path):
    assert meeting_level(GPU, path, same_numa=True) is Level.UNKNOWN


parts = st.lists(
    st.sampled_from(["pci0000:00", "pci0000:80", "0000:00:02.0", "0000:05:00.0", "devices", ""]),
    max_size=6,
)


@given(here=parts, there=parts, same_numa=st.booleans())
def test_level_is_symmetric(here, there, same_numa):
    one, other = "/".join(here), "/".join(there)

    assert meeting_level(one, other, same_numa=same_numa) is meeting_level(
        other, one, same_numa=same_numa
    )
