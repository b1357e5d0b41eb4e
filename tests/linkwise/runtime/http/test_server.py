import asyncio
import ssl
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from structlog.testing import capture_logs
from support.certificates import a_ca, a_leaf
from support.servers.served import LONG, PATIENT, client, served
from support.waiting import PATIENCE, until

from linkwise.runtime.http.connection import Connection
from linkwise.runtime.http.limits import Limits
from linkwise.runtime.http.server import Server, serve
from linkwise.runtime.http.tls import ServingCertificate


async def test_longest_idle_of_too_many_connections_is_dropped():
    async with served(replace(PATIENT, connections=2)) as site, client(site) as used:
        await until(lambda: len(site.server.limiter.open) == 1)
        async with client(site) as silent:
            await until(lambda: len(site.server.limiter.open) == 2)
            await asyncio.sleep(0.01)  # The loop's clock counts milliseconds.
            assert (await used.asks())[0] == 200
            async with client(site) as newest:
                assert await silent.is_closed()
                assert (await newest.asks())[0] == 200
                assert (await used.asks())[0] == 200


async def test_costly_requests_of_one_address_do_not_delay_those_of_others():
    async with served() as site, AsyncExitStack() as stack:
        hostile = [
            await stack.enter_async_context(client(site, source="127.0.0.2")) for _ in range(20)
        ]
        honest = await stack.enter_async_context(client(site))
        for one in (*hostile, honest):
            assert (await one.asks())[0] == 200
        site.seen.clear()

        for one in hostile:
            one.send(one.head("/work?20", method="GET"))
        assert (await honest.asks("/call", method="GET"))[0] == 200

        before = [one.path for one in site.seen].index("/call")
        assert before < 5
        for one in hostile:
            assert (await one.answer())[0] == 200


async def test_connection_with_a_request_in_progress_is_not_dropped():
    async with served(replace(PATIENT, connections=1)) as site, client(site) as one:
        one.send(one.head("/wait", size=2) + b"{}")
        await until(lambda: site.waiting == 1)
        async with client(site) as newcomer:
            assert await newcomer.is_closed()
        site.going_on.set()

        assert (await one.answer())[0] == 200


async def test_draining_server_answers_with_connection_close():
    async with served() as site, client(site) as kept, client(site) as second:
        for one in (kept, second):
            assert "Connection" not in (await one.asks())[1]
        drain = asyncio.create_task(site.server.drain(quiet=LONG))
        await until(lambda: site.server.draining)

        async with client(site) as new:
            for one in (kept, new, second):
                status, headers, _ = await one.asks()
                assert (status, headers["Connection"]) == (200, "close")
                assert await one.is_closed()
                assert not drain.done()
        drain.cancel()


async def test_drain_ends_after_a_time_without_requests():
    async with served() as site, client(site) as one:
        one.send(one.head("/wait", size=2) + b"{}")
        await until(lambda: site.waiting == 1)
        drain = asyncio.create_task(site.server.drain(quiet=0.3, at_most=LONG))
        await asyncio.sleep(0.05)
        loop = asyncio.get_running_loop()
        left = loop.time()
        site.going_on.set()
        async with asyncio.timeout(PATIENCE):
            await drain

        assert loop.time() - left >= 0.3


async def test_drain_waits_for_requests_in_progress_with_a_limit():
    async with served() as site, client(site) as one:
        one.send(one.head("/wait", size=2) + b"{}")
        await until(lambda: site.waiting == 1)
        async with asyncio.timeout(PATIENCE):
            await site.server.drain(quiet=0.01, at_most=0.1)
        drain = asyncio.create_task(site.server.drain(quiet=0.01))
        await asyncio.sleep(0.05)
        assert not drain.done()
        site.going_on.set()
        await drain

        assert (await one.answer())[0] == 200


async def test_stop_completes_requests_in_progress():
    async with served() as site, client(site) as one, client(site) as idle:
        await idle.asks()
        one.send(one.head("/wait", size=2) + b"{}")
        await until(lambda: site.waiting == 1)
        port = site.server.port
        stop = asyncio.create_task(site.server.stop(within=PATIENCE))
        assert await idle.is_closed()
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", port)
        site.going_on.set()

        status, headers, _ = await one.answer()
        assert (status, headers["Connection"]) == (200, "close")
        await stop


async def test_stop_cancels_requests_after_its_time_limit():
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


async def test_port_in_use_raises():
    async with served() as site:
        with pytest.raises(OSError, match="in use"):
            async with serve([], host="127.0.0.1", port=site.server.port):
                pass


async def test_port_is_unknown_before_listen():
    with pytest.raises(RuntimeError, match="does not listen"):
        _ = Server([], Limits(), ()).port


async def test_limits_hold_for_others_when_the_check_of_a_connection_raises(monkeypatch):
    enforce = Connection.enforce
    faulty = []

    def raises(connection, now):
        if connection in faulty:
            raise RuntimeError("a fault of ours")
        enforce(connection, now)

    monkeypatch.setattr(Connection, "enforce", raises)
    limits = replace(PATIENT, head_seconds=0.2)
    with capture_logs() as logs:
        async with served(limits) as site, client(site) as first:
            await until(lambda: site.server.limiter.open)
            faulty.extend(site.server.limiter.open)
            assert await first.is_closed()
            async with client(site) as slow:
                slow.send(b"POST")
                assert await slow.is_closed()

    assert [line["event"] for line in logs] == ["Could not enforce limits of connection"]
