import asyncio
import ssl
import time
from contextlib import asynccontextmanager

import pytest
from certificates import a_ca, a_leaf
from waiting import until

from runtime.exchange import JSON, Answer, Route
from runtime.limits import Limits
from runtime.server import Server, serve
from runtime.tls import ServingCertificate

TAKES = frozenset({JSON})
USUAL = Limits()
WORK = 0.0003
"""What the route `/work` takes [s]."""
SMALL = Limits(body_bytes=1000, bytes_in_flight=1500, linger_seconds=0.05)


class Site:
    """Routes that say what they saw, and everything that was observed."""

    def __init__(self):
        self.seen = []
        self.going_on = asyncio.Event()
        self.waiting = 0

    def routes(self):
        return [
            Route("POST", "/echo", lambda call: Answer(call.body), TAKES),
            Route("POST", "/wait", self._wait, TAKES),
            Route("POST", "/bug", self._bug, TAKES),
            Route("GET", "/call", lambda call: Answer(call.query.encode())),
            Route("GET", "/fields", lambda _call: Answer(fields={"pod": "ns/a"})),
            Route("GET", "/work", self._work),
        ]

    async def _wait(self, call):
        self.waiting += 1
        await self.going_on.wait()
        return Answer(call.body)

    def _bug(self, _call):
        raise RuntimeError("a bug")

    def _work(self, _call):
        end = time.perf_counter() + WORK
        while time.perf_counter() < end:
            pass
        return Answer()


class Client:
    """One connection, and what HTTP needs to be said on it."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    def head(self, path="/echo", *, method="POST", size=None, **headers):
        names = {"Host": "x", "Content-Type": JSON}
        names |= {name.replace("_", "-"): value for name, value in headers.items()}
        if size is not None:
            names["Content-Length"] = size
        lines = [f"{name}: {value}" for name, value in names.items() if value is not None]
        return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode()

    def send(self, data):
        self.writer.write(data)

    async def answer(self, *, bare=False):
        """Return status, headers and body of the next answer; None when there is none."""
        async with asyncio.timeout(5):
            try:
                first, *rest = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                return None
            headers = dict(line.split(": ", 1) for line in rest if line)
            size = 0 if bare else int(headers.get("Content-Length", 0))
            return int(first.split()[1]), headers, await self.reader.readexactly(size)

    async def asks(self, path="/echo", body=b"{}", **headers):
        self.send(self.head(path, size=len(body), **headers) + body)
        return await self.answer()

    async def is_closed(self):
        async with asyncio.timeout(5):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True

    def close(self):
        self.writer.transport.abort()


@asynccontextmanager
async def served(limits=USUAL, context=None):
    site = Site()
    async with serve(
        site.routes(),
        host="127.0.0.1",
        port=0,
        limits=limits,
        observers=(site.seen.append,),
        context=context,
    ) as server:
        site.server = server
        yield site


@asynccontextmanager
async def client(site, context=None):
    async with asyncio.timeout(5):
        made = Client(*await asyncio.open_connection("127.0.0.1", site.server.port, ssl=context))
    try:
        yield made
    finally:
        made.close()


# ---- Routes.


async def test_a_route_gets_the_body_and_its_answer_goes_back_on_a_connection_that_stays():
    async with served() as site, client(site) as one:
        for body in (b'{"a":1}', b"[]"):
            status, headers, back = await one.asks(body=body)
            assert (status, back, headers["Content-Type"]) == (200, body, JSON)
            assert "Connection" not in headers
        assert site.server.connections == 1


async def test_the_query_is_handed_on_and_is_not_part_of_the_path():
    async with served() as site, client(site) as one:
        one.send(one.head("/call?timeout=3s&x=%2F", method="GET"))

        assert (await one.answer())[2] == b"timeout=3s&x=%2F"
        assert site.seen[0].path == "/call"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/other", 404), ("GET", "/echo", 405), ("PUT", "/echo", 405), ("GET", "/echo/", 404)],
)
async def test_what_is_not_served_is_refused(method, path, status):
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


async def test_a_bug_in_a_route_is_500_and_the_connection_goes_on():
    async with served() as site, client(site) as one:
        status, _, body = await one.asks("/bug")
        assert (status, body) == (500, b"internal error: the log has it\n")
        assert (await one.asks())[0] == 200
        assert site.server.failures == 1
        assert site.server.requests == 0


async def test_what_is_served_is_observed():
    async with served() as site, client(site) as one:
        await one.asks(body=b"12345")
        one.send(one.head("/fields", method="GET"))
        await one.answer()

    first, second = site.seen
    assert (first.path, first.status, first.size, first.fields) == ("/echo", 200, 5, {})
    assert 0 <= first.seconds < 5
    assert second.fields == {"pod": "ns/a"}


async def test_less_than_a_millisecond_is_told_from_nothing():
    async with served() as site, client(site) as one:
        for _ in range(20):
            one.send(one.head("/work", method="GET"))
            await one.answer()

    assert min(served.seconds for served in site.seen) >= WORK


# ---- Bodies.


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


async def test_a_body_as_large_as_allowed_is_taken():
    async with served(SMALL) as site, client(site) as one:
        assert (await one.asks(body=b"x" * 1000))[0] == 200


async def test_a_body_announced_too_large_is_refused_before_it_is_sent():
    async with served(SMALL) as site, client(site) as one:
        one.send(one.head(size=1001))
        status, headers, _ = await one.answer()
        assert (status, headers["Connection"]) == (413, "close")
        assert await one.is_closed()


async def test_a_body_that_grows_too_large_is_refused_while_it_is_sent():
    async with served(SMALL) as site, client(site) as one:
        one.send(one.head(Transfer_Encoding="chunked"))
        chunk = b"190\r\n" + b"x" * 400 + b"\r\n"
        one.send(chunk)
        await until(lambda: site.server.bytes_in_flight == 400)
        one.send(chunk + chunk)
        status, headers, _ = await one.answer()

        assert (status, headers["Connection"]) == (413, "close")
        assert site.server.bytes_in_flight == 0


async def test_a_body_in_pieces_is_put_together():
    async with served() as site, client(site) as one:
        one.send(one.head(size=6))
        await until(lambda: site.server.requests == 1)
        for piece in (b"ab", b"cd", b"ef"):
            one.send(piece)
            await until(lambda: site.server.bytes_in_flight or site.server.requests == 0)
        assert (await one.answer())[2] == b"abcdef"


async def test_who_asks_first_whether_to_send_is_told_to_go_on():
    async with served() as site, client(site) as one:
        one.send(one.head(size=2, Expect="100-continue"))
        assert await one.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        one.send(b"{}")
        assert (await one.answer())[0] == 200


async def test_bytes_of_all_bodies_are_bounded_and_refused_ones_may_come_again():
    async with served(SMALL) as site, client(site) as slow, client(site) as other:
        slow.send(slow.head(size=1000) + b"x" * 900)
        await until(lambda: site.server.bytes_in_flight == 900)

        status, headers, _ = await other.asks(body=b"x" * 700)
        assert (status, headers["Retry-After"]) == (503, "1")
        assert (await other.asks(body=b"x" * 600))[0] == 200

        slow.send(b"x" * 100)
        assert (await slow.answer())[0] == 200
        assert site.server.bytes_in_flight == 0


async def test_heads_alone_take_nothing_from_others():
    async with served(SMALL) as site, client(site) as one, client(site) as two, client(site) as me:
        for silent in (one, two):
            silent.send(silent.head(size=1000))
        await until(lambda: site.server.requests == 2)

        assert (await me.asks(body=b"x" * 1000))[0] == 200


async def test_requests_that_wait_are_bounded():
    async with served(Limits(requests=1)) as site, client(site) as one, client(site) as two:
        one.send(one.head("/wait", size=2) + b"{}")
        await until(lambda: site.waiting == 1)

        status, headers, _ = await two.asks("/wait")
        assert (status, headers["Retry-After"]) == (503, "1")
        site.going_on.set()
        assert (await one.answer())[0] == 200
        assert (await two.asks("/wait"))[0] == 200


async def test_a_body_that_stops_arriving_is_given_up():
    limits = Limits(body_seconds=0.05, linger_seconds=0.05)
    async with served(limits) as site, client(site) as one:
        one.send(one.head(size=10) + b"12345")

        assert (await one.answer())[0] == 408
        assert await one.is_closed()
        assert site.server.bytes_in_flight == 0


async def test_a_route_that_waits_too_long_is_given_up():
    async with served(Limits(answer_seconds=0.05)) as site, client(site) as one:
        assert (await one.asks("/wait"))[0] == 504


async def test_a_client_that_leaves_is_counted_and_leaves_nothing_behind():
    async with served() as site:
        async with client(site) as one:
            one.send(one.head(size=10) + b"12345")
            await until(lambda: site.server.bytes_in_flight == 5)
        await until(lambda: site.seen)

        assert site.seen[0].status == 499
        assert site.server.bytes_in_flight == 0
        assert site.server.requests == 0
        await until(lambda: site.server.connections == 0)


async def test_a_body_that_is_not_framed_is_refused():
    async with served() as site, client(site) as one:
        one.send(one.head(Transfer_Encoding="chunked"))
        await until(lambda: site.server.requests == 1)
        one.send(b"zz\r\n")
        assert (await one.answer())[0] == 400
        assert await one.is_closed()
        assert [(served.path, served.status) for served in site.seen] == [("/echo", 400)]


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
async def test_what_is_not_http_is_400_in_constant_words(head, caplog):
    async with served() as site, client(site) as one:
        one.send(head)
        status, _, body = await one.answer()
        assert status == 400
        assert body == b"this is not a request in HTTP/1.1 that can be read\n"
        assert await one.is_closed()
        assert [(served.path, served.status) for served in site.seen] == [("other", 400)]

    assert caplog.records == []


# ---- Connections.


async def test_requests_sent_at_once_are_answered_in_turn():
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


async def test_a_client_that_does_not_read_is_not_answered_on_and_on():
    async with served() as site, client(site) as deaf, client(site) as other:
        body = b"x" * 200_000
        one = deaf.head(size=len(body)) + body
        deaf.send(one * 200)
        await until(lambda: len(site.seen) > 3)
        before = -1
        while before != (before := len(site.seen)):  # noqa: ASYNC110 - nothing tells of silence.
            await asyncio.sleep(0.1)
        assert before < 150
        assert (await other.asks())[0] == 200

        for _ in range(200):
            assert (await deaf.answer())[2] == body


async def test_a_client_that_asks_for_the_head_alone_gets_no_body():
    async with served() as site, client(site) as one:
        one.send(one.head("/call", method="HEAD") + one.head("/call", method="GET"))
        status, headers, _ = await one.answer(bare=True)
        assert (status, headers["Allow"]) == (405, "GET")
        assert (await one.answer())[0] == 200


async def test_an_older_client_is_answered_and_let_go():
    async with served() as site, client(site) as one:
        one.send(b"GET /call HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        status, headers, _ = await one.answer()
        assert (status, headers["Connection"]) == (200, "close")
        assert await one.is_closed()


async def test_no_other_protocol_is_switched_to():
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
    async with served(Limits(head_seconds=0.04)) as site, client(site) as one, client(site) as idle:
        assert (await one.asks())[0] == 200
        one.send(start)

        assert await one.is_closed()
        assert (await idle.asks())[0] == 200


async def test_a_body_that_came_after_its_head_is_not_taken_for_another_head():
    async with served(Limits(head_seconds=0.02)) as site, client(site) as one:
        one.send(one.head(size=2))
        await until(lambda: site.server.requests == 1)
        one.send(b"{}")
        assert (await one.answer())[0] == 200
        await asyncio.sleep(0.06)
        assert (await one.asks())[0] == 200


async def test_trickled_bytes_do_not_prolong_a_head():
    async with served(Limits(head_seconds=0.04)) as site, client(site) as one:
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
    async with served(Limits(head_seconds=0.02)) as site, client(site) as one:
        for _ in range(2):
            assert (await one.asks())[0] == 200
            await asyncio.sleep(0.05)
        assert (await one.asks())[0] == 200


@pytest.mark.parametrize("asked", [0, 1], ids=["never used", "used"])
async def test_an_idle_connection_does_not_stay_for_ever(asked):
    async with served(Limits(keep_alive_seconds=0.1)) as site, client(site) as one:
        for _ in range(asked):
            assert (await one.asks())[0] == 200
        assert await one.is_closed()


async def test_too_many_connections_cost_the_one_that_was_idle_for_longest():
    async with served(Limits(connections=2)) as site, client(site) as used:
        await until(lambda: site.server.connections == 1)
        async with client(site) as silent:
            await until(lambda: site.server.connections == 2)
            await asyncio.sleep(0.01)  # The loop's clock counts milliseconds.
            assert (await used.asks())[0] == 200
            async with client(site) as newest:
                assert await silent.is_closed()
                assert (await newest.asks())[0] == 200
                assert (await used.asks())[0] == 200


async def test_who_is_being_answered_is_never_dropped_for_a_newcomer():
    async with served(Limits(connections=1)) as site, client(site) as one:
        one.send(one.head("/wait", size=2) + b"{}")
        await until(lambda: site.waiting == 1)
        async with client(site) as newcomer:
            assert await newcomer.is_closed()
        site.going_on.set()

        assert (await one.answer())[0] == 200


# ---- The end.


async def test_while_draining_new_and_kept_connections_are_answered_and_asked_to_close():
    async with served() as site, client(site) as kept, client(site) as second:
        for one in (kept, second):
            assert "Connection" not in (await one.asks())[1]
        drain = asyncio.create_task(site.server.drain(quiet=0.5))
        await until(lambda: site.server.draining)

        async with client(site) as new:
            for one in (kept, new, second):
                status, headers, _ = await one.asks()
                assert (status, headers["Connection"]) == (200, "close")
                assert await one.is_closed()
                assert not drain.done()
        await drain


async def test_a_drain_is_over_when_nobody_came_for_a_while():
    async with served() as site, client(site) as one:
        await one.asks()
        drain = asyncio.create_task(site.server.drain(quiet=0.3))
        await asyncio.sleep(0.05)
        loop = asyncio.get_running_loop()
        came = loop.time()
        await one.asks()
        await drain

        assert 0.3 <= loop.time() - came < 3


async def test_a_drain_waits_for_who_is_being_answered_but_not_for_ever():
    async with served() as site, client(site) as one:
        one.send(one.head("/wait", size=2) + b"{}")
        await until(lambda: site.waiting == 1)
        async with asyncio.timeout(5):
            await site.server.drain(quiet=0.01, at_most=0.1)
        drain = asyncio.create_task(site.server.drain(quiet=0.01))
        await asyncio.sleep(0.05)
        assert not drain.done()
        site.going_on.set()
        await drain

        assert (await one.answer())[0] == 200


async def test_nothing_in_flight_is_cut_when_it_stops():
    async with served() as site, client(site) as one, client(site) as idle:
        await idle.asks()
        one.send(one.head("/wait", size=2) + b"{}")
        await until(lambda: site.waiting == 1)
        port = site.server.port
        stop = asyncio.create_task(site.server.stop())
        assert await idle.is_closed()
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", port)
        site.going_on.set()

        status, headers, _ = await one.answer()
        assert (status, headers["Connection"]) == (200, "close")
        await stop


async def test_what_is_not_answered_in_time_is_cut_when_it_stops():
    async with served() as site, client(site) as one:
        one.send(one.head("/wait", size=2) + b"{}")
        await until(lambda: site.waiting == 1)
        await site.server.stop(within=0.05)

        assert await one.answer() is None


async def test_under_load_a_drain_costs_no_request(tmp_path):
    ca = a_ca()
    certificate = ServingCertificate(*a_leaf(ca).write(tmp_path))
    trust = ssl.create_default_context(cadata=ca.cert_pem.decode())
    answers = []
    async with served(context=certificate.context) as site:

        async def ask_on(until_drained):
            while not until_drained.is_set():
                async with client(site, trust) as one:
                    while found := await one.asks():
                        answers.append(found[0])
                        if found[1].get("Connection") == "close" or until_drained.is_set():
                            break
                        await asyncio.sleep(0)
                    else:
                        answers.append(None)

        gone = asyncio.Event()
        load = [asyncio.create_task(ask_on(gone)) for _ in range(4)]
        await until(lambda: len(answers) > 20)
        drain = asyncio.create_task(site.server.drain(quiet=0.05))
        before = len(answers)
        await until(lambda: len(answers) > before + 20)
        gone.set()
        await asyncio.gather(*load)
        await drain

    assert set(answers) == {200}


async def test_a_port_that_is_taken_is_said_at_once():
    async with served() as site:
        with pytest.raises(OSError, match="in use"):
            async with serve([], host="127.0.0.1", port=site.server.port):
                pass


async def test_the_port_is_known_only_once_it_listens():
    with pytest.raises(RuntimeError, match="does not listen"):
        _ = Server([], Limits(), ()).port
