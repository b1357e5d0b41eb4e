from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certs.__main__ import KEY_SOURCE
from certs.authority import new_authority, new_leaf, service_names, subject_alt_names
from certs.bundle import Bundle, trusts
from certs.renewal import IssuancePolicy, next_renewal, renew, renewal_reason, renewal_time

NOW, DAY = 1_800_000_000.0, 86_400
NAMES = service_names("hook", "ns")
ISSUANCE = IssuancePolicy(NAMES, 30 * DAY, 360 * DAY)
FIRST = renew(None, ISSUANCE, NOW, KEY_SOURCE)


@st.composite
def bundles(draw):
    """Possible bundles, with orphaned leaves and other names among them."""
    authorities = tuple(
        new_authority(NOW + draw(st.integers(0, 300)) * DAY, 360 * DAY, KEY_SOURCE)
        for _ in range(draw(st.integers(1, 3)))
    )
    stranger = new_authority(NOW, 360 * DAY, KEY_SOURCE)
    signer = draw(st.sampled_from((*authorities, stranger)))
    names = draw(st.sampled_from((NAMES, NAMES[::-1])))
    issued = draw(st.integers(0, 350)) * DAY + NOW
    return Bundle(authorities, new_leaf(signer, names, issued, 30 * DAY, KEY_SOURCE))


@given(bundle=bundles(), moments=st.lists(st.floats(0, 800), min_size=2, max_size=6))
def test_renewal_reason_does_not_disappear_with_time(bundle, moments):
    reasons = [renewal_reason(bundle, NAMES, NOW + days * DAY) for days in sorted(moments)]
    assert [reason is None for reason in reasons] == sorted(
        (reason is None for reason in reasons), reverse=True
    )


@given(bundle=st.none() | bundles(), days=st.floats(0, 500))
def test_renewed_bundle_needs_no_renewal_and_has_its_signer(bundle, days):
    now = NOW + days * DAY
    renewed = renew(bundle, ISSUANCE, now, KEY_SOURCE)
    assert renewal_reason(renewed, NAMES, now) is None
    assert renewed.signer in renewed.authorities
    assert next_renewal(renewed) > now


@pytest.mark.parametrize(
    ("days", "part"),
    [
        pytest.param(19.9, None, id="before the last third"),
        pytest.param(20.1, "the leaf is in its last third", id="in the last third"),
        pytest.param(31, "the leaf is in its last third", id="expired"),
        pytest.param(241, "the CA is in its last third", id="the CA's last third"),
    ],
)
def test_renewal_is_due_in_the_last_third_of_the_validity(days, part):
    reason = renewal_reason(FIRST, NAMES, NOW + days * DAY)
    assert reason == part if part is None else part in reason


def test_renewal_reason_has_the_expiry():
    reason = renewal_reason(FIRST, NAMES, NOW + 20 * DAY)
    assert reason == "the leaf is in its last third and expires at 2027-02-14T08:00:00Z"


def test_leaf_that_lacks_a_required_name_is_renewed():
    reason = renewal_reason(FIRST, (*NAMES, "other.ns.svc", "other"), NOW)
    assert reason == "the leaf lacks the names other.ns.svc, other"


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(NAMES[:1], id="more names"),
        pytest.param(NAMES[::-1], id="another order"),
        pytest.param((*NAMES, NAMES[0]), id="duplicate name"),
    ],
)
def test_leaf_with_all_required_names_is_not_renewed(names):
    assert renewal_reason(FIRST, names, NOW) is None


@pytest.mark.parametrize("address", ["0:0::1", "::FFFF:1.2.3.4", "2001:DB8::"])
def test_addresses_are_compared_in_canonical_form(address):
    issuance = replace(ISSUANCE, names=(address,))
    assert renewal_reason(renew(None, issuance, NOW, KEY_SOURCE), issuance.names, NOW) is None


def test_names_of_another_replica_are_kept_until_the_leaf_is_due():
    other = replace(ISSUANCE, names=(*NAMES, "127.0.0.1"))
    both = renew(FIRST, other, NOW + DAY, KEY_SOURCE)
    both = renew(both, replace(ISSUANCE, names=(*NAMES, "extra")), NOW + 2 * DAY, KEY_SOURCE)

    assert subject_alt_names(both.leaf.certificate) == (*NAMES, "extra", "127.0.0.1")
    late = renew(both, ISSUANCE, renewal_time(both.leaf), KEY_SOURCE)
    assert subject_alt_names(late.leaf.certificate) == NAMES


def test_names_of_a_leaf_of_an_unknown_ca_are_dropped():
    stranger = new_authority(NOW, 360 * DAY, KEY_SOURCE)
    leaf = new_leaf(stranger, ("elsewhere",), NOW, 30 * DAY, KEY_SOURCE)
    renewed = renew(Bundle(FIRST.authorities, leaf), ISSUANCE, NOW, KEY_SOURCE)
    assert subject_alt_names(renewed.leaf.certificate) == NAMES


def test_leaf_of_a_removed_ca_is_renewed():
    orphaned = Bundle((new_authority(NOW, 360 * DAY, KEY_SOURCE),), FIRST.leaf)
    assert "signed by no CA" in renewal_reason(orphaned, NAMES, NOW)


def test_new_leaf_is_signed_by_the_same_ca_until_that_is_due():
    second = renew(FIRST, ISSUANCE, NOW + 20 * DAY, KEY_SOURCE)
    assert second.authorities == FIRST.authorities
    assert second.leaf.certificate != FIRST.leaf.certificate


def test_announced_ca_does_not_sign_yet():
    announced = Bundle((*FIRST.authorities, new_authority(NOW, 360 * DAY, KEY_SOURCE)), FIRST.leaf)
    second = renew(announced, ISSUANCE, NOW + 20 * DAY, KEY_SOURCE)
    assert second.authorities == announced.authorities
    assert second.signer == FIRST.signer


def test_replaced_ca_stays_trusted_until_it_expires():
    due = NOW + 241 * DAY
    second = renew(FIRST, ISSUANCE, due, KEY_SOURCE)
    assert [trusts(second.trusted, ca) for ca in (FIRST.signer, second.signer)] == [True, True]
    assert second.signer != FIRST.signer
    third = renew(second, ISSUANCE, FIRST.signer.expiry, KEY_SOURCE)
    assert third.authorities == (second.signer,)


def test_next_renewal_is_the_earliest_of_leaf_and_ca():
    assert next_renewal(FIRST) == renewal_time(FIRST.leaf) == NOW + 20 * DAY
    late = renew(FIRST, ISSUANCE, NOW + 230 * DAY, KEY_SOURCE)
    assert next_renewal(late) == renewal_time(FIRST.signer)
