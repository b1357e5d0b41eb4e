"""The thread that keeps the latest reading, with the stand-in library."""

import queue

import pytest
from waiting import PATIENCE

from agent.driver.health import GPUHealth
from agent.driver.reading import DriverError


@pytest.fixture
def started(serve):
    """Start the health of a driver; return the stand-in and the changes that it reports."""
    running = []

    def start(*, unloaded=False, interval_s=3600.0):
        stand_in, driver = serve()
        if unloaded:
            stand_in.unload_driver()
        changes = queue.Queue()
        running.append(GPUHealth(driver, changes.put, interval_s=interval_s))
        running[-1].start()
        return stand_in, running[-1], lambda: changes.get(timeout=PATIENCE)

    yield start
    for gpu_health in running:
        gpu_health.stop()


def faults(reading):
    return {gpu.i: gpu.fault for gpu in reading.gpus if gpu.fault}


def test_first_reading_is_reported(started):
    _, gpu_health, change = started()

    reading = change()

    assert len(reading.gpus) == 8
    assert gpu_health.reading == reading
    assert gpu_health.alive


def test_fault_is_reported_without_waiting_for_the_interval(started):
    stand_in, _, change = started()
    change()

    stand_in.xid(3, 79)
    assert faults(change()) == {3: "XID 79"}
    stand_in.lose(5)
    assert faults(change()) == {3: "XID 79", 5: "GPU is lost"}


def test_change_without_an_event_is_reported_after_the_interval(started):
    stand_in, _, change = started(interval_s=0.01)
    before = change()

    stand_in.link_down(0)

    assert sum(map(sum, change().links)) == sum(map(sum, before.links)) - 2


def test_unloaded_driver_makes_every_gpu_unhealthy_until_it_is_back(started):
    stand_in, gpu_health, change = started()
    before = change()

    stand_in.unload_driver()
    without = change()
    assert list(faults(without)) == list(range(8))
    assert [gpu.uuid for gpu in without.gpus] == [gpu.uuid for gpu in before.gpus]
    assert isinstance(gpu_health.error, DriverError)

    stand_in.load_driver("550.54.14")
    after = change()
    assert (after.driver, after.gpus) == ("550.54.14", before.gpus)
    assert gpu_health.error is None


def test_driver_that_was_never_read_is_an_error_once(started):
    stand_in, gpu_health, change = started(unloaded=True)

    assert "Driver Not Loaded" in str(change())
    assert gpu_health.reading is None
    stand_in.load_driver()

    assert faults(change()) == {}


def test_stopped_thread_has_ended(serve):
    _, driver = serve()
    changes = queue.Queue()
    gpu_health = GPUHealth(driver, changes.put, interval_s=3600)
    gpu_health.start()
    changes.get(timeout=PATIENCE)

    gpu_health.stop()

    assert not gpu_health.alive
