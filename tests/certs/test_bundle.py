from base64 import b64decode, b64encode

import pytest
from certificates import UNKNOWN_KEY, a_ca, a_leaf
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, settings
from hypothesis import strategies as st

from certs.__main__ import KEY_SOURCE
from certs.authority import new_authority, new_leaf
from certs.bundle import Bundle, BundleError, read_bundle, trusts, write_bundle
from certs.renewal import IssuancePolicy, renew

NOW = 1_800_000_000.0
GOOD = write_bundle(renew(None, IssuancePolicy(("a",), 1000, 3000), NOW, KEY_SOURCE))
RSA = a_leaf(a_ca(), elliptic=False)


def text(pem):
    return b64encode(pem).decode()


def with_changed_bytes(key, old, new):
    """Return a PEM certificate of the valid Secret with some bytes replaced."""
    der = x509.load_pem_x509_certificate(b64decode(GOOD[key])).public_bytes(Encoding.DER)
    assert old in der
    body = b64encode(der.replace(old, new)).decode()
    return text(f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n".encode())


ELLIPTIC, SUBJECT_KEY, NAMES = (
    bytes.fromhex(oid) for oid in ("2a8648ce3d0201", "551d0e", "551d11")
)


@settings(max_examples=25)
@given(count=st.integers(1, 4), signer=st.integers(0, 3), names=st.sets(st.sampled_from("abcd")))
def test_bundle_survives_a_round_trip_through_the_secret(count, signer, names):
    authorities = tuple(new_authority(NOW, 3000, KEY_SOURCE) for _ in range(count))
    signing = authorities[signer % count]
    bundle = Bundle(authorities, new_leaf(signing, ["a", *names], NOW, 1000, KEY_SOURCE))
    data = write_bundle(bundle)
    bundle = read_bundle(data)
    assert write_bundle(bundle) == data
    assert bundle.signer.certificate == signing.certificate
    assert [ca.certificate for ca in bundle.authorities] == [ca.certificate for ca in authorities]


def test_secret_has_the_standard_keys_in_pem():
    assert set(GOOD) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
    assert all(b64decode(value).startswith(b"-----BEGIN ") for value in GOOD.values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"tls.key": None}, "tls.key is missing", id="key missing"),
        pytest.param({"ca.crt": "%"}, "ca.crt is not base 64", id="not base 64"),
        pytest.param({"ca.crt": ""}, "ca.crt is not PEM certificates", id="empty"),
        pytest.param({"tls.crt": text(b"PEM")}, "tls.crt is not PEM certificates", id="not PEM"),
        pytest.param({"ca.crt": "A" * 70_000}, "ca.crt is longer than 65536", id="huge"),
        pytest.param({"ca.key": text(b"")}, "ca.key 0 keys: each needs its own", id="no CA key"),
        pytest.param(
            {"ca.key": text(b"x\n-----END PRIVATE KEY-----\n")},
            "ca.key is not a PEM key",
            id="not a key",
        ),
        pytest.param(
            {"ca.key": text(UNKNOWN_KEY)},
            "ca.key is not a PEM key",
            id="unknown key algorithm",
        ),
        pytest.param(
            {"ca.crt": with_changed_bytes("ca.crt", ELLIPTIC, ELLIPTIC[:-1] + b"\x09")},
            "ca.crt is not PEM certificates",
            id="unknown certificate algorithm",
        ),
        pytest.param(
            {"ca.crt": with_changed_bytes("ca.crt", b"\x00\x04", b"\x00\x05")},
            "ca.crt is not PEM certificates",
            id="not a point of the curve",
        ),
        pytest.param(
            {"tls.crt": with_changed_bytes("tls.crt", SUBJECT_KEY, NAMES)},
            "tls.crt is not PEM certificates",
            id="duplicate extension",
        ),
        pytest.param(
            {"tls.key": GOOD["ca.key"]}, "tls.key is not the key of tls.crt", id="swapped"
        ),
        pytest.param(
            {"tls.crt": GOOD["tls.crt"], "tls.key": text(RSA.key_pem)},
            "tls.key is not a key on the curve P-256",
            id="RSA",
        ),
        pytest.param(
            {
                "tls.crt": text(b64decode(GOOD["tls.crt"]) * 2),
                "tls.key": text(b64decode(GOOD["tls.key"]) * 2),
            },
            "tls.crt holds 2 certificates: it must be one",
            id="two leaves",
        ),
    ],
)
def test_invalid_bundle_is_refused_naming_the_wrong_key(change, message):
    data = {key: value for key, value in {**GOOD, **change}.items() if value is not None}
    with pytest.raises(BundleError, match=message):
        read_bundle(data)


@given(st.dictionaries(st.sampled_from(sorted(GOOD)), st.binary(max_size=200).map(text)))
def test_any_content_is_a_bundle_or_a_one_line_error(change):
    message = ""
    try:
        read_bundle({**GOOD, **change})
    except BundleError as error:
        message = str(error)
    assert "\n" not in message


def test_bundle_trusts_exactly_its_own_cas():
    bundle = read_bundle(GOOD)
    other = new_authority(NOW, 3000, KEY_SOURCE)
    assert trusts(bundle.trusted, bundle.signer)
    assert not trusts(bundle.trusted, other)
    assert not trusts(b"", bundle.signer)
