import asyncio
from base64 import b64encode
from contextlib import asynccontextmanager

import pytest
from certificates import UNKNOWN_KEY
from waiting import until

from certs import reconciler
from certs.__main__ import SOURCE, TARGETS
from certs.authority import names_of
from certs.bundle import read_bundle
from certs.reconciler import Reconciler
from certs.renewal import IssuancePolicy
from certs.store import Store
from runtime.kube.client import Kube
from runtime.kube.reflector import WatchTimings
from runtime.process.clock import wall

NOW, DAY = 1_800_000_000.0, 86_400
TERMS = IssuancePolicy(("a",), 30 * DAY, 360 * DAY)
STORED = "/api/v1/namespaces/linkwise-system/secrets/linkwise-webhook-tls"
PATHS = {target: f"{target.collection}/{target.name}" for target in TARGETS}
EMPTY = {"webhooks": [{"name": "pods.linkwise.dev", "clientConfig": {"url": "https://a/"}}]}


class Clock:
    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now


@asynccontextmanager
async def kept(cluster, clock=None, terms=TERMS):
    clock = clock or Clock()
    async with Kube(cluster.url) as kube:
        store = Store(kube, "linkwise-system", "linkwise-webhook-tls", terms, SOURCE)
        keeper = Reconciler(kube, store, TARGETS, clock)
        task = asyncio.create_task(keeper.run())
        try:
            yield keeper
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(reconciler, "_PAUSE", 0.01)
    # Whatever is waited for comes without another look, unless a test says so.
    monkeypatch.setattr(reconciler, "_LOOK", DAY)


def bundle_in(cluster, target):
    return cluster.objects[PATHS[target]]["webhooks"][0]["clientConfig"].get("caBundle")


def trusted_everywhere(cluster, keeper):
    ours = keeper.bundle and b64encode(keeper.bundle.trusted).decode()
    return ours and all(bundle_in(cluster, target) == ours for target in TARGETS)


async def test_registrations_get_the_bundle_and_get_it_again_when_somebody_clears_it(cluster):
    for path in PATHS.values():
        cluster.put(path, EMPTY)
    async with kept(cluster) as keeper:
        await until(lambda: trusted_everywhere(cluster, keeper))
        await until(lambda: keeper.missing() is None)
        # The first look again may be due to our own writes.
        for _ in range(3):
            cluster.put(PATHS[TARGETS[0]], EMPTY)
            await until(lambda: trusted_everywhere(cluster, keeper))
        await until(lambda: [keeper.trusted(target) for target in TARGETS] == [1.0, 1.0])


async def test_a_registration_that_comes_later_gets_the_bundle(cluster):
    async with kept(cluster) as keeper:
        await until(lambda: keeper.missing() is None)
        assert [keeper.trusted(target) for target in TARGETS] == [None, None]
        for path in PATHS.values():
            cluster.put(path, EMPTY)
        await until(lambda: trusted_everywhere(cluster, keeper))


async def test_a_secret_that_somebody_empties_is_made_anew_and_made_known(cluster):
    for path in PATHS.values():
        cluster.put(path, EMPTY)
    async with kept(cluster) as keeper:
        await until(lambda: trusted_everywhere(cluster, keeper))
        before = keeper.bundle.trusted
        cluster.put(STORED, {"data": {}})
        await until(lambda: keeper.bundle.trusted != before)
        await until(lambda: trusted_everywhere(cluster, keeper))


async def test_a_leaf_is_renewed_when_the_wall_clock_says_so(cluster, monkeypatch):
    monkeypatch.setattr(reconciler, "_LOOK", 0.01)
    clock = Clock()
    async with kept(cluster, clock) as keeper:
        await until(lambda: keeper.missing() is None)
        first = keeper.bundle
        clock.now += 21 * DAY
        await until(lambda: keeper.bundle.leaf.expiry > first.leaf.expiry)
        assert keeper.bundle.trusted == first.trusted


async def test_a_leaf_that_is_due_before_the_next_look_is_renewed_in_time(cluster):
    async with kept(cluster, wall, IssuancePolicy(("a",), 3, 360 * DAY)) as keeper:
        await until(lambda: keeper.missing() is None)
        first = keeper.bundle.leaf
        await until(lambda: keeper.bundle.leaf.certificate != first.certificate)


async def test_two_replicas_agree(cluster):
    for path in PATHS.values():
        cluster.put(path, EMPTY)
    async with kept(cluster) as one, kept(cluster) as other:
        await until(lambda: trusted_everywhere(cluster, one) and trusted_everywhere(cluster, other))
        stored = read_bundle(cluster.secret()["data"])
        assert one.bundle.trusted == other.bundle.trusted == stored.trusted


async def test_replicas_of_other_names_settle_on_all_of_them(cluster, monkeypatch):
    monkeypatch.setattr(reconciler, "_LOOK", 0.01)
    both = ("a", "b", "127.0.0.1", "0:0::1")
    terms = [
        IssuancePolicy((both[0], *extra), 30 * DAY, 360 * DAY) for extra in (both[1:2], both[2:])
    ]
    clock = Clock()
    async with kept(cluster, clock, terms[0]) as one, kept(cluster, clock, terms[1]) as other:

        def settled():
            leaves = [keeper.bundle and keeper.bundle.leaf.certificate for keeper in (one, other)]
            return leaves[0] and leaves[0] == leaves[1] and len(names_of(leaves[0])) == len(both)

        for _ in range(2):
            await until(settled)
            version = cluster.secret()["metadata"]["resourceVersion"]
            for _ in range(20):
                asked = cluster.asked[STORED]
                await until(lambda asked=asked: cluster.asked[STORED] > asked + 1)
            assert cluster.secret()["metadata"]["resourceVersion"] == version
            # And again after the next renewal.
            before = one.bundle.leaf.expiry
            clock.now += 21 * DAY
            await until(lambda before=before: one.bundle.leaf.expiry > before)


async def test_a_secret_that_nobody_can_read_is_made_anew_and_trusted(cluster):
    for path in PATHS.values():
        cluster.put(path, EMPTY)
    async with kept(cluster) as keeper:
        await until(lambda: trusted_everywhere(cluster, keeper))
        data = cluster.secret()["data"]
        before = keeper.bundle.trusted
        cluster.put(STORED, {"data": {**data, "ca.key": b64encode(UNKNOWN_KEY).decode()}})
        await until(lambda: keeper.bundle.trusted != before)
        await until(lambda: trusted_everywhere(cluster, keeper))
        assert keeper.missing() is None


async def test_a_refusal_is_why_it_is_not_ready_and_is_tried_again(cluster, monkeypatch):
    monkeypatch.setattr(reconciler, "_LOOK", 0.05)
    cluster.refuses["POST"] = 403
    async with kept(cluster) as keeper:
        await until(lambda: "status 403" in (keeper.missing() or ""))
        cluster.refuses.clear()
        await until(lambda: keeper.missing() is None)


async def test_as_soon_as_the_api_server_is_back_what_was_cleared_is_written(cluster, monkeypatch):
    monkeypatch.setattr(reconciler, "_SOON", WatchTimings(first=0.001, longest=0.01))
    for path in PATHS.values():
        cluster.put(path, EMPTY)
    async with kept(cluster) as keeper:
        await until(lambda: trusted_everywhere(cluster, keeper))
        cluster.refuses["GET"] = 503
        cluster.put(PATHS[TARGETS[0]], EMPTY)
        cluster.cut()
        asked = (STORED, *(path.rpartition("/")[0] for path in (STORED, *PATHS.values())))
        await until(lambda: all(cluster.refused[path] > 20 for path in asked))
        cluster.refuses.clear()
        await until(lambda: trusted_everywhere(cluster, keeper))
