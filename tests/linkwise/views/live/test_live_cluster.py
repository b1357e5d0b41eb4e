"""After any sequence of events, a state is the same as one that is made of nothing."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from support.builders import a_pod, node_object, placed_pod
from support.dra import a_claim, a_device, a_rule, a_slice

from dashboard.visible import Visible, seen_by, seen_node
from linkwise.cluster import keys
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.memo import Memo
from linkwise.dashboard.history import History
from linkwise.dashboard.moment import Moment, node_part
from linkwise.views.live.live_cluster import LiveCluster, read_node, read_object, read_pod

NODES = ("a", "b", "claims")
KEY = b"k" * 32
SEEN = Visible(frozenset({"red"}))
PLANNED = {keys.GANG: "g", keys.GANG_SIZE: "2"}


def node(name, gpus="4", **spec):
    labels = {keys.NODE_MODE: "topology", keys.RACK: f"rack-{gpus}"}
    amounts = {} if name == "claims" else {keys.GPU_WHOLE: gpus}
    return "Node", {**node_object(name, labels, address="10.0.0.1", **amounts), "spec": spec}


def pod(name, namespace, made):
    metadata = {**made["metadata"], "name": name, "namespace": namespace, "uid": name}
    return "Pod", {**made, "metadata": metadata}


def placed(name, on, gpu, **fields):
    return placed_pod(name, {keys.GPU_WHOLE: 1}, on, GPUShare(gpu, f"GPU-{gpu}"), **fields)


def waiting(namespace, **annotations):
    gates = [{"name": keys.GANG}]
    limits, marks = {keys.GPU_WHOLE: 1}, {**PLANNED, **annotations}
    return pod("w", namespace, a_pod(limits, annotations=marks, schedulingGates=gates))


def config_map(name, data, **labels):
    namespace = keys.POLICY_NAMESPACE
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return "ConfigMap", {"metadata": metadata, "data": data}


def policy(text):
    head = "apiVersion: linkwise.dev/v1alpha1\nkind: Policy\n"
    return config_map(keys.POLICY_NAME, {keys.POLICY_KEY: head + text})


def unhealthy(on, gpus):
    return config_map(keys.UNHEALTHY_NAME_PREFIX + on, {keys.UNHEALTHY_KEY: gpus})


def lease(**facts):
    annotations = {key: json.dumps(value) for key, value in facts.items()}
    return "Lease", {"metadata": {"name": keys.SCORER, "annotations": annotations}}


def job(uid):
    owner = {"kind": "Job", "apiVersion": "batch/v1", "metadata": {"name": "j", "uid": uid}}
    return "Job", {**owner, "spec": {"parallelism": 2}}


DEVICES = [a_device(i) for i in range(3)]
FORMS = {
    "node a": [node("a"), node("a", "2"), node("a", unschedulable=True)],
    "node b": [node("b"), node("b", "8")],
    "node claims": [node("claims"), node("claims", unschedulable=True)],
    "pod x": [
        pod("x", "red", placed("x", "a", 0)),
        pod("x", "red", placed("x", "a", 3)),
        pod("x", "red", placed("x", "b", 1, bound=False)),
        pod("x", "red", a_pod({keys.GPU_WHOLE: 1}, nodeName="a")),
    ],
    "pod y": [
        pod("y", "blue", placed("y", "a", 0)),
        pod("y", "blue", placed("y", "a", 1)),
        pod("y", "blue", placed("y", "claims", 1)),
        pod("y", "blue", {**placed("y", "a", 1), "status": {"phase": "Succeeded"}}),
    ],
    "pod w": [waiting("red"), waiting("blue"), waiting("red", **{keys.GANG_SIZE: "1"})],
    "policy": [
        policy("gangs: {domains: [topology.kubernetes.io/zone]}\n"),
        policy("migration: {gpushare: true}\n"),
        policy(f"machines: [{{nodeLabels: {{{keys.RACK}: rack-8}}, machine: dgx1-v100}}]\n"),
    ],
    "unhealthy": [unhealthy("a", "0"), unhealthy("a", "1,2"), unhealthy("b", "0")],
    "lease": [lease(**{keys.REFUSED_MACHINES: {"b": "large"}}), lease()],
    "slice": [
        ("ResourceSlice", a_slice(*DEVICES, node="claims")),
        ("ResourceSlice", a_slice(*DEVICES[:2], node="claims")),
    ],
    "claim": [
        ("ResourceClaim", a_claim("gpu-1", node="claims")),
        ("ResourceClaim", a_claim("gpu-1", node="claims", owner="y")),
    ],
    "claim 2": [("ResourceClaim", a_claim("gpu-1", node="claims", name="other"))],
    "rule": [("DeviceTaintRule", a_rule("broken", "", "NoSchedule", pool="claims"))],
    "job": [job("one"), job("two")],
}
EVENTS = st.sampled_from([(key, i) for key, forms in FORMS.items() for i in range(-1, len(forms))])
"""An object, and its new form; -1: it is deleted."""


def read(kind, plain):
    raw = Raw(json.dumps(plain).encode())
    special = {"Node": read_node, "Pod": read_pod}
    if kind in special:
        return special[kind](raw)
    item = read_object(kind, raw)
    return {**item, "apiVersion": plain.get("apiVersion", "v1")} if item else None


class Watched:
    """The objects as the watches have them: those without an event stay the same."""

    def __init__(self):
        self.items = {}

    def take(self, event):
        key, form = event
        self.items.pop(key, None)
        if form >= 0:
            kind, plain = FORMS[key][form]
            item = read(kind, plain)
            if item is not None:
                self.items[key] = kind, item

    def state(self, live):
        of_kind = {"Node": [], "Pod": [], None: []}
        for kind, item in self.items.values():
            of_kind[kind if kind in of_kind else None].append(item)
        nodes = {item.node.metadata.name: item for item in of_kind["Node"]}
        return live.state(nodes, of_kind["Pod"], of_kind[None])


def new_cluster():
    return LiveCluster("https://here", "default")


def shown(moment):
    return moment.rows, moment.usage, moment.units


@settings(max_examples=60)
@given(st.lists(EVENTS, max_size=12))
def test_a_state_after_events_is_the_same_as_one_of_nothing(events):
    watched, live, history = Watched(), new_cluster(), History()
    parts, seen_parts, seen = Memo(node_part), Memo(node_part), Memo(seen_node)
    page = {}
    watched.take(("node a", 0))
    for event in events:
        watched.take(event)

        current, of_nothing = watched.state(live), watched.state(new_cluster())

        assert current == of_nothing
        moment = Moment(current, 0.0, parts)
        assert shown(moment) == shown(Moment(of_nothing, 0.0))
        reduced = seen_by(current, SEEN, KEY, seen)
        assert reduced == seen_by(of_nothing, SEEN, KEY)
        assert shown(Moment(reduced, 0.0, seen_parts)) == shown(Moment(reduced, 0.0))

        version = history.version
        history.add(moment)
        for name in history.changed_since(version) if version else moment.rows:
            page[name] = moment.rows.get(name)
        assert {name: row for name, row in page.items() if row} == moment.rows


@pytest.mark.parametrize(
    ("event", "changed"),
    [
        (("pod y", 1), {"a"}),
        (("node b", 1), {"b"}),
        (("unhealthy", 0), {"a"}),
        (("claim", 0), {"claims"}),
        (("rule", 0), {"claims"}),
        (("lease", 0), {"b"}),
        (("pod w", 0), set()),
        (("policy", 0), set(NODES)),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_only_nodes_that_an_event_touches_are_computed_again(event, changed):
    watched, live, parts, seen = Watched(), new_cluster(), Memo(node_part), Memo(seen_node)
    for key in ("node a", "node b", "node claims", "pod x", "slice"):
        watched.take((key, 0))

    def state():
        current = watched.state(live)
        ledgers = current.cluster.ledger.nodes
        rows, reduced = Moment(current, 0.0, parts).rows, seen_by(current, SEEN, KEY, seen)
        return ledgers, rows, reduced.cluster.ledger.nodes

    before = state()
    watched.take(event)

    for old, new in zip(before, state(), strict=True):
        assert {name for name in NODES if new[name] is not old[name]} == changed
