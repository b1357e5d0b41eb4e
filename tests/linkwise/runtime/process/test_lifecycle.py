import asyncio
import gc
import os
import signal
from pathlib import Path

import pytest

from linkwise.runtime.process.lifecycle import run, run_until, start, tune_gc
from linkwise.runtime.process.settings import ProcessSettings

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


def test_an_invalid_setting_is_written_and_nothing_runs(capsys, monkeypatch):
    monkeypatch.setenv("LINKWISE_LOG_LEVEL", "loud")

    assert start(ProcessSettings, lambda _settings, _stop: pytest.fail("it runs")) == 2
    levels = "debug, info, warning, error"
    assert capsys.readouterr().err == f"LINKWISE_LOG_LEVEL=loud: write {levels}\n"


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
