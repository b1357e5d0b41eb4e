from base64 import b64encode

import pytest
from msgspec import json
from support.certs_world import (
    CA,
    CONFIGURATIONS,
    LEAVES,
    NOW,
    POLICY,
    SERVERS,
    SHORT_WAIT,
    STATUS,
    WAIT,
    World,
    run,
)

from certs.__main__ import KEY_SOURCE
from certs.authorities import read_authorities
from certs.authority import is_issued_by, new_authority, renewal_time
from certs.pem import certificates_pem
from certs.rotation import Phase
from certs.transition import Action
from linkwise.cluster.objects.certificate_state import CertificateState
from linkwise.runtime.process.clock import rfc3339

YEAR = 365 * 86_400


@pytest.fixture
def world():
    made = World()
    made.settle()
    made.forget()
    made.actions.clear()
    return made


def authorities(world):
    return read_authorities(world.objects[CA]["data"])


def signers(world):
    """Return the role of the CA that signed each leaf."""
    found = authorities(world)
    roles = {"previous": found.previous[-1:], "current": found.current, "next": found.next}
    certificates = {
        role: value[0] if isinstance(value, tuple) else value.certificate
        for role, value in roles.items()
        if value
    }
    return [
        role
        for path in LEAVES
        for role, certificate in certificates.items()
        if is_issued_by(world.content(path), certificate)
    ]


def bundles(world):
    return {world.content(path) for path in CONFIGURATIONS}


def reasons(world):
    return [each["reason"] for path, each in world.objects.items() if "/events/" in path]


def state(world):
    return json.decode(world.objects[STATUS]["data"]["status.json"], type=CertificateState)


def test_four_phases_follow_each_other_and_each_wait_is_complete(world):
    replica = world.replica()
    old = authorities(world).current.certificate
    world.monotonic = renewal_time(old) - NOW

    assert world.settle(replica).phase is Phase.WAIT
    new = authorities(world).next.certificate
    assert bundles(world) == {frozenset({old, new})}
    assert signers(world) == ["current", "current"]

    world.monotonic += WAIT - 1
    assert world.settle(replica).phase is Phase.WAIT
    world.monotonic += 1
    assert world.settle(replica).phase is Phase.RETIRE
    assert authorities(world).previous == (old,)
    assert signers(world) == ["current", "current"]
    assert bundles(world) == {frozenset({old, new})}

    world.monotonic += WAIT - 1
    assert world.settle(replica).phase is Phase.RETIRE
    world.monotonic += 1
    assert world.settle(replica).phase is Phase.STABLE
    assert bundles(world) == {frozenset({new})}
    assert world.actions == [Action.ANNOUNCE, Action.SWITCH, Action.RETIRE]


def test_each_phase_has_one_event_whichever_replica_sees_it(world):
    replicas = [world.replica(), world.replica()]
    world.request_rotation()
    for _ in range(4):
        for replica in replicas:
            world.settle(replica)
        world.monotonic += WAIT

    assert reasons(world)[1:] == [
        "CAAnnounced",
        "CAWaiting",
        "CASwitched",
        "CARetiring",
        "CARetired",
    ]


def test_annotation_requests_one_rotation(world):
    replica = world.replica()
    world.request_rotation()
    for _ in range(8):
        world.settle(replica)
        world.monotonic += WAIT / 2
    assert world.actions == [Action.ANNOUNCE, Action.SWITCH, Action.RETIRE]


def test_wait_starts_again_in_a_new_process(world):
    world.request_rotation()
    world.settle()
    world.monotonic += WAIT - 1
    replica = world.replica()
    world.settle(replica)
    world.monotonic += WAIT - 1
    assert world.settle(replica).phase is Phase.WAIT
    world.monotonic += 1
    assert world.settle(replica).phase is Phase.RETIRE


def test_step_of_the_wall_clock_shortens_no_wait(world):
    replica = world.replica()
    world.request_rotation()
    world.settle(replica)
    world.offset += WAIT + 1
    assert world.settle(replica).phase is Phase.WAIT


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "not seen"])
def test_wait_starts_again_after_a_bundle_was_overwritten(world, seen):
    replica = world.replica()
    before = world.objects[CONFIGURATIONS[0]]["webhooks"][0]["clientConfig"]["caBundle"]
    world.request_rotation()
    world.settle(replica)
    during = world.objects[CONFIGURATIONS[0]]["webhooks"][0]["clientConfig"]["caBundle"]
    world.monotonic += WAIT - 1
    world.overwrite(CONFIGURATIONS[0], before)
    if seen:
        world.settle(replica)
    else:
        world.overwrite(CONFIGURATIONS[0], during)
    world.monotonic += 1
    assert world.settle(replica).phase is Phase.WAIT
    world.monotonic += WAIT
    assert world.settle(replica).phase is Phase.RETIRE


def test_clock_a_year_later_replaces_everything(world):
    world.offset += YEAR
    outcome = world.settle()
    assert outcome.phase is Phase.STABLE
    assert world.actions == [Action.ISSUE]
    assert signers(world) == ["current", "current"]
    assert bundles(world) == {frozenset({authorities(world).current.certificate})}
    assert all(each.problem is None for each in state(world).servers)
    assert (
        "did the clock change?"
        in next(each["message"] for path, each in world.objects.items() if "/events/" in path)
        or len(reasons(world)) == 2
    )


def test_clock_that_returns_replaces_certificates_that_are_not_valid_yet(world):
    world.offset += YEAR
    world.settle()
    world.offset -= YEAR
    world.actions.clear()
    outcome = world.settle()
    assert outcome.phase is Phase.RETIRE
    assert world.actions == [Action.ISSUE]
    assert signers(world) == ["current", "current"]
    assert all(each.problem is None for each in state(world).servers)


def test_announced_ca_signs_at_once_when_the_current_one_has_expired(world):
    world.request_rotation()
    world.settle()
    new = authorities(world).next.certificate
    world.monotonic += 9_000
    # Its own validity began with the announcement, so it is not due yet.
    world.offset -= 3_100
    world.objects[CA]["data"].pop("current.crt")
    world.objects[CA]["data"].pop("current.key")
    world.settle()
    assert authorities(world).current.certificate == new
    assert world.actions == [Action.ANNOUNCE, Action.ISSUE]


def test_lost_ca_is_replaced_without_a_gap(world):
    replica = world.replica()
    old = authorities(world).current.certificate
    leaves = [world.content(path) for path in LEAVES]
    del world.objects[CA]

    assert world.settle(replica).phase is Phase.WAIT
    new = authorities(world).next.certificate
    assert authorities(world).current is None
    assert bundles(world) == {frozenset({old, new})}
    assert [world.content(path) for path in LEAVES] == leaves
    world.monotonic += WAIT
    assert world.settle(replica).phase is Phase.RETIRE
    assert signers(world) == ["current", "current"]
    assert world.uncovered() is None


def test_unreadable_ca_is_replaced_without_a_gap(world):
    world.put(CA, {**world.objects[CA], "data": {"current.crt": "%"}})
    assert world.settle().phase is Phase.WAIT
    assert authorities(world).current is None
    assert world.actions == [Action.ANNOUNCE]


@pytest.mark.parametrize("number", range(len(LEAVES)))
def test_lost_leaf_is_issued_again_by_the_same_ca(world, number):
    del world.objects[LEAVES[number]]
    world.settle()
    assert signers(world) == ["current", "current"]
    assert world.actions == []
    assert world.uncovered() is None


def test_lost_secrets_are_all_replaced_after_a_short_wait_for_api_servers(world):
    replica = world.replica()
    old = authorities(world).current.certificate
    for path in (CA, *LEAVES):
        del world.objects[path]

    assert world.settle(replica).phase is Phase.WAIT
    new = authorities(world).next.certificate
    assert bundles(world) == {frozenset({old, new})}
    # Servers use the last certificate while their Secrets are missing.
    assert not set(LEAVES) & world.objects.keys()
    assert state(world).next.at == rfc3339(NOW + SHORT_WAIT)

    world.monotonic += SHORT_WAIT - 1
    outcome = world.settle(replica)
    assert (outcome.phase, outcome.pause) == (Phase.WAIT, 1)
    world.monotonic += 1
    assert world.settle(replica).phase is Phase.RETIRE
    assert signers(world) == ["current", "current"]
    assert world.actions == [Action.ANNOUNCE, Action.SWITCH]
    world.lag = SHORT_WAIT
    assert world.uncovered() is None
    world.monotonic += WAIT
    world.settle(replica)
    assert bundles(world) == {frozenset({new})}


@pytest.mark.parametrize("number", range(len(LEAVES)))
def test_wait_is_short_when_a_leaf_is_lost_with_the_ca(world, number):
    replica = world.replica()
    del world.objects[CA]
    world.settle(replica)
    del world.objects[LEAVES[number]]
    world.monotonic += SHORT_WAIT - 1
    assert world.settle(replica).phase is Phase.WAIT
    world.monotonic += 1
    assert world.settle(replica).phase is Phase.RETIRE
    assert signers(world) == ["current", "current"]


def test_new_ca_signs_at_once_when_the_lost_ca_and_leaves_have_expired(world):
    del world.objects[CA]
    world.offset += YEAR
    assert world.settle().phase is Phase.STABLE
    assert world.actions == [Action.ISSUE]
    assert signers(world) == ["current", "current"]


def test_new_ca_signs_at_once_when_a_leaf_has_expired_and_the_ca_is_lost(world):
    world.monotonic += POLICY.leaf_duration
    del world.objects[CA]
    assert world.settle().phase is Phase.RETIRE
    assert world.actions == [Action.ISSUE]


@pytest.mark.parametrize("skew", [YEAR, -YEAR, 301, -301])
def test_replica_whose_clock_differs_from_the_api_server_issues_nothing(world, skew):
    replica = world.replica()
    world.skews[0] = skew
    world.request_rotation()
    before = bundles(world)
    del world.objects[LEAVES[0]]
    present = dict(world.objects)

    outcome = world.settle(replica)
    direction = "ahead of" if skew > 0 else "behind"
    assert f"{direction} that of the API server" in outcome.problem
    assert outcome.skew == skew
    assert {path: each for path, each in world.objects.items() if path in present} == present
    (event,) = [each for path, each in world.objects.items() if path not in present]
    assert (event["reason"], event["type"]) == ("ClockSkew", "Warning")
    assert event["message"].startswith(outcome.problem)

    # No clock is needed for this.
    world.overwrite(CONFIGURATIONS[0], "")
    world.settle(replica)
    assert bundles(world) == before
    assert reasons(world)[-1:] == ["ClockSkew"]

    # Another replica does the work.
    assert world.settle(world.replica(1)).phase is Phase.WAIT
    assert LEAVES[0] in world.objects

    world.monotonic += WAIT
    world.skews.clear()
    outcome = world.settle(replica)
    assert (outcome.phase, outcome.problem, outcome.skew) == (Phase.WAIT, None, 0)
    # Its wait begins when its clock is right.
    world.monotonic += WAIT - 1
    assert world.settle(replica).phase is Phase.WAIT


@pytest.mark.parametrize("skew", [300, -300])
def test_replica_whose_clock_differs_a_little_issues(world, skew):
    world.skews[0] = skew
    del world.objects[LEAVES[0]]
    assert world.settle().problem is None
    assert signers(world) == ["current", "current"]
    assert reasons(world) == ["CAIssued"]


def test_each_time_that_a_clock_is_wrong_has_one_event(world):
    replica = world.replica()
    for _ in range(2):
        world.skews[0] = YEAR
        world.settle(replica)
        world.monotonic += 10
        world.settle(replica)
        world.skews.clear()
        world.settle(replica)
    assert reasons(world).count("ClockSkew") == 2


def test_replica_issues_when_the_api_server_tells_no_time(world):
    world.tells_time = False
    world.skews[0] = 400
    del world.objects[LEAVES[0]]
    outcome = world.settle()
    assert (outcome.problem, outcome.skew) == (None, None)
    assert LEAVES[0] in world.objects


def test_certificates_of_strangers_in_a_bundle_are_not_trusted_while_a_ca_is_there(world):
    stranger = new_authority(NOW, 9_000, KEY_SOURCE).certificate
    world.overwrite(CONFIGURATIONS[0], b64encode(certificates_pem([stranger])).decode())
    world.settle()
    assert bundles(world) == {frozenset({authorities(world).current.certificate})}


def test_published_state_has_the_chain_and_what_happens_next(world):
    found = state(world)
    assert (found.mode, found.phase, found.since) == ("self", "stable", "2027-01-15T08:00:00Z")
    (current,) = found.authorities
    assert (current.role, current.not_after) == ("current", "2027-01-15T10:30:00Z")
    assert [each.secret for each in found.servers] == [server.secret for server in SERVERS]
    assert {each.issuer for each in found.servers} == {current.sha256}
    assert (found.next.text, found.next.at) == (
        "renew certificates of servers",
        "2027-01-15T08:33:20Z",
    )

    world.request_rotation()
    world.monotonic += 60
    world.settle()
    found = state(world)
    assert [each.role for each in found.authorities] == ["current", "next"]
    assert (found.phase, found.since) == ("wait", "2027-01-15T08:01:00Z")
    assert (found.next.text, found.next.at) == ("switch to the next CA", "2027-01-15T08:11:00Z")


def test_published_state_keeps_the_start_of_a_phase(world):
    world.request_rotation()
    world.settle()
    since = state(world).since
    world.monotonic += 100
    world.settle()
    assert state(world).since == since


def test_missing_status_config_map_stops_nothing(world):
    del world.objects[STATUS]
    world.request_rotation()
    assert world.settle().phase is Phase.WAIT


def test_pass_that_crashes_at_any_call_is_continued_by_another_replica(world):
    world.request_rotation()
    reference = World()
    reference.settle()
    calls = 0
    while True:
        # Each round a replica ends before its next call, one call later than in the last round.
        work = world.replica().reconcile()
        try:
            for _ in range(calls + 1):
                work.send(None)
        except StopIteration:
            break
        work.close()
        calls += 1
    assert calls > len(POLICY.servers)
    assert run(world.replica().reconcile()) is not None
    assert world.uncovered() is None
