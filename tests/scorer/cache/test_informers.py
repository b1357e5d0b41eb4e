import asyncio
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from builders import a_held_pod, dgx1_v100
from leader_harness import Cluster, leading, soon
from structlog.testing import capture_logs

from cluster import keys
from cluster.gang import GangKey
from cluster.pod import Owner
from cluster.topology_configmap import PublishedTopology, write_published
from runtime.kube.client import Kube
from scorer.cache.informers import Informers
from scorer.gang.owners import ExpectedPods

CONFIG_MAPS = f"/api/v1/namespaces/{keys.TOPOLOGY_NAMESPACE}/configmaps"
JOBS = "/apis/batch/v1/namespaces/team/jobs"


@pytest_asyncio.fixture
async def cluster():
    async with Cluster() as running:
        yield running


@asynccontextmanager
async def watching(cluster):
    async with Kube(cluster.url) as kube:
        informers = Informers(kube)
        task = asyncio.create_task(informers.run())
        try:
            await asyncio.wait_for(informers.synced(), 30)
            yield informers
        finally:
            task.cancel()
            await asyncio.wait((task,))
            assert task.cancelled()


def node_in(informers, name="gpu-0"):
    found = informers.state.snapshot().ledger.nodes.get(name)
    return found and found.node


def topology(cluster, name="gpu-0", **labels):
    found = PublishedTopology(dgx1_v100(), (True,) * 8)
    labels = labels or {keys.NODE_MODE: "topology", keys.TOPOLOGY_NODE: name}
    data = write_published(found, [[0.0] * 8] * 8)
    cluster.put(f"{CONFIG_MAPS}/{name}-topology", {"metadata": {"labels": labels}, "data": data})


async def test_what_was_not_listed_is_missing(cluster):
    async with Kube(cluster.url) as kube:
        informers = Informers(kube)

        assert informers.missing() == "pods were not listed yet: the list is under way"
        assert {age() for age in informers.ages().values()} == {None}


async def test_everything_is_listed_and_its_age_is_known(cluster):
    async with watching(cluster) as informers:
        ages = informers.ages()

        assert informers.missing() is None
        assert ages.keys() == {
            "pods",
            "nodes",
            "topologies",
            "policy",
            "jobs",
            "statefulsets",
            "gangs",
        }
        await soon(lambda: all(age() < 30 for age in ages.values()))


async def test_nodes_and_pods_come_and_go(cluster):
    cluster.node()
    async with watching(cluster) as informers:
        assert node_in(informers).name == "gpu-0"
        informers.changed.clear()
        cluster.node("gpu-1")
        cluster.pod("alone")
        await soon(lambda: node_in(informers, "gpu-1") and list(informers.state.groups))
        assert informers.changed.is_set()
        cluster.remove("/api/v1/nodes/gpu-0")
        cluster.delete("alone")
        await soon(lambda: not node_in(informers) and not list(informers.state.groups))


def grow(pod, part):
    """Let there be more of something in a pod than anybody has good use for."""
    metadata, spec = pod["metadata"], pod["spec"]
    match part:
        case "tolerations":
            spec["tolerations"] = [{"key": "a", "operator": "Exists"}] * 1100
        case "owners":
            metadata["ownerReferences"] = [{"kind": "Job", "name": "a", "uid": "a"}] * 300
        case "labels":
            metadata["labels"] = {f"label-{i}": "" for i in range(5000)}
        case "annotation":
            metadata["annotations"]["note"] = "x" * 300_000
        case "env":
            spec["containers"][0]["env"] = [{"name": "A", "value": "x" * 300_000}]
        case "containers":
            spec["containers"] += [{"name": f"c-{i}"} for i in range(1100)]


@pytest.mark.parametrize(
    "part", ["tolerations", "owners", "labels", "annotation", "env", "containers"]
)
async def test_what_a_pod_has_is_given_to_nobody_else_however_long_the_pod_grew(cluster, part):
    cluster.node(gpus=2)
    async with leading(cluster):
        cluster.pod("first")
        await soon(lambda: cluster.given("first"))
    cluster.bind("first")
    pod = cluster["first"]
    grow(pod, part)
    cluster.put("/api/v1/namespaces/team/pods/first", pod)
    cluster.pod("second")

    async with leading(cluster, term=8):
        await soon(lambda: cluster.given("second"))

    given = [gpu["i"] for name in ("first", "second") for gpu in cluster.record(name)["gpus"]]
    assert sorted(given) == [0, 1]


async def test_a_node_that_cannot_be_read_is_left_out_until_it_can(cluster):
    cluster.node(gpus="many")
    async with watching(cluster) as informers:
        assert node_in(informers) is None
        cluster.node()
        await soon(lambda: node_in(informers))


async def test_a_node_that_cannot_be_read_any_more_is_left_out_until_it_can(cluster):
    cluster.node()
    async with watching(cluster) as informers:
        await soon(lambda: node_in(informers))
        cluster.put("/api/v1/nodes/gpu-0", {"metadata": {}, "status": {"conditions": "none"}})
        await soon(lambda: node_in(informers) is None)
        cluster.node()
        await soon(lambda: node_in(informers))


async def test_a_node_with_thousands_of_taints_and_conditions_is_read(cluster):
    taints = [{"key": f"taint-{i}", "effect": "NoSchedule"} for i in range(2000)]
    status = {"conditions": [{"type": f"c-{i}", "status": "True"} for i in range(500)]}
    body = {"metadata": {}, "spec": {"taints": taints}, "status": status}
    cluster.put("/api/v1/nodes/gpu-0", body)
    async with watching(cluster) as informers:
        assert len(node_in(informers).taints) == 2000


async def test_of_a_jobs_owner_that_no_object_can_be_nothing_is_kept(cluster):
    owner = {"kind": "JobSet", "name": "a", "uid": "x" * 100_000, "controller": True}
    job = {"metadata": {"uid": "job", "ownerReferences": [owner]}}
    cluster.put(f"{JOBS}/bert", job)
    async with watching(cluster) as informers:
        assert informers.owners.above == {"job": None}


@pytest.mark.parametrize("first", ["node", "topology"])
async def test_a_node_is_what_its_agent_publishes_whichever_comes_first(cluster, first):
    async with watching(cluster) as informers:
        for put in (cluster.node, lambda: topology(cluster))[:: 1 if first == "node" else -1]:
            informers.changed.clear()
            put()
            await soon(informers.changed.is_set)
        await soon(lambda: node_in(informers) and node_in(informers).machine_known)
        cluster.put(f"{CONFIG_MAPS}/unhealthy-gpu-gpu-0", {"metadata": {}, "data": {"gpus": "3"}})
        await soon(lambda: not node_in(informers).cards[3].healthy)
        cluster.remove(f"{CONFIG_MAPS}/gpu-0-topology")
        await soon(lambda: not node_in(informers).machine_known)
        assert not node_in(informers).cards[3].healthy


async def test_config_maps_that_tell_of_no_node_change_nothing(cluster):
    cluster.node()
    async with watching(cluster) as informers:
        before = informers.state.snapshot()
        informers.changed.clear()
        topology(cluster, app="other")
        await soon(informers.changed.is_set)

        assert informers.state.snapshot() is before


def doubts(logs):
    """Return what was logged of nodes, in order."""
    return [
        (one["node"], one["warnings"]) for one in logs if one["event"] == "Inconsistent node data"
    ]


HELD_BACK = "2 of 8 GPUs are not allocatable, and nothing tells which"


def held_back(cluster, **labels):
    """Let the kubelet of a node give out two GPUs less than there are."""
    labels = {keys.NODE_MODE: "topology", **labels}
    status = {"allocatable": {keys.GPU_WHOLE: "6"}, "capacity": {keys.GPU_WHOLE: "8"}}
    cluster.put("/api/v1/nodes/gpu-0", {"metadata": {"labels": labels}, "status": status})


def unhealthy(cluster, gpus):
    path = f"{CONFIG_MAPS}/unhealthy-gpu-gpu-0"
    cluster.put(path, {"metadata": {}, "data": {"gpus": gpus}})


async def test_what_was_guessed_at_a_node_is_logged_when_it_changes_and_not_again(cluster):
    cluster.node("sound")
    held_back(cluster)
    with capture_logs() as logs:
        async with watching(cluster) as informers:
            await soon(lambda: doubts(logs))
            assert doubts(logs) == [("gpu-0", [HELD_BACK])]
            held_back(cluster, rack="r2")
            await soon(lambda: node_in(informers).labels.get("rack"))
            assert len(doubts(logs)) == 1

            unhealthy(cluster, "3,4,x")
            await soon(lambda: not node_in(informers).cards[4].healthy)
            (listed,) = doubts(logs)[1][1]
            assert listed.startswith("ConfigMap unhealthy-gpu-gpu-0: 'x': not an index")
            unhealthy(cluster, "3,4")
            await soon(lambda: not node_in(informers).warnings)
            assert len(doubts(logs)) == 2

            unhealthy(cluster, "")
            await soon(lambda: node_in(informers).cards[4].healthy)
            assert doubts(logs)[2:] == [("gpu-0", [HELD_BACK])]


async def test_what_is_told_of_a_node_is_looked_at_before_anything_is_logged_of_it(cluster):
    held_back(cluster, **{keys.NODE_PLACEMENT: "spraed"})
    unhealthy(cluster, "3,4")
    cluster.policy("placement: {strategy: spread}\n")
    with capture_logs() as logs:
        async with watching(cluster):
            await soon(lambda: doubts(logs))

    told = f"{keys.NODE_PLACEMENT}=spraed is neither binpack nor spread: spread is taken"
    assert doubts(logs) == [("gpu-0", [told])]


async def test_a_node_that_comes_again_is_told_of_again(cluster):
    with capture_logs() as logs:
        async with watching(cluster) as informers:
            for times in (1, 2):
                held_back(cluster)
                await soon(lambda wanted=times: len(doubts(logs)) == wanted)
                cluster.remove("/api/v1/nodes/gpu-0")
                await soon(lambda: not node_in(informers))


# ---- The policy.


async def test_the_policy_is_followed_and_the_last_one_that_could_be_read_stays(cluster):
    cluster.node(pool="a")
    async with watching(cluster) as informers:
        assert informers.policy.policy.gangs.ageing_minutes == 10
        cluster.policy(
            "gangs: {ageingMinutes: 3, domains: [rack]}\n"
            "placement: {strategy: spread}\n"
            "machines:\n- {nodeLabels: {pool: a}, machine: dgx1-v100}\n"
        )
        await soon(lambda: informers.policy.policy.gangs.ageing_minutes == 3)
        snapshot = informers.state.snapshot()
        assert (snapshot.domains, snapshot.placement) == (("rack",), "spread")
        assert node_in(informers).machine_known
        generation = informers.policy.generation

        cluster.policy("gangs: {ageingMinutes: no}\n")
        cluster.node("sign")
        await soon(lambda: node_in(informers, "sign"))
        await soon(
            lambda: (
                informers._policy.items[keys.POLICY_NAMESPACE, keys.POLICY_NAME].data
                == {keys.POLICY_KEY: "gangs: {ageingMinutes: no}\n"}
            )
        )
        assert informers.policy.policy.gangs.ageing_minutes == 3
        assert informers.policy.generation == generation
        assert node_in(informers).machine_known

        cluster.policy("gangs: {ageingMinutes: 4}\n")
        await soon(lambda: informers.policy.policy.gangs.ageing_minutes == 4)
        assert not node_in(informers).machine_known


async def test_a_changed_policy_lays_out_shares_on_nodes_that_are_there(cluster):
    cluster.node("other", **{keys.NODE_PLACEMENT: "binpack"})
    cluster.node()
    async with watching(cluster) as informers:
        for strategy in ("spread", "binpack"):
            cluster.policy(f"placement: {{strategy: {strategy}}}\n")
            await soon(lambda wanted=strategy: node_in(informers).placement == wanted)
            assert node_in(informers, "other").placement == "binpack"


async def test_a_policy_that_is_deleted_leaves_the_defaults(cluster):
    cluster.policy("gangs: {ageingMinutes: 3}\n")
    async with watching(cluster) as informers:
        assert informers.policy.policy.gangs.ageing_minutes == 3
        path = f"/api/v1/namespaces/{keys.POLICY_NAMESPACE}/configmaps/{keys.POLICY_NAME}"
        cluster.remove(path)
        await soon(lambda: informers.policy.policy.gangs.ageing_minutes == 10)


async def test_a_policy_that_names_an_unknown_machine_leaves_its_nodes_out(cluster):
    cluster.node("a", pool="a")
    cluster.node("b", pool="b")
    cluster.policy("machines:\n- {nodeLabels: {pool: a}, machine: no-such}\n")
    async with watching(cluster) as informers:
        assert (node_in(informers, "a"), node_in(informers, "b").name) == (None, "b")


# ---- Owners.


def a_job(cluster, name, *owners, **spec):
    body = {"metadata": {"uid": name, "ownerReferences": list(owners)}, "spec": spec}
    cluster.put(f"{JOBS}/{name}", body)


async def test_the_owners_of_jobs_are_known(cluster):
    above = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "set"}
    a_job(cluster, "in-set", {**above, "uid": "x"}, {**above, "controller": True})
    async with watching(cluster) as informers:
        owner = informers.owners.above["in-set"]
        assert (owner.kind, owner.uid) == ("JobSet", "set")
        assert informers.drain_dirty_owners() == {"in-set"}
        assert informers.drain_dirty_owners() == set()


async def test_a_worker_of_a_leader_worker_set_is_followed_to_it_through_its_leader(cluster):
    api = {"apiVersion": "apps/v1", "kind": "StatefulSet", "controller": True}
    lws = {"apiVersion": f"{keys.LWS_NAME.partition('/')[0]}/v1", "kind": "LeaderWorkerSet"}
    sets = "/apis/apps/v1/namespaces/team/statefulsets"

    def a_set(name, owner):
        metadata = {"uid": f"set-{name}", "ownerReferences": [{**owner, "controller": True}]}
        cluster.put(f"{sets}/{name}", {"metadata": metadata})

    labels = {keys.LWS_NAME: "s", keys.LWS_GROUP_INDEX: "0", keys.LWS_WORKER_INDEX: "0"}
    leader = a_held_pod(1, "s-0", labels=labels, owner={**api, "name": "s", "uid": "set-s"})
    path = "/api/v1/namespaces/team/pods/s-0"
    async with watching(cluster) as informers:
        a_set("s-0", {"apiVersion": "v1", "kind": "Pod", "name": "s-0", "uid": "s-0"})
        a_set("s", {**lws, "name": "s", "uid": "lws"})
        a_set("web", {**lws, "kind": "Website", "uid": "web"})
        cluster.put(path, leader)
        worker = Owner(kind="StatefulSet", name="s-0", uid="set-s-0")
        await soon(lambda: informers.owners.top(worker).uid == "lws")
        assert "set-web" not in informers.owners.above

        cluster.remove(path)
        await soon(lambda: informers.owners.top(worker).kind == "Pod")
        cluster.remove(f"{sets}/s-0")
        await soon(lambda: informers.owners.top(worker) is worker)


async def test_only_owners_of_which_something_else_is_known_are_looked_at_again(cluster):
    above = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "set"}
    a_job(cluster, "in-set", {**above, "controller": True})
    a_job(cluster, "alone")
    async with watching(cluster) as informers:
        informers.drain_dirty_owners()
        for done in (1, 2):
            a_job(cluster, "in-set", {**above, "controller": True}, completions=done)
        a_job(cluster, "last")
        await soon(lambda: "last" in informers.owners.above)
        # What has no owner above is its own top, as it was before anything was known of it.
        assert informers.drain_dirty_owners() == set()

        cluster.remove(f"{JOBS}/in-set")
        await soon(lambda: "in-set" not in informers.owners.above)
        assert informers.drain_dirty_owners() == {"in-set"}
        assert informers.fails_on_eviction == {"alone", "last"}


async def test_a_job_that_was_submitted_again_takes_the_place_of_the_one_before(cluster):
    a_job(cluster, "sweep")
    async with watching(cluster) as informers:
        path = f"{JOBS}/sweep"
        cluster.put(path, {"metadata": {"uid": "again"}, "spec": {}})
        cluster.objects["/apis/batch/v1/jobs"]["team", "sweep"]["metadata"]["uid"] = "again"
        cluster.put(path, {"metadata": {"uid": "again"}, "spec": {}})
        await soon(lambda: "again" in informers.owners.above)
        assert informers.fails_on_eviction == {"again"}
        assert informers.owners.above == {"again": None}


async def test_what_an_owner_declares_is_noted(cluster):
    async with watching(cluster) as informers:
        informers.changed.clear()
        made = ExpectedPods((("bert", 4),))
        informers.set_expected("job", 4, made)

        assert (informers.owners.declared, informers.owners.makes) == ({"job": 4}, {"job": made})
        assert informers.drain_dirty_owners() == {"job"}
        assert informers.changed.is_set()

        gang = GangKey("team", "bert", "job")
        informers.set_group_size(gang, 3)
        assert informers.owners.groups == {gang: 3}
        assert informers.state.drain_dirty_groups() == {("team", "bert")}

        informers.forget(gang)
        owners = informers.owners
        assert (owners.declared, owners.makes, owners.groups) == ({}, {}, {})


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
        assert ("sweep" in informers.fails_on_eviction) is fragile
