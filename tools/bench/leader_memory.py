"""Memory of a leader of the scorer, of exact nodes and of claims nodes.

`PYTHONPATH=tests python -m tools.bench.leader_memory` prints these figures. The API server is a
fake one, which makes the objects of each page when it is read.
"""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from aiohttp import web
from controlplane.claims_nodes import GPU, gpus_of_node, slice_of
from controlplane.nodes import published

from linkwise.cluster import keys
from linkwise.cluster.nodes.device_fence import FenceRule
from linkwise.cluster.nodes.taint_rules import Selector
from linkwise.topology import catalogue
from tools.bench.leader_process import READY
from tools.bench.measure import Figure, cpu, spread

_NODES, _PODS, _GPUS = 5000, 10, 8
"""Of each node: pods, the first of which have one GPU each."""
_MACHINE = "dgx1-v100"
_PODS_BYTES = 5500
"""Fields of a pod that Linkwise does not read, such as `managedFields`."""
_SETTLED = 20.0
"""From the first complete account until the memory is read [s]."""
_API = "/apis/resource.k8s.io/v1"
_CREATED = "2026-01-01T00:00:00Z"

Object = dict[str, Any]
Make = Callable[[int], Object]


@dataclass(frozen=True)
class _Cluster:
    """A cluster of nodes whose GPUs are all taken by pods of one GPU."""

    by_claims: bool
    lists: Mapping[str, tuple[int, Make]] = field(init=False)
    """By path: the number of objects, and what makes one."""

    def __post_init__(self) -> None:
        lists: dict[str, tuple[int, Make]] = {
            "/api/v1/nodes": (_NODES, self._node),
            "/api/v1/pods": (_NODES * _PODS, self._pod),
        }
        if self.by_claims:
            lists[f"{_API}/resourceslices"] = _NODES, self._slice
            lists[f"{_API}/resourceclaims"] = _NODES * _GPUS, self._claim
            lists[f"{_API}/devicetaintrules"] = _NODES, self._rule
        else:
            maps = f"/api/v1/namespaces/{keys.TOPOLOGY_NAMESPACE}/configmaps"
            lists[maps] = _NODES, self._map
        object.__setattr__(self, "lists", lists)

    @cached_property
    def _published(self) -> Object:
        made: Object = published("node", "topology", catalogue.entry(_MACHINE).machine, "node")
        return made

    def _gpus(self, node: int) -> tuple[GPU, ...]:
        gpus: tuple[GPU, ...] = gpus_of_node(f"node-{node}", catalogue.entry(_MACHINE).machine)
        return gpus

    def _node(self, number: int) -> Object:
        name = f"node-{number}"
        offer = {"cpu": "96", "memory": "768Gi", "pods": "110"}
        if not self.by_claims:
            offer[keys.GPU_WHOLE] = str(_GPUS)
        labels = {keys.NODE_MODE: "topology", keys.HOSTNAME: name}
        return {
            "metadata": {"name": name, "uid": name, "labels": labels},
            "status": {
                "allocatable": offer,
                "capacity": offer,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }

    def _map(self, number: int) -> Object:
        name = f"node-{number}"
        labels = {**self._published["metadata"]["labels"], keys.TOPOLOGY_NODE: name}
        metadata = {"name": f"{keys.TOPOLOGY_NAME_PREFIX}{name}", "labels": labels}
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": name}
        metadata |= {"namespace": keys.TOPOLOGY_NAMESPACE, "ownerReferences": [owner]}
        return {**self._published, "metadata": metadata}

    def _pod(self, number: int) -> Object:
        node, gpu = divmod(number, _PODS)
        name = f"worker-{number}"
        container: Object = {"name": "main", "image": "registry.example/train:1"}
        container["resources"] = {"limits": {"cpu": "2", "memory": "8Gi"}}
        spec: Object = {"nodeName": f"node-{node}", "containers": [container]}
        annotations = {}
        if gpu < _GPUS:
            uuid = self._gpus(node)[gpu].uuid if self.by_claims else None
            share = {"i": gpu, **({"uuid": uuid} if uuid else {})}
            record = {"v": 1, "node": f"node-{node}", "gpus": [share], "plan": f"1-{number}"}
            annotations[keys.ALLOCATION] = json.dumps(record)
            if self.by_claims:
                annotations[keys.CLAIMED_GPUS] = '{"container-0":1}'
                reference = {"name": keys.POD_CLAIM, "resourceClaimName": _claim_name(number)}
                spec["resourceClaims"] = [reference]
                claims = [{"name": keys.POD_CLAIM, "request": "container-0"}]
                container["resources"]["claims"] = claims
            else:
                container["resources"]["limits"][keys.GPU_WHOLE] = "1"
        return {
            "metadata": {
                "name": name,
                "namespace": f"team-{number % 50}",
                "uid": name,
                "creationTimestamp": _CREATED,
                "annotations": annotations,
                "managedFields": [{"fieldsV1": {"x": "x" * _PODS_BYTES}}],
            },
            "spec": spec,
            "status": {"phase": "Running", "startTime": _CREATED},
        }

    def _claim(self, number: int) -> Object:
        node, gpu = divmod(number, _GPUS)
        pod = node * _PODS + gpu
        metadata = {"name": _claim_name(pod), "namespace": f"team-{pod % 50}"}
        owner = {"apiVersion": "v1", "kind": "Pod", "name": f"worker-{pod}", "uid": f"worker-{pod}"}
        request = {"driver": keys.DRA_GPU_DRIVER, "pool": f"node-{node}", "request": "container-0"}
        tolerations = [{"key": keys.PLACED, "operator": "Exists", "effect": "NoSchedule"}]
        result = {**request, "device": f"gpu-{gpu}", "tolerations": tolerations}
        fields = [{"key": "metadata.name", "operator": "In", "values": [f"node-{node}"]}]
        return {
            "metadata": {**metadata, "ownerReferences": [{**owner, "controller": True}]},
            "status": {
                "allocation": {
                    "devices": {"results": [result]},
                    "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
                    "allocationTimestamp": _CREATED,
                },
                "reservedFor": [
                    {"resource": "pods", "name": f"worker-{pod}", "uid": f"worker-{pod}"}
                ],
            },
        }

    def _slice(self, number: int) -> Object:
        made: Object = slice_of(self._node(number), self._gpus(number))
        made["metadata"]["name"] = f"node-{number}-{keys.DRA_GPU_DRIVER}-abcde"
        return made

    def _rule(self, number: int) -> Object:
        rule = FenceRule(Selector(keys.DRA_GPU_DRIVER, f"node-{number}"))
        body = rule.body("resource.k8s.io/v1")
        selector = {"driver": keys.DRA_GPU_DRIVER, "pool": f"node-{number}"}
        spec = {**body["spec"], "deviceSelector": selector}  # type: ignore[dict-item]
        metadata = {**body["metadata"], "creationTimestamp": _CREATED}  # type: ignore[dict-item]
        return {**body, "spec": spec, "metadata": metadata}


def _claim_name(pod: int) -> str:
    return f"{keys.CLAIM_PREFIX}{pod:032x}"


@asynccontextmanager
async def _served(cluster: _Cluster) -> AsyncIterator[str]:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path.startswith("/apis/resource.k8s.io") and request.path.count("/") == 3:
            is_served = cluster.by_claims and request.path == _API
            resources = [{"name": "devicetaintrules"}] if is_served else []
            return web.json_response({"resources": resources}, status=200 if is_served else 404)
        if "watch" in request.query:
            response = web.StreamResponse()
            await response.prepare(request)
            await asyncio.Event().wait()
        count, make = cluster.lists.get(request.path, (0, lambda _: {}))
        start = int(request.query.get("continue", "0"))
        end = min(count, start + int(request.query.get("limit", "500")))
        items = [make(number) for number in range(start, end)]
        for item in items:
            item["metadata"]["resourceVersion"] = "1"
        metadata = {"resourceVersion": "1", "continue": str(end) if end < count else ""}
        return web.json_response({"metadata": metadata, "items": items})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def _measure(cluster: _Cluster) -> tuple[float, float, float]:
    """Return the memory of a leader at rest and at most [MB], and its processor time [s]."""
    async with _served(cluster) as url:
        argv = (sys.executable, "-m", "tools.bench.leader_process", url)
        process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
        try:
            said = await _ready(process)
            if said != f"{_NODES} nodes, {_NODES * _PODS} pods with resources":
                raise RuntimeError(f"the leader says {said!r}")
            used = cpu(process.pid)
            await asyncio.sleep(_SETTLED)
            rest, most = _memory(process.pid)
        finally:
            process.kill()
            await process.wait()
    return rest, most, used


async def _ready(process: asyncio.subprocess.Process) -> str:
    """Return what a leader says once it knows all objects."""
    if process.stdout is not None:
        async for line in process.stdout:
            log, ready, said = line.decode().strip().partition(READY)
            if ready and not log:
                return said
    return "nothing"


def _memory(pid: int) -> tuple[float, float]:
    """Return the memory of a process now, and the most that it had [MB]."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    sizes = dict(re.findall(r"(VmRSS|VmHWM):\s+(\d+)", status))
    return int(sizes["VmRSS"]) * 1024 / 1e6, int(sizes["VmHWM"]) * 1024 / 1e6


def figures() -> Iterator[Figure]:
    """Yield the memory of a leader of exact nodes, and of claims nodes."""
    for by_claims in (False, True):
        what = f"a leader of {_NODES:,} {'claims' if by_claims else 'exact'} nodes"
        rest, most, used = asyncio.run(_measure(_Cluster(by_claims)))
        yield Figure(f"{what}, {_NODES * _PODS:,} pods: memory", "≤ 400", spread([rest]), "MB")
        yield Figure("the same, at most", "", spread([most]), "MB")
        yield Figure("the same: CPU until all is accounted for", "", spread([used]), "s")


def main() -> None:
    """Print the figures."""
    for figure in figures():
        print(figure, flush=True)


if __name__ == "__main__":
    main()
