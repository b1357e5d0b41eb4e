from base64 import b64encode

import msgspec
import pytest
from support.certificates import a_ca

from certs.__main__ import KEY_SOURCE, TARGETS
from certs.authorities import Authorities
from certs.authority import new_authority, new_leaf
from certs.ca_bundle import ca_bundle_patch, inject_ca_bundle, trusts
from linkwise.cluster.objects.webhook_configuration import WebhookConfiguration
from linkwise.runtime.kube.client import ApiError, Kube

NOW = 1_800_000_000.0
AUTHORITY = new_authority(NOW, 3000, KEY_SOURCE)
LEAF = new_leaf(AUTHORITY, ("a",), NOW, 1000, KEY_SOURCE).certificate
BUNDLE = Authorities(AUTHORITY).bundle
OURS = b64encode(BUNDLE).decode()
TARGET = TARGETS[0]
PATH = f"{TARGET.collection}/{TARGET.name}"


def hook(name, bundle):
    config = {"service": {"name": "linkwise-webhook"}, **({"caBundle": bundle} if bundle else {})}
    return {"name": name, "clientConfig": config}


def configuration(*bundles):
    hooks = [hook(f"{i}.linkwise.dev", bundle) for i, bundle in enumerate(bundles)]
    return {"metadata": {"name": TARGET.name, "resourceVersion": "7"}, "webhooks": hooks}


def read(raw):
    return msgspec.convert(raw, WebhookConfiguration)


@pytest.mark.parametrize("bundles", [(None,), ("b3RoZXI=",), (OURS, None)])
def test_patch_has_only_the_bundle_of_every_webhook_and_the_version(bundles):
    patch = ca_bundle_patch(TARGET, read(configuration(*bundles)), BUNDLE)
    assert patch["metadata"] == {"name": "linkwise", "resourceVersion": "7"}
    assert patch["webhooks"] == [
        {"name": f"{i}.linkwise.dev", "clientConfig": {"caBundle": OURS}}
        for i in range(len(bundles))
    ]


@pytest.mark.parametrize("bundles", [(OURS,), (OURS, OURS), ()])
def test_patch_is_none_where_the_bundle_is_present(bundles):
    assert ca_bundle_patch(TARGET, read(configuration(*bundles)), BUNDLE) is None


async def test_bundle_is_applied_by_an_own_field_manager_with_force(cluster):
    before = read(cluster.put(PATH, configuration(None)))
    async with Kube(cluster.url) as kube:
        await inject_ca_bundle(kube, TARGET, before, BUNDLE)
    assert [query for query, _ in cluster.applied] == [
        {"fieldManager": "linkwise-certs", "force": "true"}
    ]
    assert cluster.objects[PATH]["webhooks"] == [hook("0.linkwise.dev", OURS)]


async def test_conflict_is_left_to_the_next_reconcile(cluster):
    before = read(cluster.put(PATH, configuration(None)))
    cluster.put(PATH, configuration(None))
    async with Kube(cluster.url) as kube:
        await inject_ca_bundle(kube, TARGET, before, BUNDLE)
    assert cluster.applied == []


async def test_refused_write_is_raised(cluster):
    before = read(cluster.put(PATH, configuration(None)))
    cluster.refuses["PATCH"] = 403
    async with Kube(cluster.url) as kube:
        with pytest.raises(ApiError):
            await inject_ca_bundle(kube, TARGET, before, BUNDLE)


@pytest.mark.parametrize(
    ("bundles", "trusted"),
    [
        pytest.param((OURS,), True, id="ours"),
        pytest.param((None,), False, id="none"),
        pytest.param((OURS, None), False, id="one of two"),
        pytest.param(("%",), False, id="not base 64"),
        pytest.param((b64encode(a_ca().cert_pem).decode(),), False, id="another CA"),
    ],
)
def test_configuration_trusts_a_ca_if_each_webhook_does(bundles, trusted):
    assert trusts(read(configuration(*bundles)), LEAF) is trusted


def test_bundle_of_two_cas_trusts_leaves_of_both():
    second = new_authority(NOW, 3000, KEY_SOURCE)
    other = new_leaf(second, ("a",), NOW, 1000, KEY_SOURCE).certificate
    text = b64encode(Authorities(AUTHORITY, second).bundle).decode()
    assert all(trusts(read(configuration(text)), leaf) for leaf in (LEAF, other))
