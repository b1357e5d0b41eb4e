"""Volumes of a group are compared with all nodes together as with each one alone."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_member, a_node, a_snapshot
from support.volumes import a_storage_class, a_volume, a_volume_claim, volume_objects

from linkwise.cluster import keys, volume_keys
from linkwise.cluster.objects.affinity import NodeSelectorTerm, Requirement
from linkwise.cluster.volumes.node_choice import choice_of
from linkwise.cluster.volumes.pod_claims import NamedClaim
from linkwise.cluster.volumes.pod_volumes import HeldVolumes, PodVolumes
from linkwise.cluster.volumes.resolve import resolve
from linkwise.cluster.volumes.volume import Attachment
from linkwise.planning.placement.filtering.feasibility import feasibility_of, feasibility_of_all
from linkwise.planning.placement.filtering.reasons import Reason
from linkwise.planning.placement.filtering.volumes import satisfying
from linkwise.planning.placement.pods.group import new_group
from linkwise.planning.placement.result import Plan
from linkwise.planning.placement.schedule import plan

ZONES = (None, "z1", "z2")
operators = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Unknown"])
requirements = st.builds(
    Requirement,
    key=st.sampled_from([volume_keys.ZONE, keys.HOSTNAME, "rank"]),
    operator=operators,
    values=st.lists(st.sampled_from(["z1", "z2", "n0", "n1", "1"]), max_size=2),
)
names = st.builds(
    Requirement,
    key=st.just(keys.NODE_NAME_FIELD),
    operator=st.just("In"),
    values=st.lists(st.sampled_from(["n0", "n1"]), max_size=1),
)
terms = st.builds(
    NodeSelectorTerm,
    match_expressions=st.none() | st.lists(requirements, max_size=3),
    match_fields=st.none() | st.lists(names, max_size=1),
)


def nodes(**fields):
    made = []
    for i in range(3):
        zone = ZONES[i]
        labels = {keys.NODE_MODE: "topology", keys.HOSTNAME: f"n{i}", "rank": str(i)}
        labels |= {volume_keys.ZONE: zone} if zone else {}
        made.append(a_node(f"n{i}", labels=labels, **fields))
    return made


@given(st.lists(terms, max_size=3))
def test_all_nodes_are_compared_with_a_choice_as_one_by_one(some):
    choice, snapshot = choice_of(some), a_snapshot(*nodes())
    each = [choice.matches(one.node.name, one.node.labels) for one in snapshot.nodes]
    assert satisfying(snapshot, choice).tolist() == each


def attaching(*handles, shared=()):
    return PodVolumes(attached=frozenset(Attachment("ebs", one) for one in (*handles, *shared)))


def members(*volumes):
    return [replace(a_member(1, f"w-{i}"), volumes=one) for i, one in enumerate(volumes)]


@pytest.mark.parametrize(
    ("volumes", "limit", "each", "together"),
    [
        pytest.param([attaching("a"), attaching("b")], 1, 1, False, id="room for one"),
        pytest.param([attaching("a"), attaching("b")], 2, 2, True, id="room for both"),
        pytest.param([attaching("a"), attaching("a")], 1, 2, True, id="the same volume"),
        pytest.param([attaching("a", "b"), attaching("c")], 3, 1, True, id="unequal"),
        pytest.param(
            [attaching("a", shared="s"), attaching("b", shared="s")], 3, 2, True, id="both"
        ),
        pytest.param([attaching("a")], 0, 0, False, id="no room"),
    ],
)
def test_a_node_attaches_no_more_volumes_than_its_limit(volumes, limit, each, together):
    snapshot = a_snapshot(a_node("n0", attach_limits=(("ebs", limit),)))
    group = new_group(members(*volumes))
    assert feasibility_of(snapshot, group).capacity.tolist() == [each]
    found = feasibility_of_all(snapshot, group)
    assert bool(found.capacity[0]) == together
    if not together:
        assert found.blocked == {Reason.ATTACHED: 1}


def test_a_volume_that_is_attached_already_needs_no_room():
    snapshot = a_snapshot(a_node("n0", attach_limits=(("ebs", 1),)))
    (first,) = members(attaching("a"))
    made = plan(snapshot, [first])
    assert isinstance(made, Plan)
    later = made.applied_to(snapshot)
    assert isinstance(plan(later, [replace(a_member(1, "next"), volumes=attaching("a"))]), Plan)
    other = plan(later, [replace(a_member(1, "next"), volumes=attaching("b"))])
    assert str(Reason.ATTACHED) in other.reason


def local_members(count, *hosts):
    """Return members that each want a local volume, of those on some hosts."""
    volumes = [
        a_volume(f"pv-{i}", hosts=[host], storage_class="local") for i, host in enumerate(hosts)
    ]
    claims = [a_volume_claim(f"data-{i}", storage_class="local") for i in range(count)]
    objects = volume_objects(claims, volumes, [a_storage_class()])
    found = [
        resolve("team", "uid", [NamedClaim(f"data-{i}", "")], objects, lambda _: None)
        for i in range(count)
    ]
    return members(*found)


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        pytest.param(("n1", "n1"), {"n1": 2}, id="both on one node"),
        pytest.param(("n0", "n2"), {"n0": 1, "n2": 1}, id="one on each"),
        pytest.param(("n1",), None, id="one too few"),
    ],
)
def test_members_get_free_volumes_of_their_own(hosts, expected):
    made = plan(a_snapshot(*nodes()), local_members(2, *hosts))
    places = Counter(one.node for one in made.placements) if isinstance(made, Plan) else None
    assert places == expected


def test_a_volume_that_another_pod_is_about_to_bind_is_not_free():
    snapshot = a_snapshot(*nodes())
    first, second = local_members(2, "n1", "n2")
    made = plan(snapshot, [first])
    assert isinstance(made, Plan)
    assert made.placements[0].holding.volumes == HeldVolumes(binds=("local",))
    after = plan(made.applied_to(snapshot), [second])
    assert isinstance(after, Plan)
    assert set(made.gpus) | set(after.gpus) == {"n1", "n2"}


def test_a_node_from_which_a_volume_cannot_be_used_is_counted_with_that_reason():
    wanted = Requirement(key=volume_keys.ZONE, operator="In", values=["z3"])
    term = NodeSelectorTerm(match_expressions=[wanted])
    group = new_group(members(PodVolumes(choices=(choice_of([term]),))))
    assert feasibility_of(a_snapshot(*nodes()), group).blocked == {Reason.VOLUME: 3}


def test_a_member_without_volumes_takes_no_node_from_one_that_is_tied_to_it():
    wanted = Requirement(key=keys.HOSTNAME, operator="In", values=["n0"])
    tied = PodVolumes(choices=(choice_of([NodeSelectorTerm(match_expressions=[wanted])]),))
    pair = [a_member(8, "w-0"), replace(a_member(8, "w-1"), volumes=tied)]
    made = plan(a_snapshot(*nodes()[:2]), pair)
    assert isinstance(made, Plan)
    assert [one.node for one in made.placements] == ["n1", "n0"]
