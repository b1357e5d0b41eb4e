import asyncio

import virtual_time

from cluster.gang import GangKey
from scorer.queue.backoff import Backoff

ONE, OTHER = GangKey("team", "one", ""), GangKey("team", "other", "")


def test_each_rests_longer_every_time_until_it_goes_well():
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


def test_who_is_forgotten_wakes_nobody():
    async def woken():
        found = []
        backoff = Backoff(1.0, 3.0, lambda: found.append(True))
        backoff.start(ONE)
        backoff.reset(ONE)
        assert ONE not in backoff
        await asyncio.sleep(5)
        return found

    assert virtual_time.run(woken()) == []


def test_why_one_rests_is_told_as_long_as_it_does():
    async def told():
        backoff = Backoff(1.0, 3.0, lambda: None)
        found = [backoff.reason(ONE)]
        backoff.start(ONE, "refused")
        found.append(backoff.reason(ONE))
        await asyncio.sleep(1.0)
        return [*found, backoff.reason(ONE)]

    assert virtual_time.run(told()) == [None, "refused", None]


def test_who_rests_anew_is_not_woken_by_the_time_before():
    async def rests_still():
        backoff = Backoff(1.0, 3.0, lambda: None)
        backoff.start(ONE)
        await asyncio.sleep(0.5)
        backoff.reset(ONE)
        backoff.start(ONE)
        await asyncio.sleep(0.7)
        return ONE in backoff

    assert virtual_time.run(rests_still())


def test_who_has_rested_and_is_not_seen_again_is_forgotten():
    async def pauses():
        backoff = Backoff(1.0, 3.0, lambda: None)
        found = [backoff.start(ONE)]
        await asyncio.sleep(1.0 + 2.9)
        found.append(backoff.start(ONE))
        await asyncio.sleep(2.0 + 3.1)
        return [*found, backoff.start(ONE)]

    assert virtual_time.run(pauses()) == [1.0, 2.0, 1.0]
