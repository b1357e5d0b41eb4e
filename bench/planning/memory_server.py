"""An API server of lists alone: `python -m bench.planning.memory_server CLUSTER` prints its port.

Nodes and pods are as large as real ones. No list changes, so that watches are silent.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

from aiohttp import web

from bench.admission.review import worker
from cluster import keys
from cluster.nodes.topology_configmap import PublishedTopology, write_published
from topology.catalogue import entry

NODES, PODS, WITH_GPUS, WAITING = 5_000, 50_000, 20_000, 1_000
LARGE, VALUES, PLAIN = 20, 21_000, 10_000
"""Hostile pods, and values of node affinity of each (1.5 MB); plain pods that wait."""

Objects: TypeAlias = dict[str, tuple[Callable[[int], bytes], int]]
"""By collection: the function that makes an object, and the number of objects."""


async def _serve(objects: Objects) -> None:
    app = web.Application()
    app.router.add_get("/{path:.*}", partial(_answer, objects))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


async def _answer(objects: Objects, request: web.Request) -> web.StreamResponse:
    if "watch" in request.query:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.Event().wait()
        return response
    make, count = objects.get(request.path, (_pod, 0))
    start = int(request.query.get("continue", "0"))
    size = int(request.query.get("limit", "0")) or count
    items = b",".join(make(i) for i in islice(range(start, count), size))
    metadata = {"resourceVersion": "1"}
    if start + size < count:
        metadata["continue"] = str(start + size)
    body = b'{"metadata":%b,"items":[%b]}' % (json.dumps(metadata).encode(), items)
    return web.Response(body=body, content_type="application/json")


def _pod(i: int) -> bytes:
    """Return a pod: the first ones have two GPUs each, in gangs of 8; the others have none."""
    pod = worker()
    metadata, spec = pod["metadata"], pod["spec"]
    metadata |= {"name": f"{metadata['name']}-{i}", "uid": _uid(i), "resourceVersion": str(i)}
    metadata["creationTimestamp"] = f"2026-01-01T{i % 24:02}:{i // 24 % 60:02}:00Z"
    amounts = {"cpu": "2", "memory": "16Gi"}
    if i < WITH_GPUS:
        gang = f"job-{i // 8}"
        metadata["name"] = f"{gang}-worker-{i % 8}"
        metadata["labels"][keys.POD_GROUP_NAME] = gang
        metadata["ownerReferences"][0] |= {"name": gang, "uid": _uid(10**6 + i // 8)}
        amounts[keys.GPU_WHOLE] = "2"
    else:
        metadata["labels"] = {"app": f"web-{i % 100}", "pod-template-hash": f"{i % 100:010}"}
    spec["containers"][0]["resources"] = {"limits": amounts, "requests": amounts}
    if WITH_GPUS - WAITING <= i < WITH_GPUS:
        spec["schedulingGates"] = [{"name": keys.GANG}]
        return json.dumps(pod).encode()
    node = f"gpu-node-{i % NODES:05}.example.org"
    spec["nodeName"] = node
    if i < WITH_GPUS:
        first = 2 * (i // NODES)
        gpus = [{"i": first}, {"i": first + 1}]
        record = {"v": 1, "node": node, "gpus": gpus, "class": "c" * 16, "plan": f"7-{i // 8}"}
        metadata["annotations"] |= {
            keys.ALLOCATION: json.dumps(record),
            keys.VISIBLE_DEVICES: f"{first},{first + 1}",
            keys.TERM: "7",
        }
    pod["status"] = _status(i)
    return json.dumps(pod).encode()


def _status(i: int) -> dict[str, Any]:
    now = "2026-01-01T00:00:00Z"
    types = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ready = [{"type": one, "status": "True", "lastTransitionTime": now} for one in types]
    address = f"10.{i // 65536}.{i // 256 % 256}.{i % 256}"
    container = {
        "name": "mpi",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "image": "registry.example.org/training/pytorch-benchmark:torch2.9-cuda13.0-py3.11",
        "containerID": f"containerd://{i:064x}",
        "imageID": f"registry.example.org/training/pytorch-benchmark@sha256:{i:064x}",
        "state": {"running": {"startedAt": now}},
    }
    return {
        "phase": "Running",
        "conditions": ready,
        "hostIP": address,
        "podIP": address,
        "startTime": now,
        "qosClass": "Burstable",
        "containerStatuses": [container],
    }


def _node(i: int) -> bytes:
    """Return a node with eight GPUs."""
    name = f"gpu-node-{i:05}.example.org"
    amounts = {"cpu": "96", "memory": "768Gi", "pods": "110", keys.GPU_WHOLE: "8"}
    labels = {
        keys.NODE_MODE: "topology",
        keys.HOSTNAME: name,
        keys.RACK: f"rack-{i // 32}",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "gn.16xlarge",
        **{f"feature.node.kubernetes.io/cpu-{j}": "true" for j in range(60)},
    }
    names = [f"registry.example.org/{j}/{'x' * 40}@sha256:{j:064x}" for j in range(50)]
    status = {
        "allocatable": amounts,
        "capacity": amounts,
        "conditions": [{"type": "Ready", "status": "True"}],
        "images": [{"names": [one], "sizeBytes": 10**9} for one in names],
    }
    metadata = {"name": name, "uid": _uid(i), "resourceVersion": str(i), "labels": labels}
    return json.dumps({"metadata": metadata, "spec": {}, "status": status}).encode()


def _topology(i: int) -> bytes:
    """Return the topology ConfigMap of a node."""
    machine = entry("dgx1-v100").machine
    machine = replace(
        machine,
        model="Tesla V100-SXM2-32GB",
        gpus=tuple(
            replace(
                gpu,
                uuid=f"GPU-{i:08x}-{j:04x}-4f7a-9a53-0b6f6d5f2a10",
                bus_id=f"00000000:{j:02X}:00.0",
                memory=32,
            )
            for j, gpu in enumerate(machine.gpus)
        ),
    )
    name = f"gpu-node-{i:05}.example.org"
    labels = {keys.NODE_MODE: "topology", keys.TOPOLOGY_NODE: name}
    data = write_published(
        PublishedTopology(machine, (True,) * machine.n), [[0.0] * machine.n] * machine.n
    )
    metadata = {"name": f"topology-{i}", "namespace": "kube-system", "labels": labels}
    metadata["resourceVersion"] = str(i)
    return json.dumps({"metadata": metadata, "data": data}).encode()


def _held(i: int) -> dict[str, Any]:
    """Return a pod without a gang that waits for GPUs."""
    pod = worker()
    pod["metadata"] |= {"name": f"held-{i}", "uid": _uid(i), "resourceVersion": str(i)}
    pod["metadata"]["labels"] = {"app": f"train-{i}"}
    amounts = {"cpu": "2", "memory": "16Gi", keys.GPU_WHOLE: "2"}
    pod["spec"]["containers"][0]["resources"] = {"limits": amounts, "requests": amounts}
    pod["spec"]["schedulingGates"] = [{"name": keys.GANG}]
    pod["status"] = {"phase": "Pending"}
    return pod


def _plain(i: int) -> bytes:
    return json.dumps(_held(i)).encode()


def _large(i: int) -> bytes:
    pod = _held(i)
    values = [f"{i:x>3}{number:x>60}" for number in range(VALUES)]
    term = {"matchExpressions": [{"key": keys.HOSTNAME, "operator": "NotIn", "values": values}]}
    required = {"nodeSelectorTerms": [term]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    pod["spec"]["affinity"] = {"nodeAffinity": affinity}
    return json.dumps(pod).encode()


CLUSTERS: dict[str, Objects] = {
    "cluster": {
        "/api/v1/pods": (_pod, PODS),
        "/api/v1/nodes": (_node, NODES),
        f"/api/v1/namespaces/{keys.TOPOLOGY_NAMESPACE}/configmaps": (_topology, NODES),
    },
    "large": {"/api/v1/pods": (_large, LARGE)},
    "plain": {"/api/v1/pods": (_plain, PLAIN)},
    "nothing": {},
}


def _uid(i: int) -> str:
    return f"{i:08x}-6d39-4f7a-9a53-0b6f6d5f2a10"


if __name__ == "__main__":
    asyncio.run(_serve(CLUSTERS[sys.argv[1]]))
