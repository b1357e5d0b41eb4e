import asyncio

import pytest

from certs.__main__ import KEY_SOURCE
from certs.bundle import read_bundle, write_bundle
from certs.renewal import IssuancePolicy, renew
from certs.store import Store
from runtime.kube.client import ApiError, Kube

NOW, DAY = 1_800_000_000.0, 86_400
ISSUANCE = IssuancePolicy(("linkwise-webhook.linkwise-system.svc",), 30 * DAY, 360 * DAY)
STORED = "/api/v1/namespaces/linkwise-system/secrets/linkwise-webhook-tls"


@pytest.fixture
async def store(cluster):
    async with Kube(cluster.url) as kube:
        yield Store(kube, "linkwise-system", "linkwise-webhook-tls", ISSUANCE, KEY_SOURCE)


def stored(cluster):
    return read_bundle(cluster.secret()["data"])


async def test_missing_secret_is_created_with_type_tls(cluster, store):
    bundle, reason = await store.ensure(NOW)
    assert reason == "there is no Secret"
    assert cluster.secret()["type"] == "kubernetes.io/tls"
    assert write_bundle(stored(cluster)) == write_bundle(bundle)


async def test_valid_bundle_is_not_written_again(cluster, store):
    first, _ = await store.ensure(NOW)
    version = cluster.secret()["metadata"]["resourceVersion"]
    second, reason = await store.ensure(NOW + DAY)
    assert (write_bundle(second), reason) == (write_bundle(first), None)
    assert cluster.secret()["metadata"]["resourceVersion"] == version


async def test_leaf_is_renewed_in_its_last_third(cluster, store):
    first, _ = await store.ensure(NOW)
    second, reason = await store.ensure(NOW + 21 * DAY)
    assert "the leaf is in its last third" in reason
    assert second.leaf.expiry > first.leaf.expiry
    assert second.trusted == first.trusted
    assert write_bundle(stored(cluster)) == write_bundle(second)


async def test_labels_of_others_on_the_secret_are_kept(cluster, store):
    cluster.put(STORED, {"metadata": {"labels": {"team": "a"}}, "type": "kubernetes.io/tls"})
    await store.ensure(NOW)
    assert cluster.secret()["metadata"]["labels"] == {"team": "a"}


async def test_invalid_content_is_replaced_and_is_the_reason(cluster, store):
    cluster.put(STORED, {"data": {"ca.crt": "%"}})
    _, reason = await store.ensure(NOW)
    assert reason.startswith("ca.crt is not base 64")
    assert stored(cluster).signer


@pytest.mark.parametrize("exists", [False, True], ids=["create", "replace"])
async def test_second_writer_reads_the_bundle_of_the_first(cluster, store, exists):
    if exists:
        cluster.put(STORED, {"data": {}})
    first = write_bundle(renew(None, ISSUANCE, NOW, KEY_SOURCE))
    cluster.before_write.append(lambda: cluster.put(STORED, {"data": first}))
    bundle, reason = await store.ensure(NOW)
    assert reason is None
    assert cluster.secret()["data"] == first == write_bundle(bundle)


async def test_secret_deleted_concurrently_is_created_again(cluster, store):
    cluster.put(STORED, {"data": {}})
    cluster.before_write.append(lambda: cluster.objects.pop(STORED))
    bundle, _ = await store.ensure(NOW)
    assert write_bundle(stored(cluster)) == write_bundle(bundle)


async def test_concurrent_calls_end_with_one_bundle(cluster, store):
    results = await asyncio.gather(*(store.ensure(NOW) for _ in range(8)))
    assert {bundle.leaf.certificate.serial_number for bundle, _ in results} == {
        stored(cluster).leaf.certificate.serial_number
    }


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_refused_request_is_raised(cluster, store, method):
    cluster.refuses[method] = 403
    with pytest.raises(ApiError) as refused:
        await store.ensure(NOW)
    assert refused.value.status == 403
