"""Bind requests of a scheduler."""

import asyncio
import json

import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry
from support.builders import EXACT_LABELS, TIED, TIMESLICED, a_held_pod
from support.servers.fake_cluster import FENCED
from support.servers.leader_harness import Cluster, beginning, leading
from support.waiting import until

from linkwise.cluster import container_variables, keys
from linkwise.planning.placement.filtering.reasons import Reason
from linkwise.runtime.http.types import HttpRequest
from scorer.api.extender import Extender
from scorer.extender.wire import Binding
from scorer.metrics import Metrics

AMOUNTS = {
    keys.GPU_MEM: "60",
    keys.GPU_CORE: "400",
    keys.GPU_COUNT: "4",
    "cpu": "96",
    "memory": "768Gi",
    "pods": "110",
}
LATE = "the API server does not answer"


class Scheduled(Cluster):
    """A cluster whose scheduler asks us."""

    def __init__(self):
        super().__init__()
        self.readable = asyncio.Event()
        """While it is not set, no read of a pod is answered."""
        self.readable.set()

    def shares(self, name="share-0", mode="core_mem", labels=None, **amounts):
        status = {"allocatable": AMOUNTS | amounts, "capacity": AMOUNTS | amounts}
        metadata = {"labels": {keys.NODE_MODE: mode, **(labels or {})}}
        self.put(f"/api/v1/nodes/{name}", {"metadata": metadata, "status": status})

    def single(self, name, limits=None, **pod):
        """Create a pod that a scheduler of ours brings, for all GPUs of a node by default."""
        raw = a_held_pod(0, name, gates=(), **pod)
        raw["spec"]["containers"][0]["resources"] = {"limits": limits or {keys.GPU_WHOLE: "8"}}
        return self.put(f"/api/v1/namespaces/team/pods/{name}", raw)

    def share(self, name, memory, core=None, **pod):
        amounts = {keys.GPU_MEM: str(memory)} | ({keys.GPU_CORE: str(core)} if core else {})
        return self.single(name, amounts, **pod)

    def bindings(self, name):
        """Return the bindings of a pod that were tried."""
        path = f"/api/v1/namespaces/team/pods/{name}/binding"
        return [body for method, at, body in self.writes if (method, at) == ("POST", path)]

    def fail_binding(self, name, *fates):
        self.outcomes["POST", f"/api/v1/namespaces/team/pods/{name}/binding"] += fates

    def node_of(self, name):
        return self[name]["spec"].get("nodeName")

    async def _answer(self, request):
        if request.method == "GET" and "/pods/" in request.path:
            await self.readable.wait()
        return await super()._answer(request)


@pytest_asyncio.fixture
async def cluster():
    async with Scheduled() as running:
        running.node()
        running.node("gpu-1")
        yield running


async def bound(leader, name, node="gpu-0", *, uid=None):
    """Ask for a pod to be bound once it is known; return why it was not, or nothing."""
    await until(lambda: leader.context.informers.state.pod(("team", name)))
    return reason(await leader.context.binder.bind(Binding(name, "team", uid or name, node)))


def reason(refusal):
    return refusal.reason if refusal else ""


def free(leader, node="gpu-0"):
    return leader.context.informers.state.ledger(node).free_mask.bit_count()


async def test_one_write_binds_a_pod_and_records_its_gpus(cluster):
    cluster.single("train", {keys.GPU_WHOLE: "2"})
    async with leading(cluster, term=42) as leader:
        assert await bound(leader, "train") == ""

    [written] = cluster.bindings("train")
    assert written["metadata"]["uid"] == "train"
    assert written["metadata"]["annotations"][keys.TERM] == "42"
    assert cluster.node_of("train") == cluster.record("train")["node"] == "gpu-0"
    assert len(cluster.record("train")["gpus"]) == 2
    assert cluster.patches("train") == []


async def test_cdi_devices_are_written_with_the_binding_by_policy(cluster):
    cluster.policy("containers: {gpuInjection: nri}")
    cluster.single("train", {keys.GPU_WHOLE: "2"})
    async with leading(cluster) as leader:
        assert await bound(leader, "train") == ""

    [written] = cluster.bindings("train")
    annotations = written["metadata"]["annotations"]
    gpus = ",".join(f"nvidia.com/gpu={gpu}" for gpu in annotations[keys.VISIBLE_DEVICES].split(","))
    assert annotations[f"{keys.NVIDIA_CDI_CONTAINER}c0"] == gpus


async def test_nvidia_gpus_of_an_exact_node_are_recorded(cluster):
    cluster.node("exact-0", resource=keys.NVIDIA_GPU, **EXACT_LABELS)
    cluster.single("train", {keys.NVIDIA_GPU: "2"}, **TIED)
    async with leading(cluster) as leader:
        assert await bound(leader, "train", "exact-0") == ""

    assert cluster.node_of("train") == cluster.record("train")["node"] == "exact-0"
    assert len(cluster.record("train")["gpus"]) == 2


@pytest.mark.parametrize("lost", [False, True], ids=["answered", "lost"])
async def test_a_pod_of_nvidias_plugin_is_bound_without_a_record(cluster, lost):
    cluster.node("plain-0", resource=keys.NVIDIA_GPU, **{keys.NODE_MODE: "default"})
    cluster.single("train", {keys.NVIDIA_GPU: "2"})
    if lost:
        cluster.fail_binding("train", "unanswered")
    async with leading(cluster) as leader:
        assert await bound(leader, "train", "plain-0") == ""
        assert await bound(leader, "train", "plain-0") == ""

    assert cluster.node_of("train") == "plain-0"
    [written] = cluster.bindings("train")
    assert not written["metadata"]["annotations"]


async def test_a_share_is_on_the_best_fitting_card_and_recorded_for_gpushare(cluster):
    cluster.shares()
    for name, memory in {"a": 10, "b": 5, "c": 5, "d": 12}.items():
        cluster.share(name, memory, 30)
    async with leading(cluster) as leader:
        for name in "abcd":
            assert await bound(leader, name, "share-0") == ""

    assert {name: cluster.record(name)["gpus"][0]["i"] for name in "abcd"} == {
        "a": 0,
        "b": 0,
        "c": 1,
        "d": 2,
    }
    annotations = cluster["b"]["metadata"]["annotations"]
    assert annotations[keys.MEM_IDX] == "0"
    assert annotations[keys.MEM_DEV] == "15"
    assert annotations[keys.VISIBLE_DEVICES] == "0"


async def test_replicas_are_on_different_gpus_and_allocated_once(cluster):
    cluster.shares("sliced", "timeslice", {keys.GFD_REPLICAS: "2"}, **{keys.NVIDIA_GPU_SHARED: "6"})
    for name, number in {"a": 1, "b": 1, "pair": 2, "rest": 2, "late": 1}.items():
        cluster.single(name, {keys.NVIDIA_GPU_SHARED: str(number)}, **TIMESLICED)
    async with leading(cluster) as leader:
        answers = [await bound(leader, name, "sliced") for name in ("a", "b", "pair", "rest")]
        assert answers == [""] * 4
        assert await bound(leader, "late", "sliced") == Reason.REPLICAS

    given = {name: [gpu["i"] for gpu in cluster.record(name)["gpus"]] for name in ("a", "b")}
    assert given == {"a": [0], "b": [1]}
    assert [gpu["i"] for gpu in cluster.record("pair")["gpus"]] == [0, 2]
    annotations = cluster["pair"]["metadata"]["annotations"]
    assert annotations[keys.VISIBLE_DEVICES] == "0,2"
    assert annotations[keys.ISOLATION] == "none"
    assert keys.MEM_IDX not in annotations


@pytest.mark.parametrize("mode", ["share", "cgpu", "mps"])
async def test_the_isolation_of_a_share_is_recorded(cluster, mode):
    cluster.shares(mode=mode)
    cluster.share("pod", 4)
    spec = cluster["pod"]["spec"]
    spec["volumes"] = [{"name": "mps", "hostPath": {"path": "/tmp/nvidia-mps"}}]  # noqa: S108
    container = spec["containers"][0]
    container["env"] = [{"name": container_variables.ENV_MPS_MEMORY, "value": "0=4096M"}]
    container["volumeMounts"] = [{"name": "mps", "mountPath": "/tmp/nvidia-mps"}]  # noqa: S108
    async with leading(cluster) as leader:
        assert await bound(leader, "pod", "share-0") == ""

    kept = cluster["pod"]["metadata"]["annotations"][keys.ISOLATION]
    assert kept == ("none" if mode == "share" else mode)


async def test_assumed_gpus_count_before_the_watch_shows_them(cluster):
    for name in ("first", "second"):
        cluster.single(name)
    async with leading(cluster) as leader:
        cluster.paused = True
        assert await bound(leader, "first") == ""
        assert await bound(leader, "second") == Reason.GPUS
        assert await bound(leader, "second", "gpu-1") == ""
        cluster.resume()
        await until(lambda: not leader.context.informers.state._assumed)
        assert (free(leader), free(leader, "gpu-1")) == (0, 0)


async def test_one_of_two_concurrent_requests_gets_the_gpus(cluster):
    for name in ("first", "second"):
        cluster.single(name)
    async with leading(cluster) as leader:
        answers = await asyncio.gather(*(bound(leader, name) for name in ("first", "second")))

    assert sorted(answers) == ["", Reason.GPUS]
    assert len(cluster.bindings("first") + cluster.bindings("second")) == 1


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param((404, "it is not there"), id="gone"),
        pytest.param((409, "pod is being deleted"), id="leaving"),
        pytest.param((403, "denied by a policy"), id="forbidden"),
        pytest.param((429, "later"), id="busy"),
        pytest.param((500, "broken"), id="broken"),
    ],
)
async def test_a_refused_binding_assumes_no_gpus(cluster, refusal):
    for name in ("first", "second"):
        cluster.single(name)
    cluster.fail_binding("first", refusal)
    async with leading(cluster) as leader:
        assert refusal[1] in await bound(leader, "first")
        assert free(leader) == 8
        assert await bound(leader, "second") == ""

    assert cluster.node_of("first") is None


async def test_the_outcome_of_a_lost_response_is_read(cluster):
    cluster.single("train")
    cluster.fail_binding("train", "unanswered")
    async with leading(cluster) as leader:
        assert await bound(leader, "train") == ""
        assert free(leader) == 0

    assert len(cluster.bindings("train")) == 1


async def test_a_binding_that_timed_out_may_have_been_carried_out(cluster):
    cluster.single("train")

    def late(_method, path, body):
        if not path.endswith("/binding"):
            return None
        cluster.refuse = lambda *_: None
        pod = cluster["train"]
        annotations = body["metadata"]["annotations"]
        cluster.put(
            "/api/v1/namespaces/team/pods/train",
            {
                **pod,
                "metadata": {**pod["metadata"], "annotations": annotations},
                "spec": {**pod["spec"], "nodeName": "gpu-0"},
            },
        )
        return 504, "the request did not complete in time"

    cluster.refuse = late
    async with leading(cluster) as leader:
        assert await bound(leader, "train") == ""
        assert free(leader) == 0


async def test_a_lost_binding_keeps_its_gpus_until_its_outcome_is_known(cluster):
    for name in ("first", "second"):
        cluster.single(name)
    cluster.fail_binding("first", "lost")
    cluster.fail("GET", "first", "lost", "lost", (500, "broken"))
    cluster.readable.clear()
    async with leading(cluster) as leader:
        waiting = asyncio.create_task(bound(leader, "first"))
        await until(lambda: cluster.bindings("first"))
        assert await bound(leader, "second") == Reason.GPUS
        cluster.readable.set()
        assert "binding" in await waiting
        assert await bound(leader, "second") == ""

    assert cluster.node_of("first") is None


async def outcome(*request):
    """Repeat a request until the outcome of the write is known."""
    while LATE in (reason := await bound(*request)):
        pass
    return reason


async def test_repeated_requests_return_the_outcome_of_the_write(cluster):
    cluster.single("train")
    cluster.readable.clear()
    cluster.fail_binding("train", "unanswered")
    async with leading(cluster, bind_timeout=0.01) as leader:
        assert LATE in await bound(leader, "train")
        assert free(leader) == 0
        assert LATE in await bound(leader, "train", "gpu-1")
        cluster.readable.set()
        again = outcome(leader, "train"), outcome(leader, "train", "gpu-1")
        assert await asyncio.gather(*again) == ["", "the pod has GPUs of node gpu-0"]

    assert len(cluster.bindings("train")) == 1


async def test_a_bound_pod_is_not_bound_again(cluster):
    cluster.single("train")
    async with leading(cluster) as leader:
        assert await bound(leader, "train") == ""
        await until(lambda: not leader.context.informers.state._assumed)
        assert await bound(leader, "train") == ""
        assert await bound(leader, "train", "gpu-1") == "the pod has GPUs of node gpu-0"

    assert len(cluster.bindings("train")) == 1


async def test_a_pod_bound_by_an_earlier_write_keeps_its_gpus(cluster):
    cluster.single("train", {keys.GPU_WHOLE: "1"})
    async with leading(cluster) as leader:
        cluster.paused = True
        assert await bound(leader, "train") == ""
        held = leader.context.informers.state._assumed
        # As if another process of the same term had bound it.
        leader.context.informers.state.forget(next(iter(held.values()))[0])
        assert free(leader) == 8
        assert await bound(leader, "train") == ""
        [(_, kept)] = leader.context.informers.state._assumed.values()
        assert [gpu["i"] for gpu in cluster.record("train")["gpus"]] == list(kept.gpus.indices)
        assert kept.plan == "7-s1"


async def test_a_pod_is_bound_once_the_watch_shows_it(cluster):
    async with leading(cluster) as leader:
        asked = Binding("train", "team", "train", "gpu-0")
        waiting = asyncio.create_task(leader.context.binder.bind(asked))
        await asyncio.sleep(0)
        cluster.single("train")
        assert await waiting is None


async def test_another_pod_of_the_name_is_not_bound(cluster):
    cluster.single("train")
    async with leading(cluster, pod_watch_timeout=0) as leader:
        why = await bound(leader, "train", uid="before")

    assert "does not show this pod yet" in why
    assert cluster.bindings("train") == []


async def test_a_pod_with_gpus_is_bound_to_their_node(cluster):
    async with leading(cluster) as leader:
        cluster.gang("bert", 2, 4)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        node = cluster.record("bert-0")["node"]
        other = "gpu-1" if node == "gpu-0" else "gpu-0"
        await until(lambda: not leader.context.informers.state._assumed)
        assert await bound(leader, "bert-0", other) == f"the pod has GPUs of node {node}"
        assert await bound(leader, "bert-0", node) == ""

    [written] = cluster.bindings("bert-0")
    assert written["metadata"]["annotations"] == {}
    assert cluster.node_of("bert-0") == node


async def test_a_pod_with_gpus_keeps_them_when_its_binding_is_refused(cluster):
    async with leading(cluster) as leader:
        cluster.paused = True
        cluster.gang("bert", 2, 4)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        cluster.fail_binding("bert-0", (403, "denied by a policy"))
        held = leader.context.informers.state._assumed["bert-0"]
        assert "policy" in await bound(leader, "bert-0", cluster.record("bert-0")["node"])
        assert leader.context.informers.state._assumed["bert-0"] is held


@pytest.mark.parametrize(
    ("limits", "pod", "node", "why"),
    [
        ({keys.GPU_WHOLE: "9"}, {}, "gpu-0", Reason.GPUS),
        ({keys.GPU_MEM: "1"}, {}, "gpu-0", Reason.MODE),
        ({keys.GPU_WHOLE: "1"}, {}, "nowhere", Reason.UNKNOWN),
        ({keys.GPU_MEM: "1", keys.GPU_CORE: "7"}, {}, "gpu-0", Reason.REQUEST),
        (
            {keys.GPU_WHOLE: "1"},
            {"labels": {keys.POD_GROUP_NAME: "g", keys.POD_GROUP_MIN_AVAILABLE: "2"}},
            "gpu-0",
            Reason.GATE,
        ),
        ({keys.GPU_WHOLE: "1"}, {"phase": "Failed"}, "gpu-0", "the pod is finished"),
        ({keys.GPU_WHOLE: "1"}, {"leaves": True}, "gpu-0", "the pod is leaving"),
    ],
    ids=["too many", "mode", "no node", "broken rule", "loose member", "finished", "leaving"],
)
async def test_nothing_is_written_for_a_pod_without_gpus(cluster, limits, pod, node, why):
    leaves = pod.pop("leaves", False)
    made = cluster.single("train", limits, **pod)
    if leaves:
        made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        cluster.put("/api/v1/namespaces/team/pods/train", made)
    async with leading(cluster) as leader:
        assert why in await bound(leader, "train", node)

    assert cluster.bindings("train") == []


async def test_a_pod_deleted_meanwhile_frees_its_gpus(cluster):
    cluster.single("train")

    def gone(_method, path, _body):
        if path.endswith("/binding"):
            cluster.delete("train")

    cluster.refuse = gone
    async with leading(cluster) as leader:
        assert "not there" in await bound(leader, "train")
        await until(lambda: leader.context.informers.state.pod(("team", "train")) is None)
        assert free(leader) == 8


async def test_a_past_leader_stops(cluster):
    cluster.single("train")
    cluster.fail_binding("train", FENCED)
    async with leading(cluster) as leader:
        assert await bound(leader, "train") == "this scorer does not lead"
        await until(leader.task.done)

    assert leader.context is None


async def test_pending_requests_end_with_the_term(cluster):
    cluster.single("train")
    cluster.fail_binding("train", "lost")
    cluster.fail("GET", "train", *["lost"] * 1000)
    async with leading(cluster) as leader:
        waiting = asyncio.create_task(bound(leader, "train"))
        await until(lambda: "/api/v1/namespaces/team/pods/train" in cluster.reads)
        leader.task.cancel()
        assert await waiting == "this scorer does not lead"


async def test_gangs_and_single_pods_never_get_the_same_gpu(cluster):
    async with leading(cluster) as leader:
        for number in range(8):
            cluster.single(f"single-{number}", {keys.GPU_WHOLE: "1"})
        cluster.gang("bert", 4, 2)
        answers = await asyncio.gather(
            *(bound(leader, f"single-{n}", f"gpu-{n % 2}") for n in range(8))
        )
        await until(lambda: cluster.allocated(*(f"bert-{n}" for n in range(4))))

    assert set(answers) <= {"", Reason.GPUS}
    names = [f"single-{n}" for n in range(8) if not answers[n]] + [f"bert-{n}" for n in range(4)]
    taken = [
        (cluster.record(name)["node"], gpu["i"])
        for name in names
        for gpu in cluster.record(name)["gpus"]
    ]
    assert len(taken) == len(set(taken)) == 8 + answers.count("")


async def test_gpus_of_an_interrupted_plan_are_not_allocated_before_the_first_round(cluster):
    cluster.interrupted_gang()
    cluster.single("train", {keys.GPU_WHOLE: "4"})
    binding = {"PodName": "train", "PodNamespace": "team", "PodUID": "train", "Node": "gpu-0"}
    call = HttpRequest("/bind", "", {}, json.dumps(binding).encode())
    async with beginning(cluster) as leader:
        extender = Extender(leader, Metrics(CollectorRegistry()))
        while leader.context is None or leader.context.informers.missing():  # noqa: ASYNC110
            # A request that waits for the lists continues later than this.
            await asyncio.sleep(0)
        answer = await extender.bind(call)
        await until(lambda: cluster.allocated("bert-1"))

    assert [gpu["i"] for gpu in cluster.record("bert-1")["gpus"]] == [0, 1, 2, 3]
    assert cluster.bindings("train") == []
    assert "not restored" in json.loads(answer.body)["Error"]
