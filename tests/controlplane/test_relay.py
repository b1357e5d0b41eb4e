import asyncio
import time

import pytest
from controlplane.relay import Relay

LAG, UNASKED = 1.0, 0.5


@pytest.fixture
async def port():
    """Serve an echo, which also says something after a while without being asked."""
    over = asyncio.Event()

    async def serve(reader, writer):
        writer.write(await reader.readline())
        await asyncio.sleep(UNASKED)
        writer.write(b"unasked\n")
        await reader.read()
        writer.close()
        await writer.wait_closed()
        over.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        await over.wait()


async def arrival_times(port, count, **settings):
    """Return the arrival time of each line that the server sent [s]."""
    with Relay(lambda: (port,)) as relay:
        for name, value in settings.items():
            setattr(relay, name, value)
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        began = time.monotonic()
        writer.write(b"asked\n")
        times = []
        for message in (b"asked\n", b"unasked\n")[:count]:
            assert await reader.readline() == message
            times.append(time.monotonic() - began)
        writer.close()
        await writer.wait_closed()
    return times


async def test_what_servers_send_goes_on_later_and_in_order(port):
    answer, unasked = await arrival_times(port, 2, lag=LAG)
    assert answer >= LAG
    assert unasked >= LAG + UNASKED


async def test_answers_need_not_wait_where_only_watches_are_to_lag(port):
    # Had it to wait, the test would end before it came.
    await arrival_times(port, 1, lag=3600, prompt=60)


async def test_what_comes_later_than_answers_is_of_a_watch(port):
    _, unasked = await arrival_times(port, 2, lag=LAG, prompt=UNASKED / 2)
    assert unasked >= LAG + UNASKED
