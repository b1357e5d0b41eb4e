"""Messages of kube-scheduler about a pod that is tied to one node."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkwise.planning.gang.scheduler_answer import MESSAGE_MAX, Answer, Fault, read_answer

PREEMPTION = (
    " preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, "
    "2 Preemption is not helpful for scheduling."
)
OTHERS = "2 node(s) didn't satisfy plugin(s) [NodeAffinity]"
OTHERS_BEFORE = "2 node(s) didn't match Pod's node affinity/selector"

OF_NODES = [
    "Insufficient cpu",
    "Insufficient rdma/hca",
    "Too many pods",
    "cannot fit resource",
    "node(s) were unschedulable",
    "node(s) had untolerated taint(s)",
    "node(s) had untolerated taint {example.com/a: b}",
    "node(s) didn't have free ports for the requested pod ports",
    "node(s) didn't match Pod's required features",
    "node(s) didn't match scheduler-enforced node affinity",
    "node(s) didn't match pod affinity rules",
    "node(s) didn't match pod anti-affinity rules",
    "node(s) didn't satisfy existing pods anti-affinity rules",
    "node(s) didn't match pod topology spread constraints",
    "node(s) didn't match pod topology spread constraints (missing required label)",
    "node(s) didn't find available persistent volumes to bind",
    "node(s) didn't match PersistentVolume's node affinity",
    "node(s) did not have enough free storage",
    "node(s) had no available volume zone",
    "node(s) had no available disk",
    "node(s) exceed max volume count",
    "ebs.csi.aws.com CSI driver is not installed on the node",
    "cannot allocate all claims",
    "resourceclaim not available on the node",
    "resource claim a/b allocation requires DRAOptionalNodeOperations feature on the node",
]
EVERYWHERE = [
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already "
    "in-use by another pod",
    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
    'looking up PVC team/data: persistentvolumeclaim "data" not found',
    "pod level request for cpu is insufficient to cover the aggregated container requests",
]
BEFORE_ANY_NODE = [
    'persistentvolumeclaim "data" not found',
    'persistentvolumeclaim "data" is being deleted',
    "pod has unbound immediate PersistentVolumeClaims",
    "waiting for ephemeral volume controller to create the persistentvolumeclaim",
    "request gpu: device class gpu.example.com does not exist",
    "Pod team/a is rejected in PreFilter because ElasticQuota team/b is more than Max",
    "pod affinity terms conflict",
]


def told(*reasons):
    return f"0/3 nodes are available: {', '.join(sorted(reasons))}.{PREEMPTION}"


@pytest.mark.parametrize("reason", OF_NODES)
@pytest.mark.parametrize("others", [OTHERS, OTHERS_BEFORE], ids=["left out", "looked at"])
def test_a_reason_of_the_node_is_the_fault_of_the_node(reason, others):
    assert read_answer(told(f"1 {reason}", others)) == Answer(Fault.NODE, reason)


@pytest.mark.parametrize("reason", EVERYWHERE)
def test_what_each_node_would_say_is_not_the_fault_of_the_node(reason):
    assert read_answer(told(f"1 {reason}", OTHERS)) == Answer(Fault.UNIT, reason)


@pytest.mark.parametrize("reason", BEFORE_ANY_NODE)
def test_what_is_said_before_any_node_is_looked_at_is_not_the_fault_of_the_node(reason):
    message = f"0/3 nodes are available: {reason}.{PREEMPTION}"
    assert read_answer(message) == Answer(Fault.UNIT, reason)


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        pytest.param(told("1 GPU memory is full", OTHERS), Fault.UNKNOWN, id="one node"),
        pytest.param(told("3 quota of team is used up"), Fault.UNIT, id="each node"),
        pytest.param("0/1 nodes are available: 1 no.", Fault.UNKNOWN, id="the only node"),
    ],
)
def test_a_plugin_of_others_speaks_for_one_node_or_for_all(message, fault):
    assert read_answer(message).fault is fault


def test_a_node_that_is_gone_is_the_fault_of_the_node():
    message = "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."
    assert read_answer(message).fault is Fault.NODE
    message = "0/3 nodes are available: node(s) didn't satisfy plugin(s) [A B] simultaneously."
    assert read_answer(message).fault is Fault.NODE


@pytest.mark.parametrize("after", [".", "", ". still not schedulable,", ". No victims."])
@pytest.mark.parametrize("before", [f"1 cannot allocate all claims, {OTHERS}", "no claim"])
def test_what_is_said_after_the_filters_is_left_out(before, after):
    answer = read_answer(f"0/3 nodes are available: {before}{after}{PREEMPTION}")
    assert answer.words in {"cannot allocate all claims", "no claim"}


def test_several_reasons_of_a_node_are_repeated_together():
    message = told("1 Insufficient cpu", "1 Insufficient memory", OTHERS)
    assert read_answer(message) == Answer(Fault.NODE, "Insufficient cpu; Insufficient memory")


@pytest.mark.parametrize(
    "message",
    ["", "no nodes available to schedule pods", "3/3 tasks in gang unschedulable", "0/x nodes"],
)
def test_a_text_of_another_form_is_no_answer(message):
    assert read_answer(message) is None


@given(st.text(max_size=2000), st.booleans())
def test_hostile_messages_give_short_printable_words(text, is_headed):
    answer = read_answer(f"0/3 nodes are available: {text}" if is_headed else text)
    if answer is not None:
        assert len(answer.words) <= 300
        assert answer.words.isprintable()


def test_the_kept_part_of_a_long_message_is_read():
    long = told(f"1 Insufficient {'x' * 5000}", OTHERS)
    assert read_answer(long[:MESSAGE_MAX]).fault is Fault.NODE
