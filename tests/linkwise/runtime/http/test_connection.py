import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from support.servers.served import PATIENT, USUAL, client, served
from support.waiting import until

from linkwise.runtime.http.connection_limiter import BYTES


@pytest.mark.parametrize(
    "head",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n",
        b"GET / HTTP/9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 10_000 + b"\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
    ids=["TLS", "version", "long header", "negative length", "two lengths"],
)
async def test_malformed_request_is_400_and_counted_without_a_log_line(head, caplog):
    async with served() as site, client(site) as one:
        one.send(head)
        assert (await one.answer())[0] == 400
        assert await one.is_closed()
        assert [(served.path, served.status) for served in site.seen] == [("other", 400)]

    assert caplog.records == []


async def test_pipelined_requests_are_answered_in_order():
    async with served() as site, client(site) as one:
        bodies = [b"1", b"22", b"333", b"4444"]
        paths = ["/echo", "/wait", "/echo", "/wait"]
        asked = zip(paths, bodies, strict=True)
        one.send(b"".join(one.head(path, size=len(body)) + body for path, body in asked))
        await until(lambda: site.waiting == 1)
        one.send(one.head(size=5) + b"55555")
        site.going_on.set()
        found = [(await one.answer())[2] for _ in range(5)]

    assert found == [*bodies, b"55555"]


async def test_responses_stop_for_a_client_that_does_not_read():
    async with served() as site, client(site) as deaf, client(site) as other:
        body = b"x" * 200_000
        one = deaf.head(size=len(body)) + body
        deaf.send(one * 200)
        await until(lambda: len(site.seen) > 3)
        before = -1
        while before != (before := len(site.seen)):  # noqa: ASYNC110 - no event marks a pause.
            await asyncio.sleep(0.1)
        assert before < 150
        assert (await other.asks())[0] == 200

        for _ in range(200):
            assert (await deaf.answer())[2] == body


async def test_stop_answers_a_request_that_arrived_during_the_one_before():
    async with served() as site, client(site) as one:
        one.send(one.head("/wait", size=1) + b"1")
        await until(lambda: site.waiting == 1)
        one.send(one.head(size=2) + b"22")
        (connection,) = site.server.limiter.open
        await until(lambda: connection._ahead.buffer)
        site.going_on.set()
        while not connection.used:  # noqa: ASYNC110 - `until` would return too late.
            await asyncio.sleep(0)
        await site.server.stop()
        status, headers, body = await one.answer()
        assert (status, headers.get("Connection"), body) == (200, None, b"1")
        status, headers, body = await one.answer()
        assert (status, headers["Connection"], body) == (200, "close", b"22")


async def test_client_that_does_not_read_is_dropped_after_the_keep_alive_time():
    limits = replace(PATIENT, keep_alive_seconds=0.2, linger_seconds=0.05)
    async with served(limits) as site, client(site) as deaf:
        body = b"x" * 200_000
        deaf.send((deaf.head(size=len(body)) + body) * 200)
        await until(lambda: site.seen)
        await until(lambda: not site.server.limiter.open)


async def test_pipelined_requests_are_not_read_while_one_is_answered():
    async with served() as site, client(site) as one:
        body = b"x" * 200_000
        one.send(one.head("/wait", size=2) + b"{}")
        await until(lambda: site.waiting == 1)
        one.send((one.head("/call", method="GET") * 40 + one.head(size=len(body)) + body) * 100)
        unsent = one.writer.transport.get_write_buffer_size
        before = -1
        while before != (before := unsent()):  # noqa: ASYNC110 - no event signals silence.
            await asyncio.sleep(0.1)
        assert before > 50 * len(body)

        site.going_on.set()
        assert (await one.answer())[2] == b"{}"
        for _ in range(100):
            assert [(await one.answer())[0] for _ in range(40)] == [200] * 40
            assert (await one.answer())[2] == body


async def test_bytes_sent_ahead_are_bounded_over_all_connections():
    limits = replace(PATIENT, bytes_ahead=1000)
    async with served(limits) as site, AsyncExitStack() as stack:
        many = [await stack.enter_async_context(client(site)) for _ in range(4)]
        for number, one in enumerate(many, 1):
            one.send(one.head("/wait", size=2) + b"{}")
            await until(lambda n=number: site.waiting == n)
        for one in many[:3]:
            one.send(b"x" * 400)
        assert await many[2].is_closed()
        assert site.server.dropped(BYTES) == 1

        site.going_on.set()
        assert [(await many[at].answer())[0] for at in (0, 1, 3)] == [200] * 3
        await until(lambda: site.server._ahead.held == 0)


async def test_requests_with_bodies_one_after_another_cost_a_task_each():
    async with served() as site, client(site) as one:
        tasks = []

        def count(loop, coroutine, **options):
            tasks.append(asyncio.Task(coroutine, loop=loop, **options))
            return tasks[-1]

        asyncio.get_running_loop().set_task_factory(count)
        body = b"x" * 10_000
        for _ in range(50):
            one.send(one.head(size=len(body)) + body)
            assert (await one.answer())[2] == body
        asyncio.get_running_loop().set_task_factory(None)
        assert 50 <= len(tasks) < 60


async def test_response_to_head_has_no_body():
    async with served() as site, client(site) as one:
        one.send(one.head("/call", method="HEAD") + one.head("/call", method="GET"))
        status, headers, _ = await one.answer(bare=True)
        assert (status, headers["Allow"]) == (405, "GET")
        assert (await one.answer())[0] == 200


async def test_connection_of_an_http_1_0_client_is_closed():
    async with served() as site, client(site) as one:
        one.send(b"GET /call HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        status, headers, _ = await one.answer()
        assert (status, headers["Connection"]) == (200, "close")
        assert await one.is_closed()


async def test_upgrade_is_not_accepted():
    async with served() as site, client(site) as one:
        one.send(one.head("/call", method="GET", Upgrade="websocket", Connection="Upgrade"))
        one.send(b"\x81\x05hello")
        status, headers, _ = await one.answer()
        assert (status, headers["Connection"]) == (200, "close")
        assert await one.is_closed()


@pytest.mark.parametrize(
    "start", [b"P", b"POST /echo HTTP/1.1\r\nHost: x\r\n"], ids=["byte", "line"]
)
async def test_a_head_that_does_not_end_is_cut_off(start):
    async with (
        served(replace(PATIENT, head_seconds=0.04)) as site,
        client(site) as one,
        client(site) as idle,
    ):
        assert (await one.asks())[0] == 200
        one.send(start)

        assert await one.is_closed()
        assert (await idle.asks())[0] == 200


KEPT = replace(PATIENT, keep_alive_seconds=3 * PATIENT.head_seconds)


def end_time_of_heads(site):
    """Let the server check its connections as it will when the time of a head has passed."""
    for connection in site.server.limiter.open:
        connection.enforce(asyncio.get_running_loop().time() + KEPT.head_seconds)


async def test_late_body_does_not_start_the_time_of_a_head():
    async with served(KEPT) as site, client(site) as one:
        one.send(one.head(size=2))
        await until(lambda: site.server.handler.requests == 1)
        end_time_of_heads(site)
        one.send(b"{")
        end_time_of_heads(site)
        one.send(b"}")
        assert (await one.answer())[0] == 200
        end_time_of_heads(site)
        assert (await one.asks())[0] == 200


async def test_trickled_bytes_do_not_prolong_a_head():
    async with served(replace(PATIENT, head_seconds=0.04)) as site, client(site) as one:
        one.send(b"POST /echo HTTP/1.1\r\n")

        async def trickle():
            while True:
                one.send(b"X: y\r\n")
                await asyncio.sleep(0.005)

        task = asyncio.create_task(trickle())
        assert await one.is_closed()
        task.cancel()


async def test_an_idle_connection_stays_longer_than_an_api_server_keeps_it():
    assert USUAL.keep_alive_seconds > 90
    async with served(KEPT) as site, client(site) as one:
        for _ in range(2):
            assert (await one.asks())[0] == 200
            end_time_of_heads(site)
        assert (await one.asks())[0] == 200


@pytest.mark.parametrize("asked", [0, 1], ids=["never used", "used"])
async def test_idle_connection_is_closed_after_the_keep_alive_time(asked):
    async with served(replace(PATIENT, keep_alive_seconds=0.5)) as site, client(site) as one:
        for _ in range(asked):
            assert (await one.asks())[0] == 200
        assert await one.is_closed()
