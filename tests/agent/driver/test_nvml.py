"""The driver read by nvidia-ml-py from the stand-in library."""

import threading

import pytest
from nvml.standin import GPU_IS_LOST, TIMEOUT, UNINITIALIZED, VERSION_MISMATCH
from support.builders import numa_of, with_gpus

from agent.driver.machine import machine_of
from agent.driver.nvml import APPLICATION_XIDS
from agent.driver.reading import DriverError, DriverReplacedError
from linkwise.topology.canonical import class_of
from linkwise.topology.catalogue import NAMES, entry
from linkwise.topology.machine import Level

LOST = "GPU is lost"
SOON = 0.02
"""Wait for events that were reported before [s]."""


@pytest.mark.parametrize("name", NAMES)
def test_every_machine_of_the_catalogue_is_read(serve, name):
    expected = entry(name).machine
    _, driver = serve(name)

    machine = machine_of(driver.read(), expected.nics)

    assert machine.links == expected.links
    assert machine.levels == expected.levels
    assert numa_of(machine) == numa_of(expected)
    assert machine.switched == expected.switched
    assert machine.constants == expected.constants
    assert machine.model == expected.model
    assert machine.memory == expected.memory
    assert class_of(machine) == class_of(expected)


def test_identity_of_each_gpu(serve):
    bus_ids = tuple(f"0001:{i:02x}:00.0" for i in range(0x80, 0x88))
    stand_in, driver = serve(with_gpus(entry("dgx1-v100").machine, bus_id=bus_ids))
    stand_in.cards[3].minor = 5
    stand_in.write()

    reading = driver.read()

    gpu = reading.gpus[3]
    assert (reading.driver, reading.cuda) == ("535.161.08", "12.2")
    assert (gpu.i, gpu.uuid) == (3, stand_in.cards[3].uuid)
    assert (gpu.bus_id, gpu.minor, gpu.numa) == ("0001:83:00.0", 5, 0)
    assert (gpu.memory, gpu.model) == (32 << 30, "Tesla V100-SXM2-32GB")
    assert gpu.usable
    assert reading.warnings == ()


def test_gpu_in_mig_mode_is_not_usable(serve):
    stand_in, driver = serve("dgx-a100")
    stand_in.set_mig(1, enabled=True)
    stand_in.set_mig(2, enabled=False)

    gpus = driver.read().gpus

    assert [gpu.usable for gpu in gpus[:3]] == [True, False, True]


def test_lost_gpu_keeps_identity_links_and_levels(serve):
    stand_in, driver = serve()
    before = driver.read()

    stand_in.lose(2)
    reading = driver.read()

    assert [gpu.fault for gpu in reading.gpus] == [None, None, LOST, None, None, None, None, None]
    assert reading.gpus[2].uuid == before.gpus[2].uuid
    assert (reading.links, reading.levels) == (before.links, before.levels)
    assert reading.peer_access == before.peer_access
    assert machine_of(reading, ()) == machine_of(before, ())


def test_all_gpus_of_a_switched_machine_lost_keep_the_switch(serve):
    stand_in, driver = serve("gb200-tray")
    before = driver.read()

    for gpu in range(4):
        stand_in.lose(gpu)
    reading = driver.read()

    assert machine_of(reading, ()) == machine_of(before, ())
    assert not any(gpu.usable for gpu in reading.gpus)


def test_gpu_lost_before_the_first_reading_is_one_unhealthy_gpu(serve):
    stand_in, driver = serve()
    stand_in.lose(0)

    reading = driver.read()
    machine = machine_of(reading, ())

    assert [gpu.usable for gpu in reading.gpus] == [False] + [True] * 7
    assert reading.gpus[0].uuid == ""
    assert machine.n == 8
    assert not any(machine.links[0])
    assert machine.links[1][5] == 2


def test_gpu_that_was_not_readable_is_healthy_and_watched_again(serve):
    stand_in, driver = serve()
    stand_in.fail("nvmlDeviceGetUUID", TIMEOUT)
    assert not any(gpu.usable for gpu in driver.read().gpus)

    stand_in.fail("nvmlDeviceGetUUID", 0)
    assert all(gpu.usable for gpu in driver.read().gpus)
    stand_in.xid(2, 48)

    assert driver.wait_for_fault(SOON) == ((2, "XID 48"),)


@pytest.mark.parametrize("by_reading", [True, False])
def test_lost_gpu_is_unhealthy_until_the_driver_is_reloaded(serve, by_reading):
    stand_in, driver = serve()
    driver.read()
    stand_in.lose(2)
    assert driver.read().gpus[2].fault if by_reading else driver.wait_for_fault(SOON)

    stand_in.restore(2)
    assert [gpu.i for gpu in driver.read().gpus if not gpu.usable] == [2]
    stand_in.unload_driver()
    stand_in.load_driver()

    assert all(gpu.usable for gpu in driver.read().gpus)


def test_names_that_are_no_utf_8_are_read(serve):
    stand_in, driver = serve()
    for card in stand_in.cards:
        card.model = "Tesla \udcff V100"
    stand_in.driver = "535\udcff"
    stand_in.write()
    reading = driver.read()

    assert {gpu.model for gpu in reading.gpus} == {"Tesla \ufffd V100"}
    assert reading.driver == "535\ufffd"


def test_gpu_that_the_driver_no_longer_lists_is_unhealthy_in_its_place(serve):
    stand_in, driver = serve()
    before = driver.read()

    del stand_in.cards[3]
    stand_in.write()
    stand_in.unload_driver()
    stand_in.load_driver()
    gpus = driver.read().gpus

    assert [gpu.uuid for gpu in gpus] == [gpu.uuid for gpu in before.gpus]
    assert [gpu.i for gpu in gpus] == list(range(8))
    assert [gpu.i for gpu in gpus if not gpu.usable] == [3]


def test_nvlink_that_is_down_is_not_counted(serve):
    stand_in, driver = serve()
    before = driver.read()

    stand_in.link_down(0)
    reading = driver.read()

    j = next(j for j in range(8) if before.links[0][j])
    assert reading.links[0][j] == reading.links[j][0] == before.links[0][j] - 1
    assert reading.warnings == ()


def test_asymmetric_nvlinks_are_the_smaller_number_with_a_warning(serve):
    stand_in, driver = serve()
    stand_in.one_way(0)

    reading = driver.read()

    assert reading.links[0][1] == reading.links[1][0] == 0
    assert reading.warnings == ("GPU0 and GPU1 report 0 and 1 NVLinks to each other: counted as 0",)


def test_gpu_on_an_nvswitch_with_a_link_down_has_fewer_links(serve):
    stand_in, driver = serve("dgx-h100")
    stand_in.one_way(4)

    links = driver.read().links

    assert links[4][0] == links[0][4] == 17
    assert links[0][1] == 18


def test_nvswitch_is_recognised_by_its_bus_id_where_device_types_are_unknown(serve):
    stand_in, driver = serve("dgx2")
    stand_in.fail("nvmlDeviceGetNvLinkRemoteDeviceType")

    reading = driver.read()

    assert reading.switched
    assert reading.links == entry("dgx2").machine.links


def test_nvlinks_to_gpus_of_another_virtual_machine_do_not_count(serve):
    stand_in, driver = serve()
    stand_in.cards = stand_in.cards[:4]
    stand_in.write()

    reading = driver.read()

    assert not reading.switched
    assert reading.links == tuple(row[:4] for row in entry("dgx1-v100").machine.links[:4])


def test_pair_without_peer_access_talks_through_host_memory(serve):
    stand_in, driver = serve()
    stand_in.deny_peer(0, 1)

    machine = machine_of(driver.read(), ())

    assert machine.links[0][1] == 0
    assert machine.levels[0][1] is Level.PHB
    assert machine.warnings == ("no peer access between GPU0 and GPU1: through host memory",)


@pytest.mark.parametrize(
    "function",
    [
        "nvmlSystemGetCudaDriverVersion",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetMemoryAffinity",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetMinorNumber",
        "nvmlDeviceGetTopologyCommonAncestor",
        "nvmlDeviceGetP2PStatus",
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetNvLinkRemotePciInfo_v2",
        "nvmlDeviceGetNvLinkRemoteDeviceType",
        "nvmlDeviceGetGpuFabricInfo",
        "nvmlEventSetCreate",
        "nvmlDeviceRegisterEvents",
        "nvmlDeviceGetComputeRunningProcesses_v3",
    ],
)
def test_function_that_the_driver_lacks_is_no_error(serve, function):
    stand_in, driver = serve()
    stand_in.fail(function)

    reading = driver.read()

    assert all(gpu.usable for gpu in reading.gpus)
    assert machine_of(reading, ()).n == 8
    assert driver.processes() == ()
    assert driver.wait_for_fault(SOON) == ()


def test_unknown_pcie_levels_are_a_warning(serve):
    stand_in, driver = serve()
    stand_in.fail("nvmlDeviceGetTopologyCommonAncestor")

    reading = driver.read()

    assert reading.levels[0][1] is Level.UNKNOWN
    assert reading.warnings == ("the driver does not report the PCIe level of some pairs",)


def test_numa_node_comes_from_sysfs_where_the_driver_does_not_report_it(serve, tmp_path):
    stand_in, driver = serve()
    stand_in.fail("nvmlDeviceGetMemoryAffinity")
    device = tmp_path / "sys/bus/pci/devices" / stand_in.cards[6].bus_id
    device.mkdir(parents=True)
    (device / "numa_node").write_text("1\n")

    gpus = driver.read().gpus

    assert (gpus[5].numa, gpus[6].numa) == (None, 1)


@pytest.mark.parametrize(
    "function", ["nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceGetP2PStatus"]
)
def test_pair_that_does_not_answer_keeps_its_last_level_and_access(serve, function):
    stand_in, driver = serve()
    before = driver.read()
    stand_in.fail(function, GPU_IS_LOST)

    assert driver.read() == before


def test_fabric_clique_of_a_multi_node_fabric(serve):
    stand_in, driver = serve("gb200-tray")
    stand_in.fabric = (3, 7, "0123456789abcdef0123456789abcdef")
    stand_in.write()

    assert driver.read().fabric_clique == "01234567-89ab-cdef-0123-456789abcdef.7"


def test_fabric_that_is_not_initialised_is_a_warning(serve):
    stand_in, driver = serve("dgx-h100")
    stand_in.fabric = (2, 0, "0" * 32)
    stand_in.write()

    reading = driver.read()

    assert reading.fabric_clique is None
    assert any("nvidia-fabricmanager" in warning for warning in reading.warnings)


def test_processes_of_all_gpus(serve):
    stand_in, driver = serve()
    driver.read()
    stand_in.set_processes(1, [300, 20])
    stand_in.set_processes(4, [20])
    stand_in.lose(7)

    assert driver.processes() == ((1, 20), (1, 300), (4, 20))


@pytest.mark.parametrize("xid", sorted(APPLICATION_XIDS))
def test_xid_of_an_application_is_no_fault(serve, xid):
    stand_in, driver = serve()
    driver.read()
    stand_in.xid(0, xid)

    assert driver.wait_for_fault(SOON) == ()
    assert driver.read().gpus[0].usable


def test_xid_is_a_fault_until_the_driver_is_reloaded(serve):
    stand_in, driver = serve()
    driver.read()
    stand_in.xid(5, 13)
    stand_in.xid(5, 79)
    stand_in.xid(6, 48)

    assert driver.wait_for_fault(SOON) == ((5, "XID 79"), (6, "XID 48"))
    assert driver.wait_for_fault(SOON) == ()
    assert [gpu.fault for gpu in driver.read().gpus][5:7] == ["XID 79", "XID 48"]

    stand_in.unload_driver()
    stand_in.load_driver()

    assert all(gpu.usable for gpu in driver.read().gpus)


def test_event_ends_the_wait(serve):
    stand_in, driver = serve()
    driver.read()
    faults = []
    waiting = threading.Thread(target=lambda: faults.extend(driver.wait_for_fault(60)))
    waiting.start()

    stand_in.xid(1, 79)
    waiting.join(30)

    assert faults == [(1, "XID 79")]


def test_lost_gpu_is_one_fault(serve):
    stand_in, driver = serve()
    driver.read()
    stand_in.lose(4)

    assert driver.wait_for_fault(SOON) == ((4, LOST),)
    driver.read()
    assert driver.wait_for_fault(SOON) == ()


def test_gpu_that_keeps_its_handle_but_does_not_answer_is_a_fault(serve):
    stand_in, driver = serve("gb200-tray")
    driver.read()
    stand_in.fail("nvmlDeviceGetMemoryInfo", GPU_IS_LOST)

    assert driver.wait_for_fault(SOON) == tuple((i, LOST) for i in range(4))
    assert not any(gpu.usable for gpu in driver.read().gpus)
    assert driver.wait_for_fault(SOON) == ()


def test_driver_that_fails_its_events_still_reports_lost_gpus(serve):
    stand_in, driver = serve()
    driver.read()
    stand_in.fail("nvmlEventSetWait_v2", 999)
    stand_in.lose(4)

    assert driver.wait_for_fault(SOON) == ((4, LOST),)


def test_reloaded_driver_is_initialised_again(serve):
    stand_in, driver = serve()
    before = driver.read()
    stand_in.unload_driver()

    with pytest.raises(DriverError, match="Driver Not Loaded"):
        driver.wait_for_fault(SOON)
    with pytest.raises(DriverError, match="Driver Not Loaded"):
        driver.read()
    with pytest.raises(DriverError, match="not initialised"):
        driver.wait_for_fault(SOON)
    with pytest.raises(DriverError):
        driver.processes()

    stand_in.load_driver("550.54.14")
    reading = driver.read()
    stand_in.xid(0, 79)

    assert reading.driver == "550.54.14"
    assert reading.gpus == before.gpus
    assert driver.wait_for_fault(SOON) == ((0, "XID 79"),)


def test_driver_of_another_version_than_the_library_needs_a_new_process(serve):
    stand_in, driver = serve()
    driver.read()
    stand_in.unload_driver(VERSION_MISMATCH)

    with pytest.raises(DriverReplacedError, match="restart the agent"):
        driver.read()


@pytest.mark.parametrize(
    "function",
    ["nvmlDeviceGetHandleByIndex_v2", "nvmlEventSetWait_v2", "nvmlDeviceGetMemoryInfo"],
)
def test_session_that_ends_during_a_wait_is_an_error(serve, function):
    stand_in, driver = serve()
    driver.read()
    stand_in.fail(function, UNINITIALIZED)

    with pytest.raises(DriverError, match="Uninitialized"):
        driver.wait_for_fault(SOON)
    stand_in.fail(function, 0)

    assert all(gpu.usable for gpu in driver.read().gpus)


@pytest.mark.parametrize(
    "function", ["nvmlDeviceGetCount_v2", "nvmlSystemGetDriverVersion", "nvmlDeviceGetUUID"]
)
def test_driver_that_fails_its_basic_calls_does_not_stop_the_agent(serve, function):
    stand_in, driver = serve()
    stand_in.fail(function, 999)

    with pytest.raises(DriverError, match="Unknown Error"):
        raise_fault(driver.read())
    stand_in.fail(function, 0)

    assert all(gpu.usable for gpu in driver.read().gpus)


def raise_fault(reading):
    raise DriverError(reading.gpus[0].fault)


def test_driver_without_gpus_is_an_error(serve):
    stand_in, driver = serve()
    stand_in.cards = []
    stand_in.write()

    with pytest.raises(DriverError, match="lists no GPU"):
        driver.read()
