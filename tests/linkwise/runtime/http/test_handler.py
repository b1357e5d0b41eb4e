import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from unittest.mock import Mock

import pytest
from aiohttp.test_utils import make_mocked_request
from support.servers.served import PATIENT, WORK, client, served
from support.waiting import until

from linkwise.runtime.http.handler import Handler
from linkwise.runtime.http.types import JSON


async def test_route_receives_the_body_and_the_connection_is_kept_alive():
    async with served() as site, client(site) as one:
        for body in (b'{"a":1}', b"[]"):
            status, headers, back = await one.asks(body=body)
            assert (status, back, headers["Content-Type"]) == (200, body, JSON)
            assert "Connection" not in headers
        assert len(site.server.limiter.open) == 1


async def test_query_is_passed_on_and_not_part_of_the_path():
    async with served() as site, client(site) as one:
        one.send(one.head("/call?timeout=3s&x=%2F", method="GET"))

        assert (await one.answer())[2] == b"timeout=3s&x=%2F"
        assert site.seen[0].path == "/call"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/other", 404), ("GET", "/echo", 405), ("PUT", "/echo", 405), ("GET", "/echo/", 404)],
)
async def test_unknown_path_is_404_and_unknown_method_is_405(method, path, status):
    async with served() as site, client(site) as one:
        one.send(one.head(path, method=method))
        found, headers, _ = await one.answer()

    assert found == status
    assert headers.get("Allow") == ("POST" if status == 405 else None)


async def test_unknown_paths_share_one_label():
    async with served() as site, client(site) as one:
        for path in ("/a", "/b?c"):
            await one.asks(path)

    assert {(served.path, served.status) for served in site.seen} == {("other", 404)}


async def test_requests_that_wait_for_their_turn_make_room_for_other_clients():
    limits = replace(PATIENT, connections=4)
    async with served(limits) as site, AsyncExitStack() as stack:
        many = [await stack.enter_async_context(client(site)) for _ in range(4)]
        seen = []

        def look():
            seen.append([each.evictable for each in site.server.limiter.open])

        for one in many:
            one.send(one.head("/work?50", method="GET"))
        await until(lambda: site.seen)
        asyncio.get_running_loop().call_soon(look)
        assert {(await one.answer())[0] for one in many} == {200}

    assert seen[0].count(True) >= 3


async def test_request_of_a_client_that_is_gone_is_no_bug():
    """Under TLS the transport is there for a moment, without a protocol."""
    handler = Handler((), PATIENT, ())
    transport = Mock(get_protocol=Mock(return_value=None))

    await handler(make_mocked_request("GET", "/call", transport=transport))

    assert handler.requests == 0


async def test_a_bug_in_a_route_is_500_and_the_connection_goes_on():
    async with served() as site, client(site) as one:
        status, _, body = await one.asks("/bug")
        assert (status, body) == (500, b"internal error: the log has it\n")
        assert (await one.asks())[0] == 200
        assert site.server.handler.requests == 0


async def test_completed_requests_are_observed():
    async with served() as site, client(site) as one:
        await one.asks(body=b"12345")
        one.send(one.head("/fields", method="GET"))
        await one.answer()

    first, second = site.seen
    assert (first.path, first.status, first.size, first.fields) == ("/echo", 200, 5, {})
    assert 0 <= first.seconds < 5
    assert second.fields == {"pod": "ns/a"}


async def test_durations_below_a_millisecond_are_measured():
    async with served() as site, client(site) as one:
        for _ in range(20):
            one.send(one.head("/work", method="GET"))
            await one.answer()

    assert min(served.seconds for served in site.seen) >= WORK


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content_Type": "application/json; charset=utf-8"}, 200),
        ({"Content_Type": "Application/JSON"}, 200),
        ({"Content_Type": "application/yaml"}, 415),
        ({"Content_Type": "text/json"}, 415),
        ({"Content_Type": None}, 415),
        ({"Content_Encoding": "gzip"}, 415),
        ({"Content_Encoding": "x"}, 415),
        ({"Content_Encoding": "identity"}, 200),
    ],
    ids=str,
)
async def test_only_plain_json_is_taken(headers, status):
    async with served() as site, client(site) as one:
        assert (await one.asks(**headers))[0] == status


async def test_requests_that_wait_are_bounded():
    async with (
        served(replace(PATIENT, requests=1)) as site,
        client(site) as one,
        client(site) as two,
    ):
        one.send(one.head("/wait", size=2) + b"{}")
        await until(lambda: site.waiting == 1)

        status, headers, _ = await two.asks("/wait")
        assert (status, headers["Retry-After"]) == (503, "1")
        site.going_on.set()
        assert (await one.answer())[0] == 200
        assert (await two.asks("/wait"))[0] == 200


async def test_route_that_exceeds_its_time_is_504():
    async with served(replace(PATIENT, answer_seconds=0.05)) as site, client(site) as one:
        assert (await one.asks("/wait"))[0] == 504


async def test_disconnected_client_is_counted_as_499_and_releases_its_bytes():
    async with served() as site:
        async with client(site) as one:
            one.send(one.head(size=10) + b"12345")
            await until(lambda: site.server.handler.budget.held == 5)
        await until(lambda: site.seen)

        assert site.seen[0].status == 499
        assert site.server.handler.budget.held == 0
        assert site.server.handler.requests == 0
        await until(lambda: len(site.server.limiter.open) == 0)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"SECRET-WORD / HTTP/9.9\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nSECRET-WORD\x00: a\r\n\r\n", 400),
        (b"\x16\x03\x01SECRET-WORD\r\n\r\n", 400),
        (b"GET /" + b"SECRET-WORD" * 2000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /SECRET-WORD HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"DELETE /call HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (
            b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: SECRET-WORD\r\n"
            b"Content-Length: 0\r\n\r\n",
            415,
        ),
        (
            b"POST /bug HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: 2\r\n\r\n{}",
            500,
        ),
    ],
    ids=["version", "header", "TLS", "long line", "path", "method", "content type", "a bug"],
)
async def test_no_answer_names_versions_or_quotes_what_is_no_request(sent, status):
    async with served() as site, client(site) as one:
        one.send(sent)
        code, headers, body = await one.answer()

    assert (code, headers["Server"]) == (status, "linkwise")
    text = f"{headers}{body.decode()}"
    assert not [word for word in ("SECRET", "aiohttp", "Python") if word in text]
