import json

import msgspec
import pytest
from support.builders import a_pod

from scorer.extender.wire import (
    Binding,
    BindResult,
    FilterResult,
    HostPriority,
    MetaPod,
    MetaVictims,
    PreemptResult,
    WireError,
    read_binding,
    read_candidates,
    read_preempt,
)

VICTIMS = {"foo": {"Pods": [{"UID": "myuid"}], "NumPDBViolations": 1}}


def body(**fields):
    return json.dumps({"Pod": a_pod({}), **fields}).encode()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            FilterResult(["node1"], {"foo": "bar"}, {"baz": "qux"}, "myerror"),
            {
                "NodeNames": ["node1"],
                "FailedNodes": {"foo": "bar"},
                "FailedAndUnresolvableNodes": {"baz": "qux"},
                "Error": "myerror",
            },
        ),
        (HostPriority("myhost", 1), {"Host": "myhost", "Score": 1}),
        (BindResult("myerror"), {"Error": "myerror"}),
        (
            PreemptResult({"foo": MetaVictims([MetaPod("myuid")], 1)}),
            {"NodeNameToMetaVictims": VICTIMS},
        ),
    ],
    ids=["filter", "prioritize", "bind", "preempt"],
)
def test_names_on_the_wire_are_those_of_the_schedulers_types(value, expected):
    assert json.loads(msgspec.json.encode(value)) == expected


def test_a_result_without_feasible_nodes_has_an_empty_list():
    assert json.loads(msgspec.json.encode(FilterResult()))["NodeNames"] == []


def test_a_pod_and_the_names_of_its_nodes_are_read():
    found = read_candidates(body(Nodes=None, NodeNames=["a", "b"]))

    assert (found.pod.metadata.name, found.names) == ("pod", ["a", "b"])


def test_a_binding_is_read():
    text = b'{"PodName":"p","PodNamespace":"ns","PodUID":"u","Node":"n","Other":1}'

    assert read_binding(text) == Binding("p", "ns", "u", "n")


@pytest.mark.parametrize("victims", [VICTIMS, {"foo": {"Pods": None}}, {}, None], ids=repr)
def test_victims_are_read_by_uid(victims):
    pod, found = read_preempt(body(NodeNameToVictims=None, NodeNameToMetaVictims=victims))

    assert pod.metadata.name == "pod"
    assert found.keys() == (victims or {}).keys()
    if victims is VICTIMS:
        assert found["foo"] == MetaVictims([MetaPod("myuid")], 1)


@pytest.mark.parametrize(
    ("read", "text", "reason"),
    [
        (read_candidates, body(Nodes={"items": [{}]}), "nodeCacheCapable to true"),
        (read_candidates, body(Nodes={"items": []}, NodeNames=None), "nodeCacheCapable to true"),
        (read_candidates, b'{"NodeNames":["a"]}', "no Pod"),
        (read_candidates, b'{"Pod":null,"NodeNames":["a"]}', "no Pod"),
        (read_candidates, body(NodeNames=[1]), "$.NodeNames[0]"),
        (read_candidates, b"", "extender protocol"),
        (read_candidates, b'{"Pod":{"metadata":{"name":"\xff"}}}', "extender protocol"),
        (read_candidates, b"[" * 100_000, "extender protocol"),
        (read_binding, b'{"PodName":"p","PodNamespace":"ns","Node":"n"}', "PodUID"),
        (read_binding, b'{"podname":"p"}', "PodName"),
        (read_binding, b"null", "extender protocol"),
        (read_preempt, body(NodeNameToVictims={"foo": {"Pods": []}}), "nodeCacheCapable to true"),
        (read_preempt, b'{"NodeNameToMetaVictims":{}}', "no Pod"),
    ],
)
def test_an_invalid_request_is_refused_with_the_reason(read, text, reason):
    with pytest.raises(WireError) as refused:
        read(text)
    assert reason in str(refused.value)
