import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from controlplane.process import NotReadyError, Process, Processes, free_ports, wait_until

SLEEPER = (sys.executable, "-c", "import time; time.sleep(600)")
# Never ends by itself, and not when it is asked to either.
STUBBORN = (
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('deaf', flush=True); time.sleep(600)",
)
STARTER = """
import signal
import sys
from pathlib import Path
from controlplane.process import Process, Processes
# Ignored where a shell began all this in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
with Processes() as processes:
    sleeper = Process("sleeper", {argv!r}, Path({log!r}))
    processes.start(sleeper)
    print(sleeper.pid, flush=True)
    sys.stdin.read()
"""


def is_there(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] != "Z"


def test_processes_end_when_their_block_does(tmp_path):
    with Processes() as processes:
        sleeper = Process("sleeper", SLEEPER, tmp_path / "log")
        processes.start(sleeper)
        assert is_there(sleeper.pid)
    assert not is_there(sleeper.pid)


def test_processes_end_when_their_block_fails(tmp_path):
    sleeper = Process("sleeper", SLEEPER, tmp_path / "log")
    broken = Process("broken", ("/no/such/program",), tmp_path / "log")
    with pytest.raises(FileNotFoundError), Processes() as processes:
        [processes.start(process) for process in (sleeper, broken)]
    assert not is_there(sleeper.pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_processes_end_when_their_starter_is_killed(tmp_path, number):
    code = STARTER.format(argv=SLEEPER, log=str(tmp_path / "log"))
    tests = Path(__file__).parents[1]
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=tests,
    ) as starter:
        pid = int(starter.stdout.readline())
        assert is_there(pid)
        starter.send_signal(number)
        starter.wait(60)
        wait_until(lambda: not is_there(pid), "the sleeper is gone", seconds=60)


def test_a_process_that_does_not_end_when_asked_is_killed(tmp_path):
    deaf = Process("deaf", STUBBORN, tmp_path / "log")
    deaf.start()
    deaf.wait_ready(lambda: deaf.log.read_text() == "deaf\n")
    deaf.stop(seconds=0.1)
    assert not is_there(deaf.pid)


def test_a_paused_process_ends_when_asked(tmp_path):
    sleeper = Process("sleeper", SLEEPER, tmp_path / "log")
    sleeper.start()
    sleeper.signal(signal.SIGSTOP)
    sleeper.stop()
    assert sleeper.child.returncode == -signal.SIGTERM


def test_process_that_exits_before_ready_is_reported_with_its_log(tmp_path):
    broken = Process("broken", (sys.executable, "-c", "print('no such flag')"), tmp_path / "log")
    broken.start()
    with pytest.raises(NotReadyError, match="broken ended before it was ready") as raised:
        broken.wait_ready(lambda: False)
    assert "no such flag" in str(raised.value)
    broken.stop()


def test_timeout_names_the_condition():
    with pytest.raises(NotReadyError, match="rain: not so after 0 s"):
        wait_until(lambda: False, "rain", seconds=0)


def test_free_ports_are_different_and_below_those_of_outgoing_connections():
    ports = free_ports(6)
    assert len(set(ports)) == 6
    assert max(ports) < 32_768


def test_two_processes_get_different_free_ports():
    code = "from controlplane.process import free_ports; print(*free_ports(200))"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    own = free_ports(200)

    text = subprocess.check_output((sys.executable, "-c", code), env=environment)
    assert len({*own, *map(int, text.split())}) == 400
