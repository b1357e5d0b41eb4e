"""The rights of the agent on a real API server: each agent changes only its own node."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from controlplane.api import Api, refusal
from controlplane.manifests import NAMESPACES, ROOT, names
from controlplane.nodes import NODES, add_nodes, read_nodes, remove_nodes
from controlplane.plane import ControlPlane
from controlplane.pods import a_pod
from controlplane.process import wait_until
from support.builders import dgx1_v100

from agent.publish.node_labels import (
    LABELS,
    LabelledNode,
    publish_labels,
    publish_mode_in_use,
    read_node_labels,
)
from agent.publish.topology import publish_topology, topology_config_map
from linkwise.cluster import keys
from linkwise.cluster.nodes.topology_configmap import PublishedTopology
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.kube.event_recorder import Event, EventRecorder, ObjectReference

AGENT = "linkwise-agent"
FOLDER = ROOT / "manifests/agent"
MAPS = f"{NAMESPACES}/{keys.TOPOLOGY_NAMESPACE}/configmaps"
ACCOUNT = f"{NAMESPACES}/{AGENT}/serviceaccounts/{AGENT}/token"
DENIED = "ValidatingAdmissionPolicy 'linkwise-agent'"


@dataclass(frozen=True)
class Agents:
    """Two nodes, and the accounts of the agents on them."""

    plane: ControlPlane
    tokens: dict[str, str]

    def api(self, node: str) -> Api:
        return self.plane.api_as(self.tokens[node])

    def kube(self, node: str) -> Kube:
        return Kube(self.plane.server, token=self.tokens[node], ca_file=self.plane.ca_file)


@pytest.fixture(scope="module")
def agents(plane: ControlPlane) -> Iterator[Agents]:
    applied = plane.kubectl("apply", "-k", str(FOLDER))
    assert applied.returncode == 0, applied.stderr
    nodes = read_nodes([{"name": "agent", "count": 2, "machine": "dgx1-v100", "mode": "topology"}])
    add_nodes(plane.api, nodes)
    node_names = [node.name for node in nodes]
    for name in node_names:
        # Its own agent is to create it.
        plane.api.delete(f"{MAPS}/{keys.TOPOLOGY_NAME_PREFIX}{name}")
    found = Agents(plane, {name: _token(plane, name) for name in node_names})
    probe = _config_map(node_names[1])
    wait_until(
        lambda: (
            DENIED in refusal(lambda: found.api(node_names[0]).create(MAPS, probe, dryRun="All"))
        ),
        "the policy is in force",
    )
    yield found
    remove_nodes(plane.api, nodes)
    plane.kubectl("delete", "--wait=false", "-k", str(FOLDER))
    wait_until(
        lambda: AGENT not in names(plane, NAMESPACES), "the namespace of the agent is gone", 300
    )


def _token(plane: ControlPlane, node: str) -> str:
    """Return the token of a pod of the agent on a node."""
    pod = a_pod(node, nodeName=node, serviceAccountName=AGENT)
    made = plane.api.create(f"{NAMESPACES}/{AGENT}/pods", pod)["metadata"]
    bound = {"apiVersion": "v1", "kind": "Pod", "name": made["name"], "uid": made["uid"]}
    answer = plane.api.create(ACCOUNT, {"spec": {"boundObjectRef": bound}})
    return str(answer["status"]["token"])


def _config_map(node, name=None, **labels):
    labels = {keys.NODE_MODE: "topology", keys.TOPOLOGY_NODE: node, **labels}
    metadata = {"name": name or f"{keys.TOPOLOGY_NAME_PREFIX}{node}", "labels": labels}
    return {"metadata": metadata, "data": {}}


def _topology(agents, *unhealthy):
    uid = agents.plane.api.get(f"{NODES}/agent-0")["metadata"]["uid"]
    healthy = tuple(i not in unhealthy for i in range(8))
    published = PublishedTopology(dgx1_v100(), healthy)
    return topology_config_map("agent-0", uid, published, [[0.0] * 8] * 8)


def _event(agents, node, component=AGENT, instance="agent-0"):
    recorder = EventRecorder(agents.kube("agent-0"), component, instance, lambda: 1_800_000_000.0)
    about = ObjectReference("v1", "Node", node, node)
    return recorder._body(Event(about, "Mismatch", "PID 7 uses GPU 3", "1"))


async def test_agent_publishes_the_topology_of_its_node(agents):
    async with agents.kube("agent-0") as kube:
        assert await publish_topology(kube, _topology(agents))
        assert not await publish_topology(kube, _topology(agents))
        assert await publish_topology(kube, _topology(agents, 3))
    (owner,) = agents.plane.api.get(f"{MAPS}/topology-agent-0")["metadata"]["ownerReferences"]
    assert owner["name"] == "agent-0"
    assert agents.api("agent-0").delete(f"{MAPS}/topology-agent-0")


async def test_agent_sets_labels_that_no_other_client_has_set(agents):
    path = f"{NODES}/agent-0"
    theirs = {"metadata": {"labels": {keys.GFD_PRODUCT: "theirs"}}}
    agents.plane.api.patch(path, theirs, fieldManager="nfd-master")
    wanted = dict.fromkeys(LABELS, "ours")

    async with agents.kube("agent-0") as kube:

        async def apply(labels):
            node: LabelledNode = await read_node_labels(kube, "agent-0")
            return await publish_labels(kube, node, labels)

        assert await apply(wanted)
        assert not await apply(wanted)
        labels = agents.plane.api.get(path)["metadata"]["labels"]
        assert {key: labels[key] for key in LABELS} == {**wanted, keys.GFD_PRODUCT: "theirs"}
        assert await apply({})
        labels = agents.plane.api.get(path)["metadata"]["labels"]
        assert {key for key in LABELS if key in labels} == {keys.GFD_PRODUCT}
        assert labels[keys.NODE_MODE] == "topology"


async def test_agent_sets_the_mode_in_use_which_then_cannot_be_changed(agents):
    path, admin = f"{NODES}/agent-0", agents.plane.api
    async with agents.kube("agent-0") as kube:

        async def publish(mode):
            node: LabelledNode = await read_node_labels(kube, "agent-0")
            return await publish_mode_in_use(kube, node, mode)

        def refused(mode):
            change = _labelled(**{keys.NODE_MODE: mode})
            return refusal(lambda: admin.patch(path, change, dryRun="All"))

        assert await publish("topology")
        assert not await publish("topology")
        wait_until(lambda: refused("share"), "the policy of modes is in force")
        assert "'linkwise-node-mode'" in refused("share")
        without = _labelled(**{keys.NODE_MODE: None, keys.MODE: None})
        assert "'linkwise-node-mode'" in refusal(lambda: admin.patch(path, without, dryRun="All"))
        other = _labelled(**{keys.MODE: "share"})
        assert "'linkwise-node-mode'" in refusal(lambda: admin.patch(path, other, dryRun="All"))
        assert refused("topology") == ""
        assert refusal(lambda: admin.patch(path, _labelled(zone="a"), dryRun="All")) == ""
        assert await publish("none")
        assert refused("share") == ""


@pytest.mark.parametrize(
    "config_map",
    [
        pytest.param(_config_map("agent-1"), id="another node"),
        pytest.param(_config_map("agent-1", "topology-agent-0"), id="label of another node"),
        pytest.param(_config_map("agent-0", "unhealthy-gpu-agent-1"), id="health of another node"),
        pytest.param(_config_map("agent-0", keys.PROFILE_NAME), id="profiles"),
    ],
)
def test_agent_writes_no_other_config_map(agents, config_map):
    api, admin = agents.api("agent-0"), agents.plane.api
    path = f"{MAPS}/{config_map['metadata']['name']}"

    assert DENIED in refusal(lambda: api.create(MAPS, config_map))
    created = admin.create(MAPS, config_map)
    try:
        changed = {**created, "data": {"devices": "{}"}}
        assert DENIED in refusal(lambda: api.update(path, changed))
        if not path.endswith("topology-agent-0"):
            assert DENIED in refusal(lambda: api.delete(path))
    finally:
        admin.delete(path)


def _labelled(**labels):
    return {"metadata": {"labels": labels}}


@pytest.mark.parametrize(
    ("node", "change"),
    [
        pytest.param("agent-1", _labelled(**{keys.GFD_COUNT: "8"}), id="label of another node"),
        pytest.param("agent-0", _labelled(**{keys.NODE_MODE: "mig"}), id="another label"),
        pytest.param(
            "agent-0", _labelled(**{keys.NODE_MODE: None, keys.MODE: None}), id="removed labels"
        ),
        pytest.param("agent-0", _labelled(zone="a"), id="new label"),
        pytest.param("agent-0", {"metadata": {"annotations": {"a": "b"}}}, id="annotation"),
        pytest.param(
            "agent-1", {"metadata": {"annotations": {keys.MODE_IN_USE: "topology"}}}, id="its mode"
        ),
        pytest.param("agent-0", {"metadata": {"finalizers": ["a.b/c"]}}, id="finalizer"),
        pytest.param("agent-0", {"spec": {"unschedulable": True}}, id="cordon"),
        pytest.param(
            "agent-0", {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}, id="taint"
        ),
    ],
)
def test_agent_changes_nothing_else_of_nodes(agents, node, change):
    api = agents.api("agent-0")
    assert DENIED in refusal(lambda: api.patch(f"{NODES}/{node}", change, dryRun="All"))
    assert refusal(lambda: api.patch(f"{NODES}/{node}/status", change, dryRun="All"))


def test_agent_creates_events_about_its_own_node_and_about_pods(agents):
    events, api = f"{NAMESPACES}/default/events", agents.api("agent-0")
    own = _event(agents, "agent-0")
    pod = {**own, "involvedObject": {**own["involvedObject"], "kind": "Pod", "name": "x"}}
    pod["involvedObject"]["namespace"] = "default"
    for event in (own, pod):
        assert refusal(lambda event=event: api.create(events, event, dryRun="All")) == ""
    for event in (
        _event(agents, "agent-1"),
        _event(agents, "agent-0", component="kubelet"),
        _event(agents, "agent-0", instance="agent-1"),
        {**own, "involvedObject": {**own["involvedObject"], "kind": "Namespace"}},
    ):
        assert DENIED in refusal(lambda event=event: api.create(events, event, dryRun="All"))


def test_token_without_a_node_is_refused(agents):
    api = agents.plane.api_as(agents.plane.token(AGENT, AGENT))
    change = _labelled(**{keys.GFD_COUNT: "8"})
    refused = (
        refusal(lambda: api.create(MAPS, _config_map("agent-0"))),
        refusal(lambda: api.patch(f"{NODES}/agent-0", change)),
    )
    assert all(DENIED in text for text in refused), refused


def test_other_rights_are_missing(agents):
    api = agents.api("agent-0")
    for path in (MAPS, f"{NAMESPACES}/{AGENT}/secrets"):
        assert "cannot list" in refusal(lambda path=path: api.get(path))
    pod = f"{NAMESPACES}/{AGENT}/pods/agent-0"
    for path in (pod, f"{pod}/status"):
        assert "cannot patch" in refusal(lambda path=path: api.patch(path, _labelled(a="b")))
    for path in (pod, f"{NODES}/agent-0"):
        assert "cannot delete" in refusal(lambda path=path: api.delete(path))
