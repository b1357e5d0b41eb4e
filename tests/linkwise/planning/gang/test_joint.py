"""Owners that share a mark: which of them are one gang."""

from dataclasses import replace

import pytest
from support.builders import a_seen

from linkwise.cluster import keys
from linkwise.cluster.gang import GangKey
from linkwise.planning.gang.joint import joint_gangs
from linkwise.planning.gang.owners import Joint, Owners
from linkwise.planning.gang.unit import units_of

SET, JOB = ("apps/v1", "StatefulSet"), ("batch/v1", "Job")
REPLICA_SET, WORKFLOW = ("apps/v1", "ReplicaSet"), ("argoproj.io/v1alpha1", "Workflow")
RUNNING = {"nodeName": "gpu-0", "phase": "Running", "gates": ()}
DONE = {"nodeName": "gpu-0", "phase": "Succeeded", "gates": ()}
FAILED = {"nodeName": "gpu-0", "phase": "Failed", "gates": ()}


def pods(kind, name, count, *, size=5, first=0, gpus=1, created="2026-01-01T00:00:00Z", **became):
    """Return the pods of an owner, whose uid is its name; without a kind, pods without an owner."""
    owner = {"apiVersion": kind[0], "kind": kind[1], "name": name, "uid": name} if kind else None
    labels = {keys.POD_GROUP_NAME: "train"}
    if size:
        labels[keys.POD_GROUP_MIN_AVAILABLE] = str(size)
    return [
        a_seen(gpus, f"{name}-{i}", labels=labels, owner=owner, created=created, **became)
        for i in range(first, first + count)
    ]


def key(owner):
    return GangKey("team", "train", owner)


def owners_of(known=(), **totals):
    return Owners({}, {uid: totals[uid] for uid in totals}, totals=totals, **dict(known))


def gangs(found, owners=None, recorded=()):
    """Return the sets of owners whose pods wait for GPUs together, and how many each needs."""
    owners = owners or owners_of()
    owners = replace(owners, joint=joint_gangs(found, owners, recorded))
    return {
        frozenset(pod.controller.uid if pod.controller else "" for pod in unit.waiting): (
            unit.needed,
            unit.blocked is None,
        )
        for unit in units_of(found, owners)
    }


BOTH = frozenset({"ps", "worker"})


@pytest.mark.parametrize("known", [{}, {"ps": 1, "worker": 4}, {"worker": 4}], ids=repr)
def test_owners_that_each_make_fewer_pods_than_a_gang_needs_are_one_gang(known):
    found = [*pods(SET, "ps", 1), *pods(SET, "worker", 4)]

    assert gangs(found, owners_of(**known)) == {BOTH: (5, True)}
    assert gangs(found[:3], owners_of(**known)) == {BOTH: (5, False)}


def test_a_size_above_what_one_owner_makes_is_not_lowered():
    assert gangs(pods(SET, "worker", 4), owners_of(worker=4)) == {frozenset({"worker"}): (5, False)}


def test_a_launcher_without_gpus_of_the_same_owner_counts():
    owners = Owners({}, {"job": 4}, totals={"job": 5})

    assert gangs(pods(JOB, "job", 4), owners) == {frozenset({"job"}): (4, True)}


def test_pods_without_gpus_of_other_owners_count_once_they_exist():
    launcher = pods(SET, "ps", 1, gpus=0)
    workers = pods(SET, "worker", 4)

    assert launcher[0].follows == "train"
    assert gangs([*launcher, *workers], owners_of(worker=4)) == {frozenset({"worker"}): (4, True)}
    assert gangs(workers, owners_of(worker=4)) == {frozenset({"worker"}): (5, False)}


def test_pods_without_owners_join_owners():
    found = [*pods(None, "bare", 1), *pods(SET, "worker", 4)]

    assert gangs(found, owners_of(worker=4)) == {frozenset({"", "worker"}): (5, True)}


@pytest.mark.parametrize("kind", [JOB, SET, WORKFLOW], ids=lambda kind: kind[1])
@pytest.mark.parametrize("became", [{}, RUNNING], ids=["waits", "runs"])
def test_a_job_that_is_submitted_again_stays_apart(kind, became):
    before, again = pods(kind, "one", 4, size=4, **became), pods(kind, "two", 4, size=4)
    known = {} if kind is WORKFLOW else {"one": 4, "two": 4}

    found = gangs([*before, *again], owners_of(**known))

    alone = {frozenset({"two"}): (4, True)}
    assert found == (alone if became else {frozenset({"one"}): (4, True), **alone})
    first = gangs([*before, *again[:1]], owners_of(**known))
    assert first[frozenset({"two"})] == (4, False)


@pytest.mark.parametrize("ended", [DONE, FAILED], ids=["succeeded", "failed"])
def test_owners_whose_pods_have_ended_do_not_join_those_that_live(ended):
    before = [*pods(SET, "ps", 1, **ended), *pods(SET, "worker", 4, **ended)]
    again = [*pods(SET, "ps2", 1), *pods(SET, "worker2", 3)]

    assert gangs([*before, *again]) == {frozenset({"ps2", "worker2"}): (5, False)}


def test_pods_without_owners_do_not_join_those_of_a_gang_that_has_ended():
    before = [
        *pods(None, "one", 3, size=4, **DONE),
        *pods(None, "one", 1, size=4, first=3, **FAILED),
    ]

    assert gangs([*before, *pods(None, "two", 1, size=4)]) == {frozenset({""}): (4, False)}


def test_a_new_revision_of_a_deployment_does_not_join_the_one_before():
    old, new = pods(REPLICA_SET, "serve-a", 3, size=4, **RUNNING), pods(REPLICA_SET, "serve-b", 1)

    assert gangs([*old, *new]) == {frozenset({"serve-b"}): (5, False)}
    (unit,) = units_of([*old, *new], owners_of())
    assert "a Deployment makes 5 pods of a new revision at once only with" in unit.blocked


def test_an_owner_that_was_created_again_under_its_name_does_not_join_the_one_before():
    def of(uid, index, **became):
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid}
        labels = {keys.POD_GROUP_NAME: "train", keys.POD_GROUP_MIN_AVAILABLE: "2"}
        return a_seen(1, f"{uid}-{index}", labels=labels, owner=owner, **became)

    assert gangs([of("before", 0, **RUNNING), of("again", 0)]) == {frozenset({"again"}): (2, False)}


def test_deployments_of_one_gang_are_one():
    found = [*pods(REPLICA_SET, "ps-x", 1), *pods(REPLICA_SET, "worker-x", 4)]

    assert gangs(found) == {frozenset({"ps-x", "worker-x"}): (5, True)}


WHOLE = {
    "runs": ([*pods(SET, "worker", 5, **RUNNING)], [("worker",)]),
    "waits": ([*pods(SET, "worker", 5)], [("worker",)]),
    "of two owners, runs": (
        [*pods(SET, "ps", 1, **RUNNING), *pods(SET, "worker", 4, **RUNNING)],
        [("ps", "worker")],
    ),
    "of two owners, waits": ([*pods(SET, "ps", 1), *pods(SET, "worker", 4)], [("ps", "worker")]),
}


@pytest.mark.parametrize(("whole", "together"), WHOLE.values(), ids=WHOLE)
@pytest.mark.parametrize("late", [{"late": 1}, {}], ids=["read", "not read"])
def test_an_owner_that_makes_too_few_joins_no_gang_that_is_whole(whole, together, late):
    """It is later in time; alone it waits for its own members."""
    known = {"ps": 1, "worker": 4} if ("ps", "worker") in together else {"worker": 5}
    found = [*whole, *pods(SET, "late", 1, created="2026-01-02T00:00:00Z")]
    owners = owners_of(**known, **late)
    owners = replace(owners, joint=joint_gangs(found, owners))

    units = units_of(found, owners)
    members = {
        tuple(sorted({pod.controller.uid for pod in (*unit.waiting, *unit.settled)})): unit
        for unit in units
    }

    waiting = {uids: unit.blocked is None for uids, unit in members.items() if unit.waiting}
    assert waiting[("late",)] is False
    assert members[("late",)].needed == 5
    assert all(waiting[uids] for uids in together if uids in waiting)
    assert set(members) <= {("late",), *together}


@pytest.mark.parametrize("became", [RUNNING, {}], ids=["runs", "waits"])
def test_a_pod_group_that_has_its_members_has_those_of_a_smaller_owner_too(became):
    """Its minimum may count the workers alone."""
    workers = pods(SET, "worker", 4, size=None, **became)
    found = [*workers, *pods(SET, "ps", 1, size=None, created="2026-01-02T00:00:00Z")]
    groups = {key(owner): 4 for owner in ("worker", "ps")}

    units = gangs(found, replace(owners_of(worker=4, ps=1), groups=groups))

    (waiting,) = units
    assert "ps" in waiting
    assert units[waiting] == (4, True)


def test_a_gang_of_several_owners_keeps_its_key_while_it_runs():
    owners = owners_of(ps=1, worker=4)
    recorded = Joint(key("ps"), (key("ps"), key("worker")))
    left = [*pods(SET, "worker", 3, **RUNNING), *pods(SET, "worker", 1, first=3)]

    found = joint_gangs(left, owners, [recorded])

    assert found[key("worker")].key == key("ps")
    (unit,) = units_of(left, replace(owners, joint=found))
    assert (unit.key, unit.needed, unit.owner.uid) == (key("ps"), 5, "worker")


@pytest.mark.parametrize("first", ["ps", "worker"])
def test_the_owner_that_was_there_first_gives_the_key(first):
    found = [*pods(SET, "ps", 1), *pods(SET, "worker", 4)]

    joint = joint_gangs(found, owners_of(), first=[key("gone"), key(first)])

    assert {each.key for each in joint.values()} == {key(first)}


def test_while_owners_are_read_their_gang_waits():
    owners = Owners({}, {}, is_read_on_demand=True)
    found = [*pods(SET, "ps", 1), *pods(SET, "worker", 4)]

    assert gangs(found, owners) == {BOTH: (None, False)}
    assert gangs(found, replace(owners, totals={"ps": 1, "worker": 0})) == {BOTH: (5, True)}


def test_the_gang_of_a_pod_group_waits_until_the_group_was_read():
    label = {keys.POD_GROUP: "train"}
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "s"}
    found = [a_seen(1, f"s-{i}", labels=label, owner=owner) for i in range(2)]
    owners = Owners({}, {"s": 2}, totals={"s": 2}, is_read_on_demand=True)

    assert gangs(found, owners) == {frozenset({"s"}): (None, False)}
    assert gangs(found, replace(owners, groups={key("s"): 0})) == {frozenset({"s"}): (2, True)}
    assert gangs(found, replace(owners, groups={key("s"): 3})) == {frozenset({"s"}): (3, False)}


def test_members_that_state_different_sizes_are_told():
    found = [*pods(SET, "ps", 1, size=5), *pods(SET, "worker", 3, size=4)]
    owners = owners_of(ps=1, worker=3)

    (unit,) = units_of(found, replace(owners, joint=joint_gangs(found, owners)))

    assert "its members state different sizes, 4 to 5: the largest counts" in unit.blocked


# ---- A gang that was whole.


def test_a_gang_that_was_whole_needs_its_running_members_not_its_size_again():
    found = [*pods(JOB, "job", 2, size=4, **RUNNING), *pods(JOB, "job", 1, size=4, first=2)]
    placed = owners_of({"placed": {key("job"): 4}}, job=4)

    assert gangs(found, placed) == {frozenset({"job"}): (4, True)}
    assert gangs(found, owners_of(job=4)) == {frozenset({"job"}): (4, False)}
    assert gangs(found[2:], placed) == {frozenset({"job"}): (4, False)}


@pytest.mark.parametrize(("waiting", "is_repair"), [(2, True), (3, False)])
def test_only_members_up_to_the_size_of_the_plan_repair_a_gang(waiting, is_repair):
    found = [
        *pods(JOB, "job", 2, size=4, **RUNNING),
        *pods(JOB, "job", waiting, size=4, first=2),
    ]

    (unit,) = units_of(found, owners_of({"placed": {key("job"): 4}}, job=4))

    assert unit.is_repair is is_repair
    assert (unit.turn == "") is is_repair
