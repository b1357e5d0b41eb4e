from base64 import b64encode

import msgspec
import pytest
from certificates import a_ca

from certs.__main__ import SOURCE, TARGETS
from certs.authority import new_authority
from certs.bundle import Bundle
from certs.ca_bundle import Registration, change, inject
from certs.renewal import IssuancePolicy, renewed
from runtime.kube.client import ApiError, Kube

NOW = 1_800_000_000.0
BUNDLE = renewed(None, IssuancePolicy(("a",), 1000, 3000), NOW, SOURCE)
OURS = b64encode(BUNDLE.trusted).decode()
TARGET = TARGETS[0]
PATH = f"{TARGET.collection}/{TARGET.name}"


def hook(name, bundle):
    config = {"service": {"name": "linkwise-webhook"}, **({"caBundle": bundle} if bundle else {})}
    return {"name": name, "clientConfig": config}


def registration(*bundles):
    hooks = [hook(f"{i}.linkwise.dev", bundle) for i, bundle in enumerate(bundles)]
    return {"metadata": {"name": TARGET.name, "resourceVersion": "7"}, "webhooks": hooks}


def read(raw):
    return msgspec.convert(raw, Registration)


@pytest.mark.parametrize("bundles", [(None,), ("b3RoZXI=",), (OURS, None)])
def test_only_the_bundle_is_applied_to_every_webhook_and_only_to_the_version_that_was_read(bundles):
    body = change(TARGET, read(registration(*bundles)), BUNDLE.trusted)
    assert body["metadata"] == {"name": "linkwise", "resourceVersion": "7"}
    assert body["webhooks"] == [
        {"name": f"{i}.linkwise.dev", "clientConfig": {"caBundle": OURS}}
        for i in range(len(bundles))
    ]


@pytest.mark.parametrize("bundles", [(OURS,), (OURS, OURS), ()])
def test_what_is_there_is_not_applied_again(bundles):
    assert change(TARGET, read(registration(*bundles)), BUNDLE.trusted) is None


async def test_applying_is_done_with_an_own_field_manager_and_wins(cluster):
    found = read(cluster.put(PATH, registration(None)))
    async with Kube(cluster.url) as kube:
        await inject(kube, TARGET, found, BUNDLE.trusted)
    assert [query for query, _ in cluster.applied] == [
        {"fieldManager": "linkwise-certs", "force": "true"}
    ]
    assert cluster.objects[PATH]["webhooks"] == [hook("0.linkwise.dev", OURS)]


async def test_a_registration_that_changed_since_is_left_for_the_next_look(cluster):
    found = read(cluster.put(PATH, registration(None)))
    cluster.put(PATH, registration(None))
    async with Kube(cluster.url) as kube:
        await inject(kube, TARGET, found, BUNDLE.trusted)
    assert cluster.applied == []


async def test_a_refusal_is_raised(cluster):
    found = read(cluster.put(PATH, registration(None)))
    cluster.refuses["PATCH"] = 403
    async with Kube(cluster.url) as kube:
        with pytest.raises(ApiError):
            await inject(kube, TARGET, found, BUNDLE.trusted)


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
def test_a_registration_trusts_a_ca_when_each_of_its_webhooks_does(bundles, trusted):
    assert read(registration(*bundles)).trusts(BUNDLE.signer) is trusted


def test_a_bundle_of_two_cas_is_trust_in_both():
    second = new_authority(NOW, 3000, SOURCE)
    both = Bundle((*BUNDLE.authorities, second), BUNDLE.leaf)
    text = b64encode(both.trusted).decode()
    assert all(read(registration(text)).trusts(ca) for ca in both.authorities)
