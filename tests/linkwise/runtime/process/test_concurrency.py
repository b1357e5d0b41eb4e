import asyncio

from hypothesis import given
from hypothesis import strategies as st
from support import virtual_time

from linkwise.runtime.process.concurrency import map_few


@given(st.lists(st.floats(0, 5), max_size=30), st.integers(1, 8))
def test_results_are_in_order_and_few_calls_are_under_way(delays, most):
    running = 0

    async def call(delay):
        nonlocal running
        running += 1
        assert running <= most
        await asyncio.sleep(delay)
        running -= 1
        return delay

    async def main():
        await asyncio.sleep(0.1)
        return await map_few(call, delays, most)

    assert virtual_time.run(main()) == delays
