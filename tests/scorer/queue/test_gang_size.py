"""Sizes of gangs that a leader reads from owners and PodGroups."""

import asyncio
from itertools import count

import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry
from support.builders import a_held_pod
from support.servers.leader_harness import JOB, Cluster, leading
from support.waiting import until

from linkwise.cluster import keys
from linkwise.cluster.gang import GangKey
from linkwise.cluster.objects.metadata import Owner
from linkwise.planning.gang.crd import GANGS
from linkwise.runtime.kube.client import Kube
from scorer.cache.informers import Informers
from scorer.metrics import Metrics
from scorer.queue import gang_size
from scorer.queue.fault_isolation import FaultIsolation

LABELLED = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team/podgroups/bert"
NATIVE = "/apis/scheduling.k8s.io/v1beta1/namespaces/team/podgroups/bert"
BEFORE = "/apis/scheduling.k8s.io/v1alpha2/namespaces/team/podgroups/bert"
SET = "/apis/apps/v1/namespaces/team/statefulsets/bert"
FORGED = "/apis/apps/v1/namespaces/other/statefulsets"
OWNER = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "bert", "uid": "set"}
COUNTED = {"schedulingPolicy": {"gang": {"minCount": 2}}}


@pytest_asyncio.fixture
async def cluster():
    async with Cluster() as running:
        running.node()
        yield running


def member(cluster, number, **spec):
    labels = {} if "schedulingGroup" in spec else {keys.POD_GROUP: "bert"}
    cluster.pod(f"bert-{number}", 4, labels=labels, **spec)


def stateful_set(replicas):
    container = {"name": "c", "resources": {"limits": {keys.GPU_WHOLE: 1}}}
    template = {"spec": {"containers": [container]}}
    return {"metadata": {"uid": "set"}, "spec": {"replicas": replicas, "template": template}}


def forge(cluster, name, *, namespace):
    """Create a member of a gang of its own, with an owner of any uid."""
    owner, marks = (
        {**OWNER, "name": name, "uid": f"{name}-{namespace}"},
        {keys.POD_GROUP_NAME: name},
    )
    pod = a_held_pod(1, name, namespace=namespace, owner=owner, labels=marks)
    cluster.put(f"/api/v1/namespaces/{namespace}/pods/{name}", pod)


def statuses(cluster):
    return [gang.get("status", {}) for gang in cluster.all(GANGS)]


@pytest.mark.parametrize(
    ("path", "spec", "mark"),
    [
        pytest.param(LABELLED, {"minMember": 2}, {}, id="of scheduler-plugins"),
        pytest.param(
            NATIVE, COUNTED, {"schedulingGroup": {"podGroupName": "bert"}}, id="of Kubernetes"
        ),
        pytest.param(
            BEFORE, COUNTED, {"schedulingGroup": {"podGroupName": "bert"}}, id="of Kubernetes 1.36"
        ),
    ],
)
async def test_a_pod_group_sets_the_size(cluster, path, spec, mark):
    cluster.put(path, {"metadata": {}, "spec": spec})
    async with leading(cluster):
        member(cluster, 0, **mark)
        await until(lambda: cluster.phase() == "Assembling")
        await until(lambda: cluster.the_gang()["status"]["members"] == "1/2")
        member(cluster, 1, **mark)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))


async def test_a_changed_pod_group_is_read_again_while_members_are_missing(cluster):
    cluster.put(LABELLED, {"metadata": {}, "spec": {"minMember": 3}})
    async with leading(cluster):
        member(cluster, 0)
        member(cluster, 1)
        await until(lambda: "2/3" in [status.get("members") for status in statuses(cluster)])
        cluster.put(LABELLED, {"metadata": {}, "spec": {"minMember": 2}})
        await until(lambda: cluster.allocated("bert-0", "bert-1"))


@pytest.mark.parametrize("before", [None, 3], ids=["comes after its pods", "lowers its minimum"])
async def test_a_pod_group_that_changes_counts_at_once(cluster, before):
    def group(members):
        cluster.put(LABELLED, {"metadata": {"uid": "group"}, "spec": {"minMember": members}})

    if before:
        group(before)
    async with leading(cluster, owner_retry=600):
        member(cluster, 0)
        member(cluster, 1)
        await until(lambda: f"2/{before or '?'}" in [s.get("members") for s in statuses(cluster)])
        group(2)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))


async def test_an_owner_that_changes_counts_at_once(cluster):
    cluster.put(SET, stateful_set(3))
    async with leading(cluster, owner_retry=600):
        for number in range(2):
            cluster.pod(f"bert-{number}", 4, gang="bert", size=None, owner=OWNER)
        await until(lambda: "2/3" in [status.get("members") for status in statuses(cluster)])
        cluster.put(SET, stateful_set(2))
        await until(lambda: cluster.allocated("bert-0", "bert-1"))


async def test_a_smaller_job_is_read_again_while_members_are_missing(cluster):
    cluster.put(SET, stateful_set(3))
    async with leading(cluster):
        for number in range(2):
            cluster.pod(f"bert-{number}", 4, gang="bert", size=3, owner=OWNER)
        await until(lambda: "2/3" in [status.get("members") for status in statuses(cluster)])
        cluster.put(SET, stateful_set(2))
        await until(lambda: cluster.allocated("bert-0", "bert-1"))


async def test_no_owner_is_read_for_a_complete_gang(cluster):
    async with leading(cluster):
        for number in range(2):
            cluster.pod(f"bert-{number}", 8, gang="bert", size=2, owner=OWNER)
        await until(lambda: cluster.phase() == "Waiting")

    assert cluster.reads == []


async def test_no_owner_is_read_for_a_complete_gang_behind_gates_of_others(cluster):
    gates = (keys.GANG, "kueue.x-k8s.io/admission")
    async with leading(cluster):
        for number in range(2):
            cluster.pod(f"bert-{number}", 4, gang="bert", size=2, owner=OWNER, gates=gates)
        await until(lambda: cluster.phase() == "Assembling")

    assert cluster.reads == []


class Slow(Cluster):
    """Holds back responses about single owners."""

    def __init__(self):
        super().__init__()
        self.go = asyncio.Event()
        self.asking = self.most = 0

    async def _answer(self, request):
        if request.method != "GET" or "/statefulsets/" not in request.path:
            return await super()._answer(request)
        self.asking += 1
        self.most = max(self.most, self.asking)
        await self.go.wait()
        self.asking -= 1
        return await super()._answer(request)


async def test_few_owners_are_read_concurrently():
    async with Slow() as cluster, leading(cluster, owner_retry=30):
        for number in range(20):
            forge(cluster, f"x-{number}", namespace=f"team-{number}")
        await until(lambda: cluster.asking == 8)
        cluster.go.set()
        await until(lambda: len(set(cluster.reads)) == 20)

    assert cluster.most == 8


async def test_owners_of_one_namespace_are_read_one_after_the_other():
    async with Slow() as cluster, leading(cluster, owner_retry=60):
        cluster.node()
        for number in range(20):
            forge(cluster, f"x-{number}", namespace="other")
        await until(lambda: cluster.asking == 1)
        cluster.put(SET, stateful_set(2))
        for number in range(2):
            cluster.pod(f"bert-{number}", 1, gang="bert", size=None, owner=OWNER)
        await until(lambda: cluster.asking == 2)
        cluster.go.set()
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        await until(lambda: {f"{FORGED}/x-{number}" for number in range(20)} <= {*cluster.reads})

    assert cluster.most == 2


async def test_an_owner_that_is_not_needed_any_more_is_not_read():
    async with Slow() as cluster, Kube(cluster.url) as kube:
        faults = FaultIsolation(Metrics(CollectorRegistry()), lambda: None)
        resolver = gang_size.GangSizeResolver(kube, Informers(kube), faults, retry=60)
        owners = [
            Owner(kind="StatefulSet", name=uid, uid=uid, api_version="apps/v1")
            for uid in ("set-0", "set-1")
        ]
        for owner in owners:
            resolver.resolve_owner(owner, "team")
        running = asyncio.create_task(resolver.run())
        await until(lambda: cluster.asking == 1)
        resolver.forget(GangKey("team", "bert", "set-1"))
        last = Owner(kind="StatefulSet", name="last", uid="set-2", api_version="apps/v1")
        resolver.resolve_owner(last, "team")
        cluster.go.set()
        await until(lambda: len(cluster.reads) == 2)
        running.cancel()

    assert [path.rpartition("/")[2] for path in cluster.reads] == ["set-0", "last"]


async def test_after_an_owner_that_takes_long_those_of_its_namespace_wait(monkeypatch):
    ticks = count()
    monkeypatch.setattr(gang_size, "loop_time", lambda: next(ticks) * 1000.0)
    async with Cluster() as cluster, leading(cluster, owner_retry=60):
        cluster.node()
        cluster.put(SET, stateful_set(2))
        forge(cluster, "bert", namespace="team")
        await until(lambda: cluster.reads == [SET])
        forge(cluster, "y", namespace="team")
        forge(cluster, "z", namespace="other")
        await until(lambda: len(cluster.reads) == 2)

    assert cluster.reads[1].endswith("/other/statefulsets/z")


async def test_a_pod_group_that_is_created_after_its_pods_is_found(cluster):
    async with leading(cluster):
        member(cluster, 0)
        member(cluster, 1)
        await until(lambda: cluster.reads.count(LABELLED) > 1)
        cluster.put(LABELLED, {"metadata": {}, "spec": {"minMember": 2}})
        await until(lambda: cluster.allocated("bert-0", "bert-1"))


async def test_a_pod_group_that_cannot_be_read_is_read_again(cluster):
    cluster.put(LABELLED, {"metadata": {}, "spec": {"minMember": 2}})
    cluster.outcomes["GET", LABELLED] += [(503, "starting"), (403, "no"), "lost"]
    async with leading(cluster):
        member(cluster, 0)
        member(cluster, 1)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))

    assert cluster.reads == [LABELLED] * 4


async def test_a_pod_group_is_read_again_for_a_resubmitted_job(cluster):
    cluster.node("gpu-1")
    cluster.put(LABELLED, {"metadata": {"uid": "before"}, "spec": {"minMember": 1}})
    async with leading(cluster):
        member(cluster, 0, owner={**JOB, "uid": "before"})
        await until(lambda: cluster.allocated("bert-0"))
        # The last pod of the first job still exists when the next job starts.
        cluster.remove(LABELLED)
        cluster.put(LABELLED, {"metadata": {"uid": "new"}, "spec": {"minMember": 2}})
        member(cluster, 1, owner={**JOB, "uid": "new"})
        await until(lambda: "1/2" in [status.get("members") for status in statuses(cluster)])
        assert cluster.patches("bert-1") == []
        member(cluster, 2, owner={**JOB, "uid": "new"})
        await until(lambda: cluster.allocated("bert-1", "bert-2"))


async def test_a_pod_group_that_is_being_deleted_is_ignored(cluster):
    leaving = {"uid": "before", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    cluster.put(LABELLED, {"metadata": leaving, "spec": {"minMember": 1}})
    async with leading(cluster):
        member(cluster, 0)
        await until(lambda: cluster.reads.count(LABELLED) > 1)
        assert cluster.patches("bert-0") == []
        cluster.put(LABELLED, {"metadata": {"uid": "new"}, "spec": {"minMember": 2}})
        await until(lambda: cluster.the_gang()["status"]["members"] == "1/2")
        member(cluster, 1)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))


async def test_the_reason_names_the_fix_for_a_stateful_set_with_ordered_pods(cluster):
    cluster.put(SET, stateful_set(2))
    async with leading(cluster):
        cluster.pod("bert-0", gang="bert", size=2, owner=OWNER)
        await until(
            lambda: cluster.phase() and "Parallel" in cluster.the_gang()["status"]["reason"]
        )

    reason = cluster.the_gang()["status"]["reason"]
    assert reason.startswith("1 of 2 members; missing: bert-1; StatefulSet bert makes each pod")


async def test_a_forged_owner_delays_no_other_gang(cluster):
    forged = {**OWNER, "name": "gone"}
    async with leading(cluster, owner_retry=60):
        cluster.pod("other-0", gang="other", size=None, owner=forged)
        await until(lambda: statuses(cluster))
        cluster.put(SET, stateful_set(2))
        for number in range(2):
            cluster.pod(f"bert-{number}", 1, gang="bert", size=None, owner=OWNER)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))


async def test_the_end_of_a_gang_with_an_owner_of_another_namespace_ends_no_read_of_it():
    async with Slow() as cluster, leading(cluster, owner_retry=60):
        cluster.node()
        cluster.put(SET, stateful_set(2))
        forged = "/api/v1/namespaces/other/pods/x-0"
        marks = {keys.POD_GROUP_NAME: "x"}
        cluster.put(forged, a_held_pod(1, "x-0", namespace="other", owner=OWNER, labels=marks))
        for number in range(2):
            cluster.pod(f"bert-{number}", 1, gang="bert", size=None, owner=OWNER)
        await until(lambda: cluster.asking == 2)
        cluster.remove(forged)
        cluster.pod("last", 1)
        await until(lambda: cluster.allocated("last"))
        cluster.go.set()
        await until(lambda: cluster.allocated("bert-0", "bert-1"))

    assert cluster.reads.count(SET) == 1


async def test_the_owner_of_a_deleted_gang_is_not_read_any_more(cluster, monkeypatch):
    monkeypatch.setattr(gang_size, "_RETRY_MAX", 0.01)
    cluster.put(SET, stateful_set(2))
    async with leading(cluster):
        for number in range(2):
            cluster.pod(f"bert-{number}", 1, gang="bert", size=None, owner=OWNER)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        cluster.bind("bert-0", "bert-1")
        await until(lambda: cluster.phase() == "Placed")
        # Now its owner may want fewer members.
        cluster.delete("bert-1")
        known = cluster.reads.count(SET)
        await until(lambda: cluster.reads.count(SET) > known + 3)
        cluster.remove(SET)
        cluster.remove(path_of_gang(cluster))
        cluster.delete("bert-0")
        cluster.pod("last", 1)
        await until(lambda: cluster.allocated("last"))
        # A read that was under way has ended.
        await asyncio.sleep(0.1)
        known = cluster.reads.count(SET)
        await asyncio.sleep(0.2)

    assert cluster.reads.count(SET) == known


def path_of_gang(cluster):
    metadata = cluster.the_gang()["metadata"]
    return f"/apis/linkwise.dev/v1alpha1/namespaces/team/gangs/{metadata['name']}"
