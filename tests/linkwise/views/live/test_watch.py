import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs
from support.builders import a_pod, node_object, placed_pod
from support.dra import a_claim, a_device, a_rule, a_slice
from support.servers.fake_api import FakeAPI
from support.servers.fake_api import status as fault
from support.servers.fake_cluster import FakeCluster
from support.waiting import PATIENCE, until

from linkwise.cluster import keys
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.runtime.kube.client import ApiError, Ignored
from linkwise.views.live import fetch, watch
from linkwise.views.live.kubeconfig import Access, load_user_context
from linkwise.views.live.user_kube import UserKube
from linkwise.views.live.watch import watch_until

NODE = "/api/v1/nodes"
PODS = "/api/v1/namespaces/team/pods"
POLICY = f"/api/v1/namespaces/{keys.POLICY_NAMESPACE}/configmaps/{keys.POLICY_NAME}"
DRA = "/apis/resource.k8s.io"
JOB = "/apis/batch/v1/namespaces/team/jobs"


def kubeconfig(folder, server, token="first"):  # noqa: S107
    context = {"cluster": "here", "user": "ann", "namespace": "team"}
    config = {
        "current-context": "work",
        "clusters": [{"name": "here", "cluster": {"server": server}}],
        "contexts": [{"name": "work", "context": context}],
        "users": [{"name": "ann", "user": {"token": token}}],
    }
    path = folder / "config"
    path.write_text(json.dumps(config))
    return Access(str(path))


class Shown:
    """The states that a watch published, and its problem."""

    def __init__(self):
        self.states, self.problem = [], None

    async def publish(self, current):
        self.states.append(current)

    def report(self, problem):
        self.problem = problem

    @property
    def nodes(self):
        return set(self.states[-1].cluster.ledger.nodes) if self.states else set()

    def free(self, node):
        ledgers = self.states[-1].cluster.ledger.nodes if self.states else {}
        return ledgers[node].gpus_free if node in ledgers else None

    @property
    def pods(self):
        return {pod.metadata.name for pod in self.states[-1].cluster.pods} if self.states else set()


@pytest.fixture
async def api():
    async with FakeCluster() as running:
        running.put(f"{NODE}/gpu", node_object("gpu", {}, **{keys.NVIDIA_GPU: "4"}))
        yield running


@pytest.fixture
def watching(api, tmp_path):
    @asynccontextmanager
    async def watch():
        shown = Shown()
        access = kubeconfig(tmp_path, api.url)
        with capture_logs():
            task = asyncio.create_task(
                watch_until(
                    asyncio.Event(), access, ("less is known",), shown.publish, shown.report
                )
            )
            try:
                yield shown
            finally:
                task.cancel()
                await asyncio.wait((task,))

    return watch


async def shows(condition):
    async with asyncio.timeout(PATIENCE):
        await until(condition)


async def test_nodes_and_pods_are_followed(api, watching):
    async with watching() as shown:
        await shows(lambda: shown.nodes == {"gpu"})
        assert shown.states[-1].namespace == "team"
        assert shown.states[-1].warnings[0] == "less is known"

        api.put(f"{NODE}/more", node_object("more", {}, **{keys.NVIDIA_GPU: "2"}))
        api.put(f"{PODS}/a", {"metadata": {}, "spec": {"containers": []}})
        await shows(lambda: shown.nodes == {"gpu", "more"} and shown.pods == {"a"})

        api.remove(f"{NODE}/gpu")
        api.remove(f"{PODS}/a")
        await shows(lambda: shown.nodes == {"more"} and shown.pods == set())
        assert shown.problem == ""


@pytest.mark.parametrize("version", ["v1", "v1beta2"])
async def test_devices_of_claims_nodes_are_followed(api, watching, version):
    api.serves_claims, api.taint_rules = True, version
    api.put(f"{NODE}/gpu", node_object("gpu", {keys.NODE_MODE: "topology"}))
    api.put(f"{DRA}/v1/resourceslices/gpu", a_slice(*map(a_device, range(4)), node="gpu"))
    async with watching() as shown:
        await shows(lambda: shown.free("gpu") == 4)

        api.put(f"{DRA}/v1/namespaces/team/resourceclaims/held", a_claim("gpu-1", node="gpu"))
        await shows(lambda: shown.free("gpu") == 3)

        rule = a_rule("broken", "", "NoSchedule", pool="gpu", device="gpu-2")
        api.put(f"{DRA}/{version}/devicetaintrules/rule", rule)
        await shows(lambda: shown.free("gpu") == 2)


async def test_owners_of_waiting_gangs_are_read(api, watching):
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
    annotations = {keys.GANG: "j"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": {"parallelism": 3}}
    api.put(f"{JOB}/j", job)
    api.objects["/apis/batch/v1/jobs"]["team", "j"]["metadata"]["uid"] = "u"
    async with watching() as shown:
        await shows(lambda: shown.nodes == {"gpu"})

        metadata = {"annotations": annotations, "ownerReferences": [owner]}
        api.put(f"{PODS}/a", {"metadata": metadata, "spec": {"containers": []}})

        await shows(lambda: any(each.plain["kind"] == "Job" for each in shown.states[-1].objects))


async def test_owners_and_budgets_of_pods_that_may_be_evicted_are_read(api, watching):
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "low", "uid": "u", "controller": True}
    placed = placed_pod("low", {keys.GPU_WHOLE: 1}, "gpu", GPUShare(0))
    placed["metadata"] |= {"namespace": "team", "ownerReferences": [owner]}
    api.put(f"{JOB}/low", {"apiVersion": "batch/v1", "kind": "Job", "metadata": {}})
    api.objects["/apis/batch/v1/jobs"]["team", "low"]["metadata"]["uid"] = "u"
    api.put("/apis/policy/v1/namespaces/team/poddisruptionbudgets/keep", {"metadata": {}})
    api.put(f"{PODS}/low", placed)
    async with watching() as shown:

        def kinds():
            return {each.plain["kind"] for each in shown.states[-1].objects}

        await shows(lambda: shown.pods == {"low"})
        assert not kinds() & {"Job", "PodDisruptionBudget"}

        api.put(f"{PODS}/high", a_pod({keys.GPU_WHOLE: 1}, name="high", priority=9))
        await shows(lambda: "high" in shown.pods)
        assert {"Job", "PodDisruptionBudget"} <= kinds()

        # Each owner is read once.
        api.remove(f"{JOB}/low")
        api.put(f"{PODS}/higher", a_pod({keys.GPU_WHOLE: 1}, name="higher", priority=10))
        await shows(lambda: "higher" in shown.pods)
        assert "Job" in kinds()


def put_jobs(api, number):
    """Put Jobs; return the owner reference of each."""
    owners = []
    for n in range(number):
        name = f"j{n}"
        api.put(f"{JOB}/{name}", {"apiVersion": "batch/v1", "kind": "Job", "metadata": {}})
        api.objects["/apis/batch/v1/jobs"]["team", name]["metadata"]["uid"] = name
        job = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name}
        owners.append({**job, "controller": True})
    return owners


def jobs(shown):
    return [each for each in shown.states[-1].objects if each.plain["kind"] == "Job"]


async def test_the_number_of_owners_of_waiting_pods_is_bounded(api, watching, monkeypatch):
    monkeypatch.setattr(fetch, "READS", 2)
    for n, owner in enumerate(put_jobs(api, 4)):
        metadata = {"annotations": {keys.GANG: f"j{n}"}, "ownerReferences": [owner]}
        api.put(f"{PODS}/p{n}", {"metadata": metadata, "spec": {"containers": []}})
    async with watching() as shown:
        await shows(lambda: len(shown.pods) == 4)

        assert len(jobs(shown)) == 2
        assert any("4 owners" in text for text in shown.states[-1].warnings)


async def test_owners_of_pods_that_may_be_evicted_are_read_in_portions(api, watching, monkeypatch):
    monkeypatch.setattr(watch, "_NEW", 1)
    for n, owner in enumerate(put_jobs(api, 3)):
        placed = placed_pod(f"p{n}", {keys.GPU_WHOLE: 1}, "gpu", GPUShare(n))
        placed["metadata"] |= {"namespace": "team", "ownerReferences": [owner]}
        api.put(f"{PODS}/p{n}", placed)
    api.put(f"{PODS}/high", a_pod({keys.GPU_WHOLE: 1}, name="high", priority=9))
    async with watching() as shown:
        await shows(lambda: shown.states and len(jobs(shown)) == 3)

        assert len(shown.states) >= 3


async def test_an_invalid_policy_is_reported_and_the_last_state_stays(api, watching):
    async with watching() as shown:
        await shows(lambda: shown.nodes == {"gpu"})
        api.put(POLICY, {"metadata": {}, "data": {keys.POLICY_KEY: "nonsense: 1"}})
        await shows(lambda: "nonsense" in (shown.problem or ""))
        assert shown.nodes == {"gpu"}

        api.remove(POLICY)
        await shows(lambda: shown.problem == "")


async def test_an_object_that_is_wrong_does_not_end_the_watch(api, watching):
    async with watching() as shown:
        await shows(lambda: shown.nodes == {"gpu"})
        api.put(f"{NODE}/bad", {"metadata": {}, "status": {"allocatable": {keys.NVIDIA_GPU: "x"}}})
        await shows(lambda: bool(shown.problem))
        assert shown.nodes == {"gpu"}

        api.remove(f"{NODE}/bad")
        await shows(lambda: shown.problem == "")


async def test_credentials_are_read_again_once_they_expire(tmp_path):
    async with FakeAPI() as api:
        access = kubeconfig(tmp_path, api.url)
        user = await load_user_context(access)
        async with UserKube(access, user) as kube:
            await kube.get("/api/v1/nodes", Ignored)
            kubeconfig(tmp_path, api.url, "second")
            api.faults["list"].append(fault(401))
            with pytest.raises(ApiError):
                await kube.get("/api/v1/nodes", Ignored)
            await kube.get("/api/v1/nodes", Ignored)

    assert api.authorizations == ["Bearer first", "Bearer first", "Bearer second"]
