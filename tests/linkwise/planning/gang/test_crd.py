import re

import jsonpatch
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import workers
from support.gang_definition import REFUSED, TAKEN, refusal

from linkwise.cluster import keys
from linkwise.cluster.gang import GangKey, Link
from linkwise.cluster.objects.metadata import Owner
from linkwise.planning.gang.crd import (
    GANGS,
    GPUS_AS_PLANNED,
    GPUS_HEALTHY,
    PREPARED,
    Gang,
    GangMetadata,
    GangSpec,
    GangStatus,
    Phase,
    gangs_of,
    name_of,
    read_gang,
)
from linkwise.planning.gang.crd_patch import new_gang, owners_of, plan_steps, status_steps
from linkwise.planning.gang.crd_plan import GangPlan, Held, NodeGPUs, PlannedPod
from linkwise.planning.gang.crd_status import status_of, with_problem
from linkwise.planning.gang.pod_info import pod_info
from linkwise.runtime.kube.objects import OwnerReference

KEY = GangKey("team", "mpijob-bert", "7f3c")
NOW, LATER = "2026-01-02T03:04:05Z", "2026-01-02T03:05:05Z"
GPU_0 = PlannedPod("bert-worker-0", "u0", "gpu-0", (0, 3))
GPU_1 = PlannedPod("bert-worker-1", "u1", "gpu-1", ())
PLAN = GangPlan("p1", True, (GPU_0, GPU_1), 40, 55.2, 20, "rack=a")
VALID = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

_names = st.text(max_size=80) | st.from_regex(r"[a-zA-Z0-9._/-]{1,300}", fullmatch=True)
_keys = st.builds(
    GangKey,
    st.from_regex(r"[a-z]([-a-z0-9]{0,5}[a-z0-9])?", fullmatch=True),
    _names,
    st.sampled_from(("", "7f3c", "7f3d")),
)
_speeds = st.none() | st.floats(0, 1000).map(lambda number: round(number, 1))
_plans = st.builds(
    GangPlan,
    st.text("0123456789-", min_size=1),
    st.booleans(),
    st.lists(
        st.builds(
            PlannedPod,
            _names,
            _names,
            _names,
            st.lists(st.integers(0, 15), max_size=8).map(lambda gpus: tuple(sorted(gpus))),
        ),
        max_size=3,
    ).map(tuple),
    _speeds,
    _speeds,
    _speeds,
    st.none() | _names,
)
_owners = st.lists(st.builds(OwnerReference, _names, _names, _names, _names), max_size=2).map(tuple)
_sizes = st.none() | st.integers(1, 4096)


def written(gang):
    return msgspec.json.encode(gang)


def stored(gang, **metadata):
    """Return a Gang as an API server gives it back."""
    given = {"uid": "g1", "resource_version": "7", **metadata}
    return msgspec.structs.replace(gang, metadata=msgspec.structs.replace(gang.metadata, **given))


def patched(gang, steps):
    document = msgspec.json.decode(written(gang))
    wire = msgspec.json.decode(msgspec.json.encode(steps))
    return read_gang(msgspec.json.encode(jsonpatch.apply_patch(document, wire)))


def a_gang(plan=None, **given):
    return stored(new_gang(KEY, (), **{"size": 2, "link": Link.BEST, **given}, plan=plan))


# ---- Names.


@given(_keys)
def test_any_gang_has_a_name_that_the_api_server_takes(key):
    name = name_of(key)

    assert VALID.fullmatch(name)
    assert len(name) <= 63


@given(_keys, _keys)
def test_different_gangs_have_different_names(one, other):
    assert (name_of(one) == name_of(other)) == (one == other)


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        pytest.param("mpijob-bert", "mpijob-bert", id="as it is"),
        pytest.param("Team_A/BERT.1", "team-a-bert-1", id="made valid"),
        pytest.param("-x-", "x", id="ends"),
        pytest.param("群", "gang", id="nothing left"),
        pytest.param("a" * 53 + "-b", "a" * 53, id="cut"),
        pytest.param("\ud800", "gang", id="no text"),
    ],
)
def test_what_can_be_kept_of_the_name_is_kept(name, stem):
    found = name_of(GangKey("team", name, ""))
    assert found.rpartition("-")[0] == stem


def test_a_gang_of_several_jobs_names_all_of_them():
    jobs = [Owner(api_version="v1", kind="Job", name=f"j{i}", uid=f"j{i}") for i in range(100)]
    owners = owners_of(jobs[0], (), jobs[1:])

    assert [each.uid for each in owners] == [f"j{i}" for i in range(64)]
    gang = stored(new_gang(KEY, owners[:1], size=2, link=Link.BEST, plan=PLAN))
    changed = patched(gang, plan_steps(gang, PLAN, size=2, link=Link.BEST, owners=owners[:3]))
    assert [each.uid for each in changed.metadata.owner_references] == ["j0", "j1", "j2"]
    alone = plan_steps(gang, PLAN, size=2, link=Link.BEST, owners=owners[:1])
    assert patched(gang, alone).metadata.owner_references == owners[:1]


def test_a_job_that_is_submitted_again_has_another_gang():
    assert name_of(KEY) != name_of(KEY._replace(owner="7f3d"))


# ---- What the API server takes; `e2e/test_gangs_api` has the same changes.

WORKERS = tuple(PlannedPod(f"bert-worker-{i}", f"u{i}", "gpu-0", (i,)) for i in range(4))


def changed(path, value):
    """Return a Gang with a plan of four workers, and the same with another value at a path."""
    before = msgspec.json.decode(written(a_gang(GangPlan("1-1", True, WORKERS, 55.2))))
    step = [{"op": "add", "path": path, "value": value}]
    return before, jsonpatch.apply_patch(before, step)


@pytest.mark.parametrize(("path", "value"), TAKEN)
def test_a_plan_may_follow_the_gpus_of_its_members(path, value):
    before, after = changed(path, value)
    assert refusal(after, before) is None


@pytest.mark.parametrize(("path", "value", "message"), REFUSED)
def test_other_changes_of_a_gang_are_refused(path, value, message):  # noqa: ARG001 - of the server.
    before, after = changed(path, value)
    assert refusal(after, before)


@given(_keys, _sizes | st.integers(4097, 1 << 40), st.text(max_size=320))
def test_a_gang_of_any_size_and_owner_can_be_created(key, size, owner):
    key = key._replace(name=key.name or "x", owner=owner)
    gang = new_gang(key, (), size=size, link=Link.BEST)
    assert refusal(msgspec.json.decode(written(gang))) is None


@given(
    st.sampled_from(Phase),
    st.tuples(st.integers(0, 1 << 40), st.none() | st.integers(1, 1 << 40)),
    st.sampled_from([0, 1, 3, 40]),
    st.text() | st.text("x", min_size=5000, max_size=5000),
    st.sampled_from([GPUS_HEALTHY, GPUS_AS_PLANNED, PREPARED]),
)
def test_any_status_can_be_written(phase, members, nodes, text, kind):
    held = Held(tuple(NodeGPUs(f"{'n' * 240}-{i}", (0, 15)) for i in range(nodes)), 55.2)
    status = status_of(phase, members=members, held=held, reason=text, now=NOW)
    status = with_problem(status, kind, text, before=GangStatus(), now=NOW)
    gang = patched(a_gang(), status_steps(a_gang(), status))
    assert refusal(msgspec.json.decode(written(gang))) is None


# ---- Written and read again.


@given(_keys, _owners, _sizes, st.sampled_from(Link), st.none() | _plans)
def test_a_gang_that_is_read_is_the_one_that_was_written(key, owners, size, link, planned):
    gang = new_gang(key, owners, size=size, link=link, plan=planned)

    assert read_gang(written(gang)) == gang


@given(
    st.sampled_from(Phase),
    st.tuples(st.integers(0, 99), _sizes),
    st.none() | _plans,
    st.text(),
)
def test_a_status_that_is_read_is_the_one_that_was_written(phase, members, planned, reason):
    status = status_of(
        phase, members=members, held=planned.held if planned else Held(), reason=reason, now=NOW
    )
    gang = patched(a_gang(), status_steps(a_gang(), status))

    assert gang.status == status


def test_created_gang_has_kind_and_owners():
    job = Owner(api_version="kubeflow.org/v1", kind="MPIJob", name="bert", uid="7f3c")
    gang = new_gang(KEY, owners_of(job, ()), size=4, link=Link.NVLINK)

    assert msgspec.json.decode(written(gang)) == {
        "apiVersion": keys.API_VERSION,
        "kind": "Gang",
        "metadata": {
            "name": name_of(KEY),
            "namespace": "team",
            "ownerReferences": [
                {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "name": "bert", "uid": "7f3c"}
            ],
        },
        "spec": {"gang": "mpijob-bert", "owner": "7f3c", "size": 4, "link": "nvlink"},
    }


def test_gang_without_a_job_is_owned_by_its_pods():
    pods = [pod_info(member.pod) for member in workers(2)]

    assert [(one.kind, one.name) for one in owners_of(None, pods)] == [
        ("Pod", "worker-0"),
        ("Pod", "worker-1"),
    ]


def test_a_name_that_is_too_long_for_the_object_is_cut():
    gang = new_gang(GangKey("team", "x" * 300, ""), (), size=None, link=Link.BEST)

    assert len(gang.spec.gang) == 253


def test_gangs_are_where_the_api_server_has_them():
    assert GANGS == "/apis/linkwise.dev/v1alpha1/gangs"
    assert gangs_of("team") == "/apis/linkwise.dev/v1alpha1/namespaces/team/gangs"
    assert a_gang().path == f"{gangs_of('team')}/{name_of(KEY)}"


@pytest.mark.parametrize(
    "raw",
    [
        b"{}",
        b'{"metadata":{},"spec":{"gang":"a","link":"fast"}}',
        b'{"metadata":{},"spec":{"gang":"a","link":"best","plan":{"id":"1","exact":true,'
        b'"members":[{"pod":"p","uid":"u","node":"n","gpus":[16]}]}}}',
    ],
)
def test_object_that_is_not_a_gang_is_refused(raw):
    with pytest.raises(msgspec.DecodeError):
        read_gang(raw)


# ---- Plans.


def test_another_plan_takes_the_place_of_the_whole_old_one():
    gang, other = a_gang(PLAN), GangPlan("p2", False, (GPU_1,))

    changed = patched(gang, plan_steps(gang, other, size=3, link=Link.NVLINK))

    assert changed.spec.plan == other
    assert (changed.spec.size, changed.spec.link) == (3, Link.NVLINK)


@pytest.mark.parametrize("changed", [{"uid": "g2"}, {"resource_version": "8"}])
def test_a_plan_is_not_given_to_a_gang_that_changed_meanwhile(changed):
    gang = a_gang()
    steps = plan_steps(gang, PLAN, size=2, link=Link.BEST)
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        patched(stored(gang, **changed), steps)


# ---- Status.


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param(["gpu-0"], "gpu-0", id="one"),
        pytest.param(["gpu-0", "gpu-0", "gpu-1"], "gpu-0,gpu-1", id="two"),
        pytest.param([f"gpu-{i}" for i in range(9)], "9 nodes", id="many"),
        pytest.param(["n" * 63], "n" * 63, id="one with a long name"),
        pytest.param(["n" * 63, "m" * 63], "2 nodes", id="two with long names"),
    ],
)
def test_nodes_are_named_while_they_are_few(nodes, expected):
    members = tuple(PlannedPod(f"p{i}", f"u{i}", node, ()) for i, node in enumerate(nodes))
    planned = GangPlan("p1", True, members)

    assert status_of(Phase.PLACED, members=(1, 1), held=planned.held, now=NOW).nodes == expected


def test_status_has_members_phase_bandwidth_and_reason():
    waits = status_of(Phase.WAITING, members=(3, 4), reason="too big", now=NOW)
    commits = status_of(Phase.COMMITTING, members=(0, 2), held=PLAN.held, now=NOW)
    unsized = status_of(Phase.ASSEMBLING, members=(3, None), reason="no size", now=NOW)

    assert (waits.phase, waits.members, waits.reason) == (Phase.WAITING, "3/4", "too big")
    assert (waits.bandwidth, waits.nodes) == (None, "")
    assert (commits.bandwidth, commits.members) == (40, "0/2")
    assert unsized.members == "3/?"


def test_condition_keeps_its_transition_time():
    first = status_of(Phase.WAITING, members=(2, 2), reason="too big", now=NOW)
    second = status_of(Phase.WAITING, members=(2, 2), reason="bigger", before=first, now=LATER)
    third = status_of(Phase.PLACED, members=(2, 2), held=PLAN.held, before=second, now=LATER)

    conditions = [condition(status, "Placed") for status in (first, second, third)]
    assert [one.last_transition_time for one in conditions] == [NOW, NOW, LATER]
    assert [one.status for one in conditions] == ["False", "False", "True"]
    assert [one.message for one in conditions] == [
        "too big",
        "bigger",
        "all 2 members are bound to their nodes",
    ]


def condition(status, kind):
    (found,) = [one for one in status.conditions if one.type == kind]
    return found


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("kind", ["Placed", "Assembled"])
def test_each_condition_has_a_reason_of_its_own_and_a_message(phase, kind):
    reason = "" if phase in {Phase.PLACED, Phase.COMMITTING, Phase.FINISHED} else "too big"
    found = condition(status_of(phase, members=(2, 2), reason=reason, now=NOW), kind)
    assert found.message
    codes = {"Placed": "AllMembersBound", "Assembled": "AllMembersPresent"}
    assert found.reason == (codes[kind] if found.status == "True" else phase.value)


@pytest.mark.parametrize("kind", [GPUS_HEALTHY, GPUS_AS_PLANNED, PREPARED])
def test_a_condition_that_holds_again_is_no_problem_and_says_so(kind):
    status = status_of(Phase.PLACED, members=(2, 2), now=NOW)
    wrong = with_problem(status, kind, "GPU 3", before=status, now=NOW)
    right = with_problem(status, kind, "", before=wrong, now=LATER)
    assert (status.problem(kind), wrong.problem(kind), right.problem(kind)) == (None, "GPU 3", "")
    assert (condition(right, kind).status, condition(right, kind).last_transition_time) == (
        "True",
        LATER,
    )
    assert condition(right, kind).message


def test_a_gang_is_assembled_since_it_could_be_planned_whatever_becomes_of_it_then():
    first = status_of(Phase.ASSEMBLING, members=(1, 2), reason="1 of 2 members", now="earlier")
    second = status_of(Phase.WAITING, members=(2, 2), reason="too big", before=first, now=NOW)
    third = status_of(Phase.PLACED, members=(2, 2), held=PLAN.held, before=second, now=LATER)

    gangs = [patched(a_gang(), status_steps(a_gang(), one)) for one in (first, second, third)]
    assert [gang.assembled_since for gang in gangs] == [None, NOW, NOW]
    assert condition(first, "Assembled").message == "1 of 2 members"


def test_unchanged_state_gives_an_equal_status():
    first = status_of(Phase.PLACED, members=(2, 2), held=PLAN.held, now=NOW)
    assert status_of(Phase.PLACED, members=(2, 2), held=PLAN.held, before=first, now=LATER) == first


def test_a_reason_that_the_api_server_would_refuse_is_cut():
    status = status_of(Phase.WAITING, members=(1, 2), reason="x" * 9000, now=NOW)
    assert len(status.reason) == 4096


def test_a_status_is_not_written_to_a_gang_of_another_uid():
    gang = a_gang()
    steps = status_steps(gang, GangStatus(Phase.WAITING))
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        patched(stored(gang, uid="g2"), steps)


def test_gang_without_a_status_is_read():
    raw = b'{"apiVersion":"linkwise.dev/v1alpha1","kind":"Gang","metadata":{"name":"a","x":1},'
    gang = read_gang(raw + b'"spec":{"gang":"a","link":"best"},"future":{}}')

    assert gang == Gang(
        GangMetadata("a"), GangSpec("a", Link.BEST), api_version=keys.API_VERSION, kind="Gang"
    )
    assert gang.status.phase is None
