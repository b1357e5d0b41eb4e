import asyncio

import pytest

from certs.__main__ import SOURCE
from certs.bundle import read_bundle, write_bundle
from certs.renewal import IssuancePolicy, renewed
from certs.store import Store
from runtime.kube.client import ApiError, Kube

NOW, DAY = 1_800_000_000.0, 86_400
TERMS = IssuancePolicy(("linkwise-webhook.linkwise-system.svc",), 30 * DAY, 360 * DAY)
STORED = "/api/v1/namespaces/linkwise-system/secrets/linkwise-webhook-tls"


@pytest.fixture
async def store(cluster):
    async with Kube(cluster.url) as kube:
        yield Store(kube, "linkwise-system", "linkwise-webhook-tls", TERMS, SOURCE)


def stored(cluster):
    return read_bundle(cluster.secret()["data"])


async def test_without_a_secret_one_is_made_of_the_type_that_servers_mount(cluster, store):
    bundle, reason = await store.ensure(NOW)
    assert reason == "there is no Secret"
    assert cluster.secret()["type"] == "kubernetes.io/tls"
    assert write_bundle(stored(cluster)) == write_bundle(bundle)


async def test_what_is_good_is_not_written_again(cluster, store):
    first, _ = await store.ensure(NOW)
    version = cluster.secret()["metadata"]["resourceVersion"]
    second, reason = await store.ensure(NOW + DAY)
    assert (write_bundle(second), reason) == (write_bundle(first), None)
    assert cluster.secret()["metadata"]["resourceVersion"] == version


async def test_a_leaf_is_renewed_before_its_last_third_is_over(cluster, store):
    first, _ = await store.ensure(NOW)
    second, reason = await store.ensure(NOW + 21 * DAY)
    assert "the leaf has begun its last third" in reason
    assert second.leaf.expiry > first.leaf.expiry
    assert second.trusted == first.trusted
    assert write_bundle(stored(cluster)) == write_bundle(second)


async def test_labels_that_others_put_on_the_secret_stay(cluster, store):
    cluster.put(STORED, {"metadata": {"labels": {"team": "a"}}, "type": "kubernetes.io/tls"})
    await store.ensure(NOW)
    assert cluster.secret()["metadata"]["labels"] == {"team": "a"}


async def test_content_that_cannot_be_read_is_replaced_and_the_reason_says_what_was_wrong(
    cluster, store
):
    cluster.put(STORED, {"data": {"ca.crt": "%"}})
    _, reason = await store.ensure(NOW)
    assert reason.startswith("ca.crt is not base 64")
    assert stored(cluster).signer


@pytest.mark.parametrize("there", [False, True], ids=["create", "replace"])
async def test_who_writes_second_takes_what_the_first_wrote(cluster, store, there):
    if there:
        cluster.put(STORED, {"data": {}})
    first = write_bundle(renewed(None, TERMS, NOW, SOURCE))
    cluster.before_write.append(lambda: cluster.put(STORED, {"data": first}))
    bundle, reason = await store.ensure(NOW)
    assert reason is None
    assert cluster.secret()["data"] == first == write_bundle(bundle)


async def test_a_secret_that_is_deleted_meanwhile_is_made_anew(cluster, store):
    cluster.put(STORED, {"data": {}})
    cluster.before_write.append(lambda: cluster.objects.pop(STORED))
    bundle, _ = await store.ensure(NOW)
    assert write_bundle(stored(cluster)) == write_bundle(bundle)


async def test_many_at_once_end_with_one_bundle(cluster, store):
    found = await asyncio.gather(*(store.ensure(NOW) for _ in range(8)))
    assert {bundle.leaf.certificate.serial_number for bundle, _ in found} == {
        stored(cluster).leaf.certificate.serial_number
    }


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_refusal_is_raised(cluster, store, method):
    cluster.refuses[method] = 403
    with pytest.raises(ApiError) as refused:
        await store.ensure(NOW)
    assert refused.value.status == 403
