import pytest
from nvml.standin import MACHINE, StandInNVML, compiler, library

from agent.driver.nvml import Driver
from linkwise.topology.catalogue import entry


@pytest.fixture
def serve(tmp_path, monkeypatch):
    """Serve a machine to this process; return the stand-in and the driver that reads it."""
    if compiler() is None:
        pytest.skip("needs gcc")
    drivers = []

    def start(machine="dgx1-v100"):
        shape = entry(machine).machine if isinstance(machine, str) else machine
        stand_in = StandInNVML(tmp_path, shape)
        monkeypatch.setenv(MACHINE, str(stand_in.path))
        drivers.append(Driver(library(), sys=tmp_path / "sys"))
        return stand_in, drivers[-1]

    yield start
    for driver in drivers:
        driver.close()
