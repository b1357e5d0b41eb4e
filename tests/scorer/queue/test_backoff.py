import asyncio

import virtual_time

from cluster.gang import GangKey
from scorer.queue.backoff import Backoff

ONE, OTHER = GangKey("team", "one", ""), GangKey("team", "other", "")


def test_delays_double_up_to_the_maximum_until_a_reset():
    async def pauses():
        woken = []
        backoff = Backoff(1.0, 3.0, lambda: woken.append(asyncio.get_running_loop().time()))
        found = []
        for _ in range(4):
            found.append(backoff.start(ONE))
            assert ONE in backoff
            assert OTHER not in backoff
            await asyncio.sleep(found[-1])
            assert ONE not in backoff
        backoff.reset(ONE)
        assert ONE not in backoff
        return [*found, backoff.start(ONE)], woken

    assert virtual_time.run(pauses()) == ([1.0, 2.0, 3.0, 3.0, 1.0], [1.0, 3.0, 6.0, 9.0])


def test_a_reset_cancels_the_timer():
    async def woken():
        found = []
        backoff = Backoff(1.0, 3.0, lambda: found.append(True))
        backoff.start(ONE)
        backoff.reset(ONE)
        assert ONE not in backoff
        await asyncio.sleep(5)
        return found

    assert virtual_time.run(woken()) == []


def test_the_reason_is_known_until_the_delay_ends():
    async def told():
        backoff = Backoff(1.0, 3.0, lambda: None)
        found = [backoff.reason(ONE)]
        backoff.start(ONE, "refused")
        found.append(backoff.reason(ONE))
        await asyncio.sleep(1.0)
        return [*found, backoff.reason(ONE)]

    assert virtual_time.run(told()) == [None, "refused", None]


def test_restarted_backoff_ignores_old_timer():
    async def rests_still():
        backoff = Backoff(1.0, 3.0, lambda: None)
        backoff.start(ONE)
        await asyncio.sleep(0.5)
        backoff.reset(ONE)
        backoff.start(ONE)
        await asyncio.sleep(0.7)
        return ONE in backoff

    assert virtual_time.run(rests_still())


def test_a_key_without_failures_for_the_maximum_delay_is_reset():
    async def pauses():
        backoff = Backoff(1.0, 3.0, lambda: None)
        found = [backoff.start(ONE)]
        await asyncio.sleep(1.0 + 2.9)
        found.append(backoff.start(ONE))
        await asyncio.sleep(2.0 + 3.1)
        return [*found, backoff.start(ONE)]

    assert virtual_time.run(pauses()) == [1.0, 2.0, 1.0]
