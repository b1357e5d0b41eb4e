"""The thread that keeps the latest reading, with the stand-in library."""

import queue
import threading

import pytest
from support.gpu_readings import reading
from support.waiting import PATIENCE

from agent.driver.health import HANG_S, GPUHealth
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

    assert "gpu-health" not in {thread.name for thread in threading.enumerate()}


class Driver:
    """A driver whose calls wait, or raise an unexpected error, on demand."""

    def __init__(self):
        self.goes_on, self.waits, self.fault = threading.Event(), threading.Event(), None
        self.goes_on.set()

    def read(self):
        if self.fault:
            raise self.fault
        if not self.goes_on.is_set():
            self.waits.set()
            self.goes_on.wait()
        return reading()

    def wait_for_fault(self, _timeout_s):
        return ((0, "read again"),)

    def close(self):
        pass


def test_driver_that_hangs_makes_every_gpu_unhealthy_until_it_answers():
    driver, changes, now = Driver(), queue.Queue(), [0.0]
    gpu_health = GPUHealth(driver, changes.put, interval_s=3600, clock=lambda: now[0])
    gpu_health.start()
    changes.get(timeout=PATIENCE)
    assert gpu_health.reading == reading()

    driver.goes_on.clear()
    assert driver.waits.wait(PATIENCE)
    now[0] = HANG_S + 1
    assert list(faults(gpu_health.reading)) == [gpu.i for gpu in reading().gpus]
    assert "does not answer" in str(gpu_health.error)

    driver.goes_on.set()
    gpu_health.stop()
    assert gpu_health.reading == reading()
    assert gpu_health.error is None


def test_unexpected_error_is_reported_instead_of_a_reading_that_grows_old():
    driver, changes = Driver(), queue.Queue()
    driver.fault = ValueError("an answer that no driver gives")
    gpu_health = GPUHealth(driver, changes.put, interval_s=3600)
    gpu_health.start()
    changes.get(timeout=PATIENCE)

    assert gpu_health.failure is driver.fault
    gpu_health.stop()
