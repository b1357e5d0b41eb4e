"""Callers with forged tokens cost few reviews, and keep nobody else out."""

import asyncio
from collections import Counter

import pytest
import pytest_asyncio
from aiohttp import web
from support.servers.fake_api import FakeAPI, status
from support.waiting import PATIENCE, until

from linkwise.runtime.http import authentication, reviews
from linkwise.runtime.http.authentication import (
    AT_ONCE,
    FORGED,
    OF_AN_ADDRESS,
    REFUSED,
    Callers,
    UserInfo,
)
from linkwise.runtime.http.types import HttpRequest
from linkwise.runtime.kube.client import Kube

AUDIENCE = "somewhere"


class Cluster(FakeAPI):
    """It knows the tokens that begin with `good`; it can be held."""

    def __init__(self):
        super().__init__()
        self.asked = Counter()
        self.now = self.most = 0
        self.going_on = asyncio.Event()
        self.going_on.set()

    async def _call(self, request):
        if self.faults["call"]:
            return await self.faults["call"].popleft()(request)
        spec = (await request.json())["spec"]
        assert spec["audiences"] == [AUDIENCE]
        self.asked[spec["token"]] += 1
        self.now += 1
        self.most = max(self.most, self.now)
        await self.going_on.wait()
        self.now -= 1
        is_good = spec["token"].startswith("good")
        reviewed = {"authenticated": is_good, "audiences": spec["audiences"] if is_good else []}
        return web.json_response({"status": {**reviewed, "user": {"username": spec["token"]}}})


@pytest_asyncio.fixture
async def cluster():
    async with Cluster() as running:
        yield running


@pytest_asyncio.fixture
async def now():
    return [0.0]


@pytest_asyncio.fixture
async def callers(cluster, now):
    async with Kube(cluster.url) as kube:
        yield Callers(kube, AUDIENCE, lambda: now[0])


def a_request(token, peer="10.0.0.1"):
    return HttpRequest("/", "", {"Authorization": f"Bearer {token}"}, b"", peer)


def as_user(name):
    return UserInfo(username=name)


async def test_a_valid_token_is_reviewed_once_for_some_time(cluster, callers, now):
    found = await asyncio.gather(*(callers.user(a_request("good")) for _ in range(30)))
    assert found == [as_user("good")] * 30
    assert cluster.asked == {"good": 1}

    now[0] += reviews.REVIEWED
    assert await callers.user(a_request("good")) == as_user("good")
    assert cluster.asked == {"good": 2}


async def test_a_token_that_is_not_valid_is_reviewed_once_for_some_time(cluster, callers, now):
    found = await asyncio.gather(*(callers.user(a_request("bad")) for _ in range(10)))
    assert {answer.status for answer in found} == {401}
    assert cluster.asked == {"bad": 1}

    now[0] += REFUSED
    assert (await callers.user(a_request("bad"))).status == 401
    assert cluster.asked == {"bad": 2}


async def test_a_flood_of_forged_tokens_costs_few_reviews(cluster, callers):
    loop = asyncio.get_running_loop()
    started = loop.time()
    flood = [asyncio.create_task(callers.user(a_request(f"bad-{i}"))) for i in range(20)]
    await asyncio.gather(*flood)

    rounds = 20 / OF_AN_ADDRESS - 1
    assert loop.time() - started >= rounds * FORGED * 0.9
    assert cluster.most <= OF_AN_ADDRESS


async def test_a_flood_of_one_address_delays_no_caller_of_another_and_no_known_one(
    cluster, callers
):
    assert await callers.user(a_request("good-known")) == as_user("good-known")
    cluster.going_on.clear()
    flood = [asyncio.create_task(callers.user(a_request(f"bad-{i}"))) for i in range(100)]
    await until(lambda: cluster.now == OF_AN_ADDRESS)
    new = asyncio.create_task(callers.user(a_request("good-new", "10.0.0.2")))
    await until(lambda: cluster.asked["good-new"])

    async with asyncio.timeout(PATIENCE):
        assert await callers.user(a_request("good-known")) == as_user("good-known")
    assert cluster.now == OF_AN_ADDRESS + 1
    for task in flood:
        task.cancel()
    cluster.going_on.set()
    assert await new == as_user("good-new")


async def test_many_addresses_have_few_reviews_together(cluster, callers):
    cluster.going_on.clear()
    flood = [
        asyncio.create_task(callers.user(a_request(f"bad-{i}", f"10.0.0.{i}"))) for i in range(60)
    ]
    await until(lambda: cluster.now == AT_ONCE)
    await asyncio.sleep(0.05)

    assert cluster.most == AT_ONCE
    for task in flood:
        task.cancel()
    cluster.going_on.set()


async def test_a_client_that_leaves_keeps_no_place_and_ends_no_review(cluster, callers):
    cluster.going_on.clear()
    flood = [asyncio.create_task(callers.user(a_request(f"bad-{i}"))) for i in range(50)]
    await until(lambda: cluster.now == OF_AN_ADDRESS)
    for task in flood:
        task.cancel()
    await asyncio.sleep(0.05)
    # The reviews that have begun go on: else leaving clients could have any number of them.
    assert cluster.now == OF_AN_ADDRESS
    cluster.going_on.set()

    assert await callers.user(a_request("good")) == as_user("good")
    assert sum(cluster.asked.values()) == OF_AN_ADDRESS + 1


async def test_without_an_answer_nobody_is_let_in_and_nothing_is_kept(cluster, callers, now):
    assert await callers.user(a_request("good")) == as_user("good")
    now[0] += reviews.REVIEWED
    cluster.faults["call"].append(status(500))

    assert (await callers.user(a_request("good"))).status == 503
    assert await callers.user(a_request("good")) == as_user("good")


async def test_few_tokens_are_kept(callers, monkeypatch):
    monkeypatch.setattr(reviews, "KEPT", 3)
    monkeypatch.setattr(authentication, "REFUSED_KEPT", 2)
    monkeypatch.setattr(authentication, "FORGED", 0)
    for i in range(6):
        await callers.user(a_request(f"good-{i}"))
        await callers.user(a_request(f"bad-{i}"))

    assert len(callers._users._kept) == 3
    assert len(callers._refused) == 2


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic good", "Bearer good x", "good"])
async def test_what_is_no_token_is_refused_without_a_review(cluster, callers, header):
    request = HttpRequest("/", "", {"Authorization": header} if header else {}, b"")
    answer = await callers.user(request)

    assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert not cluster.asked
