import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

import pytest
from support.servers.served import PATIENT, client, served
from support.waiting import until

from linkwise.runtime.http.connection_limiter import FULL, HALF_SENT, PEER, ConnectionLimiter
from linkwise.runtime.http.limits import Limits

NOW = 1000.0
LIMITS = replace(Limits(), connections=100, peer_connections=80, peer_half_sent=40)


@dataclass(eq=False)
class Guest:
    """A connection as the room sees it."""

    peer: str
    since: float = NOW
    used: bool = False
    half_sent: bool = False
    in_handshake: bool = False
    awaits_turn: bool = False
    evictable: bool = True
    dropped: list = field(default_factory=list)

    def drop(self):
        self.evictable = False
        self.dropped.append(self)


def filled(*guests, limits=LIMITS):
    room = ConnectionLimiter(limits)
    for guest in guests:
        room.add(guest, NOW)
        if guest.half_sent:
            room.add_half_sent(guest)
    return room


def gone(guests):
    return [guest for guest in guests if guest.dropped]


API_SERVER = [Guest("10.0.0.1", NOW - 60 + i, used=True) for i in range(50)]


def api_server():
    return [replace(guest, dropped=[]) for guest in API_SERVER]


@pytest.mark.parametrize(
    "attackers",
    [
        pytest.param([Guest("10.9.9.9", NOW - 5, half_sent=True) for _ in range(49)], id="slow"),
        pytest.param([Guest("10.9.9.9", half_sent=True) for _ in range(39)], id="a crowd"),
        pytest.param([Guest("10.9.9.9") for _ in range(49)], id="silent"),
        pytest.param([Guest(f"10.9.9.{i}") for i in range(49)], id="silent, of many addresses"),
        pytest.param(
            [Guest(f"10.9.9.{i}", NOW - 5, half_sent=True) for i in range(49)],
            id="slow, of many addresses",
        ),
        pytest.param([Guest("10.0.0.1", NOW - 5, half_sent=True) for _ in range(29)], id="a proxy"),
    ],
)
def test_used_connections_of_an_api_server_are_not_dropped_for_attackers(attackers):
    own, others = api_server(), [replace(guest, dropped=[]) for guest in attackers]
    limits = replace(LIMITS, connections=50 + len(others), peer_half_sent=50)
    room = filled(*own, *others, limits=limits)

    for _ in range(10):
        room.add(Guest("10.9.9.9"), NOW)

    assert gone(own) == []
    assert room.dropped[FULL] == 10


@pytest.mark.parametrize("peers", [1, 5, 49])
def test_handshakes_drop_no_used_connection(peers):
    own = api_server()
    others = [Guest(f"10.9.9.{i % peers}", half_sent=True, in_handshake=True) for i in range(49)]
    room = ConnectionLimiter(replace(LIMITS, connections=60))
    for guest in (*own, *others):
        room.add(guest, NOW)

    assert gone(own) == []
    assert len(room.open) == 60


def test_new_half_sent_request_is_not_dropped():
    arriving = Guest("10.0.0.1", half_sent=True)
    idle = Guest("10.0.0.2", used=True)
    room = filled(arriving, idle, limits=replace(LIMITS, connections=2))

    room.add(Guest("10.0.0.3"), NOW)

    assert (gone([arriving]), gone([idle])) == ([], [idle])


def test_requests_in_long_queues_make_room_for_new_clients():
    own = api_server()[:10]
    many = [Guest(f"10.9.9.{i % 2}", used=True, awaits_turn=True) for i in range(150)]
    room = filled(*own, *many, limits=replace(LIMITS, connections=160))
    new = [Guest(f"10.0.1.{i}") for i in range(10)]
    for guest in new:
        room.add(guest, NOW)

    assert (gone(own), gone(new), len(gone(many))) == ([], [], 10)


def test_requests_in_short_queues_are_dropped_after_idle_connections():
    waiting = [Guest("10.0.0.1", used=True, awaits_turn=True) for _ in range(10)]
    idle = Guest("10.0.0.2", used=True)
    room = filled(*waiting, idle, limits=replace(LIMITS, connections=11))

    room.add(Guest("10.0.0.3"), NOW)

    assert (gone(waiting), gone([idle])) == ([], [idle])


def test_connections_of_one_address_are_limited():
    own, many = api_server()[:10], [Guest("10.9.9.9", NOW + i) for i in range(81)]
    room = filled(*own, *many)

    assert gone([*own, *many]) == [many[0]]
    assert room.dropped == {PEER: 1}


def test_oldest_of_too_many_half_sent_requests_is_dropped():
    many = [Guest("10.9.9.9", NOW + i, half_sent=True) for i in range(41)]
    room = filled(Guest("10.0.0.1", half_sent=True), *many)

    assert gone(many) == [many[0]]
    assert room.dropped == {HALF_SENT: 1}


def test_complete_request_is_not_half_sent():
    one = Guest("10.9.9.9", half_sent=True)
    room = filled(one)
    for _ in range(100):
        room.remove_half_sent(one)
        room.add_half_sent(one)

    assert room.dropped == {}


# ---- On connections.


async def test_half_sent_bodies_do_not_drop_the_connections_of_others():
    limits = replace(PATIENT, connections=6, peer_half_sent=3)
    async with served(limits) as site, client(site) as kept:
        assert (await kept.asks())[0] == 200
        slow = []
        for number in range(12):
            made = client(site)
            slow.append((made, await made.__aenter__()))
            slow[-1][1].send(kept.head(size=100) + b"{")
            await until(lambda n=number: site.server.handler.requests == min(n + 1, 3))
        for _, one in slow[:9]:
            assert await one.is_closed()

        assert site.server.dropped(HALF_SENT) == 9
        assert (await kept.asks())[0] == 200
        for made, _ in slow:
            await made.__aexit__(None, None, None)
        await until(lambda: len(site.server.limiter.open) == 1)


async def test_half_sent_heads_are_dropped_where_one_address_has_too_many():
    limits = replace(PATIENT, peer_half_sent=3)
    async with served(limits) as site, AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(client(site)) for _ in range(5)]
        for one in slow:
            one.send(b"POST /echo HTTP/1.1\r\nHost: x\r\n")
        await until(lambda: site.server.dropped(HALF_SENT) == 2)
        for one in slow:
            one.send(b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
        answers = [await one.answer() for one in slow]

    assert [answer[0] for answer in answers if answer] == [200] * 3


async def test_concurrent_whole_requests_are_not_half_sent():
    limits = replace(PATIENT, peer_half_sent=1, linger_seconds=0.004)
    async with served(limits) as site, AsyncExitStack() as stack:
        many = [await stack.enter_async_context(client(site)) for _ in range(50)]
        for _ in range(20):
            found = await asyncio.gather(*(one.asks() for one in many))
            assert [status for status, _, _ in found] == [200] * 50

        assert site.server.dropped(HALF_SENT) == 0


async def test_complete_body_in_pieces_is_not_half_sent():
    limits = replace(PATIENT, peer_half_sent=1)
    async with served(limits) as site, client(site) as one, client(site) as other:
        for sender in (one, other, one):
            sender.send(sender.head(size=2) + b"{")
            await until(lambda: site.server.handler.requests == 1)
            sender.send(b"}")
            assert (await sender.answer())[0] == 200

        assert site.server.dropped(HALF_SENT) == 0
