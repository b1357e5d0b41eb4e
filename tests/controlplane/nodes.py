"""Nodes of a control plane, in the words of a cluster file's short form."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from controlplane.api import Api, ApiError, Object
from controlplane.process import wait_until

from linkwise.cluster import keys
from linkwise.cluster.nodes.node import Node
from linkwise.cluster.nodes.topology_configmap import PublishedTopology, write_published
from linkwise.manifest.lines import read_documents
from linkwise.manifest.value import InputError, Value
from linkwise.topology import catalogue
from linkwise.topology.machine import Machine, TopologyError
from linkwise.topology.table import table_of
from linkwise.views.files.short_form import read_short_form

NODES = "/api/v1/nodes"
_MAPS = f"/api/v1/namespaces/{keys.TOPOLOGY_NAMESPACE}/configmaps"

Line = Mapping[str, object]
"""`name`, `count`, `machine` (of the catalogue), `mode`, `cpu`, `memory`, `gpuMemory`, `labels`."""


def read_nodes(lines: Sequence[Line]) -> tuple[Node, ...]:
    """Return the nodes that the lines of a short form describe.

    Raises:
        InputError: Something in them is wrong.
    """
    text = json.dumps({"apiVersion": keys.API_VERSION, "kind": "Cluster", "nodes": list(lines)})
    [document] = read_documents(text)
    value = Value("nodes", document.value, document)
    return tuple(short.node for short in read_short_form(value, _machine))


def add_nodes(api: Api, nodes: Sequence[Node]) -> None:
    """Create nodes with all that they offer, and wait until pods can run on each.

    What links the GPUs of a known machine is published as its agent would.
    """
    for node in nodes:
        made = api.create(NODES, _object(node))
        if node.machine is not None and node.machine_known:
            uid = made["metadata"]["uid"]
            api.create(_MAPS, published(node.name, str(node.mode), node.machine, uid))
    names = {node.name for node in nodes}
    wait_until(lambda: names <= _schedulable(api), f"nodes {', '.join(sorted(names))} are ready")


def remove_nodes(api: Api, nodes: Sequence[Node]) -> None:
    """Delete nodes and what was added with them, and the pods that are bound to them.

    No kubelet is there to end these, and namespaces could not go away before the pod GC deletes
    them, a minute later.
    """
    names = {node.name for node in nodes}
    for name in names:
        # The test may have taken it away itself, and not each was published.
        for path in (f"{NODES}/{name}", f"{_MAPS}/{_map_of(name)}"):
            with suppress(ApiError):
                api.delete(path)
    for pod in api.get("/api/v1/pods")["items"]:
        if pod["spec"].get("nodeName") in names:
            metadata = pod["metadata"]
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
            with suppress(ApiError):
                api.delete(path, gracePeriodSeconds="0")


@contextmanager
def unhealthy(api: Api, node: str, gpu: int) -> Iterator[None]:
    """Let a GPU be unhealthy while the block runs."""
    name = f"{keys.UNHEALTHY_NAME_PREFIX}{node}"
    api.create(_MAPS, {"metadata": {"name": name}, "data": {keys.UNHEALTHY_KEY: str(gpu)}})
    try:
        yield
    finally:
        api.delete(f"{_MAPS}/{name}")


def _machine(name: str) -> Machine:
    try:
        return catalogue.entry(name).machine
    except TopologyError as error:
        raise InputError(str(error)) from None


def _object(node: Node) -> Object:
    """Return the Node that a kubelet would register with its device plugins."""
    offer = {
        "cpu": f"{node.cpu}m",
        "memory": str(node.memory),
        "pods": str(node.pods),
        **{name: str(amount) for name, amount in node.resources.items()},
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": dict(node.labels)},
        "spec": {
            "taints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in node.taints]
        },
        "status": {"allocatable": offer, "capacity": offer},
    }


def published(node: str, mode: str, machine: Machine, uid: str) -> Object:
    """Return the ConfigMap that a node's agent would publish; it is deleted with the node.

    Args:
        node: The node's name.
        mode: Its mode.
        machine: Its GPUs.
        uid: The node's.
    """
    table, n = table_of(machine), range(machine.n)
    pairs = [[table.bandwidth(1 << i | 1 << j) if i != j else 0.0 for j in n] for i in n]
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
    return {
        "metadata": {
            "name": _map_of(node),
            "labels": {keys.NODE_MODE: mode, keys.TOPOLOGY_NODE: node},
            "ownerReferences": [owner],
        },
        "data": write_published(PublishedTopology(machine, (True,) * machine.n), pairs),
    }


def _map_of(node: str) -> str:
    return f"{keys.TOPOLOGY_NAME_PREFIX}{node}"


def _schedulable(api: Api) -> set[str]:
    """Return the nodes that are ready and have lost the taint that says they are not."""
    return {
        node["metadata"]["name"]
        for node in api.get(NODES)["items"]
        if any(
            one["type"] == "Ready" and one["status"] == "True"
            for one in node["status"].get("conditions", ())
        )
        and not any(
            one["key"] == "node.kubernetes.io/not-ready" for one in node["spec"].get("taints", ())
        )
    }
