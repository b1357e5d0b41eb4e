from base64 import b64decode, b64encode

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, settings
from hypothesis import strategies as st
from support.certificates import UNKNOWN_KEY, a_ca, a_leaf

from certs.__main__ import KEY_SOURCE
from certs.authorities import Authorities, read_authorities, write_authorities
from certs.authority import new_authority
from certs.pem import ContentError, read_certificates

NOW = 1_800_000_000.0
PREVIOUS, CURRENT, NEXT = (new_authority(NOW + i, 3000, KEY_SOURCE) for i in range(3))
ALL = Authorities(CURRENT, NEXT, (PREVIOUS.certificate,))
RSA = a_leaf(a_ca(), elliptic=False)


def stored(authorities):
    written = write_authorities(authorities).items()
    return {key: value for key, value in written if value is not None}


GOOD = stored(ALL)


def text(pem):
    return b64encode(pem).decode()


def with_changed_bytes(key, old, new):
    """Return a PEM certificate of the valid Secret with some bytes replaced."""
    der = x509.load_pem_x509_certificate(b64decode(GOOD[key])).public_bytes(Encoding.DER)
    assert old in der
    body = b64encode(der.replace(old, new)).decode()
    return text(f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n".encode())


ELLIPTIC, SUBJECT_KEY, CONSTRAINTS = (
    bytes.fromhex(oid) for oid in ("2a8648ce3d0201", "551d0e", "551d13")
)


@pytest.mark.parametrize(
    "authorities",
    [
        pytest.param(Authorities(CURRENT), id="stable"),
        pytest.param(Authorities(CURRENT, NEXT), id="announced"),
        pytest.param(Authorities(NEXT, previous=(CURRENT.certificate,)), id="switched"),
        pytest.param(Authorities(None, NEXT, (CURRENT.certificate,)), id="lost"),
        pytest.param(ALL, id="all"),
    ],
)
def test_authorities_survive_a_round_trip_through_the_secret(authorities):
    found = read_authorities(stored(authorities))
    assert found.certificates == authorities.certificates
    assert found.bundle == authorities.bundle
    assert stored(found) == stored(authorities)


def test_bundle_has_every_certificate_oldest_first():
    found = read_certificates(ALL.bundle, "bundle")
    assert found == (PREVIOUS.certificate, CURRENT.certificate, NEXT.certificate)


def test_keys_of_absent_authorities_are_removed_from_the_secret():
    written = write_authorities(Authorities(NEXT, previous=(CURRENT.certificate,)))
    assert {key for key, value in written.items() if value is None} == {"next.crt", "next.key"}
    assert text(b"PRIVATE") not in written["previous.crt"]
    assert b"PRIVATE" not in b64decode(written["previous.crt"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"current.key": None}, "current.key is missing", id="key missing"),
        pytest.param({"next.crt": "%"}, "next.crt is not base 64", id="not base 64"),
        pytest.param({"previous.crt": ""}, "previous.crt is not PEM certificates", id="empty"),
        pytest.param({"next.crt": text(b"PEM")}, "next.crt is not PEM certificates", id="no PEM"),
        pytest.param({"next.crt": "A" * 70_000}, "next.crt is longer than 65536", id="huge"),
        pytest.param({"next.key": text(b"")}, "next.key is not a PEM key", id="no key"),
        pytest.param({"next.key": text(UNKNOWN_KEY)}, "next.key is not a PEM key", id="unknown"),
        pytest.param(
            {"next.key": GOOD["current.key"]}, "next.key is not the key of its", id="swapped"
        ),
        pytest.param(
            {"next.crt": text(RSA.cert_pem), "next.key": text(RSA.key_pem)},
            "next.key is not a key on the curve P-256",
            id="RSA",
        ),
        pytest.param(
            {"next.crt": text(b64decode(GOOD["next.crt"]) * 2)},
            "next.crt has 2 certificates: it must be one",
            id="two certificates",
        ),
        pytest.param(
            {"next.crt": with_changed_bytes("next.crt", ELLIPTIC, ELLIPTIC[:-1] + b"\x09")},
            "next.crt is not PEM certificates",
            id="unknown certificate algorithm",
        ),
        pytest.param(
            {"next.crt": with_changed_bytes("next.crt", b"\x00\x04", b"\x00\x05")},
            "next.crt is not PEM certificates",
            id="not a point of the curve",
        ),
        pytest.param(
            {"next.crt": with_changed_bytes("next.crt", CONSTRAINTS, SUBJECT_KEY)},
            "next.crt is not PEM certificates",
            id="duplicate extension",
        ),
        pytest.param(dict.fromkeys(GOOD), "current.crt and next.crt are missing", id="nothing"),
    ],
)
def test_invalid_secret_is_refused_naming_the_wrong_key(change, message):
    data = {key: value for key, value in {**GOOD, **change}.items() if value is not None}
    with pytest.raises(ContentError, match=message):
        read_authorities(data)


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from(sorted(GOOD)), st.binary(max_size=200).map(text)))
def test_any_content_is_authorities_or_a_one_line_error(change):
    message = ""
    try:
        read_authorities({**GOOD, **change})
    except ContentError as error:
        message = str(error)
    assert "\n" not in message
