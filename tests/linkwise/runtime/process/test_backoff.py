import asyncio

from support import virtual_time

from linkwise.runtime.process.backoff import Backoff

ONE, OTHER = "one", "other"


def test_delays_double_up_to_the_maximum_until_a_reset():
    async def delays():
        ready = []
        backoff = Backoff(1.0, 3.0, lambda: ready.append(asyncio.get_running_loop().time()))
        seen = []
        for _ in range(4):
            seen.append(backoff.start(ONE))
            assert ONE in backoff
            assert OTHER not in backoff
            await asyncio.sleep(seen[-1])
            assert ONE not in backoff
        backoff.reset(ONE)
        assert ONE not in backoff
        return [*seen, backoff.start(ONE)], ready

    assert virtual_time.run(delays()) == ([1.0, 2.0, 3.0, 3.0, 1.0], [1.0, 3.0, 6.0, 9.0])


def test_a_reset_cancels_the_timer():
    async def ready():
        calls = []
        backoff = Backoff(1.0, 3.0, lambda: calls.append(True))
        backoff.start(ONE)
        backoff.reset(ONE)
        assert ONE not in backoff
        await asyncio.sleep(5)
        return calls

    assert virtual_time.run(ready()) == []


def test_the_reason_is_known_until_the_delay_ends():
    async def reasons():
        backoff = Backoff(1.0, 3.0, lambda: None)
        seen = [backoff.reason(ONE)]
        backoff.start(ONE, "refused")
        seen.append(backoff.reason(ONE))
        await asyncio.sleep(1.0)
        return [*seen, backoff.reason(ONE)]

    assert virtual_time.run(reasons()) == [None, "refused", None]


def test_restarted_backoff_ignores_old_timer():
    async def is_backing_off():
        backoff = Backoff(1.0, 3.0, lambda: None)
        backoff.start(ONE)
        await asyncio.sleep(0.5)
        backoff.reset(ONE)
        backoff.start(ONE)
        await asyncio.sleep(0.7)
        return ONE in backoff

    assert virtual_time.run(is_backing_off())


def test_a_key_without_failures_for_the_maximum_delay_is_reset():
    async def delays():
        backoff = Backoff(1.0, 3.0, lambda: None)
        seen = [backoff.start(ONE)]
        await asyncio.sleep(1.0 + 2.9)
        seen.append(backoff.start(ONE))
        await asyncio.sleep(2.0 + 3.1)
        return [*seen, backoff.start(ONE)]

    assert virtual_time.run(delays()) == [1.0, 2.0, 1.0]
