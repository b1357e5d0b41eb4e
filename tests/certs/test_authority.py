import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from certs.__main__ import KEY_SOURCE
from certs.authority import (
    BACKDATE,
    new_authority,
    new_leaf,
    renewal_time,
    service_names,
    subject_alt_names,
)
from linkwise.runtime.process.clock import wall

NAMES = service_names("hook", "ns")
HOUR, DAY = 3600, 86_400
moments = st.floats(1_500_000_000, 4_000_000_000)
"""Between 2017 and 2096: on both sides of 2050, where X.509 changes how it writes a year."""
lives = st.floats(60, 4000 * DAY)


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    return tmp_path_factory.mktemp("leaves") / "leaf.pem"


def handshake(authority, leaf, name, files):
    """Return the leaf that a client sees which trusts a CA, with the standard library's ssl."""
    key = leaf.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    files.write_bytes(leaf.certificate.public_bytes(Encoding.PEM) + key)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files)
    client = ssl.create_default_context(
        cadata=authority.certificate.public_bytes(Encoding.PEM).decode()
    )
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_end = client.wrap_bio(back, there, server_hostname=name)
    server_end = server.wrap_bio(there, back, server_side=True)
    for side in (client_end, server_end, client_end, server_end):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return client_end.getpeercert(binary_form=True)


@settings(max_examples=30)
@given(
    late=st.floats(0, BACKDATE / 2),
    life=st.floats(2 * HOUR, 1000 * DAY),
    leaf_life=st.floats(2 * HOUR, 1000 * DAY),
    name=st.sampled_from((*NAMES, "127.0.0.1", "::1")),
)
def test_leaf_verifies_against_its_ca_by_every_name(files, late, life, leaf_life, name):
    now = wall() - late
    authority = new_authority(now, life, KEY_SOURCE)
    leaf = new_leaf(authority, (*NAMES, "127.0.0.1", "::1"), now, leaf_life, KEY_SOURCE)
    der = leaf.certificate.public_bytes(Encoding.DER)
    assert handshake(authority, leaf, name, files) == der


@pytest.mark.parametrize("name", ["other.ns.svc", "hook.other.svc", "127.0.0.2"])
def test_leaf_does_not_verify_by_another_name(files, name):
    authority = new_authority(wall(), DAY, KEY_SOURCE)
    leaf = new_leaf(authority, NAMES, wall(), DAY, KEY_SOURCE)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(authority, leaf, name, files)


def test_leaf_does_not_verify_against_another_ca(files):
    ours, other = (new_authority(wall(), DAY, KEY_SOURCE) for _ in range(2))
    leaf = new_leaf(ours, NAMES, wall(), DAY, KEY_SOURCE)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(other, leaf, NAMES[0], files)


def test_leaf_cannot_sign_another_leaf(files):
    authority = new_authority(wall(), DAY, KEY_SOURCE)
    leaf = new_leaf(authority, NAMES, wall(), DAY, KEY_SOURCE)
    forged = new_leaf(leaf, NAMES, wall(), DAY, KEY_SOURCE)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(leaf, forged, NAMES[0], files)


@given(now=moments, later=st.floats(0, 1), life=lives, leaf_life=lives)
def test_leaf_expires_no_later_than_its_ca_and_both_are_backdated(now, later, life, leaf_life):
    authority = new_authority(now, life, KEY_SOURCE)
    moment = now + later * (life - 2)
    leaf = new_leaf(authority, NAMES, moment, leaf_life, KEY_SOURCE)
    assert leaf.expiry <= min(authority.expiry, moment + leaf_life)
    for pair, made in ((authority, now), (leaf, moment)):
        begins = pair.certificate.not_valid_before_utc.timestamp()
        assert made - BACKDATE - 1 < begins <= made - BACKDATE
        due = renewal_time(pair.certificate)
        assert made - 1.001 < due - (pair.expiry - due) * 2 <= made + 0.001


def test_expired_ca_cannot_sign():
    authority = new_authority(1_800_000_000, DAY, KEY_SOURCE)
    with pytest.raises(ValueError, match="has expired"):
        new_leaf(authority, NAMES, 1_800_000_000 + DAY, DAY, KEY_SOURCE)


def test_serials_and_keys_are_unique_and_keys_are_on_p_256():
    authority = new_authority(wall(), DAY, KEY_SOURCE)
    pairs = [authority, *(new_leaf(authority, NAMES, wall(), DAY, KEY_SOURCE) for _ in range(20))]
    assert len({pair.certificate.serial_number for pair in pairs}) == len(pairs)
    assert len({pair.key.private_numbers().private_value for pair in pairs}) == len(pairs)
    assert {type(pair.key.curve) for pair in pairs} == {ec.SECP256R1}


def test_name_that_api_servers_connect_to_is_first():
    authority = new_authority(wall(), DAY, KEY_SOURCE)
    leaf = new_leaf(authority, NAMES, wall(), DAY, KEY_SOURCE)
    assert subject_alt_names(leaf.certificate) == (
        "hook.ns.svc",
        "hook",
        "hook.ns",
        "hook.ns.svc.cluster.local",
    )
    assert subject_alt_names(authority.certificate) == ()


def test_leaf_has_only_the_server_auth_usage():
    authority = new_authority(wall(), DAY, KEY_SOURCE)
    leaf = new_leaf(authority, NAMES, wall(), DAY, KEY_SOURCE).certificate
    usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert [use.dotted_string for use in usage] == ["1.3.6.1.5.5.7.3.1"]
