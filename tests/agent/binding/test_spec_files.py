"""The files of our CDI specifications."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent.binding.cdi_spec import Edits, encode_spec
from agent.binding.container_spec import Binding, container_spec
from agent.binding.errors import BindError
from agent.binding.names import file_name
from agent.binding.spec_files import SpecFiles
from linkwise.cluster.allocations.gpus import GPUShare

ROOT = Path(__file__).parents[3]
FILL = """
import sys
from pathlib import Path
from agent.binding.errors import BindError
from agent.binding.spec_files import SpecFiles
try:
    SpecFiles(Path(sys.argv[1], "cdi")).write("d0", bytes(10000))
except BindError as error:
    print(error)
"""


def binding(slot="slot-0", gpu=0):
    ids = frozenset({slot})
    return Binding("ns", "p", "u1", "main", "aliyun.com/gpu", ids, (GPUShare(gpu, "GPU"),))


def spec(binding):
    return encode_spec(container_spec(binding, Edits(), Edits(), "0.6.0"))


@pytest.fixture
def files(tmp_path):
    return SpecFiles(tmp_path / "cdi")


def write(files, binding):
    files.write(binding.device, spec(binding))


def test_a_missing_folder_has_no_bindings(files):
    assert files.bindings() == {}
    files.remove("none.json")


def test_a_file_that_a_killed_agent_has_not_finished_is_removed(files, tmp_path):
    write(files, binding())
    unfinished = tmp_path / "cdi" / f"{Path(file_name('d0')).stem}.tmp"
    others = tmp_path / "cdi" / "nvidia.tmp"
    for path in (unfinished, others):
        path.write_text("{")

    assert len(files.bindings()) == 1
    assert (unfinished.exists(), others.exists()) == (False, True)


def test_bindings_are_read_from_the_files(files, tmp_path):
    a, b = binding("slot-0"), binding("slot-1")
    for each in (a, b):
        write(files, each)

    expected = {file_name(each.device): each for each in (a, b)}
    assert files.bindings() == expected
    assert SpecFiles(tmp_path / "cdi").bindings() == expected
    assert files.get(a.device) == a


def test_a_replaced_file_is_read_again(files):
    write(files, binding(gpu=0))
    assert files.get(binding().device).gpus[0].i == 0
    write(files, binding(gpu=5))
    assert files.get(binding().device).gpus[0].i == 5


def test_a_removed_file_has_no_binding(files):
    write(files, binding())
    files.remove(file_name(binding().device))

    assert files.bindings() == {}


def test_nothing_else_is_left_in_the_folder(files, tmp_path):
    write(files, binding())

    assert [path.name for path in (tmp_path / "cdi").iterdir()] == [file_name(binding().device)]


def test_a_failed_write_leaves_the_old_file(files, tmp_path):
    write(files, binding(gpu=0))
    blocker = (tmp_path / "cdi" / file_name(binding().device)).with_suffix(".tmp")
    blocker.mkdir()
    with pytest.raises(BindError, match="tmp"):
        write(files, binding(gpu=5))

    assert files.get(binding().device).gpus[0].i == 0


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{}", id="no annotation"),
        pytest.param(spec(binding("slot-9")), id="of other ids"),
        pytest.param(b"{" * (3 << 20), id="too long"),
    ],
)
def test_a_changed_file_has_no_binding(files, tmp_path, data):
    write(files, binding())
    (tmp_path / "cdi" / file_name(binding().device)).write_bytes(data)

    assert files.bindings() == {file_name(binding().device): None}


def test_files_of_others_are_not_read(files, tmp_path):
    write(files, binding())
    for name in ("nvidia.yaml", "linkwise.dev-gpu-x.yaml", "other.json"):
        (tmp_path / "cdi" / name).write_bytes(b"x")

    assert list(files.bindings()) == [file_name(binding().device)]


def test_a_pipe_in_place_of_a_file_is_not_waited_for(files, tmp_path):
    write(files, binding())
    os.mkfifo(tmp_path / "cdi" / file_name("d0"))

    assert files.bindings()[file_name("d0")] is None


def test_the_advice_on_a_full_disk_is_to_free_space(tmp_path):
    """In a mount namespace, with a file system of one page."""
    script = (
        f'mount -t tmpfs -o size=4k tmpfs {tmp_path} && exec {sys.executable} -c "$1" {tmp_path}'
    )
    command = [
        shutil.which("unshare"),
        "--mount",
        "--map-root-user",
        "sh",
        "-c",
        script,
        "sh",
        FILL,
    ]
    full = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    if "mount" in full.stderr or "unshare" in full.stderr:
        pytest.skip("needs mount namespaces")

    assert "No space left on device" in full.stdout, full.stderr
    assert f"free space in the file system of {tmp_path}/cdi" in full.stdout
    assert "let the agent write" not in full.stdout
