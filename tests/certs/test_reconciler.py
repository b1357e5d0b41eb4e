import asyncio
from base64 import b64encode
from contextlib import asynccontextmanager

from certificates import UNKNOWN_KEY
from waiting import until

from certs.__main__ import KEY_SOURCE, TARGETS
from certs.authority import subject_alt_names
from certs.bundle import read_bundle
from certs.reconciler import Reconciler, Timings
from certs.renewal import IssuancePolicy
from certs.store import Store
from runtime.kube.client import Kube
from runtime.kube.reflector import WatchTimings
from runtime.process.clock import wall

NOW, DAY = 1_800_000_000.0, 86_400
ISSUANCE = IssuancePolicy(("a",), 30 * DAY, 360 * DAY)
STORED = "/api/v1/namespaces/linkwise-system/secrets/linkwise-webhook-tls"
PATHS = {target: f"{target.collection}/{target.name}" for target in TARGETS}
QUICK = WatchTimings(initial_backoff=0.001, max_backoff=0.01)
EMPTY = {"webhooks": [{"name": "pods.linkwise.dev", "clientConfig": {"url": "https://a/"}}]}


class Clock:
    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now


@asynccontextmanager
async def reconciling(cluster, clock=None, issuance=ISSUANCE, **timings):
    """Run a reconciler whose resync does not occur unless a test asks for it."""
    clock = clock or Clock()
    timings = Timings(**{"resync": DAY, "pause": 0.01, **timings})
    async with Kube(cluster.url) as kube:
        store = Store(kube, "linkwise-system", "linkwise-webhook-tls", issuance, KEY_SOURCE)
        reconciler = Reconciler(kube, store, TARGETS, clock, timings)
        task = asyncio.create_task(reconciler.run())
        try:
            yield reconciler
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def bundle_in(cluster, target):
    return cluster.objects[PATHS[target]]["webhooks"][0]["clientConfig"].get("caBundle")


def trusted_everywhere(cluster, reconciler):
    ours = reconciler.bundle and b64encode(reconciler.bundle.trusted).decode()
    return ours and all(bundle_in(cluster, target) == ours for target in TARGETS)


async def test_ca_bundle_is_injected_and_restored_after_it_was_cleared(cluster):
    for path in PATHS.values():
        cluster.put(path, EMPTY)
    async with reconciling(cluster) as reconciler:
        await until(lambda: trusted_everywhere(cluster, reconciler))
        await until(lambda: reconciler.not_ready_reason() is None)
        # The first reconcile may be due to our own writes.
        for _ in range(3):
            cluster.put(PATHS[TARGETS[0]], EMPTY)
            await until(lambda: trusted_everywhere(cluster, reconciler))
        await until(lambda: [reconciler.trusted(target) for target in TARGETS] == [1.0, 1.0])


async def test_ca_bundle_is_injected_into_a_configuration_created_later(cluster):
    async with reconciling(cluster) as reconciler:
        await until(lambda: reconciler.not_ready_reason() is None)
        assert [reconciler.trusted(target) for target in TARGETS] == [None, None]
        for path in PATHS.values():
            cluster.put(path, EMPTY)
        await until(lambda: trusted_everywhere(cluster, reconciler))


async def test_emptied_secret_is_reissued_and_injected(cluster):
    for path in PATHS.values():
        cluster.put(path, EMPTY)
    async with reconciling(cluster) as reconciler:
        await until(lambda: trusted_everywhere(cluster, reconciler))
        before = reconciler.bundle.trusted
        cluster.put(STORED, {"data": {}})
        await until(lambda: reconciler.bundle.trusted != before)
        await until(lambda: trusted_everywhere(cluster, reconciler))


async def test_leaf_is_renewed_after_the_wall_clock_jumps(cluster):
    clock = Clock()
    async with reconciling(cluster, clock, resync=0.01) as reconciler:
        await until(lambda: reconciler.not_ready_reason() is None)
        first = reconciler.bundle
        clock.now += 21 * DAY
        await until(lambda: reconciler.bundle.leaf.expiry > first.leaf.expiry)
        assert reconciler.bundle.trusted == first.trusted


async def test_leaf_that_is_due_before_the_next_resync_is_renewed_in_time(cluster):
    async with reconciling(cluster, wall, IssuancePolicy(("a",), 3, 360 * DAY)) as reconciler:
        await until(lambda: reconciler.not_ready_reason() is None)
        first = reconciler.bundle.leaf
        await until(lambda: reconciler.bundle.leaf.certificate != first.certificate)


async def test_two_replicas_store_one_bundle(cluster):
    for path in PATHS.values():
        cluster.put(path, EMPTY)
    async with reconciling(cluster) as one, reconciling(cluster) as other:
        await until(lambda: trusted_everywhere(cluster, one) and trusted_everywhere(cluster, other))
        stored = read_bundle(cluster.secret()["data"])
        assert one.bundle.trusted == other.bundle.trusted == stored.trusted


async def test_replicas_with_different_names_converge_on_all_names(cluster):
    both = ("a", "b", "127.0.0.1", "0:0::1")
    issuance = [
        IssuancePolicy((both[0], *extra), 30 * DAY, 360 * DAY) for extra in (both[1:2], both[2:])
    ]
    clock = Clock()
    async with (
        reconciling(cluster, clock, issuance[0], resync=0.01) as one,
        reconciling(cluster, clock, issuance[1], resync=0.01) as other,
    ):

        def converged():
            bundles = (one.bundle, other.bundle)
            leaves = [bundle and bundle.leaf.certificate for bundle in bundles]
            return (
                leaves[0]
                and leaves[0] == leaves[1]
                and len(subject_alt_names(leaves[0])) == len(both)
            )

        for _ in range(2):
            await until(converged)
            version = cluster.secret()["metadata"]["resourceVersion"]
            for _ in range(20):
                reads = cluster.reads[STORED]
                await until(lambda reads=reads: cluster.reads[STORED] > reads + 1)
            assert cluster.secret()["metadata"]["resourceVersion"] == version
            # The same after the next renewal.
            before = one.bundle.leaf.expiry
            clock.now += 21 * DAY
            await until(lambda before=before: one.bundle.leaf.expiry > before)


async def test_unreadable_secret_is_reissued_and_trusted(cluster):
    for path in PATHS.values():
        cluster.put(path, EMPTY)
    async with reconciling(cluster) as reconciler:
        await until(lambda: trusted_everywhere(cluster, reconciler))
        data = cluster.secret()["data"]
        before = reconciler.bundle.trusted
        cluster.put(STORED, {"data": {**data, "ca.key": b64encode(UNKNOWN_KEY).decode()}})
        await until(lambda: reconciler.bundle.trusted != before)
        await until(lambda: trusted_everywhere(cluster, reconciler))
        assert reconciler.not_ready_reason() is None


async def test_refused_write_is_the_not_ready_reason_and_is_retried(cluster):
    cluster.refuses["POST"] = 403
    async with reconciling(cluster, watch=QUICK) as reconciler:
        await until(lambda: "status 403" in (reconciler.not_ready_reason() or ""))
        cluster.refuses.clear()
        await until(lambda: reconciler.not_ready_reason() is None)


async def test_ca_bundle_cleared_during_an_outage_is_restored_after_it(cluster):
    for path in PATHS.values():
        cluster.put(path, EMPTY)
    async with reconciling(cluster, watch=QUICK) as reconciler:
        await until(lambda: trusted_everywhere(cluster, reconciler))
        cluster.refuses["GET"] = 503
        cluster.put(PATHS[TARGETS[0]], EMPTY)
        cluster.cut()
        paths = (STORED, *(path.rpartition("/")[0] for path in (STORED, *PATHS.values())))
        await until(lambda: all(cluster.refused[path] > 20 for path in paths))
        cluster.refuses.clear()
        await until(lambda: trusted_everywhere(cluster, reconciler))
