from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certs.__main__ import SOURCE
from certs.authority import names_of, new_authority, new_leaf, service_names
from certs.bundle import Bundle, trusts
from certs.renewal import IssuancePolicy, due, due_next, renewal_reason, renewed

NOW, DAY = 1_800_000_000.0, 86_400
NAMES = service_names("hook", "ns")
TERMS = IssuancePolicy(NAMES, 30 * DAY, 360 * DAY)
FIRST = renewed(None, TERMS, NOW, SOURCE)


@st.composite
def bundles(draw):
    """Bundles as they can be found, orphaned leaves and other names among them."""
    authorities = tuple(
        new_authority(NOW + draw(st.integers(0, 300)) * DAY, 360 * DAY, SOURCE)
        for _ in range(draw(st.integers(1, 3)))
    )
    stranger = new_authority(NOW, 360 * DAY, SOURCE)
    signer = draw(st.sampled_from((*authorities, stranger)))
    names = draw(st.sampled_from((NAMES, NAMES[::-1])))
    made = draw(st.integers(0, 350)) * DAY + NOW
    return Bundle(authorities, new_leaf(signer, names, made, 30 * DAY, SOURCE))


@given(bundle=bundles(), moments=st.lists(st.floats(0, 800), min_size=2, max_size=6))
def test_once_there_is_a_reason_to_renew_there_is_one_ever_after(bundle, moments):
    reasons = [renewal_reason(bundle, NAMES, NOW + days * DAY) for days in sorted(moments)]
    assert [reason is None for reason in reasons] == sorted(
        (reason is None for reason in reasons), reverse=True
    )


@given(bundle=st.none() | bundles(), days=st.floats(0, 500))
def test_what_is_renewed_needs_no_renewal_and_its_leaf_is_of_one_of_its_cas(bundle, days):
    now = NOW + days * DAY
    made = renewed(bundle, TERMS, now, SOURCE)
    assert renewal_reason(made, NAMES, now) is None
    assert made.signer in made.authorities
    assert due_next(made) > now


@pytest.mark.parametrize(
    ("days", "part"),
    [
        pytest.param(19.9, None, id="before the last third"),
        pytest.param(20.1, "the leaf has begun its last third", id="in the last third"),
        pytest.param(31, "the leaf has begun its last third", id="ended"),
        pytest.param(241, "the CA has begun its last third", id="the CA's last third"),
    ],
)
def test_the_last_third_of_a_life_is_the_time_to_renew(days, part):
    reason = renewal_reason(FIRST, NAMES, NOW + days * DAY)
    assert reason == part if part is None else part in reason


def test_the_reason_says_when_the_certificate_ends():
    reason = renewal_reason(FIRST, NAMES, NOW + 20 * DAY)
    assert reason == "the leaf has begun its last third, and ends at 2027-02-14T08:00:00Z"


def test_a_leaf_without_a_name_of_the_servers_is_renewed():
    reason = renewal_reason(FIRST, (*NAMES, "other.ns.svc", "other"), NOW)
    assert reason == "the leaf lacks the names other.ns.svc, other"


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(NAMES[:1], id="more names"),
        pytest.param(NAMES[::-1], id="another order"),
        pytest.param((*NAMES, NAMES[0]), id="a name twice"),
    ],
)
def test_a_leaf_with_all_names_stays(names):
    assert renewal_reason(FIRST, names, NOW) is None


@pytest.mark.parametrize("address", ["0:0::1", "::FFFF:1.2.3.4", "2001:DB8::"])
def test_an_address_may_be_written_in_any_form(address):
    terms = replace(TERMS, names=(address,))
    assert renewal_reason(renewed(None, terms, NOW, SOURCE), terms.names, NOW) is None


def test_names_of_another_replica_stay_until_the_leaf_is_due():
    other = replace(TERMS, names=(*NAMES, "127.0.0.1"))
    both = renewed(FIRST, other, NOW + DAY, SOURCE)
    both = renewed(both, replace(TERMS, names=(*NAMES, "extra")), NOW + 2 * DAY, SOURCE)

    assert names_of(both.leaf.certificate) == (*NAMES, "extra", "127.0.0.1")
    late = renewed(both, TERMS, due(both.leaf), SOURCE)
    assert names_of(late.leaf.certificate) == NAMES


def test_names_of_a_leaf_of_an_unknown_ca_are_not_taken_over():
    stranger = new_authority(NOW, 360 * DAY, SOURCE)
    leaf = new_leaf(stranger, ("elsewhere",), NOW, 30 * DAY, SOURCE)
    made = renewed(Bundle(FIRST.authorities, leaf), TERMS, NOW, SOURCE)
    assert names_of(made.leaf.certificate) == NAMES


def test_a_leaf_that_a_new_ca_has_orphaned_is_renewed():
    orphaned = Bundle((new_authority(NOW, 360 * DAY, SOURCE),), FIRST.leaf)
    assert "signed by no CA" in renewal_reason(orphaned, NAMES, NOW)


def test_a_new_leaf_is_of_the_same_ca_while_that_one_lasts():
    second = renewed(FIRST, TERMS, NOW + 20 * DAY, SOURCE)
    assert second.authorities == FIRST.authorities
    assert second.leaf.certificate != FIRST.leaf.certificate


def test_during_a_rotation_the_leaf_stays_with_the_ca_that_signs_until_the_switch():
    announced = Bundle((*FIRST.authorities, new_authority(NOW, 360 * DAY, SOURCE)), FIRST.leaf)
    second = renewed(announced, TERMS, NOW + 20 * DAY, SOURCE)
    assert second.authorities == announced.authorities
    assert second.signer == FIRST.signer


def test_a_ca_that_was_followed_stays_trusted_until_it_ends():
    at = NOW + 241 * DAY
    second = renewed(FIRST, TERMS, at, SOURCE)
    assert [trusts(second.trusted, ca) for ca in (FIRST.signer, second.signer)] == [True, True]
    assert second.signer != FIRST.signer
    third = renewed(second, TERMS, FIRST.signer.expiry, SOURCE)
    assert third.authorities == (second.signer,)


def test_the_next_look_is_when_the_first_certificate_is_due():
    assert due_next(FIRST) == due(FIRST.leaf) == NOW + 20 * DAY
    late = renewed(FIRST, TERMS, NOW + 230 * DAY, SOURCE)
    assert due_next(late) == due(FIRST.signer)
