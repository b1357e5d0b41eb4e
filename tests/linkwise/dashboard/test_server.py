"""The server under attack: other hosts and origins, no secret, many, slow and hostile clients."""

import asyncio
import json
from contextlib import asynccontextmanager

import aiohttp
import pytest
from support.dashboard import placed_pod, waiting_pod

from linkwise.dashboard.feed import CLIENTS, Feed
from linkwise.dashboard.queries import UNITS
from linkwise.dashboard.server import LIMITS, serve_dashboard
from linkwise.runtime.process.clock import wall

SECRET = "a-secret-for-a-test"  # noqa: S105
EVENTS = "api/events"
HOSTILE = '</script><img src=x onerror=alert(1)>"\u202e'
VIEWS = (
    "api/node?name=dgx-0",
    "api/waiting",
    "api/namespaces",
    "api/samples",
    "api/sets",
    "api/past?at=1",
    "api/sets?at=1",
    "api/node?name=dgx-0&at=1",
    "api/unit?kind=gang&namespace=team&name=vgg&at=1",
)


@pytest.fixture
def serving(moment):
    """Serves a cluster with some pods."""

    @asynccontextmanager
    async def serve(*pods: str):
        feed = Feed(wall, live=True)
        await feed.publish(moment(*pods).current)
        async with serve_dashboard(feed, SECRET, 0) as (server, address):
            try:
                yield feed, server, address
            finally:
                feed.close()

    return serve


async def get(session, url, **headers):
    async with session.get(url, headers=headers) as response:
        return response.status, await response.read(), response.headers


def message(body: bytes):
    """Return the version and the data of an event."""
    fields = dict(line.split(b": ", 1) for line in body.strip().split(b"\n"))
    return fields[b"id"].decode(), json.loads(fields[b"data"])


async def test_the_page_and_its_parts_are_served_with_the_policy(serving):
    async with serving(placed_pod("a", 0)) as (_, _, address), aiohttp.ClientSession() as session:
        for part in ("", "app.js", "dashboard.css", "base.css", EVENTS, *VIEWS):
            status, body, headers = await get(session, address.url + part)
            assert status == 200, part
            assert body
            assert "default-src 'none'" in headers["Content-Security-Policy"]
            assert headers["Referrer-Policy"] == "no-referrer"
            assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("part", ["", "app.js", EVENTS, *VIEWS])
async def test_other_hosts_and_origins_get_nothing(serving, part):
    async with serving() as (_, _, address), aiohttp.ClientSession() as session:
        attacks = ({"Host": "evil.example"}, {"Origin": "http://evil.example"})
        for headers in attacks:
            status, body, _ = await get(session, address.url + part, **headers)
            assert status == 403
            assert b"dgx" not in body


@pytest.mark.parametrize(
    "path", ["/", "/index.html", "/api/events", "/a-secret/", f"/{SECRET}", f"/{SECRET.upper()}/"]
)
async def test_without_the_secret_nothing_is_found(serving, path):
    async with serving() as (_, _, address), aiohttp.ClientSession() as session:
        status, body, _ = await get(session, f"http://127.0.0.1:{address.port}{path}")

        assert status == 404
        assert b"Linkwise" not in body


async def test_an_event_comes_when_the_cluster_changes_and_has_only_that(serving, moment):
    async with serving() as (feed, _, address), aiohttp.ClientSession() as session:
        _, body, _ = await get(session, address.url + EVENTS)
        version, first = message(body)
        assert first["full"]
        assert len(first["nodes"]) == 3

        waiting = asyncio.create_task(
            get(session, address.url + EVENTS, **{"Last-Event-ID": version})
        )
        await asyncio.sleep(0)
        await feed.publish(moment(placed_pod("a", 0), waiting_pod("b", 99)).current)
        _, body, _ = await waiting

        _, second = message(body)
        assert not second["full"]
        assert [row[0] for row in second["nodes"]] == ["dgx-0"]
        assert second["facts"]["waiting"] == 1


async def test_a_lost_watch_is_said_at_once(serving):
    async with serving() as (feed, _, address), aiohttp.ClientSession() as session:
        _, body, _ = await get(session, address.url + EVENTS)
        waiting = asyncio.create_task(
            get(session, address.url + EVENTS, **{"Last-Event-ID": message(body)[0]})
        )
        await asyncio.sleep(0)
        feed.report("there is no answer")

        _, body, _ = await waiting
        assert message(body)[1]["facts"]["problem"] == "there is no answer"


@pytest.mark.parametrize("version", ["-1", "7", "x", "9" * 400, "\u0661"])
async def test_a_version_that_is_not_kept_gets_all(serving, version):
    async with serving() as (_, _, address), aiohttp.ClientSession() as session:
        headers = {"Last-Event-ID": version.encode().decode("latin-1")}
        status, body, _ = await get(session, address.url + EVENTS, **headers)

        assert status == 200
        assert message(body)[1]["full"]


@pytest.mark.parametrize("at", ["", "nan", "-5", "1e9999", "9" * 500, "x"])
async def test_any_time_is_answered(serving, at):
    async with serving() as (_, _, address), aiohttp.ClientSession() as session:
        status, body, _ = await get(session, f"{address.url}api/past?at={at}")

        assert status == 200
        assert len(json.loads(body)["nodes"]) == 3
        status, body, _ = await get(session, f"{address.url}api/sets?at={at}")
        assert status == 200
        assert json.loads(body)["groups"][0]["nodes"] == 2


async def test_an_earlier_time_has_the_first_units_that_waited_then(serving, moment):
    waiting = [waiting_pod(f"unit-{n:03}", 1) for n in range(UNITS + 5)]
    async with serving(*waiting) as (feed, _, address), aiohttp.ClientSession() as session:
        at = feed.moment.at
        await feed.publish(moment().current)
        _, then, _ = await get(session, f"{address.url}api/past?at={at}")
        _, now, _ = await get(session, f"{address.url}api/past?at={feed.moment.at}")

    past = json.loads(then)["waiting"]
    assert past["count"] == UNITS + 5
    assert [unit["name"] for unit in past["first"]] == [f"unit-{n:03}" for n in range(UNITS)]
    assert json.loads(now)["waiting"] == {"count": 0, "first": []}


async def test_of_200_clients_the_newest_wait_and_all_others_are_answered(serving):
    async with serving() as (feed, server, address):
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as many:
            _, body, _ = await get(many, address.url + EVENTS)
            last = {"Last-Event-ID": message(body)[0]}
            left = set()
            for _ in range(200):
                left.add(asyncio.create_task(get(many, address.url + EVENTS, **last)))
                while len(left) > CLIENTS:
                    _, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            assert len(feed._waiting) <= CLIENTS
            assert len(server.limiter.open) <= LIMITS.connections
            feed.report("an end")
            answers = await asyncio.gather(*left)
            assert {status for status, _, _ in answers} == {200}


async def test_clients_that_left_hold_no_place(serving):
    async with serving() as (_, _, address):
        for _ in range(3):
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as many:
                _, body, _ = await get(many, address.url + EVENTS)
                last = {"Last-Event-ID": message(body)[0]}
                tasks = [
                    asyncio.create_task(get(many, address.url + EVENTS, **last)) for _ in range(40)
                ]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        async with aiohttp.ClientSession() as session:
            assert (await get(session, address.url))[0] == 200


async def test_a_client_that_sends_no_request_is_dropped_for_others(serving):
    async with serving() as (_, server, address):
        number = LIMITS.connections + 20
        idle = [await asyncio.open_connection("127.0.0.1", address.port) for _ in range(number)]
        async with aiohttp.ClientSession() as session:
            status, _, _ = await get(session, address.url)
        assert status == 200
        assert server.dropped("peer") >= 20
        for _, writer in idle:
            writer.close()


async def test_a_slow_client_holds_no_other(serving):
    async with serving() as (_, _, address):
        _, writer = await asyncio.open_connection("127.0.0.1", address.port, limit=1)
        path = f"{address.path}base.css".encode()
        for _ in range(50):
            writer.write(b"GET %b HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % (path, address.port))
        async with aiohttp.ClientSession() as session:
            status, _, _ = await get(session, address.url)
        assert status == 200
        writer.close()


async def test_hostile_names_come_back_as_json_alone(serving):
    pod = placed_pod("a", 0, gang=json.dumps(HOSTILE))
    async with serving(pod) as (_, _, address), aiohttp.ClientSession() as session:
        for part in (EVENTS, "api/node?name=dgx-0"):
            _, body, headers = await get(session, address.url + part)
            assert "html" not in headers["Content-Type"]
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert "<img src=x onerror=alert(1)>" in body.decode()
