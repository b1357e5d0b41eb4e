"""A leader moves a gang off an unhealthy GPU or a lost node: as a whole, and once."""

import asyncio
import json
from itertools import count

import pytest
import pytest_asyncio
from support.dra import a_device, a_slice
from support.servers.claims_cluster import (
    SLICE,
    allocate,
    claim_path,
    claims_node,
    pod,
    publish,
    selected,
)
from support.servers.leader_harness import Clock, Cluster, leading
from support.waiting import until

from linkwise.cluster import keys
from linkwise.planning.gang.crd import GANGS
from linkwise.topology import catalogue
from linkwise.topology.machine import mask_of
from linkwise.topology.table import table_of

PROBES = count()
EVICT = "gangs: {onFault: evict, onFaultSeconds: 60}"


@pytest_asyncio.fixture
async def cluster():
    async with Cluster() as running:
        running.node()
        running.node("gpu-1")
        running.policy(EVICT)
        yield running


async def run_gang(cluster, gang="bert", gpus=4, **pod):
    cluster.gang(gang, gpus=gpus, **pod)
    names = [f"{gang}-0", f"{gang}-1"]
    await until(lambda: cluster.allocated(*names))
    cluster.bind(*names)
    await until(lambda: status(cluster, gang).get("phase") == "Placed")


def status(cluster, gang="bert"):
    gangs = {each["spec"]["gang"]: each for each in cluster.all(GANGS)}
    return gangs.get(gang, {}).get("status", {})


def health(cluster, gang="bert", kind="GPUsHealthy"):
    """Return why a gang's condition about its GPUs does not hold; None: it has none."""
    conditions = status(cluster, gang).get("conditions", [])
    found = next((each for each in conditions if each["type"] == kind), None)
    return found and (found["message"] if found["status"] == "False" else "")


def set_unhealthy(cluster, *gpus, node="gpu-0"):
    name = f"{keys.UNHEALTHY_NAME_PREFIX}{node}"
    path = f"/api/v1/namespaces/{keys.TOPOLOGY_NAMESPACE}/configmaps/{name}"
    metadata = {"name": name, "namespace": keys.TOPOLOGY_NAMESPACE}
    data = {keys.UNHEALTHY_KEY: ",".join(map(str, gpus))}
    cluster.put(path, {"metadata": metadata, "data": data})


def set_ready(cluster, node, *, ready):
    path = f"/api/v1/nodes/{node}"
    body = cluster.get(path)
    condition = {"type": "Ready", "status": "True" if ready else "Unknown"}
    cluster.put(path, {**body, "status": {**body["status"], "conditions": [condition]}})


def a_gpu(cluster, name="bert-1"):
    return cluster.record(name)["gpus"][0]["i"]


def home(cluster, name="bert-0"):
    return cluster.record(name)["node"]


def evictions(cluster):
    """Return the names of the pods that were evicted, in order."""
    paths = (path for method, path, _ in cluster.writes if method == "POST")
    return [path.split("/")[-2] for path in paths if path.endswith("/eviction")]


async def passed(cluster, clock, seconds):
    """Let time pass; return after two rounds of the planner and their writes."""
    clock.now += seconds
    await a_round(cluster)
    await a_round(cluster)


async def a_round(cluster):
    """Wait until a pod that fits nowhere has an Event."""
    name = f"probe-{next(PROBES)}"
    cluster.pod(name, 100)
    await until(lambda: name in {one["involvedObject"]["name"] for one in cluster.events()})
    cluster.delete(name)


async def fail_gpu(cluster, name="bert-1"):
    """Let a GPU of a pod be unhealthy; return its index."""
    gpu = a_gpu(cluster, name)
    set_unhealthy(cluster, gpu, node=home(cluster, name))
    await until(lambda: health(cluster, name.partition("-")[0]))
    return gpu


def recreate(cluster, *names, gpus=4, gang="bert"):
    for name in names:
        cluster.pod(name, gpus, gang=gang, uid=f"{name}-again")


async def test_a_gang_is_evicted_as_a_whole_and_planned_on_healthy_gpus(cluster):
    clock = Clock()
    async with leading(cluster, clock=clock) as leader:
        await run_gang(cluster)
        await run_gang(cluster, "beside")
        old, neighbour = home(cluster), cluster.record("beside-0")
        assert leader.report().faulty == 0
        await fail_gpu(cluster)
        assert "are evicted together if this lasts 60 s" in health(cluster)
        assert leader.report().faulty == 1
        await passed(cluster, clock, 59)
        assert not evictions(cluster)
        await passed(cluster, clock, 1)
        await until(lambda: len(evictions(cluster)) == 2)
        assert set(evictions(cluster)) == {"bert-0", "bert-1"}
        cluster.node("gpu-2")
        recreate(cluster, "bert-0", "bert-1")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        cluster.bind("bert-0", "bert-1")
        await until(lambda: status(cluster)["phase"] == "Placed")
    assert {home(cluster), home(cluster, "bert-1")} == {"gpu-2"} != {old}
    assert cluster.record("beside-0") == neighbour
    (event,) = cluster.events("GangEvicted")
    assert "All 2 members of gang bert were evicted, to be placed again" in event["message"]
    assert "of gpu-0 (pod bert-1)" in event["message"]


async def test_by_default_a_gang_is_only_reported(cluster):
    cluster.policy("gangs: {onFaultSeconds: 1}")
    clock = Clock()
    async with leading(cluster, clock=clock) as leader:
        await run_gang(cluster)
        await fail_gpu(cluster)
        await passed(cluster, clock, 7200)
        assert leader.report().faulty == 1
        assert "no pod is evicted because of that (policy gangs.onFault: report)" in health(cluster)
        assert not evictions(cluster)
        cluster.policy("gangs: {onFault: evict, onFaultSeconds: 86400}")
        await until(lambda: "are evicted together if this lasts" in health(cluster))
        await passed(cluster, clock, 0)
    assert len(cluster.events("GangGPUUnhealthy")) == 1


async def test_a_short_fault_moves_nobody(cluster):
    clock = Clock()
    async with leading(cluster, clock=clock):
        await run_gang(cluster)
        for _ in range(3):
            await fail_gpu(cluster)
            await passed(cluster, clock, 40)
            set_unhealthy(cluster)
            await until(lambda: health(cluster) == "")
    assert not evictions(cluster)


@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "not ready"])
async def test_a_gang_on_a_lost_node_is_moved(cluster, is_deleted):
    clock = Clock()
    async with leading(cluster, clock=clock):
        await run_gang(cluster)
        if is_deleted:
            cluster.remove("/api/v1/nodes/gpu-0")
        else:
            set_ready(cluster, "gpu-0", ready=False)
        await until(lambda: health(cluster))
        assert ("was deleted" if is_deleted else "is not ready") in health(cluster)
        await passed(cluster, clock, 60)
        await until(lambda: len(evictions(cluster)) == 2)
        # It is back, and not trusted yet.
        if not is_deleted:
            set_ready(cluster, "gpu-0", ready=True)
        recreate(cluster, "bert-0", "bert-1")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
    assert {home(cluster), home(cluster, "bert-1")} == {"gpu-1"}


async def test_a_gang_that_must_not_be_evicted_stays_with_the_reason(cluster):
    clock = Clock()
    async with leading(cluster, clock=clock):
        await run_gang(cluster, owner=None)
        await fail_gpu(cluster)
        await passed(cluster, clock, 60)
        await until(lambda: "has no controller that would create it again" in health(cluster))
    assert not evictions(cluster)


async def test_the_next_leader_completes_a_move_and_begins_no_second_one(cluster):
    clock = Clock()
    path = "/api/v1/namespaces/team/pods/bert-1/eviction"
    async with leading(cluster, clock=clock):
        await run_gang(cluster)
        await fail_gpu(cluster)
        refused = 429, "a disruption budget"
        # The second attempt lasts as long as this leader.
        cluster.outcomes["POST", path] += [refused, asyncio.Event(), refused]
        await passed(cluster, clock, 60)
        await until(lambda: sorted(evictions(cluster)) == ["bert-0", "bert-1"])
        assert cluster.get("/api/v1/namespaces/team/pods/bert-1")
        recreate(cluster, "bert-0")
    # The leader ends while bert-1 is still there.
    async with leading(cluster, term=8, clock=clock):
        await until(lambda: evictions(cluster).count("bert-1") == 2)
        await passed(cluster, clock, 1)
        assert not cluster.record("bert-0")
        await passed(cluster, clock, 5)
        await until(lambda: cluster.get("/api/v1/namespaces/team/pods/bert-1") is None)
        recreate(cluster, "bert-1")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        before = len(evictions(cluster))
    # The leader ends again before the new pods are bound.
    async with leading(cluster, term=9, clock=clock):
        await passed(cluster, clock, 5)
        cluster.bind("bert-0", "bert-1")
        await until(lambda: status(cluster)["phase"] == "Placed")
        await passed(cluster, clock, 5)
    assert len(evictions(cluster)) == before


async def lose_node(cluster, name="bert-1"):
    """Let the node of a pod be not ready, and the other one ready."""
    lost = home(cluster, name)
    for node in ("gpu-0", "gpu-1"):
        set_ready(cluster, node, ready=node != lost)
    await until(lambda: health(cluster))


@pytest.mark.parametrize("fail", [fail_gpu, lose_node])
async def test_a_fault_that_comes_again_moves_a_gang_once_an_hour(cluster, fail):
    clock = Clock()
    async with leading(cluster, clock=clock):
        await run_gang(cluster)
        await fail(cluster)
        await passed(cluster, clock, 60)
        await until(lambda: len(evictions(cluster)) == 2)
        recreate(cluster, "bert-0", "bert-1")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        cluster.bind("bert-0", "bert-1")
        await until(lambda: health(cluster) == "" and status(cluster)["phase"] == "Placed")
        await fail(cluster)
        await until(lambda: "is not moved again before" in health(cluster))
        await passed(cluster, clock, 3599)
        assert len(evictions(cluster)) == 2
        await passed(cluster, clock, 1)
        await until(lambda: len(evictions(cluster)) == 4)


async def test_at_most_so_many_gangs_move_at_once(cluster):
    cluster.policy("gangs: {onFault: evict, onFaultSeconds: 60, maxConcurrentMoves: 1}")
    clock = Clock()
    async with leading(cluster, clock=clock):
        for gang in ("a", "b"):
            await run_gang(cluster, gang, gpus=2)
        node = home(cluster, "a-0")
        set_unhealthy(cluster, *range(8), node=node)
        await until(lambda: health(cluster, "a") and health(cluster, "b"))
        await passed(cluster, clock, 60)
        await until(lambda: len(evictions(cluster)) == 2)
        (moved,) = {name[0] for name in evictions(cluster)}
        (other,) = {"a", "b"} - {moved}
        await until(lambda: "once fewer gangs are being moved" in health(cluster, other))
        names = [f"{moved}-{i}" for i in range(2)]
        recreate(cluster, *names, gpus=2, gang=moved)
        await until(lambda: cluster.allocated(*names))
        assert len(evictions(cluster)) == 2
        cluster.bind(*names)
        await until(lambda: len(evictions(cluster)) == 4)


async def test_nobody_is_evicted_before_the_move_is_recorded(cluster):
    clock = Clock()
    async with leading(cluster, clock=clock):
        await run_gang(cluster)
        await fail_gpu(cluster)
        gang = cluster.the_gang()["metadata"]
        path = f"{GANGS.removesuffix('/gangs')}/namespaces/team/gangs/{gang['name']}"
        answer = asyncio.Event()
        cluster.outcomes["PATCH", path].append(answer)
        await passed(cluster, clock, 60)
        await passed(cluster, clock, 6)
        assert not evictions(cluster)
        answer.set()
        await until(lambda: "its move could not be recorded" in health(cluster))
        assert not evictions(cluster)
        await passed(cluster, clock, 60)
        await until(lambda: len(evictions(cluster)) == 2)
        record = json.loads(cluster.the_gang()["metadata"]["annotations"][keys.MOVED])
        assert record["plan"]
        assert "of gpu-0 (pod bert-1)" in record["why"]
    order = [path for _, path, _ in cluster.writes if "gangs/" in path or "/eviction" in path]
    records = [i for i, at in enumerate(order) if at == path]
    assert records[-1] < order.index("/api/v1/namespaces/team/pods/bert-0/eviction")


async def test_a_move_is_recorded_in_a_gang_that_has_changed_meanwhile(cluster):
    clock = Clock()
    async with leading(cluster, clock=clock):
        await run_gang(cluster)
        await fail_gpu(cluster)
        gang = cluster.the_gang()["metadata"]
        path = f"{GANGS.removesuffix('/gangs')}/namespaces/team/gangs/{gang['name']}"
        cluster.outcomes["PATCH", path].append((422, "its resourceVersion is another one"))
        await passed(cluster, clock, 60)
        await until(lambda: len(evictions(cluster)) == 2)
        assert not cluster.outcomes["PATCH", path]


async def test_a_disruption_budget_that_does_not_allow_all_evictions_prevents_all(cluster):
    clock = Clock()
    path = "/apis/policy/v1/namespaces/team/poddisruptionbudgets/bert"
    budget = {"metadata": {}, "spec": {"selector": {}}, "status": {"disruptionsAllowed": 1}}
    cluster.put(path, budget)
    async with leading(cluster, clock=clock):
        await run_gang(cluster)
        await fail_gpu(cluster)
        await passed(cluster, clock, 60)
        await until(lambda: "bert lets 1 of its 2 pods be evicted" in health(cluster))
        assert not evictions(cluster)
        cluster.put(path, {**budget, "status": {"disruptionsAllowed": 2}})
        await passed(cluster, clock, 60)
        await until(lambda: len(evictions(cluster)) == 2)


async def test_a_gpu_that_recovers_is_used_again_after_a_while(cluster):
    cluster.policy("gangs: {onFault: evict, onFaultSeconds: 3600}")
    cluster.remove("/api/v1/nodes/gpu-1")
    async with leading(cluster) as leader:
        set_unhealthy(cluster, 3)
        state = leader.context.informers.state
        await until(lambda: not state.node("gpu-0").cards[3].healthy)
        set_unhealthy(cluster)
        await until(lambda: state.node("gpu-0").cards[3].healthy)
        cluster.pod("all", 8)
        await a_round(cluster)
        assert not cluster.record("all")
        cluster.policy("gangs: {onFault: evict, onFaultSeconds: 1}")
        await until(lambda: cluster.allocated("all"))


async def test_a_node_whose_gpus_are_not_offered_moves_nobody(cluster):
    """As while its agent restarts."""
    clock = Clock()
    async with leading(cluster, clock=clock):
        await run_gang(cluster)
        path = "/api/v1/nodes/gpu-0"
        body = cluster.get(path)
        none = {**body["status"]["allocatable"], keys.GPU_WHOLE: "0"}
        cluster.put(path, {**body, "status": {**body["status"], "allocatable": none}})
        await until(lambda: health(cluster))
        await passed(cluster, clock, 7200)
    assert not evictions(cluster)


# ---- Claims that hold other GPUs than planned, as after a reboot.

DGX = table_of(catalogue.entry("dgx1-v100").machine)
MACHINES = 'machines: [{nodeLabels: {kubernetes.io/hostname: gpu-0}, machine: "dgx1-v100"}]'


@pytest_asyncio.fixture
async def claims_cluster():
    """A claims node with links of different speed."""
    async with Cluster() as running:
        running.serves_claims, running.taint_rules = True, "v1"
        running.policy(f"{EVICT}\n{MACHINES}")
        claims_node(running)
        yield running


async def run_pair(cluster):
    """Run a gang of two pods with claims for one GPU each; return their GPUs."""
    for name in ("bert-0", "bert-1"):
        pod(cluster, name, 1, gang="bert")
    await until(lambda: cluster.allocated("bert-0", "bert-1"))
    for name in ("bert-0", "bert-1"):
        (uuid,) = selected(cluster, name)
        allocate(cluster, name, f"gpu-{uuid.removeprefix('GPU-')}")
    cluster.bind("bert-0", "bert-1")
    await until(lambda: status(cluster).get("phase") == "Placed")
    return a_gpu(cluster, "bert-0"), a_gpu(cluster, "bert-1")


def renumbered(pair, *, is_slower):
    """Return an order of GPUs in which the second device of a pair is another GPU."""
    first, second = pair
    speed = DGX.bandwidth(mask_of(pair))
    others = (other for other in range(8) if other not in pair)
    other = next(
        each for each in others if (DGX.bandwidth(mask_of((first, each))) < speed) is is_slower
    )
    order = list(range(8))
    order[second], order[other] = other, second
    return order


async def test_a_gang_with_slower_links_after_a_reboot_is_evicted_and_planned_again(claims_cluster):
    cluster, clock = claims_cluster, Clock()
    async with leading(cluster, clock=clock) as leader:
        pair = await run_pair(cluster)
        order = renumbered(pair, is_slower=True)
        publish(cluster, order)
        await until(lambda: leader.report().faulty == 1)
        await until(lambda: "evicted together" in (health(cluster, kind="GPUsAsPlanned") or ""))
        then, now = (DGX.bandwidth(mask_of(each)) for each in (pair, (pair[0], order[pair[1]])))
        text = f"{order[pair[1]]} of gpu-0 instead of {pair[1]} (pod bert-1)"
        text += f", with {now:g} instead of {then:g} GB/s"
        assert text in health(cluster, kind="GPUsAsPlanned")
        await passed(cluster, clock, 59)
        assert not evictions(cluster)
        await passed(cluster, clock, 1)
        await until(lambda: len(evictions(cluster)) == 2)
        # Its claims are deleted with its pods.
        for name in ("bert-0", "bert-1"):
            cluster.remove(claim_path(name))
            pod(cluster, name, 1, gang="bert", uid=f"{name}-again")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        again = a_gpu(cluster, "bert-0"), a_gpu(cluster, "bert-1")
        await until(lambda: leader.report().faulty == 0)
    assert DGX.bandwidth(mask_of(again)) == then
    (event,) = cluster.events("GangEvicted")
    assert text in event["message"]


@pytest.mark.parametrize("renumbers", [False, True], ids=["same minors", "other minors"])
async def test_a_leader_that_never_saw_a_lost_gpu_moves_its_gang_whole(claims_cluster, renumbers):
    cluster, clock = claims_cluster, Clock()
    async with leading(cluster):
        lost, _ = await run_pair(cluster)
    left = [i for i in range(8) if i != lost]
    names = [f"gpu-{minor if renumbers else i}" for minor, i in enumerate(left)]
    devices = [a_device(i, name=name) for i, name in zip(left, names, strict=True)]
    cluster.put(SLICE, a_slice(*devices, node="gpu-0"))

    async with leading(cluster, clock=clock) as leader:
        await until(lambda: leader.report().faulty == 1)
        node = leader.context.informers.state.node("gpu-0")
        assert [i for i, card in enumerate(node.cards) if card.faulty] == [lost]
        assert [card.uuid for card in node.cards] == [f"GPU-{i}" for i in range(8)]
        assert leader.context.informers.state.ledger("gpu-0").unaccounted is None
        await passed(cluster, clock, 60)
        await until(lambda: len(evictions(cluster)) == 2)


@pytest.mark.parametrize(
    ("policy", "is_slower", "faulty"),
    [
        pytest.param(MACHINES, True, 1, id="only reported by the policy"),
        pytest.param(f"{EVICT}\n{MACHINES}", False, 0, id="links as fast"),
    ],
)
async def test_a_gang_on_other_gpus_stays(claims_cluster, policy, is_slower, faulty):
    cluster, clock = claims_cluster, Clock()
    cluster.policy(policy)
    async with leading(cluster, clock=clock) as leader:
        pair = await run_pair(cluster)
        publish(cluster, renumbered(pair, is_slower=is_slower))
        await until(lambda: health(cluster, kind="GPUsAsPlanned"))
        await passed(cluster, clock, 7200)
        assert leader.report().faulty == faulty
        assert ("GB/s" in health(cluster, kind="GPUsAsPlanned")) is is_slower
    assert not evictions(cluster)


async def test_the_gpus_that_a_claim_holds_have_faults_not_the_planned_ones(claims_cluster):
    cluster = claims_cluster
    async with leading(cluster):
        pair = await run_pair(cluster)
        order = renumbered(pair, is_slower=False)
        held = order[pair[1]]

        def set_faulty(gpu):
            taint = (("gpu.nvidia.com/xid", "", "NoSchedule"),)
            devices = [
                a_device(i, name=f"gpu-{minor}", taints=taint if i == gpu else ())
                for minor, i in enumerate(order)
            ]
            cluster.put(SLICE, a_slice(*devices, node="gpu-0"))

        set_faulty(pair[1])
        await until(lambda: health(cluster, kind="GPUsAsPlanned"))
        await a_round(cluster)
        assert not health(cluster)
        set_faulty(held)
        await until(lambda: health(cluster))
        assert f"unhealthy GPUs: {held} of gpu-0 (pod bert-1)" in health(cluster)
