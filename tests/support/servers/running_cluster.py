"""A fake cluster in which evicted pods take a while to end, and leaders of it."""

import asyncio
import json
from contextlib import asynccontextmanager

from linkwise.cluster import keys
from linkwise.cluster.gang import GangKey
from linkwise.cluster.scorer_lease import LEASE
from linkwise.planning.gang.crd import name_of
from linkwise.runtime.process.clock import rfc3339
from support.servers import leader_harness
from support.servers.fake_cluster import status
from support.servers.leader_harness import NOW, Cluster
from support.waiting import until

OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web"}
NONE_YET = "gangs: {preemption: {minRunMinutes: 0}}"


class Running(Cluster):
    """Evicted pods take until `delete` to end."""

    def __init__(self):
        super().__init__()
        self.accepted = []
        """The term and the pod of each eviction that was accepted."""
        self.grace = 30
        """The grace period of all pods [s]."""
        self.stops_after = None
        """After so many nominations and evictions the leader of term 7 is stopped, until `goes_on`:
        its writes arrive then. None: it never is."""
        self.goes_on = asyncio.Event()
        self.late = []
        """The paths of its nominations and evictions that have not arrived yet."""
        self.node()
        self.policy(NONE_YET)

    async def _answer(self, request):
        is_first = request.headers.get("Authorization") == "Bearer leader-7"
        is_read = request.method == "GET" or "dryRun" in request.query
        if self.stops_after is None or not is_first or is_read:
            return await super()._answer(request)
        steps = [request.path] if request.path.endswith(("/eviction", LEASE)) else []
        if self.stops_after:
            self.stops_after -= len(steps)
            return await super()._answer(request)
        self.late += steps
        await self.goes_on.wait()
        answer = await super()._answer(request)
        self.late = self.late[len(steps) :]
        return answer

    def _post(self, request, place, body):
        if place["sub"] != "eviction":
            return super()._post(request, place, body)
        pod = self[place["name"]]
        if pod is None:
            return status(404, "it is not there")
        if body["deleteOptions"]["preconditions"]["uid"] != pod["metadata"]["uid"]:
            return status(409, "it is another pod")
        self.accepted.append((body["metadata"]["annotations"][keys.TERM], place["name"]))
        metadata = {**pod["metadata"], "deletionTimestamp": rfc3339(NOW + self.grace)}
        self.put(f"/api/v1/namespaces/team/pods/{place['name']}", {**pod, "metadata": metadata})
        return status(201, "")

    def take_lease(self, term):
        """Let another term begin."""
        metadata = (self.get(LEASE) or {}).get("metadata", {})
        self.put(LEASE, {"metadata": metadata, "spec": {"leaseTransitions": term}})

    def nominations(self):
        """Return the recorded nominations."""
        annotations = self.get(LEASE)["metadata"].get("annotations", {})
        return json.loads(annotations.get(keys.NOMINATIONS) or "[]")

    def owned(self, name, gpus=1, **pod):
        """Create a pod that its owner creates again."""
        return self.pod(name, gpus, owner=OWNER, **pod)

    def named_gang(self, name, workers, gpus, **pod):
        job = {**OWNER, "name": name, "uid": f"job-{name}"}
        self.gang(name, workers, gpus, owner=job, **pod)

    async def run(self, *names):
        await until(lambda: self.allocated(*names))
        self.bind(*names)

    def evicted(self):
        """Return the pods whose eviction was requested, in order."""
        return [path.split("/")[-2] for _, path, _ in self.writes if path.endswith("/eviction")]

    def ending(self, *names):
        return all(self[name]["metadata"].get("deletionTimestamp") for name in names)

    def gang_object(self, gang):
        path = "/apis/linkwise.dev/v1alpha1/namespaces/team/gangs/"
        return self.get(path + name_of(GangKey("team", gang, f"job-{gang}")))

    def status(self, gang="high"):
        return (self.gang_object(gang) or {}).get("status", {})

    def waits(self, gang="high"):
        return self.status(gang).get("reason", "")


@asynccontextmanager
async def leading(cluster, term=7, **arguments):
    """Lead while the block runs, as the holder of the Lease."""
    cluster.take_lease(term)
    async with leader_harness.leading(cluster, term=term, **arguments) as leader:
        yield leader


async def full(cluster, **pod):
    """Fill the node with a gang of two."""
    cluster.named_gang("low", 2, 4, **pod)
    await cluster.run("low-0", "low-1")
