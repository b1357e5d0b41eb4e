"""Nodes of a control plane, in the words of a cluster file's short form."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress

from controlplane.api import Api, ApiError, Object
from controlplane.process import wait_until

from cli.shortform import read_short_form
from cluster import keys
from cluster.node import Node
from policy.lines import read_documents
from topology import catalogue
from topology.machine import Machine, TopologyError
from webhook.manifest.value import InputError, Value

NODES = "/api/v1/nodes"

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
    """Create nodes with all that they offer, and wait until pods can run on each."""
    for node in nodes:
        api.create(NODES, _object(node))
    names = {node.name for node in nodes}
    wait_until(lambda: names <= _schedulable(api), f"nodes {', '.join(sorted(names))} are ready")


def remove_pods(api: Api, node: str) -> None:
    """Delete the pods of a node that is gone, at once: no kubelet is there to end them.

    Their namespaces could not go away before somebody collects them, a minute later.
    """
    for pod in api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")["items"]:
        home, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        with suppress(ApiError):
            api.delete(f"/api/v1/namespaces/{home}/pods/{name}", gracePeriodSeconds="0")


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
        # training-operator's launchers ask for some.
        "ephemeral-storage": "1Ti",
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
