"""Commands that run in the file system of the node."""

import os
import subprocess
from pathlib import Path

import pytest
from nvml.standin import compiler

from agent.host.command import host_command

PROGRAM = """
#include <stdio.h>
int main(int n, char **words) { return puts(words[n - 1]) < 0 || fopen("/only-here", "r") == NULL; }
"""


@pytest.fixture
def root(tmp_path):
    """A file system with nothing but one program and one file."""
    if os.geteuid() != 0 or compiler() is None:
        pytest.skip("needs root and gcc")
    (tmp_path / "bin").mkdir()
    source, program = tmp_path / "program.c", tmp_path / "bin/program"
    source.write_text(PROGRAM)
    argv = [compiler(), "-static", "-o", program, source]
    if subprocess.run(argv, capture_output=True, check=False).returncode:
        pytest.skip("needs a static C library")
    (tmp_path / "only-here").touch()
    return tmp_path


def run(root, *command):
    argv = host_command(root, command)
    return subprocess.run(
        argv, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False
    )


def test_a_program_is_found_below_the_root_and_sees_its_files(root):
    ended = run(root, "program", "a word")
    assert (ended.stdout, ended.stderr, ended.returncode) == ("a word\n", "", 0)


def test_a_missing_program_is_named(root):
    ended = run(root, "nvidia-ctk")
    assert ended.stderr == "nvidia-ctk cannot be started: No such file or directory\n"
    assert ended.returncode == 1


def test_nothing_is_added_at_the_root_of_this_process():
    assert host_command(Path("/"), ["program", "a word"]) == ("program", "a word")
