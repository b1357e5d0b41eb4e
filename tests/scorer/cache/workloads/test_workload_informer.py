import pytest
from support.builders import a_held_pod
from support.servers.informers_harness import watching
from support.waiting import until

from linkwise.cluster import keys
from linkwise.cluster.gang import GangKey
from linkwise.cluster.objects.metadata import Owner
from linkwise.workloads import operator_keys
from linkwise.workloads.members import ExpectedPods
from linkwise.workloads.state import OwnerState

JOBS = "/apis/batch/v1/namespaces/team/jobs"
STATEFUL_SETS = "/apis/apps/v1/namespaces/team/statefulsets"


async def test_an_owner_with_an_impossibly_long_uid_is_not_kept(cluster):
    owner = {"kind": "JobSet", "name": "a", "uid": "x" * 100_000, "controller": True}
    job = {"metadata": {"uid": "job", "ownerReferences": [owner]}}
    cluster.put(f"{JOBS}/bert", job)
    async with watching(cluster) as informers:
        assert informers.workloads.fails_on_eviction == {"job"}
        assert informers.owners.controllers == {}


def a_job(cluster, name, *owners, **spec):
    body = {"metadata": {"uid": name, "ownerReferences": list(owners)}, "spec": spec}
    cluster.put(f"{JOBS}/{name}", body)


async def test_the_controller_of_a_job_is_known(cluster):
    above = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "set"}
    a_job(cluster, "in-set", {**above, "uid": "x"}, {**above, "controller": True})
    async with watching(cluster) as informers:
        owner = informers.owners.controllers["in-set"]
        assert (owner.kind, owner.uid) == ("JobSet", "set")
        assert informers.workloads.drain_dirty_owners() == {"in-set"}
        assert informers.workloads.drain_dirty_owners() == set()


async def test_the_top_owner_of_a_worker_is_found_through_its_leader(cluster):
    api = {"apiVersion": "apps/v1", "kind": "StatefulSet", "controller": True}
    lws = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}

    def a_set(name, owner):
        metadata = {"uid": f"set-{name}", "ownerReferences": [{**owner, "controller": True}]}
        cluster.put(f"{STATEFUL_SETS}/{name}", {"metadata": metadata})

    labels = {keys.LWS_NAME: "s", keys.LWS_GROUP_INDEX: "0", operator_keys.LWS_WORKER_INDEX: "0"}
    leader = a_held_pod(1, "s-0", labels=labels, owner={**api, "name": "s", "uid": "set-s"})
    path = "/api/v1/namespaces/team/pods/s-0"
    async with watching(cluster) as informers:
        a_set("s-0", {"apiVersion": "v1", "kind": "Pod", "name": "s-0", "uid": "s-0"})
        a_set("s", {**lws, "name": "s", "uid": "lws"})
        a_set("web", {**lws, "kind": "Website", "uid": "web"})
        cluster.put(path, leader)
        worker = Owner(kind="StatefulSet", name="s-0", uid="set-s-0")
        await until(lambda: informers.owners.top(worker).uid == "lws")
        assert "set-web" not in informers.owners.controllers

        cluster.remove(path)
        await until(lambda: informers.owners.top(worker).kind == "Pod")
        cluster.remove(f"{STATEFUL_SETS}/s-0")
        await until(lambda: informers.owners.top(worker) is worker)


async def test_only_owners_that_changed_are_dirty(cluster):
    above = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "set"}
    a_job(cluster, "in-set", {**above, "controller": True})
    a_job(cluster, "alone")
    async with watching(cluster) as informers:
        informers.workloads.drain_dirty_owners()
        for done in (1, 2):
            a_job(cluster, "in-set", {**above, "controller": True}, completions=done)
        a_job(cluster, "last")
        await until(lambda: "last" in informers.workloads.fails_on_eviction)
        # A Job without a controller is its own top owner, as it was before it was listed.
        assert informers.workloads.drain_dirty_owners() == set()

        cluster.remove(f"{JOBS}/in-set")
        await until(lambda: "in-set" not in informers.owners.controllers)
        assert informers.workloads.drain_dirty_owners() == {"in-set"}
        assert informers.workloads.fails_on_eviction == {"alone", "last"}


async def test_a_job_that_was_created_again_replaces_the_one_of_its_name(cluster):
    a_job(cluster, "sweep")
    async with watching(cluster) as informers:
        path = f"{JOBS}/sweep"
        cluster.put(path, {"metadata": {"uid": "again"}, "spec": {}})
        cluster.objects["/apis/batch/v1/jobs"]["team", "sweep"]["metadata"]["uid"] = "again"
        cluster.put(path, {"metadata": {"uid": "again"}, "spec": {}})
        await until(lambda: "again" in informers.workloads.fails_on_eviction)
        assert informers.workloads.fails_on_eviction == {"again"}


async def test_sizes_are_kept_until_the_gang_is_forgotten(cluster):
    async with watching(cluster) as informers:
        informers.changed.clear()
        made = ExpectedPods((("bert", 4),))
        informers.workloads.set_expected("team", "job", 4, made)

        assert (informers.owners.declared, informers.owners.expected) == ({"job": 4}, {"job": made})
        assert informers.workloads.drain_dirty_owners() == {"job"}
        assert informers.changed.is_set()

        gang = GangKey("team", "bert", "job")
        informers.workloads.set_group_size(gang, 3)
        assert informers.owners.groups == {gang: 3}
        assert informers.state.groups.drain_dirty() == {("team", "bert")}

        informers.workloads.forget_gang(GangKey("other", "bert", "job"))
        assert informers.owners.declared == {"job": 4}
        informers.workloads.forget_gang(gang)
        owners = informers.owners
        assert (owners.declared, owners.expected, owners.groups) == ({}, {}, {})


@pytest.mark.parametrize(
    ("rules", "fragile"),
    [
        pytest.param(None, True, id="no policy"),
        pytest.param([], True, id="no rules"),
        pytest.param([("Ignore", "DisruptionTarget")], False, id="evictions are ignored"),
        pytest.param([("FailJob", "DisruptionTarget")], True, id="evictions fail it"),
        pytest.param([("Ignore", "ConfigIssue")], True, id="something else is ignored"),
        pytest.param(
            [("FailJob", "ConfigIssue"), ("Ignore", "DisruptionTarget")], False, id="second rule"
        ),
    ],
)
async def test_jobs_that_count_evictions_as_failures_are_known(cluster, rules, fragile):
    spec = {}
    if rules is not None:
        made = [
            {"action": action, "onPodConditions": [{"type": condition, "status": "True"}]}
            for action, condition in rules
        ]
        spec = {"podFailurePolicy": {"rules": [{"action": "Count", "onExitCodes": {}}, *made]}}
    a_job(cluster, "sweep", **spec)
    async with watching(cluster) as informers:
        assert ("sweep" in informers.workloads.fails_on_eviction) is fragile


def a_stateful_set(cluster, replicas):
    body = {"metadata": {"uid": "set"}, "spec": {"replicas": replicas}}
    cluster.put(f"{STATEFUL_SETS}/bert", body)


async def test_a_stateful_set_is_suspended_while_its_watch_shows_no_replicas(cluster):
    a_stateful_set(cluster, 0)
    async with watching(cluster) as informers:
        workloads = informers.workloads
        workloads.set_state("set", OwnerState.ACTIVE)
        assert workloads.state("set") is OwnerState.SUSPENDED

        a_stateful_set(cluster, 2)
        await until(lambda: workloads.state("set") is OwnerState.ACTIVE)
        workloads.set_state("set", OwnerState.SUSPENDED)
        assert workloads.state("set") is OwnerState.ACTIVE

        a_stateful_set(cluster, 0)
        await until(lambda: workloads.state("set") is OwnerState.SUSPENDED)
        cluster.remove(f"{STATEFUL_SETS}/bert")
        await until(lambda: workloads.state("set") is OwnerState.ACTIVE)


async def test_a_stateful_set_whose_job_has_ended_has_ended_until_it_is_scaled_up(cluster):
    a_stateful_set(cluster, 2)
    async with watching(cluster) as informers:
        workloads = informers.workloads
        workloads.set_state("set", OwnerState.SUCCEEDED)
        informers.changed.clear()
        a_stateful_set(cluster, 0)
        await informers.changed.wait()
        assert workloads.state("set") is OwnerState.SUCCEEDED

        a_stateful_set(cluster, 2)
        await until(lambda: workloads.state("set") is OwnerState.ACTIVE)


@pytest.mark.parametrize(
    ("condition", "state"),
    [("Complete", OwnerState.SUCCEEDED), ("Failed", OwnerState.FAILED)],
)
async def test_a_job_has_ended_when_its_watch_shows_it(cluster, condition, state):
    conditions = [{"type": condition, "status": "True"}]
    body = {"metadata": {"uid": "job"}, "spec": {}, "status": {"conditions": conditions}}
    cluster.put(f"{JOBS}/sweep", body)
    async with watching(cluster) as informers:
        assert informers.workloads.state("job") is state


async def test_an_owner_that_is_not_watched_is_suspended_as_it_was_read(cluster):
    async with watching(cluster) as informers:
        workloads = informers.workloads
        for state in (OwnerState.SUSPENDED, OwnerState.ACTIVE, OwnerState.SUSPENDED):
            informers.changed.clear()
            workloads.set_state("mpijob", state)
            assert workloads.state("mpijob") is state
            assert informers.changed.is_set()

        workloads.forget_owner("mpijob")
        assert workloads.state("mpijob") is OwnerState.ACTIVE
