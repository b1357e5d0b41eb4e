"""The places of the NVML library on a node."""

import pytest

from agent.driver.library import find_library, preload
from agent.driver.reading import DriverError

NAME = "libnvidia-ml.so.1"


@pytest.mark.parametrize(
    "folder", ["usr/lib/x86_64-linux-gnu", "usr/lib64", "run/nvidia/driver/usr/lib64"]
)
def test_library_is_found_below_the_root_of_the_host(tmp_path, folder):
    library = tmp_path / folder / NAME
    library.parent.mkdir(parents=True)
    library.touch()

    assert find_library(tmp_path) == library


def test_host_without_a_driver_has_no_library(tmp_path):
    assert find_library(tmp_path) is None


def test_library_that_cannot_be_loaded_is_an_error(tmp_path):
    (tmp_path / NAME).write_text("not a library")

    with pytest.raises(DriverError, match="cannot be loaded"):
        preload(tmp_path / NAME)
