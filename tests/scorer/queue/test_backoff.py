import asyncio

import virtual_time

from cluster.gang import GangKey
from scorer.queue.backoff import Backoff

ONE, OTHER = GangKey("team", "one", ""), GangKey("team", "other", "")


def test_each_rests_longer_every_time_until_it_goes_well():
    async def pauses():
        woken = []
        rests = Backoff(1.0, 3.0, lambda: woken.append(asyncio.get_running_loop().time()))
        found = []
        for _ in range(4):
            found.append(rests.begin(ONE))
            assert ONE in rests
            assert OTHER not in rests
            await asyncio.sleep(found[-1])
            assert ONE not in rests
        rests.forget(ONE)
        assert ONE not in rests
        return [*found, rests.begin(ONE)], woken

    assert virtual_time.run(pauses()) == ([1.0, 2.0, 3.0, 3.0, 1.0], [1.0, 3.0, 6.0, 9.0])


def test_who_is_forgotten_wakes_nobody():
    async def woken():
        found = []
        rests = Backoff(1.0, 3.0, lambda: found.append(True))
        rests.begin(ONE)
        rests.forget(ONE)
        assert ONE not in rests
        await asyncio.sleep(5)
        return found

    assert virtual_time.run(woken()) == []


def test_why_one_rests_is_told_as_long_as_it_does():
    async def told():
        rests = Backoff(1.0, 3.0, lambda: None)
        found = [rests.why(ONE)]
        rests.begin(ONE, "refused")
        found.append(rests.why(ONE))
        await asyncio.sleep(1.0)
        return [*found, rests.why(ONE)]

    assert virtual_time.run(told()) == [None, "refused", None]


def test_who_rests_anew_is_not_woken_by_the_time_before():
    async def rests_still():
        rests = Backoff(1.0, 3.0, lambda: None)
        rests.begin(ONE)
        await asyncio.sleep(0.5)
        rests.forget(ONE)
        rests.begin(ONE)
        await asyncio.sleep(0.7)
        return ONE in rests

    assert virtual_time.run(rests_still())


def test_who_has_rested_and_is_not_seen_again_is_forgotten():
    async def pauses():
        rests = Backoff(1.0, 3.0, lambda: None)
        found = [rests.begin(ONE)]
        await asyncio.sleep(1.0 + 2.9)
        found.append(rests.begin(ONE))
        await asyncio.sleep(2.0 + 3.1)
        return [*found, rests.begin(ONE)]

    assert virtual_time.run(pauses()) == [1.0, 2.0, 1.0]
