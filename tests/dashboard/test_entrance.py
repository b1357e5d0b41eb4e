"""The page in the cluster under attack: tokens without rights, revoked ones, many clients."""

import asyncio
import json
import threading
from contextlib import asynccontextmanager

import aiohttp
import pytest
from support.dashboard import JOB, a_current, placed_pod
from support.servers.fake_api import status
from support.waiting import PATIENCE, until

from dashboard import access, feeds
from dashboard.entrance import VISITS, Hosts
from linkwise.cluster.keys import DRY_RUN_AUDIENCE
from linkwise.runtime.http import reviews
from linkwise.runtime.http.authentication import OF_AN_ADDRESS

EVENTS = "api/events"
VIEWS = (
    "api/node?name=dgx-0",
    "api/node?name=dgx-0&at=1",
    "api/waiting",
    "api/namespaces",
    "api/past?at=1",
    "api/samples",
)
HOST = "gpus.example"


def other_pod(name, gpu, namespace):
    return placed_pod(name, gpu).replace("namespace: team", f"namespace: {namespace}")


def an_event(text):
    fields = dict(line.split(": ", 1) for line in text.strip().split("\n"))
    return fields["id"], json.loads(fields["data"])


async def test_the_page_itself_needs_no_token_and_shows_nothing(serving):
    async with serving(placed_pod("a", 0)) as page, aiohttp.ClientSession() as session:
        for part in ("", "app.js", "access.js"):
            code, text, headers = await page.get(session, part)
            assert code == 200
            assert "dgx" not in text
            assert "default-src 'none'" in headers["Content-Security-Policy"]


@pytest.mark.parametrize("part", [EVENTS, *VIEWS])
async def test_without_a_valid_token_nothing_is_shown(serving, part):
    async with serving(placed_pod("a", 0)) as page, aiohttp.ClientSession() as session:
        other = page.api.user("ann", "", audience=DRY_RUN_AUDIENCE)
        for token in (None, "forged", other, "x" * 4000):
            code, text, headers = await page.get(session, part, token)
            assert code == 401
            assert headers["WWW-Authenticate"] == "Bearer"
            assert "linkwise-dashboard" in text
            assert "dgx" not in text


async def test_other_schemes_are_no_tokens(serving):
    async with serving() as page, aiohttp.ClientSession() as session:
        token = page.api.user("ann", "")
        for header in (f"Basic {token}", f"bearer{token}", token, "Bearer", f"Bearer {token} 2"):
            code, _, _ = await page.get(session, EVENTS, Authorization=header)
            assert code == 401


async def test_a_token_without_rights_sees_nothing_and_is_told_what_to_ask_for(serving):
    async with serving(placed_pod("a", 0)) as page, aiohttp.ClientSession() as session:
        token = page.api.user("eve", nodes=False)

        code, text, headers = await page.get(session, EVENTS, token)

        assert code == 403
        assert headers["WWW-Authenticate"] == "Bearer"
        assert "ClusterRole linkwise-dashboard-user" in text
        assert "dgx" not in text


async def test_each_user_sees_the_pods_of_its_namespaces(serving):
    pods = placed_pod("a", 0), other_pod("b", 1, "blue")
    async with serving(*pods) as page, aiohttp.ClientSession() as session:
        seen = {}
        for name, namespaces in {"ann": [""], "bea": ["blue"], "eve": []}.items():
            token = page.api.user(name, *namespaces)
            texts = [(await page.get(session, part, token))[1] for part in (EVENTS, *VIEWS)]
            seen[name] = {word for word in ("team/", "blue/", "another") if word in "".join(texts)}
            _, update = an_event(texts[0])
            assert len(update["nodes"]) == 3

        assert seen == {
            "ann": {"team/", "blue/"},
            "bea": {"blue/", "another"},
            "eve": {"another"},
        }


async def test_pods_without_gangs_are_not_enough(serving):
    async with serving(other_pod("b", 1, "blue")) as page, aiohttp.ClientSession() as session:
        token = page.api.user("bea")
        page.api.allowed.add(("bea", "pods", ""))
        page.api.allowed.add(("bea", "pods", "blue"))

        _, text, _ = await page.get(session, EVENTS, token)

        assert "blue/" not in text


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": f"{HOST}.evil.example"},
        {"Host": f"{HOST}:80:80"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
    ids=["rebound", "longer", "two ports", "origin", "sandbox", "site"],
)
async def test_other_hosts_and_origins_get_nothing_with_a_token(serving, headers):
    async with serving() as page, aiohttp.ClientSession() as session:
        token = page.api.user("ann", "")

        code, text, answered = await page.get(session, EVENTS, token, **headers)

        assert code == 403
        assert "dgx" not in text
        assert "WWW-Authenticate" not in answered
        assert not page.api.asked


@pytest.mark.parametrize("host", [HOST, f"{HOST}:8443", HOST.upper(), "localhost:9", "[::1]:9"])
async def test_the_names_of_the_page_and_forwarded_ports_are_served(host):
    assert f"https://{host}" in Hosts(frozenset({HOST})).origins(host)


async def test_a_revoked_token_gets_nothing_once_its_review_is_over(serving):
    async with serving() as page, aiohttp.ClientSession() as session:
        token = page.api.user("ann", "")
        assert (await page.get(session, EVENTS, token))[0] == 200
        del page.api.users[token]

        page.clock.now += reviews.REVIEWED - 0.1
        assert (await page.get(session, EVENTS, token))[0] == 200
        page.clock.now += 0.2
        assert (await page.get(session, EVENTS, token))[0] == 401
        assert (await page.get(session, EVENTS, token))[0] == 401


async def test_a_right_that_was_withdrawn_is_withdrawn_here(serving):
    async with serving(other_pod("b", 1, "blue")) as page, aiohttp.ClientSession() as session:
        token = page.api.user("bea", "blue")
        assert "blue/" in (await page.get(session, EVENTS, token))[1]
        page.api.allowed.discard(("bea", "pods", "blue"))

        page.clock.now += reviews.REVIEWED
        assert "blue/" not in (await page.get(session, EVENTS, token))[1]


async def test_an_api_server_that_does_not_answer_lets_nobody_in(serving):
    async with serving() as page, aiohttp.ClientSession() as session:
        token = page.api.user("ann", "")
        assert (await page.get(session, EVENTS, token))[0] == 200
        page.clock.now += reviews.REVIEWED
        page.api.faults["call"].append(status(500))

        code, _, headers = await page.get(session, EVENTS, token)

        assert code == 503
        assert "WWW-Authenticate" not in headers
        assert (await page.get(session, EVENTS, token))[0] == 200


async def test_200_clients_with_equal_rights_share_one_feed_and_few_reviews(serving):
    async with serving(other_pod("b", 1, "blue")) as page:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            tokens = [page.api.user(f"user-{n % 4}", "blue") for n in range(200)]
            first = await asyncio.gather(*(page.get(session, EVENTS, token) for token in tokens))
            assert {code for code, _, _ in first} == {200}
            assert page.api.asked["TokenReview"] == 4
            assert len(page.feeds._reduced) == 1

            [last] = {an_event(text)[0] for _, text, _ in first}
            waiting = [
                asyncio.create_task(page.get(session, EVENTS, token, **{"Last-Event-ID": last}))
                for token in tokens
            ]
            [feed] = [reduced.feed for reduced in page.feeds._reduced.values()]
            await until(lambda: len(feed._waiting) == len(tokens))
            page.feeds.report("an end")
            assert {code for code, _, _ in await asyncio.gather(*waiting)} == {200}


async def test_a_user_has_a_bounded_number_of_requests(serving):
    async with serving() as page:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            token, other = page.api.user("eve", ""), page.api.user("ann", "")
            last, _ = an_event((await page.get(session, EVENTS, token))[1])
            headers = {"Last-Event-ID": last}
            waiting = [
                asyncio.create_task(page.get(session, EVENTS, token, **headers))
                for _ in range(VISITS)
            ]
            await until(lambda: len(page.feeds._whole._waiting) == VISITS)

            code, text, _ = await page.get(session, "api/sets", token)
            assert (code, "too many requests" in text) == (503, True)
            assert (await page.get(session, "api/sets", other))[0] == 200

            page.feeds.report("an end")
            assert {code for code, _, _ in await asyncio.gather(*waiting)} == {200}
            assert (await page.get(session, "api/sets", token))[0] == 200


async def test_feeds_are_bounded_and_end_when_nobody_asks(serving):
    names = [f"team-{n}" for n in range(feeds.FEEDS + 1)]
    pods = [other_pod(name, n % 8, name) for n, name in enumerate(names)]
    async with serving(*pods) as page, aiohttp.ClientSession() as session:
        tokens = [page.api.user(f"user-of-{name}", name) for name in names]
        codes = [(await page.get(session, "api/sets", token))[0] for token in tokens]
        assert codes == [200] * feeds.FEEDS + [503]
        assert (await page.get(session, "api/sets", page.api.user("ann", "")))[0] == 200

        page.clock.now += feeds.IDLE + 1
        assert (await page.get(session, "api/sets", tokens[-1]))[0] == 200
        assert len(page.feeds._reduced) == 1


async def test_a_feed_follows_the_cluster_and_has_its_own_past(serving):
    async with serving(other_pod("b", 1, "blue")) as page, aiohttp.ClientSession() as session:
        token = page.api.user("bea", "blue")
        last, _ = an_event((await page.get(session, EVENTS, token))[1])
        waiting = asyncio.create_task(page.get(session, EVENTS, token, **{"Last-Event-ID": last}))
        await page.feeds.publish(a_current(other_pod("b", 1, "blue"), placed_pod("hidden", 2)))

        _, update = an_event((await waiting)[1])
        assert [row[0] for row in update["nodes"]] == ["dgx-0"]
        assert "hidden" not in json.dumps(update)
        _, past, _ = await page.get(session, f"api/past?at={update['facts']['now']}", token)
        assert "another namespace" in past


async def test_namespaces_beyond_the_bound_are_hidden(serving, monkeypatch):
    monkeypatch.setattr(access, "NAMESPACES", 1)
    pods = other_pod("a", 0, "blue"), other_pod("b", 1, "red")
    async with serving(*pods) as page, aiohttp.ClientSession() as session:
        _, text, _ = await page.get(session, EVENTS, page.api.user("bea", "blue", "red"))

        assert ("blue/" in text, "red/" in text) == (True, False)
        assert page.api.asked["SubjectAccessReview"] < 10


async def test_known_tokens_are_reviewed_while_forged_ones_wait(serving):
    held = asyncio.Event()

    async def slowly(_request):
        await held.wait()
        return await status(500)(_request)

    async with serving() as page, aiohttp.ClientSession() as session:
        token = page.api.user("ann", "")
        assert (await page.get(session, EVENTS, token))[0] == 200
        page.api.faults["call"].extend([slowly] * OF_AN_ADDRESS)
        forged = [asyncio.create_task(page.get(session, EVENTS, f"forged-{n}")) for n in range(30)]
        await until(lambda: len(page.access._callers._users._running) == OF_AN_ADDRESS)

        page.clock.now += reviews.REVIEWED
        assert (await page.get(session, EVENTS, token))[0] == 200

        held.set()
        assert {code for code, _, _ in await asyncio.gather(*forged)} == {401, 503}


@pytest.mark.parametrize(
    ("nodes", "namespaces", "code"),
    [(True, ["blue"], 200), (True, [], 200), (False, [], 403)],
    ids=["a namespace", "nodes", "nothing"],
)
async def test_tokens_of_one_identity_share_the_reviews_of_its_rights(
    serving, nodes, namespaces, code
):
    async with serving(other_pod("b", 1, "blue")) as page, aiohttp.ClientSession() as session:
        token = page.api.user("bea", *namespaces, nodes=nodes)
        assert (await page.get(session, EVENTS, token))[0] == code
        first = page.api.asked["SubjectAccessReview"]

        page.clock.now += reviews.REVIEWED
        others = page.api.other_tokens("bea", 9)
        answers = await asyncio.gather(*(page.get(session, EVENTS, each) for each in others))
        assert (await page.get(session, EVENTS, token))[0] == code

        assert {answer[0] for answer in answers} == {code}
        assert page.api.asked == {"TokenReview": 11, "SubjectAccessReview": 2 * first}


async def test_a_user_with_other_groups_is_another_identity(serving):
    async with serving(other_pod("b", 1, "blue")) as page, aiohttp.ClientSession() as session:
        plain = page.api.user("bea")
        [admin] = page.api.other_tokens("bea", 1, "admins")
        page.api.allowed |= {("admins", kind, "") for kind in ("pods", "gangs")}

        texts = [(await page.get(session, EVENTS, token))[1] for token in (plain, admin, plain)]

        assert ["blue/" in text for text in texts] == [False, True, False]


async def test_kept_reviews_are_bounded(serving, monkeypatch):
    monkeypatch.setattr(reviews, "KEPT", 3)
    async with serving() as page, aiohttp.ClientSession() as session:
        for n in range(6):
            assert (await page.get(session, "api/sets", page.api.user(f"u{n}", "")))[0] == 200

        assert len(page.access._callers._users._kept) == len(page.access._rights._kept) == 3


@asynccontextmanager
async def a_view(page):
    """Compute a view of the whole cluster while the block runs, so that manifests wait."""
    begun, release = threading.Event(), threading.Event()

    def compute():
        begun.set()
        release.wait()

    view = asyncio.create_task(page.feeds._whole.compute(compute))
    await asyncio.to_thread(begun.wait)
    try:
        yield
    finally:
        release.set()
        await view


async def test_a_manifest_is_tried_on_what_the_caller_sees(serving):
    pods = [other_pod(f"b{n}", n, "blue") for n in range(7)]
    manifest = JOB.replace("GPUS", "2")
    async with serving(*pods) as page, aiohttp.ClientSession() as session:
        bea = page.api.user("bea", "red")
        code, text = await page.tried(session, bea, manifest)
        assert code == 200
        assert json.loads(text)["gangs"][0]["placed"]
        assert "blue" not in text


async def test_users_that_try_manifests_take_turns_and_each_has_one_that_waits(serving):
    manifest = JOB.replace("GPUS", "2")
    async with serving(seconds=PATIENCE) as page, aiohttp.ClientSession() as session:
        bea, ann, dan = (page.api.user(name, "red") for name in ("bea", "ann", "dan"))
        await page.get(session, EVENTS, bea)
        done = []

        async def tried(name, token):
            code, _ = await page.tried(session, token, manifest)
            done.append((name, code))

        async with a_view(page):
            tasks = [asyncio.create_task(tried("bea", bea))]
            await until(lambda: page.turns == {"bea"})
            tasks.append(asyncio.create_task(tried("ann", ann)))
            await until(lambda: page.turns == {"bea", "ann"})
            assert (await page.tried(session, bea, manifest))[0] == 503
            tasks.append(asyncio.create_task(tried("dan", dan)))
            await until(lambda: page.turns == {"bea", "ann", "dan"})
        await asyncio.gather(*tasks)
        assert done == [("bea", 200), ("ann", 200), ("dan", 200)]
        assert (await page.tried(session, bea, manifest))[0] == 200


async def test_a_manifest_pauses_while_a_view_of_any_feed_is_computed(serving):
    async with serving(seconds=0.5) as page, aiohttp.ClientSession() as session:
        bea = page.api.user("bea", "red")
        await page.get(session, EVENTS, bea)
        async with a_view(page):
            _, text = await page.tried(session, bea, JOB.replace("GPUS", "2"))

        assert "too long" in json.loads(text)["problems"][0]


async def test_before_the_cluster_is_read_it_is_said_so(serving):
    async with serving() as page, aiohttp.ClientSession() as session:
        page.feeds._current = None

        code, text, _ = await page.get(session, EVENTS, page.api.user("ann", ""))

        assert (code, "not read yet" in text) == (503, True)


async def test_the_reason_of_a_problem_may_name_others_and_is_for_those_who_see_all(serving):
    async with serving(other_pod("b", 1, "blue")) as page, aiohttp.ClientSession() as session:
        ann, bea = page.api.user("ann", ""), page.api.user("bea", "blue")
        eve = page.api.user("eve")
        await page.get(session, EVENTS, bea)
        page.feeds.report("pod red/secret cannot be read")

        problems = []
        for token in (ann, bea, eve):
            _, update = an_event((await page.get(session, EVENTS, token))[1])
            problems.append(update["facts"]["problem"])

        assert problems == [
            "pod red/secret cannot be read",
            feeds.NOT_SHOWN,
            feeds.NOT_SHOWN,
        ]


async def test_a_page_whose_rights_changed_gets_all_rows_again(serving):
    pods = other_pod("a", 0, "red"), other_pod("b", 1, "blue")
    async with serving(*pods) as page, aiohttp.ClientSession() as session:
        token = page.api.user("bea", "red", "blue")
        last, _ = an_event((await page.get(session, EVENTS, token))[1])
        page.api.allowed.discard(("bea", "pods", "red"))
        page.clock.now += reviews.REVIEWED

        _, text, _ = await page.get(session, EVENTS, token, **{"Last-Event-ID": last})

        assert an_event(text)[1]["full"]
        assert "red/" not in text


async def test_a_slow_client_holds_no_other(serving):
    async with serving() as page, aiohttp.ClientSession() as session:
        token = page.api.user("ann", "")
        request = f"GET /base.css HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()
        writers = []
        for _ in range(20):
            _, writer = await asyncio.open_connection("127.0.0.1", page.server.port, limit=1)
            writer.write(request * 50)
            writers.append(writer)

        assert (await page.get(session, EVENTS, token))[0] == 200
        for writer in writers:
            writer.close()
