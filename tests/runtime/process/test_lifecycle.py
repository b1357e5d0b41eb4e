import asyncio
import gc
import os
import signal

import pytest

from runtime.process.lifecycle import run, tune_gc


def send(number):
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_tells_the_process_to_end_in_its_own_time(number):
    ended = []

    async def main(told):
        assert type(asyncio.get_running_loop()).__module__ == "uvloop"
        assert not told.is_set()
        send(number)
        await told.wait()
        await asyncio.sleep(0)
        ended.append(True)

    run(main)

    assert ended


def test_a_second_signal_ends_it_at_once_and_in_order():
    ended = []

    async def main(told):
        try:
            send(signal.SIGTERM)
            await told.wait()
            send(signal.SIGTERM)
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    run(main)

    assert ended


def test_what_ends_main_ends_the_process_with_it():
    async def broken(_told):
        raise RuntimeError("a bug")

    async def cancelled(_told):
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="a bug"):
        run(broken)
    with pytest.raises(asyncio.CancelledError):
        run(cancelled)


def test_what_was_made_at_start_is_not_collected_again_and_again():
    before = gc.get_threshold()
    try:
        tune_gc()
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold()[0] == 50_000
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
