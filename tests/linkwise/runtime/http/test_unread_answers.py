"""Answers that clients do not read use the memory for bodies, and end their connections."""

import asyncio
import socket
import ssl
from contextlib import closing
from dataclasses import replace

import pytest
from support.certificates import a_ca, a_leaf
from support.servers.served import PATIENT, client, served
from support.waiting import until

from linkwise.runtime.http.body import ByteBudget
from linkwise.runtime.http.connection_limiter import UNREAD, ConnectionLimiter
from linkwise.runtime.http.limits import Limits
from linkwise.runtime.http.tls import ServingCertificate
from linkwise.runtime.http.unread_answers import UnreadAnswers

LARGE = b"x" * (8 << 20)
"""More than the kernel takes for a client that does not read."""
READ_SOON = replace(PATIENT, unread_seconds=0.5)


@pytest.fixture(params=["plain", "TLS"])
def contexts(request, tmp_path):
    """Return the TLS contexts of server and client; None without TLS."""
    if request.param == "plain":
        return None, None
    ca = a_ca()
    certificate = ServingCertificate(*a_leaf(ca).write(tmp_path))
    return certificate.context, ssl.create_default_context(cadata=ca.cert_pem.decode())


def asked(port, trust):
    """Return a connection on which a request was sent, and which reads nothing."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(("127.0.0.1", port))
    if trust is not None:
        made = trust.wrap_socket(made, server_hostname="localhost")
    names = {"Host": "x", "Content-Type": "application/json", "Content-Length": len(LARGE)}
    head = ["POST /echo HTTP/1.1", *(f"{name}: {value}" for name, value in names.items())]
    made.sendall("\r\n".join([*head, "", ""]).encode() + LARGE)
    return made


async def test_answer_that_is_not_read_ends_its_connection(contexts):
    ours, trust = contexts
    async with served(READ_SOON, ours) as site, client(site, trust) as other:
        with closing(await asyncio.to_thread(asked, site.server.port, trust)):
            await until(lambda: site.server.dropped(UNREAD) == 1)

            assert (await other.asks())[0] == 200
            await until(lambda: site.server.handler.budget.held == 0)


async def test_unread_answers_count_with_bodies_and_are_dropped_for_others(contexts):
    ours, trust = contexts
    limits = replace(PATIENT, bytes_in_flight=2 * len(LARGE) + 1000, unread_seconds=1000)
    async with served(limits, ours) as site, client(site, trust) as other:
        budget = site.server.handler.budget
        first = await asyncio.to_thread(asked, site.server.port, trust)
        await until(lambda: budget.held == len(LARGE))
        second = await asyncio.to_thread(asked, site.server.port, trust)
        await until(lambda: budget.held == 2 * len(LARGE))
        # An answer that was just written is not dropped.
        loop, written = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        await until(lambda: loop.time() > written + 0.2)

        status, _, body = await other.asks(body=LARGE)

        assert (status, len(body), site.server.dropped(UNREAD)) == (200, len(LARGE), 1)
        first.close()
        second.close()
        await until(lambda: budget.held == 0)


class Answered:
    """A connection whose client has not confirmed the last bytes."""

    peer, since, used, half_sent, evictable = "10.0.0.1", 0.0, True, False, True

    def __init__(self):
        self.has_unsent, self.is_dropped = True, False

    def drop(self):
        self.is_dropped = True


async def test_answer_that_was_just_written_is_not_dropped_for_bodies_of_others():
    limits = Limits(bytes_in_flight=10)
    budget = ByteBudget(limits.bytes_in_flight)
    answers = UnreadAnswers(budget, ConnectionLimiter(limits), limits)
    now = asyncio.get_running_loop().time()
    old, new = Answered(), Answered()
    answers.add(old, 5, now - 1)
    answers.add(new, 5, now)

    assert budget.take(5, "10.0.0.2")
    assert not budget.take(5, "10.0.0.2")
    assert (old.is_dropped, new.is_dropped) == (True, False)

    new.has_unsent = False
    assert budget.take(5, "10.0.0.2")
    assert not new.is_dropped


async def test_answers_that_are_read_are_released_and_end_nothing(contexts):
    ours, trust = contexts
    async with served(READ_SOON, ours) as site, client(site, trust) as one:
        for _ in range(5):
            assert (await one.asks(body=LARGE[: 1 << 20]))[0] == 200
        await until(lambda: site.server.handler.budget.held == 0)

        await asyncio.sleep(2 * READ_SOON.unread_seconds)  # Nothing happens that could be awaited.
        assert (await one.asks())[0] == 200
        assert site.server.dropped(UNREAD) == 0


async def test_client_that_reads_slowly_is_not_dropped_while_its_time_lasts():
    async with served() as site, client(site) as one:
        one.send(one.head(size=len(LARGE)) + LARGE)
        await until(lambda: site.seen)

        assert (await one.answer())[2] == LARGE
        await until(lambda: site.server.handler.budget.held == 0)
