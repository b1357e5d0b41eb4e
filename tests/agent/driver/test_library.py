"""The places of the NVML library on a node."""

import pytest

from agent.driver.library import find_library, find_program, preload
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


@pytest.mark.parametrize("root", ["", "run/nvidia/driver/"], ids=["host", "container"])
def test_links_are_followed_below_the_root_that_they_are_made_for(tmp_path, root):
    folder = tmp_path / root / "usr/lib/x86_64-linux-gnu"
    (folder / "nvidia").mkdir(parents=True)
    (folder / "nvidia/current").symlink_to("../../../../../../opt/driver")
    (folder / NAME).symlink_to("/etc/alternatives/glx--libnvidia-ml")
    (tmp_path / root / "etc/alternatives").mkdir(parents=True)
    link = tmp_path / root / "etc/alternatives/glx--libnvidia-ml"
    link.symlink_to(f"/usr/lib/x86_64-linux-gnu/nvidia/current/{NAME}")
    library = tmp_path / root / "opt/driver" / NAME
    library.parent.mkdir(parents=True)
    library.touch()

    assert find_library(tmp_path) == library


@pytest.mark.parametrize("target", [NAME, f"/usr/lib/{NAME}", "/missing"])
def test_links_that_lead_nowhere_are_no_library(tmp_path, target):
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/lib" / NAME).symlink_to(target)

    assert find_library(tmp_path) is None


@pytest.mark.parametrize("root", ["", "run/nvidia/driver"], ids=["host", "container"])
def test_program_is_found_with_the_root_that_it_runs_in(tmp_path, root):
    program = tmp_path / root / "usr/bin/nvidia-smi"
    assert find_program(tmp_path, "nvidia-smi") is None
    program.parent.mkdir(parents=True)
    program.touch()

    assert find_program(tmp_path, "nvidia-smi") == (tmp_path / root, "/usr/bin/nvidia-smi")


def test_library_that_cannot_be_loaded_is_an_error(tmp_path):
    (tmp_path / NAME).write_text("not a library")

    with pytest.raises(DriverError, match="cannot be loaded"):
        preload(tmp_path / NAME)
