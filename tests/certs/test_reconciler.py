import asyncio
from base64 import b64encode
from contextlib import asynccontextmanager

import pytest
from support.certificates import a_ca, a_leaf
from support.waiting import until

from certs.__main__ import KEY_SOURCE, TARGETS
from certs.authority import expiry, subject_alt_names
from certs.issuer import Issuer
from certs.leaf import Server, read_leaf
from certs.observer import Observer
from certs.reconciler import Reconciler, Timings
from certs.reporter import Reporter
from certs.rotation import IssuancePolicy
from certs.store import CA_SECRET, Store
from linkwise.cluster.keys import CERTS
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.kube.event_recorder import EventRecorder
from linkwise.runtime.kube.reflector import WatchTimings
from linkwise.runtime.process.clock import monotonic, wall

NOW, DAY = 1_800_000_000.0, 86_400
SECRETS = "/api/v1/namespaces/linkwise-system/secrets"
CA, LEAF = f"{SECRETS}/linkwise-ca", f"{SECRETS}/hook"
STATUS = f"/api/v1/namespaces/linkwise-system/configmaps/{CERTS}"
PATHS = {target: f"{target.collection}/{target.name}" for target in TARGETS}
QUICK = WatchTimings(initial_backoff=0.001, max_backoff=0.01)
EMPTY = {"webhooks": [{"name": "pods.linkwise.dev", "clientConfig": {"url": "https://a/"}}]}


def policy(*names, leaf=30 * DAY, ca=360 * DAY, wait=600.0):
    return IssuancePolicy((Server("webhook", "hook", names or ("a",)),), leaf, ca, wait)


class Clock:
    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now


@asynccontextmanager
async def reconciling(cluster, clock=None, issuance=None, work=None, **timings):
    """Run a reconciler whose resync does not occur unless a test asks for it."""
    issuance = issuance or policy()
    clock = clock or Clock()
    cluster.clock = clock if cluster.clock is wall else cluster.clock
    timings = Timings(**{"resync": DAY, "pause": 0.01, **timings})
    async with Kube(cluster.url) as kube:
        store = Store(kube, "linkwise-system", issuance.servers, TARGETS)
        recorder = EventRecorder(kube, "linkwise-certs", "", clock)
        reporter = Reporter(kube, recorder, "linkwise-system")
        work = (work or issuer)(kube, store, reporter, issuance, clock)
        secrets = [CA_SECRET, *(server.secret for server in issuance.servers)]
        reconciler = Reconciler(kube, work, SECRETS, secrets, TARGETS, timings)
        task = asyncio.create_task(reconciler.run())
        try:
            yield reconciler
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def issuer(kube, store, reporter, issuance, clock):
    return Issuer(
        kube,
        store,
        reporter,
        issuance,
        key_source=KEY_SOURCE,
        clock=clock,
        monotonic=monotonic,
    )


def observer(mode, *, injects):
    def make(kube, store, reporter, issuance, clock):
        return Observer(kube, store, reporter, issuance, clock, mode=mode, injects=injects)

    return make


@pytest.fixture
def registered(cluster):
    for path in PATHS.values():
        cluster.put(path, EMPTY)
    return cluster


def bundle_in(cluster, target):
    return cluster.objects[PATHS[target]]["webhooks"][0]["clientConfig"].get("caBundle")


def trusted_everywhere(cluster):
    ours = cluster.objects[LEAF]["data"]["ca.crt"]
    return all(bundle_in(cluster, target) == ours for target in TARGETS)


def leaf(cluster):
    data = cluster.objects[LEAF]["data"]
    # A LookupError means: not yet.
    return data["tls.crt"] and read_leaf(data).certificate


async def test_ca_bundle_is_injected_and_restored_after_it_was_cleared(registered):
    async with reconciling(registered) as reconciler:
        await until(lambda: trusted_everywhere(registered))
        await until(lambda: reconciler.not_ready_reason() is None)
        # The first reconcile may be due to our own writes.
        for _ in range(3):
            registered.put(PATHS[TARGETS[0]], EMPTY)
            await until(lambda: trusted_everywhere(registered))


async def test_ca_bundle_is_injected_into_a_configuration_created_later(cluster):
    async with reconciling(cluster) as reconciler:
        await until(lambda: reconciler.not_ready_reason() is None)
        assert reconciler.outcome.snapshot.configurations == {}
        for path in PATHS.values():
            cluster.put(path, EMPTY)
        await until(lambda: trusted_everywhere(cluster))


async def test_emptied_secret_is_issued_again_by_the_same_ca(registered):
    async with reconciling(registered):
        await until(lambda: trusted_everywhere(registered))
        before, trusted = leaf(registered), registered.objects[LEAF]["data"]["ca.crt"]
        registered.put(LEAF, {"data": {}})
        await until(lambda: leaf(registered) != before)
        assert registered.objects[LEAF]["data"]["ca.crt"] == trusted


async def test_leaf_is_renewed_after_the_wall_clock_jumps(cluster):
    clock = Clock()
    async with reconciling(cluster, clock, resync=0.01):
        await until(lambda: leaf(cluster))
        first, authority = leaf(cluster), cluster.objects[CA]
        clock.now += 21 * DAY
        await until(lambda: expiry(leaf(cluster)) > expiry(first))
        assert cluster.objects[CA] == authority


async def test_leaf_that_is_due_before_the_next_resync_is_renewed_in_time(cluster):
    async with reconciling(cluster, wall, policy(leaf=3, wait=0.1)):
        await until(lambda: leaf(cluster))
        first = leaf(cluster)
        await until(lambda: leaf(cluster) != first)


async def test_wait_of_a_rotation_ends_before_the_next_resync(registered):
    async with reconciling(registered, wall, policy(leaf=6, ca=18, wait=0.5)) as reconciler:
        await until(lambda: "previous.crt" in registered.objects[CA]["data"])
        await until(lambda: reconciler.outcome.phase == "stable")
        assert trusted_everywhere(registered)


async def test_two_replicas_store_one_ca_and_one_leaf(registered):
    async with reconciling(registered) as one, reconciling(registered) as other:
        await until(lambda: trusted_everywhere(registered))
        for replica in (one, other):
            await until(lambda replica=replica: replica.not_ready_reason() is None)
        stored = [replica.outcome.snapshot.authorities.value for replica in (one, other)]
        assert stored[0].certificates == stored[1].certificates


async def test_replicas_with_different_names_converge_on_all_names(cluster):
    both = ("a", "b", "127.0.0.1", "0:0::1")
    clock = Clock()
    async with (
        reconciling(cluster, clock, policy(*both[:2]), resync=0.01),
        reconciling(cluster, clock, policy(both[0], *both[2:]), resync=0.01),
    ):
        for _ in range(2):
            await until(lambda: len(subject_alt_names(leaf(cluster))) == len(both))
            version = cluster.objects[LEAF]["metadata"]["resourceVersion"]
            for _ in range(20):
                reads = cluster.reads[LEAF]
                await until(lambda reads=reads: cluster.reads[LEAF] > reads + 1)
            assert cluster.objects[LEAF]["metadata"]["resourceVersion"] == version
            # The same after the next renewal.
            before = expiry(leaf(cluster))
            clock.now += 21 * DAY
            await until(lambda before=before: expiry(leaf(cluster)) > before)


async def test_labels_of_others_on_a_secret_are_kept(cluster):
    cluster.put(LEAF, {"metadata": {"labels": {"team": "a"}}, "type": "kubernetes.io/tls"})
    async with reconciling(cluster):
        await until(lambda: leaf(cluster))
        assert cluster.objects[LEAF]["metadata"]["labels"] == {"team": "a"}


async def test_new_secret_of_a_server_has_type_tls(cluster):
    async with reconciling(cluster):
        await until(lambda: leaf(cluster))
        assert cluster.objects[LEAF]["type"] == "kubernetes.io/tls"


async def test_refused_write_is_the_not_ready_reason_and_is_retried(cluster):
    cluster.refuses["POST"] = 403
    async with reconciling(cluster, watch=QUICK) as reconciler:
        await until(lambda: "status 403" in (reconciler.not_ready_reason() or ""))
        cluster.refuses.clear()
        await until(lambda: reconciler.not_ready_reason() is None)


async def test_refused_injection_does_not_stop_the_renewal_of_leaves(registered):
    registered.refuses["PATCH"] = 403
    async with reconciling(registered, watch=QUICK) as reconciler:
        await until(lambda: leaf(registered))
        await until(lambda: "status 403" in (reconciler.not_ready_reason() or ""))


async def test_ca_bundle_cleared_during_an_outage_is_restored_after_it(registered):
    async with reconciling(registered, watch=QUICK):
        await until(lambda: trusted_everywhere(registered))
        registered.refuses["GET"] = 503
        registered.put(PATHS[TARGETS[0]], EMPTY)
        registered.cut()
        paths = (SECRETS, *(path.rpartition("/")[0] for path in PATHS.values()))
        await until(lambda: all(registered.refused[path] > 20 for path in paths))
        registered.refuses.clear()
        await until(lambda: trusted_everywhere(registered))


async def test_clock_that_differs_from_the_api_server_is_the_not_ready_reason(registered):
    clock, registered.clock = Clock(), Clock()
    async with reconciling(registered, clock, resync=0.01) as reconciler:
        await until(lambda: trusted_everywhere(registered))
        before = leaf(registered)
        clock.now += 365 * DAY
        await until(lambda: "525600 minutes ahead of" in (reconciler.not_ready_reason() or ""))
        registered.put(PATHS[TARGETS[0]], EMPTY)
        await until(lambda: trusted_everywhere(registered))
        assert leaf(registered) == before
        # The clock was right, and all has expired.
        registered.clock.now = clock.now
        await until(lambda: leaf(registered) != before)
        await until(lambda: reconciler.not_ready_reason() is None)


# ---- Certificates that others issue.

PROVIDER = a_ca()
PROVIDED = a_leaf(PROVIDER)


def provide(cluster, ca=PROVIDER, provided=PROVIDED):
    contents = {"tls.crt": provided.cert_pem, "tls.key": provided.key_pem, "ca.crt": ca.cert_pem}
    data = {key: b64encode(pem).decode() for key, pem in contents.items()}
    cluster.put(LEAF, {"type": "kubernetes.io/tls", "data": data})


async def test_provided_ca_is_injected_and_restored_and_no_secret_is_written(registered):
    provide(registered)
    before = registered.objects[LEAF]
    work = observer("provided", injects=True)
    async with reconciling(registered, wall, work=work) as reconciler:
        await until(lambda: trusted_everywhere(registered))
        await until(lambda: reconciler.not_ready_reason() is None)
        registered.put(PATHS[TARGETS[0]], EMPTY)
        await until(lambda: trusted_everywhere(registered))
    assert registered.objects[LEAF] == before
    assert CA not in registered.objects


async def test_provided_ca_that_is_replaced_is_injected(registered):
    provide(registered)
    async with reconciling(registered, wall, work=observer("provided", injects=True)):
        await until(lambda: trusted_everywhere(registered))
        other = a_ca("other")
        provide(registered, other, a_leaf(other))
        await until(lambda: trusted_everywhere(registered))


async def test_ca_bundle_of_cert_manager_is_not_written(registered):
    provide(registered)
    work = observer("cert-manager", injects=False)
    async with reconciling(registered, wall, work=work) as reconciler:
        await until(lambda: reconciler.not_ready_reason() is None)
        assert registered.applied == []
        (server,) = reconciler.outcome.snapshot.leaves
        assert server.name == "webhook"


async def test_ca_of_others_expires_with_the_last_one_that_signed_a_certificate(registered):
    unrelated = a_ca("other", days=1)
    data = {"tls.crt": PROVIDED.cert_pem, "tls.key": PROVIDED.key_pem}
    data["ca.crt"] = unrelated.cert_pem + PROVIDER.cert_pem
    secret = {key: b64encode(pem).decode() for key, pem in data.items()}
    registered.put(LEAF, {"type": "kubernetes.io/tls", "data": secret})
    work = observer("provided", injects=True)
    async with reconciling(registered, wall, work=work) as reconciler:
        await until(lambda: reconciler.not_ready_reason() is None)
        assert reconciler.outcome.ca_expiry == expiry(PROVIDER.certificate)


async def test_unusable_provided_certificate_is_the_not_ready_reason(registered):
    work = observer("provided", injects=True)
    async with reconciling(registered, wall, work=work) as reconciler:
        await until(lambda: reconciler.not_ready_reason() == "hook: there is no Secret")
        provide(registered, a_ca("other"))
        await until(lambda: reconciler.not_ready_reason() == "hook: it is signed by no trusted CA")
        provide(registered, provided=a_leaf(PROVIDER, days=-1))
        await until(lambda: "hook: it is valid from" in reconciler.not_ready_reason())
        provide(registered)
        await until(lambda: reconciler.not_ready_reason() is None)


async def test_state_of_provided_certificates_is_published(registered):
    registered.put(STATUS, {})
    provide(registered)
    async with reconciling(registered, wall, work=observer("provided", injects=True)):
        await until(
            lambda: '"mode":"provided"' in registered.objects[STATUS]["data"]["status.json"]
        )
