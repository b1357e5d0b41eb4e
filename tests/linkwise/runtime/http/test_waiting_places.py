"""Requests that wait have places by address; what is answered at once needs none."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from support.servers.served import PATIENT, client, served
from support.waiting import until

from linkwise.runtime.http.types import HttpResponse
from linkwise.runtime.http.waiting_places import WaitingPlaces

FEW = replace(PATIENT, requests=4)


async def waiting(stack, site, count, source):
    made = [await stack.enter_async_context(client(site, source=source)) for _ in range(count)]
    for one in made:
        one.send(one.head("/wait", size=2) + b"{}")
    return made


async def test_what_is_answered_at_once_is_not_refused_while_all_places_are_taken():
    async with served(FEW) as site, AsyncExitStack() as stack:
        many = await waiting(stack, site, 8, "127.0.0.2")
        await until(lambda: site.waiting == 4)
        for source in ("127.0.0.1", "127.0.0.2"):
            async with client(site, source=source) as one:
                assert (await one.asks())[0] == 200
        site.going_on.set()
        answers = [(await one.answer())[0] for one in many]

    assert sorted(answers) == [200] * 4 + [503] * 4


async def test_another_address_gets_a_place_of_the_one_that_has_most():
    async with served(FEW) as site, AsyncExitStack() as stack:
        hostile = await waiting(stack, site, 4, "127.0.0.2")
        await until(lambda: site.waiting == 4)
        honest = await waiting(stack, site, 2, "127.0.0.1")
        await until(lambda: site.waiting == 6)
        (one,) = await waiting(stack, site, 1, "127.0.0.1")
        assert (await one.answer())[0] == 503
        site.going_on.set()

        assert [(await each.answer())[0] for each in honest] == [200, 200]
        answers = [(await each.answer())[0] for each in hostile]

    assert sorted(answers) == [200, 200, 503, 503]


@pytest.mark.parametrize("addresses", [1, 3])
async def test_places_are_free_again(addresses):
    places, going_on = WaitingPlaces(FEW), asyncio.Event()

    async def answer():
        await going_on.wait()
        return HttpResponse()

    tasks = [
        asyncio.create_task(places.wait(f"10.0.0.{i % addresses}", answer())) for i in range(40)
    ]
    await asyncio.sleep(0)
    for task in tasks[::3]:
        task.cancel()
    going_on.set()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert (await places.wait("10.0.0.1", answer())).status == 200
    assert not places._by_peer
    assert places._taken == 0
