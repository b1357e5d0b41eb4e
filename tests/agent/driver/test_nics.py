"""Network cards in a sysfs of directories and links."""

import pytest

from agent.driver.nics import numa_node, read_nics
from agent.driver.reading import GPU
from linkwise.topology.machine import NIC, Level

SWITCH = "pci0000:00/0000:00:02.0/0000:05:00.0"
GPUS = (
    GPU(0, "GPU-a", "0000:07:00.0", "Tesla V100", 0, numa=0),
    GPU(1, "GPU-b", "0000:85:00.0", "Tesla V100", 0, numa=1),
)


class Sys:
    """A folder laid out as `/sys`."""

    def __init__(self, root):
        self.root = root

    def device(self, path, numa=0, **files):
        """Add a PCI device and return its folder."""
        folder = self.root / "devices" / path
        folder.mkdir(parents=True)
        for name, text in {"class": "0x020000", "numa_node": str(numa), **files}.items():
            (folder / name).write_text(f"{text}\n")
        known = self.root / "bus/pci/devices"
        known.mkdir(parents=True, exist_ok=True)
        (known / folder.name).symlink_to(folder)
        return folder

    def name(self, kind, name, device):
        """Give a device a name in a class."""
        folder = self.root / "class" / kind / name
        folder.mkdir(parents=True)
        (folder / "device").symlink_to(device)


@pytest.fixture
def sys(tmp_path):
    made = Sys(tmp_path / "sys")
    made.device(f"{SWITCH}/0000:06:08.0/0000:07:00.0")
    made.device("pci0000:80/0000:80:02.0/0000:85:00.0", numa=1)
    return made


def test_rdma_devices_are_the_network_cards(sys):
    near = sys.device(f"{SWITCH}/0000:06:10.0/0000:0a:00.0")
    far = sys.device("pci0000:a0/0000:a0:01.0/0000:a1:00.0", numa=1)
    sys.name("infiniband", "mlx5_10", far)
    sys.name("infiniband", "mlx5_9", near)
    sys.name("net", "eth0", near)

    assert read_nics(sys.root, GPUS) == (
        NIC("mlx5_9", (Level.PIX, Level.SYS)),
        NIC("mlx5_10", (Level.SYS, Level.NODE)),
    )


def test_network_interfaces_count_where_no_rdma_device_is(sys):
    sys.name("net", "eth0", sys.device("pci0000:00/0000:00:03.0/0000:0d:00.0"))
    (sys.root / "class/net/lo").mkdir()

    assert read_nics(sys.root, GPUS) == (NIC("eth0", (Level.PHB, Level.SYS)),)


def test_virtual_function_is_no_network_card(sys):
    sys.name("net", "eth0v1", sys.device(f"{SWITCH}/0000:06:10.0/0000:0a:00.1", physfn=""))

    assert read_nics(sys.root, GPUS) == ()


def test_level_to_a_gpu_that_sysfs_does_not_have_is_unknown(sys):
    sys.name("net", "eth0", sys.device("pci0000:00/0000:00:03.0/0000:0d:00.0"))
    lost = GPU(2, "", "", "", 0, fault="GPU is lost")

    assert read_nics(sys.root, (*GPUS, lost))[0].levels[2] is Level.UNKNOWN


def test_host_without_network_classes_has_no_cards(tmp_path):
    assert read_nics(tmp_path, GPUS) == ()


@pytest.mark.parametrize(
    ("text", "node"), [("1", 1), ("-1", None), ("", None), ("x", None), ("99999", None)]
)
def test_numa_node_of_a_device(sys, text, node):
    sys.device("pci0000:00/0000:00:04.0", numa=text)

    assert numa_node(sys.root, "0000:00:04.0") == node
    assert numa_node(sys.root, "0000:99:00.0") is None
