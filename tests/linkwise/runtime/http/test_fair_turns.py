"""Costly requests of one address delay its own requests, and few of others."""

import asyncio
import time
from dataclasses import dataclass

import pytest
from support.waiting import PATIENCE

from linkwise.runtime.http.fair_turns import QUANTUM, FairTurns


@dataclass(slots=True)
class Sender:
    peer: str
    connected: bool = True


HOSTILE, HONEST = Sender("10.0.0.1"), Sender("10.0.0.2")


class Calls:
    """Calls of several senders, and the order in which they were made."""

    def __init__(self):
        self.turns = FairTurns()
        self.made = []
        self._tasks = []

    def begin(self, sender, name, *, rounds=0, function=None):
        """Begin a call that uses the time of so many rounds."""
        call = self.turns.call(sender, function or (lambda: self.work(name, rounds)), "not made")
        self._tasks.append(asyncio.create_task(call))

    def work(self, name, rounds):
        end = time.thread_time() + rounds * QUANTUM
        while time.thread_time() < end:
            pass
        self.made.append(name)
        return name

    async def results(self):
        """Return the results of all calls, also of those that others begin."""
        results = []
        async with asyncio.timeout(PATIENCE):
            while len(results) < len(self._tasks):
                results = await asyncio.gather(*self._tasks)
        return results


async def test_costly_calls_of_one_address_delay_a_later_call_of_another_by_one():
    calls = Calls()
    for number in range(10):
        calls.begin(HOSTILE, number, rounds=3)
    calls.begin(HONEST, "honest")

    results = await calls.results()

    assert calls.made == [0, "honest", *range(1, 10)]
    assert results == [*range(10), "honest"]


async def test_a_call_that_comes_during_a_costly_one_goes_before_the_next_of_its_address():
    calls = Calls()

    def work():
        calls.begin(HONEST, "honest")
        return calls.work(1, rounds=10)

    calls.begin(HOSTILE, 0, rounds=10)
    calls.begin(HOSTILE, 1, function=work)
    calls.begin(HOSTILE, 2)
    await calls.results()

    assert calls.made == [0, 1, "honest", 2]


async def test_cheap_calls_of_one_address_do_not_wait_for_one_another():
    calls = Calls()
    for number in range(50):
        calls.begin(HONEST, number)
    await asyncio.sleep(0)

    assert calls.made == list(range(50))
    await calls.results()


async def test_an_address_that_is_alone_has_all_its_calls_made_in_order():
    calls = Calls()
    for number in range(20):
        calls.begin(HOSTILE, number, rounds=number % 3)

    assert await calls.results() == list(range(20)) == calls.made


async def test_a_client_that_is_gone_before_its_turn_costs_nothing():
    calls, gone = Calls(), Sender(HOSTILE.peer)
    calls.begin(HOSTILE, "first", rounds=2)
    calls.begin(gone, "second")
    calls.begin(HOSTILE, "third")
    gone.connected = False

    assert await calls.results() == ["first", "not made", "third"]
    assert calls.made == ["first", "third"]


async def test_an_exception_reaches_its_caller_alone():
    calls = Calls()
    calls.begin(HOSTILE, "first", rounds=2)
    await asyncio.sleep(0)
    calls.begin(HOSTILE, "third")

    def fail():
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        await calls.turns.call(HOSTILE, fail, None)
    assert await calls.results() == ["first", "third"]
