import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import virtual_time
from support.servers.fake_api import status

from linkwise.runtime.kube.call_limiter import CallLimiter
from linkwise.runtime.kube.client import ApiError, Kube
from linkwise.runtime.kube.errors import TimedOut, Unreachable

PATH = "/api/v1/namespaces/ns/pods"


class Calls:
    """Calls through a limiter, whose ends a test sets."""

    def __init__(self, most):
        self.limiter, self.sent, self._ends = CallLimiter(most), [], {}

    async def call(self, name, group=""):
        async with self.limiter.slot(group):
            self.sent.append(name)
            self._ends[name] = asyncio.get_running_loop().create_future()
            await self._ends[name]

    async def start(self, *names, group=""):
        tasks = [asyncio.create_task(self.call(name, group)) for name in names]
        await settled()
        return tasks

    async def end(self, name, error=None):
        end = self._ends[name]
        if error:
            end.set_exception(error)
        else:
            end.set_result(None)
        await settled()


async def settled():
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def calls():
    return Calls(4)


async def test_calls_beyond_the_limit_wait_for_an_answer(calls):
    await calls.start(*"abcdef")
    assert calls.sent == [*"abcd"]
    await calls.end("b")
    assert calls.sent == [*"abcde"]


@pytest.mark.parametrize(
    "error", [TimedOut("late"), ApiError(504, "Timeout", "")], ids=["client", "server"]
)
async def test_a_timeout_halves_the_limit_and_answers_raise_it_slowly(calls, error):
    tasks = await calls.start(*"abcd")
    await calls.end("a", error)
    with pytest.raises(type(error)):
        await tasks[0]
    assert calls.limiter.limit == 2
    for name in "bcd":
        await calls.end(name)
    assert calls.limiter.limit == 3
    for number in range(100):
        await calls.start(number)
        await calls.end(number)
    assert calls.limiter.limit == 4


async def test_timeouts_of_calls_that_were_sent_together_halve_the_limit_once(calls):
    tasks = await calls.start(*"abcd")
    for name in "abcd":
        await calls.end(name, TimedOut("late"))
    await asyncio.gather(*tasks, return_exceptions=True)
    assert calls.limiter.limit == 2


async def test_one_call_is_always_in_flight(calls):
    for number in range(20):
        (task,) = await calls.start(number)
        await calls.end(number, TimedOut("late"))
        assert isinstance(task.exception(), TimedOut)
    await calls.start("last", "beyond")
    assert calls.sent[-1] == "last"


@pytest.mark.parametrize(
    "error", [Unreachable("no route"), ApiError(429, "", ""), ApiError(500, "", "")]
)
async def test_other_errors_do_not_lower_the_limit(calls, error):
    (task,) = await calls.start("a")
    await calls.end("a", error)
    assert task.exception() is error
    assert calls.limiter.limit == 4


async def test_namespaces_take_turns(calls):
    await calls.start(*"abcdefgh", group="large")
    await calls.start("x", group="small")
    await calls.end("a")
    await calls.end("b")
    assert "x" in calls.sent


async def test_a_cancelled_call_leaves_its_place_to_others(calls):
    tasks = await calls.start(*"abcdef")
    tasks[0].cancel()
    tasks[4].cancel()
    await settled()
    assert calls.sent == [*"abcdf"]
    for name in "bcdf":
        await calls.end(name)
    await calls.start(*"ghij")
    assert calls.sent[-4:] == [*"ghij"]


async def test_no_call_is_sent_once_the_limiter_is_closed(calls):
    waiting = await calls.start(*"abcdef")
    calls.limiter.close()
    late = await calls.start("late")
    await calls.end("a")
    assert all(task.cancelled() for task in (*waiting[4:], *late))
    assert calls.sent == [*"abcd"]


@given(
    st.integers(1, 8),
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.sampled_from(["ok", "late", "cancel"]), st.floats(0, 5)
        ),
        max_size=40,
    ),
)
def test_every_call_is_sent_or_cancelled_and_the_limit_holds(most, plans):
    limiter, running, outcomes = CallLimiter(most), 0, Counter()

    async def call(group, outcome, seconds):
        nonlocal running
        async with limiter.slot(group):
            running += 1
            assert running <= most
            try:
                await asyncio.sleep(seconds)
                if outcome == "late":
                    raise TimedOut("late")
            finally:
                running -= 1

    async def main():
        tasks = [asyncio.create_task(call(*plan)) for plan in plans]
        await asyncio.sleep(1)
        for task, (_, outcome, _) in zip(tasks, plans, strict=True):
            if outcome == "cancel":
                task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            outcomes[type(result)] += 1
        await call("after", "ok", 0)

    virtual_time.run(main())
    assert outcomes.keys() <= {type(None), TimedOut, asyncio.CancelledError}
    assert outcomes.total() == len(plans)


async def test_the_time_limit_of_a_call_starts_when_it_is_sent(api):
    limiter = CallLimiter(1)
    async with Kube(api.url, timeout=0.05) as kube:
        async with limiter.slot("other"):
            waiting = asyncio.create_task(kube.limited(limiter).get(PATH, dict))
            await asyncio.sleep(0.2)
            assert not waiting.done()
        await asyncio.wait((waiting,))


async def test_a_client_without_an_answer_in_time_lowers_its_limit(api):
    async def silent(_request):
        await asyncio.sleep(10)

    api.faults["list"] += [silent, status(504)]
    async with Kube(api.url, timeout=0.1) as kube:
        limiter = CallLimiter(8)
        for limit in (4, 2):
            with pytest.raises((TimedOut, ApiError)):
                await kube.limited(limiter).get(PATH, dict)
            assert limiter.limit == limit
