import pytest

from agent.driver.modules import has_open_modules


@pytest.mark.parametrize(
    ("line", "is_open"),
    [
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build", True),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Sat Feb 17", False),
        ("", False),
    ],
    ids=["open", "proprietary", "empty"],
)
def test_the_first_line_names_the_kind_of_the_modules(tmp_path, line, is_open):
    file = tmp_path / "driver/nvidia/version"
    file.parent.mkdir(parents=True)
    file.write_text(f"{line}\nGCC version:  gcc version 12.2.0\n")
    assert has_open_modules(tmp_path) is is_open


def test_without_the_driver_there_are_none(tmp_path):
    assert not has_open_modules(tmp_path)
