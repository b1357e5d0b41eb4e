import asyncio
import ssl
from dataclasses import replace

import pytest
from certificates import a_ca, a_leaf
from served import LONG, PATIENT, client, served
from waiting import PATIENCE, until

from runtime.http.limits import Limits
from runtime.http.server import Server, serve
from runtime.http.tls import ServingCertificate


async def test_too_many_connections_cost_the_one_that_was_idle_for_longest():
    async with served(replace(PATIENT, connections=2)) as site, client(site) as used:
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
    async with served(replace(PATIENT, connections=1)) as site, client(site) as one:
        one.send(one.head("/wait", size=2) + b"{}")
        await until(lambda: site.waiting == 1)
        async with client(site) as newcomer:
            assert await newcomer.is_closed()
        site.going_on.set()

        assert (await one.answer())[0] == 200


async def test_while_draining_new_and_kept_connections_are_answered_and_asked_to_close():
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


async def test_a_drain_is_over_when_nobody_came_for_a_while():
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


async def test_a_drain_waits_for_who_is_being_answered_but_not_for_ever():
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


async def test_nothing_in_flight_is_cut_when_it_stops():
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
