import asyncio
import gc
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from linkwise.runtime.process.environment import SettingsError
from linkwise.runtime.process.lifecycle import run, run_until, start, tune_gc

REPOSITORY = Path(__file__).parents[4]


def send(number):
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_first_signal_lets_the_process_drain(number):
    ended = []

    async def main(stop):
        assert type(asyncio.get_running_loop()).__module__ == "uvloop"
        assert not stop.is_set()
        send(number)
        await stop.wait()
        await asyncio.sleep(0)
        ended.append(True)

    run(main)

    assert ended


def test_second_signal_cancels_main():
    ended = []

    async def main(stop):
        try:
            send(signal.SIGTERM)
            await stop.wait()
            send(signal.SIGTERM)
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    run(main)

    assert ended


def test_exception_of_main_ends_the_process():
    async def broken(_told):
        raise RuntimeError("a bug")

    async def cancelled(_told):
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="a bug"):
        run(broken)
    with pytest.raises(asyncio.CancelledError):
        run(cancelled)


def test_objects_of_the_start_are_excluded_from_collections():
    before = gc.get_threshold()
    try:
        tune_gc()
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold()[0] == 50_000
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


async def test_work_is_cancelled_when_the_process_must_stop_and_may_clean_up():
    stop, cleaned = asyncio.Event(), []

    async def work():
        stop.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    await run_until(stop, work())

    assert cleaned


async def test_an_error_of_the_work_ends_the_process():
    async def work():
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await run_until(asyncio.Event(), work())


def test_an_invalid_setting_is_written_and_nothing_runs(capsys):
    def read(_environment):
        raise SettingsError("LINKWISE_PORT=x: write a number")

    assert start(read, lambda _settings, _stop: pytest.fail("it runs")) == 2
    assert capsys.readouterr().err == "LINKWISE_PORT=x: write a number\n"


@pytest.mark.parametrize("server", ["webhook", "scorer", "certs", "agent", "scorer.withdraw"])
def test_help_of_a_server_lists_its_settings(server):
    documented = (REPOSITORY / "docs/operations/run.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `(LINKWISE_\w+)` \| .* \| ([\w, ]+) \| .* \|$", documented, re.MULTILINE
    )
    expected = {name for name, servers in rows if {server, "all"} & set(servers.split(", "))}
    if server == "scorer.withdraw":
        expected -= {"LINKWISE_HOST", "LINKWISE_PROBE_PORT"}

    ran = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", server, "--help"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout.startswith(f"Usage: python -m {server}\n")
    assert set(re.findall(r"^  (LINKWISE_\w+)  ", ran.stdout, re.MULTILINE)) == expected
    assert ran.stderr == ""


CLOSED = "unable to perform operation on <TCPTransport closed=True>; the handler is closed"
TLS = "Fatal error on SSL protocol"


@pytest.mark.parametrize(
    ("message", "error", "is_logged"),
    [
        pytest.param(TLS, RuntimeError(CLOSED), False, id="write to a closed connection"),
        pytest.param("Error occurred during shutdown", RuntimeError(CLOSED), False, id="its end"),
        pytest.param(TLS, RuntimeError("other"), True, id="other error of TLS"),
        pytest.param(TLS, ValueError(CLOSED), True, id="other type"),
        pytest.param("Exception in callback", RuntimeError(CLOSED), True, id="callback"),
    ],
)
def test_only_what_callbacks_raise_is_logged(caplog, message, error, is_logged):
    async def main(_stop):
        context = {"message": message, "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)

    run(main)

    assert [record.message for record in caplog.records] == [message] * is_logged
