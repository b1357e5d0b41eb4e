from dataclasses import replace

from support.servers.served import PATIENT, SMALL, client, served
from support.waiting import until

from linkwise.runtime.http.connection_limiter import BYTES


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
        await until(lambda: site.server.handler.budget.held == 400)
        one.send(chunk + chunk)
        status, headers, _ = await one.answer()

        assert (status, headers["Connection"]) == (413, "close")
        await until(lambda: site.server.handler.budget.held == 0)


async def test_a_body_in_pieces_is_put_together():
    async with served() as site, client(site) as one:
        one.send(one.head(size=6))
        await until(lambda: site.server.handler.requests == 1)
        for piece in (b"ab", b"cd", b"ef"):
            one.send(piece)
            await until(
                lambda: site.server.handler.budget.held or site.server.handler.requests == 0
            )
        assert (await one.answer())[2] == b"abcdef"


async def test_expect_100_continue_is_answered():
    async with served() as site, client(site) as one:
        one.send(one.head(size=2, Expect="100-continue"))
        assert await one.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        one.send(b"{}")
        assert (await one.answer())[0] == 200


async def test_bytes_of_all_bodies_are_bounded_and_refused_ones_may_come_again():
    async with served(SMALL) as site, client(site) as slow, client(site) as other:
        slow.send(slow.head(size=1000) + b"x" * 900)
        await until(lambda: site.server.handler.budget.held == 900)

        status, headers, _ = await other.asks(body=b"x" * 700)
        assert (status, headers["Retry-After"]) == (503, "1")
        assert (await other.asks(body=b"x" * 600))[0] == 200
        await until(lambda: site.server.handler.budget.held == 900)

        slow.send(b"x" * 100)
        assert (await slow.answer())[0] == 200
        await until(lambda: site.server.handler.budget.held == 0)


async def test_a_body_of_the_address_that_holds_most_is_given_up_for_others():
    limits = replace(SMALL, bytes_in_flight=2500)
    async with (
        served(limits) as site,
        client(site, source="127.0.0.2") as small,
        client(site, source="127.0.0.2") as large,
        client(site) as other,
    ):
        for one, size in ((small, 800), (large, 900)):
            one.send(one.head(size=1000) + b"x" * size)
        await until(lambda: site.server.handler.budget.held == 1700)

        assert (await other.asks(body=b"x" * 1000))[0] == 200

        assert await large.is_closed()
        assert site.server.dropped(BYTES) == 1
        small.send(b"x" * 200)
        assert (await small.answer())[0] == 200
        await until(lambda: site.server.handler.budget.held == 0)


async def test_announced_bodies_do_not_use_the_byte_budget():
    async with served(SMALL) as site, client(site) as one, client(site) as two, client(site) as me:
        for silent in (one, two):
            silent.send(silent.head(size=1000))
        await until(lambda: site.server.handler.requests == 2)

        assert (await me.asks(body=b"x" * 1000))[0] == 200


async def test_a_body_that_stops_arriving_is_given_up():
    limits = replace(PATIENT, body_seconds=0.05, linger_seconds=0.05)
    async with served(limits) as site, client(site) as one:
        one.send(one.head(size=10) + b"12345")

        assert (await one.answer())[0] == 408
        assert await one.is_closed()
        await until(lambda: site.server.handler.budget.held == 0)


async def test_body_that_is_not_framed_is_refused():
    limits = replace(PATIENT, body_seconds=0.05, linger_seconds=0.05)
    async with served(limits) as site, client(site) as one:
        one.send(one.head(Transfer_Encoding="chunked"))
        await until(lambda: site.server.handler.requests == 1)
        one.send(b"zz\r\n")
        assert (await one.answer())[0] == 408
        assert await one.is_closed()
        assert [(served.path, served.status) for served in site.seen] == [("/echo", 408)]
