"""The end of an agent that does not answer the kubelet."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import PATIENCE, until

from agent.kubelet.call import KubeletError
from agent.plugin.watchdog import LIMIT, watch

ROOT = Path(__file__).parents[3]
START = "import time; from agent.plugin.watchdog import KernelTimer; timer = KernelTimer(); "
STARTED = "; print('started', flush=True); "


def start(timer, then):
    code = START + timer + STARTED + then
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout.readline() == b"started\n"
    return process


@pytest.mark.parametrize("signals", [(), (signal.SIGSTOP,)])
def test_process_that_hangs_or_is_stopped_is_killed(signals):
    with start("timer.set(2)", "time.sleep(3600)") as process:
        for number in signals:
            process.send_signal(number)
        assert process.wait(PATIENCE) == -signal.SIGKILL


def test_timer_that_is_set_again_starts_from_the_beginning():
    # Nothing stands between the two: a busy machine would kill the process in time.
    with start("timer.set(5); timer.set(3600)", "time.sleep(6)") as process:
        assert process.wait(PATIENCE) == 0


async def test_only_an_answer_sets_the_timer():
    checks, times = [], []
    answers = asyncio.Event()

    async def answer():
        checks.append(1)
        if len(checks) == 2:
            raise KubeletError("no answer")
        if len(checks) == 4:
            await answers.wait()

    watching = asyncio.create_task(watch(answer, times.append, 0))
    await until(lambda: len(checks) == 4)
    assert times == [LIMIT] * 2

    answers.set()
    await until(lambda: len(times) >= 3)
    watching.cancel()
