from base64 import b64encode
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.certificates import a_ca, a_leaf

from certs.__main__ import KEY_SOURCE
from certs.authorities import Authorities
from certs.authority import (
    expiry,
    is_issued_by,
    new_authority,
    renewal_time,
    service_names,
    subject_alt_names,
)
from certs.leaf import Leaf, Server, read_leaf, renew, renewal_reason, write_leaf
from certs.pem import ContentError

NOW, DAY = 1_800_000_000.0, 86_400
LASTS = 30 * DAY
SERVER = Server("webhook", "linkwise-webhook-cert", service_names("hook", "ns"))
OLD, CA = (new_authority(NOW - i * 300 * DAY, 360 * DAY, KEY_SOURCE) for i in (1, 0))
AUTHORITIES = Authorities(CA)


def a_new_leaf(authorities=AUTHORITIES, server=SERVER, now=NOW, before=None):
    return renew(before, server, authorities, LASTS, now, KEY_SOURCE)


FIRST = a_new_leaf()


def reason(leaf, now, server=SERVER, authorities=AUTHORITIES):
    return renewal_reason(leaf, server, authorities, LASTS, now)


def test_leaf_survives_a_round_trip_through_the_secret():
    data = write_leaf(FIRST)
    assert set(data) == {"tls.crt", "tls.key", "ca.crt"}
    assert read_leaf(data) == FIRST
    assert FIRST.trusted == AUTHORITIES.bundle


def test_key_of_any_type_is_read():
    pair = a_leaf(a_ca(), elliptic=False)
    data = {"tls.crt": pair.cert_pem, "tls.key": pair.key_pem}
    found = read_leaf({key: b64encode(pem).decode() for key, pem in data.items()})
    assert (found.certificate, found.trusted) == (pair.certificate, b"")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"tls.key": None}, "tls.key is missing", id="key missing"),
        pytest.param({"tls.crt": "%"}, "tls.crt is not base 64", id="not base 64"),
        pytest.param({"tls.crt": ""}, "tls.crt is not PEM certificates", id="empty"),
        pytest.param(
            {"tls.key": write_leaf(a_new_leaf())["tls.key"]},
            "tls.key is not the key of its certificate",
            id="key of another leaf",
        ),
    ],
)
def test_invalid_secret_is_refused_naming_the_wrong_key(change, message):
    changed = {**write_leaf(FIRST), **change}
    with pytest.raises(ContentError, match=message):
        read_leaf({key: value for key, value in changed.items() if value is not None})


@pytest.mark.parametrize(
    ("days", "part"),
    [
        (0, None),
        (19.9, None),
        (20, "it is in its last third and expires at 2027-02-14T08:00:00Z"),
        (30, "it is valid from 2027-01-15T07:00:00Z to 2027-02-14T08:00:00Z"),
        (-1, "it is valid from"),
    ],
)
def test_leaf_is_renewed_in_its_last_third_and_when_it_is_not_valid(days, part):
    found = reason(FIRST, NOW + days * DAY)
    assert found == part if part is None else part in found


@settings(max_examples=30)
@given(days=st.floats(0, 359), count=st.integers(1, 3))
def test_new_leaf_needs_no_renewal(days, count):
    now, leaf = NOW + days * DAY, FIRST
    for _ in range(count):
        leaf = a_new_leaf(now=now, before=leaf)
        assert reason(leaf, now) is None


def test_leaf_at_the_end_of_its_ca_is_not_renewed_again_and_again():
    now = CA.expiry - 60
    leaf = a_new_leaf(now=now)
    assert expiry(leaf.certificate) == CA.expiry
    assert reason(leaf, now + 50) is None


def test_leaf_that_lacks_a_required_name_is_renewed():
    other = replace(SERVER, names=(*SERVER.names, "other.ns.svc", "other"))
    assert reason(FIRST, NOW, other) == "it lacks the names other.ns.svc, other"


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(SERVER.names[:1], id="more names"),
        pytest.param(SERVER.names[::-1], id="another order"),
        pytest.param((*SERVER.names, SERVER.names[0]), id="duplicate name"),
    ],
)
def test_leaf_with_all_required_names_is_not_renewed(names):
    assert reason(FIRST, NOW, replace(SERVER, names=names)) is None


@pytest.mark.parametrize("address", ["0:0::1", "::FFFF:1.2.3.4", "2001:DB8::"])
def test_addresses_are_compared_in_canonical_form(address):
    server = replace(SERVER, names=(address,))
    assert reason(a_new_leaf(server=server), NOW, server) is None


def test_names_of_another_replica_are_kept_until_the_leaf_is_due():
    one = replace(SERVER, names=(*SERVER.names, "127.0.0.1"))
    other = replace(SERVER, names=(*SERVER.names, "extra"))
    both = a_new_leaf(server=one, now=NOW + DAY, before=FIRST)
    both = a_new_leaf(server=other, now=NOW + 2 * DAY, before=both)

    assert subject_alt_names(both.certificate) == (*SERVER.names, "extra", "127.0.0.1")
    late = a_new_leaf(now=renewal_time(both.certificate), before=both)
    assert subject_alt_names(late.certificate) == SERVER.names


@pytest.mark.parametrize(
    ("authorities", "part"),
    [
        pytest.param(
            Authorities(CA, previous=(OLD.certificate,)), "not signed by the current", id="switched"
        ),
        pytest.param(Authorities(OLD, CA), None, id="announced"),
        pytest.param(Authorities(CA), "signed by no trusted CA", id="retired"),
        pytest.param(Authorities(None, CA, (OLD.certificate,)), None, id="CA lost"),
        pytest.param(Authorities(None, CA), "signed by no trusted CA", id="CA unknown"),
    ],
)
def test_leaf_must_be_signed_by_the_current_ca_if_there_is_one(authorities, part):
    leaf = a_new_leaf(Authorities(OLD))
    found = reason(leaf, NOW, authorities=authorities)
    assert found == part if part is None else part in found


def test_new_leaf_is_signed_by_the_current_ca_and_not_by_the_next():
    leaf = a_new_leaf(Authorities(OLD, CA))
    assert is_issued_by(leaf.certificate, OLD.certificate)
    assert not is_issued_by(leaf.certificate, CA.certificate)
    assert leaf.trusted == Authorities(OLD, CA).bundle


def test_nothing_is_signed_without_a_current_ca():
    with pytest.raises(ValueError, match="no CA that can sign"):
        a_new_leaf(Authorities(None, CA))


def test_leaf_is_a_value():
    assert Leaf(FIRST.certificate, FIRST.key, FIRST.trusted) == FIRST
