"""The driver read by a program that prints what nvidia-smi prints."""

import pytest

from agent.driver.reading import DriverError
from agent.driver.smi import TextDriver

SCRIPT = """\
#!/bin/sh
case "$1" in
  --query-gpu*) echo '0, GPU-aa, 00000000:07:00.0, 15360, [N/A], 535.161.08, Tesla T4' ;;
  --query-compute-apps*) echo 'GPU-aa, 4711' ;;
  topo) printf '\\tGPU0\\tNUMA Affinity\\nGPU0\\t X \\t0\\n' ;;
  *) echo 'Driver Version: 535.161.08 CUDA Version: 12.2' ;;
esac
"""


@pytest.fixture
def program(tmp_path):
    """Write a shell script in place of nvidia-smi; return its path."""

    def write(text):
        path = tmp_path / "nvidia-smi"
        path.write_text(text)
        path.chmod(0o755)
        return (str(path),)

    return write


def test_gpus_and_processes_are_read(program):
    driver = TextDriver(program(SCRIPT))

    assert driver.processes() == ()
    reading = driver.read()

    assert (reading.cuda, reading.gpus[0].model) == ("12.2", "Tesla T4")
    assert driver.processes() == ((0, 4711),)
    assert driver.wait_for_fault(0.01) == ()


def test_version_of_cuda_is_not_needed(program):
    driver = TextDriver(program(SCRIPT.replace("echo 'Driver", "exit 3 # echo 'Driver")))

    assert driver.read().cuda == ""


def test_closed_driver_does_not_wait(program):
    driver = TextDriver(program(SCRIPT))
    driver.close()

    assert driver.wait_for_fault(3600) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("#!/bin/sh\nexit 9\n", "exited with 9", id="failure"),
        pytest.param("#!/bin/sh\nsleep 600 & wait\n", "took over", id="hangs"),
        pytest.param("#!/bin/sh\nyes\n", "printed over 1 MiB", id="too much"),
        pytest.param("#!/no/such/program\n", "cannot be started", id="not a program"),
    ],
)
def test_program_that_does_not_answer_is_an_error(program, text, message):
    timeout = 0.5 if message == "took over" else 30
    with pytest.raises(DriverError, match=message):
        TextDriver(program(text), timeout_s=timeout).read()


def test_missing_program_is_an_error(tmp_path):
    with pytest.raises(DriverError, match="cannot be started"):
        TextDriver((str(tmp_path / "nvidia-smi"),)).read()
