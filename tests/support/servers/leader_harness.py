"""One leader of the scorer and a fake API server whose responses can be set."""

import asyncio
import json
from collections import defaultdict, deque
from contextlib import asynccontextmanager
from dataclasses import replace

from aiohttp import web
from prometheus_client import CollectorRegistry

from linkwise.cluster import keys
from linkwise.cluster.gang import GangKey
from linkwise.cluster.scorer_lease import LEASE
from linkwise.planning.gang.crd import GANGS, name_of
from linkwise.runtime.kube.client import Kube
from scorer.leader import Leader
from scorer.metrics import Metrics
from scorer.timings import Timings
from support.builders import a_held_pod
from support.servers.fake_cluster import FakeCluster, is_object, status
from support.waiting import PATIENCE, until

NOW = 1_767_225_660.0
"""A minute after the creation of the pods of `a_held_pod`."""
# Planning has no real time limit: a busy machine may stand still meanwhile.
SHORT = Timings(
    first_limit=PATIENCE,
    retry_limit=PATIENCE,
    owner_retry=0.01,
    commit_retry=0.01,
    claim_repair=0.01,
    outcome_read=0.01,
    bind_timeout=PATIENCE,
    report_delay=0.01,
    report_interval=0.01,
    node_check_interval=0.01,
    usage_interval=0.01,
    claim_check_interval=0.01,
)
PODS = "/api/v1/pods"
EVENTS = "/api/v1/events"
JOB = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "bert", "uid": "job"}


class Cluster(FakeCluster):
    """A fake cluster with the actions of job controllers and the scheduler."""

    def __init__(self):
        super().__init__()
        self.reads = []
        """Paths of single objects that were read, in order; without the Lease."""
        self.outcomes = defaultdict(deque)
        """By method and path: the outcomes of the next requests. Each is a status and a message, an
        event after which the request is refused, or a connection that breaks before (`lost`) or
        after (`unanswered`) the request is handled."""
        self.paused = False
        """The watch of pods sends no changes until `resume`."""
        self._held_back = []

    # ---- Changes in the cluster.

    def node(self, name="gpu-0", gpus=8, resource=keys.GPU_WHOLE, **labels):
        amounts = {resource: str(gpus), "cpu": "96", "memory": "768Gi", "pods": "110"}
        labels = {keys.NODE_MODE: "topology", keys.HOSTNAME: name, **labels}
        status = {"allocatable": amounts, "capacity": amounts}
        self.put(f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}, "status": status})

    def pod(self, name, gpus=1, *, gang=None, size=2, **pod):
        """Create a gated pod, of a job's gang if one is named."""
        owner = pod.pop("owner", JOB if gang else None)
        marks = {keys.POD_GROUP_NAME: gang, keys.POD_GROUP_MIN_AVAILABLE: str(size)}
        if size is None:
            del marks[keys.POD_GROUP_MIN_AVAILABLE]
        labels = {**(marks if gang else {}), **pod.pop("labels", {})}
        raw = a_held_pod(gpus, name, labels=labels, owner=owner, **pod)
        return self.put(f"/api/v1/namespaces/team/pods/{name}", raw)

    def gang(self, gang="bert", workers=2, gpus=4, **pod):
        for i in range(workers):
            self.pod(f"{gang}-{i}", gpus, gang=gang, **{"size": workers, **pod})

    def interrupted_gang(self, *, plan="6-3", gpus=((7, 6, 5, 4), (3, 2, 1, 0)), uid="bert-1"):
        """Create a gang of which the last leader wrote one pod of two."""
        written = sorted(gpus[0])
        record = {"v": 1, "node": "gpu-0", "gpus": [{"i": i} for i in written], "plan": plan}
        annotations = {keys.ALLOCATION: json.dumps(record), keys.TERM: "6"}
        self.pod("bert-0", 4, gang="bert", gates=(), annotations=annotations)
        self.pod("bert-1", 4, gang="bert")
        members = [
            {"pod": "bert-0", "uid": "bert-0", "node": "gpu-0", "gpus": written},
            {"pod": "bert-1", "uid": uid, "node": "gpu-0", "gpus": sorted(gpus[1])},
        ]
        spec = {
            "gang": "bert",
            "link": "best",
            "size": 2,
            "owner": "job",
            "plan": {"id": plan, "exact": True, "members": members},
        }
        name = name_of(GangKey("team", "bert", "job"))
        path = f"/apis/linkwise.dev/v1alpha1/namespaces/team/gangs/{name}"
        self.put(path, {"metadata": {}, "spec": spec})

    def bind(self, *names):
        """Bind pods to their required nodes, as the scheduler does."""
        for name in names:
            pod = self[name]
            assert not pod["spec"].get("schedulingGates"), name
            self.put(
                f"/api/v1/namespaces/team/pods/{name}",
                {
                    **pod,
                    "spec": {**pod["spec"], "nodeName": self.record(name)["node"]},
                    "status": {"phase": "Running"},
                },
            )

    def mark_unschedulable(self, *names, message=""):
        """Let pods have the condition of a scheduler that found no node for them."""
        for name in names:
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            condition["message"] = message
            status = {"phase": "Pending", "conditions": [condition]}
            self.put(f"/api/v1/namespaces/team/pods/{name}", {**self[name], "status": status})

    def delete(self, name):
        self.remove(f"/api/v1/namespaces/team/pods/{name}")

    def policy(self, text):
        path = f"/api/v1/namespaces/{keys.POLICY_NAMESPACE}/configmaps/{keys.POLICY_NAME}"
        self.put(path, {"metadata": {}, "data": {keys.POLICY_KEY: text}})

    def fail(self, method, name, *outcomes):
        """Set the outcomes of the next requests for a pod."""
        self.outcomes[method, f"/api/v1/namespaces/team/pods/{name}"] += outcomes

    # ---- The state of the cluster.

    def __getitem__(self, name):
        return self.get(f"/api/v1/namespaces/team/pods/{name}")

    def record(self, name):
        """Return the record of a pod; None: it has none."""
        text = (self[name]["metadata"].get("annotations") or {}).get(keys.ALLOCATION)
        return json.loads(text) if text else None

    def allocated(self, *names):
        return all(self.record(name) for name in names)

    def the_gang(self):
        """Return the only Gang.

        Raises:
            LookupError: There is none yet, so that `until` waits for it.
        """
        gangs = self.all(GANGS)
        if not gangs:
            raise LookupError("there is no Gang")
        (gang,) = gangs
        return gang

    def phase(self):
        return self.the_gang().get("status", {}).get("phase") if self.all(GANGS) else None

    def patches(self, name):
        """Return the patches that were sent for a pod."""
        path = f"/api/v1/namespaces/team/pods/{name}"
        return [body for method, at, body in self.writes if (method, at) == ("PATCH", path)]

    def status_patches(self):
        """Return the patches of the status of Gangs."""
        return [body for _, path, body in self.writes if path.endswith("/status")]

    def events(self, reason=None):
        return [event for event in self.all(EVENTS) if reason in {None, event["reason"]}]

    # ---- Responses.

    def resume(self):
        """Let the watch send the changes that it held back."""
        self.paused = False
        for late in self._held_back:
            super()._tell(*late)
        self._held_back.clear()

    def _tell(self, kind, collection, what):
        if self.paused and (kind, collection) == ("MODIFIED", PODS):
            self._held_back.append((kind, collection, what))
        else:
            super()._tell(kind, collection, what)

    async def _answer(self, request):
        key = request.method, request.path
        outcomes = () if "dryRun" in request.query else self.outcomes[key]
        outcome = outcomes.popleft() if outcomes else None
        if isinstance(outcome, asyncio.Event):
            await outcome.wait()
            outcome = (403, "no")
        if request.method == "GET" and is_object(request.path) and request.path != LEASE:
            self.reads.append(request.path)
        if outcome in {None, "unanswered"}:
            response = await super()._answer(request)
            if outcome is None:
                return response
        else:
            body = json.loads(await request.read() or b"null")
            if request.method != "GET":
                self.writes.append((request.method, request.path, body))
                self.queries.append(dict(request.query))
            if outcome != "lost":
                return status(*outcome)
        request.transport.close()
        return web.Response()


class Clock:
    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now


def reserved_gpus(leader, purpose="replacement"):
    """Return the number of GPUs that are reserved for a purpose."""
    return leader.report().reserved_gpus[purpose]


@asynccontextmanager
async def leading(cluster, term=7, clock=None, registry=None, **timings):
    """Lead while the block runs; yield the leader once it has synced. Its task may end earlier.

    Durations that are not given are short.
    """
    async with beginning(cluster, term, clock, registry, **timings) as leader:
        await until(lambda: leader.context and leader.context.missing() is None)
        yield leader


@asynccontextmanager
async def beginning(cluster, term=7, clock=None, registry=None, **timings):
    """Lead while the block runs; yield the leader before it has synced."""
    cluster.term = term
    async with Kube(cluster.url, token=f"leader-{term}") as kube:
        leader = Leader(
            kube,
            kube,
            Metrics(registry or CollectorRegistry()),
            clock=clock or Clock(),
            instance="scorer-0",
            wait=0,
            timings=replace(SHORT, **timings),
        )
        leader.task = asyncio.create_task(leader.lead(term))
        try:
            yield leader
        finally:
            leader.task.cancel()
            await asyncio.wait((leader.task,))
            if not leader.task.cancelled() and leader.task.exception():
                raise leader.task.exception()
