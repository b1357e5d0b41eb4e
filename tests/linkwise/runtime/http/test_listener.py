"""Connections count from their first byte, before their TLS handshakes are complete."""

import asyncio
import socket
import ssl
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest
from support.certificates import a_ca, a_leaf
from support.servers.served import PATIENT, client, served
from support.waiting import PATIENCE, until

from linkwise.runtime.http import listener
from linkwise.runtime.http.connection_limiter import FULL, PEER
from linkwise.runtime.http.tls import ServingCertificate

LIMITS = replace(PATIENT, connections=30, peer_connections=20, handshake_seconds=PATIENCE)
HALF = b"\x16\x03\x01\x02\x00\x01"
"""The beginning of a ClientHello."""
ATTACKER, HONEST = "127.0.0.2", "127.0.0.1"


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """The context of a server, and one of its clients."""
    ca = a_ca()
    certificate = ServingCertificate(*a_leaf(ca).write(tmp_path_factory.mktemp("tls")))
    return certificate.context, ssl.create_default_context(cadata=ca.cert_pem.decode())


@asynccontextmanager
async def half_handshakes(site, count, source=ATTACKER):
    """Connections that send the beginning of a handshake, and no more."""
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(count):
            one = await stack.enter_async_context(client(site, source=source))
            one.send(HALF)
            made.append(one)
        yield made


@pytest.mark.parametrize("source", [ATTACKER, HONEST], ids=["of another address", "of its own"])
async def test_a_flood_of_half_handshakes_is_bounded_and_others_are_served(tls, source):
    serving, trusting = tls
    async with served(LIMITS, serving) as site, half_handshakes(site, 100, source):
        await until(lambda: site.server.dropped(PEER) >= 80)
        assert len(site.server.limiter.open) <= LIMITS.peer_connections

        async with client(site, trusting, source=HONEST) as one:
            assert (await one.asks())[0] == 200


async def test_of_many_addresses_the_one_with_most_handshakes_loses_them(tls):
    serving, trusting = tls
    async with served(LIMITS, serving) as site, AsyncExitStack() as stack:
        used = await stack.enter_async_context(client(site, trusting))
        assert (await used.asks())[0] == 200
        for source in ("127.0.0.2", "127.0.0.3", "127.0.0.4"):
            await stack.enter_async_context(half_handshakes(site, 20, source))
        await until(lambda: site.server.dropped(FULL) >= 31)

        assert len(site.server.limiter.open) <= LIMITS.connections
        assert (await used.asks())[0] == 200
        async with client(site, trusting) as one:
            assert (await one.asks())[0] == 200


async def test_a_handshake_has_a_time(tls):
    limits = replace(LIMITS, handshake_seconds=0.05)
    async with served(limits, tls[0]) as site, half_handshakes(site, 1) as (one,):
        assert await one.is_closed()
        await until(lambda: not site.server.limiter.open)


@asynccontextmanager
async def closing(site, trusting, count):
    """Connections that the server has closed, whose clients do not answer that."""
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(count):
            one = await stack.enter_async_context(client(site, trusting, source=ATTACKER))
            one.writer.transport.pause_reading()
            one.send(one.head("/call", method="GET", Connection="close"))
            made.append(one)
        await until(lambda: len(site.seen) == count)
        yield made


async def test_connections_whose_clients_delay_their_end_make_room_for_others(tls):
    serving, trusting = tls
    limits = replace(LIMITS, connections=10, unread_seconds=PATIENCE)
    async with served(limits, serving) as site, closing(site, trusting, limits.connections):
        assert len(site.server.limiter.open) == limits.connections

        async with client(site, trusting) as one:
            assert (await one.asks())[0] == 200
        assert site.server.dropped(FULL) == 1


async def test_the_end_of_a_connection_has_a_time(tls):
    limits = replace(LIMITS, unread_seconds=0.05)
    async with served(limits, tls[0]) as site, closing(site, tls[1], 1), asyncio.timeout(20):
        await until(lambda: not site.server.limiter.open)  # By itself, uvloop waits for 30 s.


async def test_what_is_no_handshake_ends_its_connection_alone(tls):
    async with served(LIMITS, tls[0]) as site, client(site) as one, client(site, tls[1]) as other:
        one.send(b"GET / HTTP/1.1\r\n\r\n")
        await one.is_closed()

        assert (await other.asks())[0] == 200
        await until(lambda: len(site.server.limiter.open) == 1)


async def test_a_server_that_stops_does_not_wait_for_handshakes(tls):
    async with served(LIMITS, tls[0]) as site, half_handshakes(site, 3) as half:
        await until(lambda: len(site.server.limiter.open) == 3)
        await site.server.stop(within=PATIENCE)

        assert [await one.is_closed() for one in half] == [True] * 3


async def test_a_burst_of_a_client_is_served_as_a_whole(tls):
    """An API server opens hundreds of connections at once, of one address."""
    serving, trusting = tls
    async with served(PATIENT, serving) as site, AsyncExitStack() as stack:
        many = [stack.enter_async_context(client(site, trusting)) for _ in range(250)]
        made = await asyncio.gather(*many)
        answers = await asyncio.gather(*(one.asks() for one in made))

        assert {status for status, _, _ in answers} == {200}
        assert not site.server.limiter.dropped


async def test_after_a_failure_to_accept_connections_are_accepted_again(monkeypatch):
    """Such as for lack of file descriptors."""
    monkeypatch.setattr(listener, "_PAUSE", 0.01)
    failing = [OSError("too many open files")] * 3

    class Failing(socket.socket):
        def accept(self):
            if failing:
                raise failing.pop()
            return super().accept()

    monkeypatch.setattr(listener.socket, "socket", Failing)
    async with served(PATIENT) as site:
        monkeypatch.undo()
        async with client(site) as one:
            assert (await one.asks())[0] == 200
    assert failing == []
