"""Scheduling gates, node requirements and schedulers of admitted pods."""

import pytest
from support.admission import (
    ARENA,
    GATE,
    REQUIRED,
    SLICED,
    TIME_SLICING,
    a_snapshot,
    admitted,
    codes,
    env_of,
    outcome_of,
    requirements_of,
)
from support.builders import a_pod

from linkwise.cluster import container_variables, keys
from linkwise.cluster.finding import Code, Severity
from linkwise.workloads import operator_keys
from linkwise.workloads.gang_owner import GangOwner
from linkwise.workloads.kinds.stateful_set import STATEFUL_SET


def test_gang_worker_is_gated_and_requires_nodes_of_mode_topology():
    pod = admitted(
        a_pod(
            {keys.GPU_WHOLE: 1},
            labels={**ARENA, operator_keys.JOB_ROLE: "worker"},
            hostNetwork=True,
        )
    )

    assert pod["spec"]["schedulingGates"] == [GATE]
    assert requirements_of(pod) == {keys.NODE_MODE: ["topology"]}


def test_gang_launcher_is_not_gated_and_sees_no_gpu():
    pod = admitted(a_pod({"cpu": 1}, labels={**ARENA, operator_keys.JOB_ROLE: "launcher"}))

    assert "schedulingGates" not in pod["spec"]
    assert "affinity" not in pod["spec"]
    assert env_of(pod) == {container_variables.ENV_VISIBLE_DEVICES: "void"}


@pytest.mark.parametrize(
    ("limits", "mode", "gated"),
    [
        pytest.param({keys.GPU_WHOLE: 1}, "scheduler", True, id="whole"),
        pytest.param({keys.GPU_MEM: 1}, "scheduler", True, id="share"),
        pytest.param({keys.NVIDIA_GPU_SHARED: 1}, "scheduler", True, id="replica"),
        pytest.param({keys.NVIDIA_GPU: 1}, "scheduler", True, id="nvidia-chooses"),
        pytest.param({keys.NVIDIA_GPU: 1}, "gates", True, id="nvidia-chooses-with-gates"),
        pytest.param({"cpu": 1}, "gates", False, id="no-gpu"),
    ],
)
def test_members_with_gpus_of_linkwise_are_gated(limits, mode, gated):
    policy = a_snapshot(f"placement: {{mode: {mode}}}")
    pod = admitted(a_pod(limits, labels=ARENA), policy, capacity=SLICED)

    assert pod["spec"].get("schedulingGates", []) == [GATE] * gated


def test_single_pods_are_gated_in_mode_gates():
    pod = a_pod({keys.GPU_WHOLE: 1})

    assert admitted(pod)["spec"]["schedulingGates"] == [GATE]
    with_scheduler = admitted(pod, a_snapshot("placement: {mode: scheduler}"))
    assert "schedulingGates" not in with_scheduler["spec"]
    assert with_scheduler["spec"]["schedulerName"] == keys.SCHEDULER


@pytest.mark.parametrize(
    ("gpus", "link", "gated"), [(2, "nvlink", 1), (2, "best", 0), (1, "nvlink", 0)]
)
def test_pod_that_requires_links_is_gated_in_mode_scheduler(gpus, link, gated):
    pod = a_pod({keys.GPU_WHOLE: gpus}, annotations={keys.LINK: link})

    after = admitted(pod, a_snapshot("placement: {mode: scheduler}"))

    assert after["spec"].get("schedulingGates", []) == [GATE] * gated


def test_pod_of_a_daemon_set_keeps_its_node_and_is_not_a_member():
    field = {"key": keys.NODE_NAME_FIELD, "operator": "In", "values": ["n1"]}
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}}}
    pod = a_pod({keys.GPU_WHOLE: 1}, labels=ARENA, owner="DaemonSet", affinity=affinity)

    after = admitted(pod, a_snapshot("placement: {mode: scheduler}"))

    (term,) = after["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert term["matchFields"] == [field]
    assert term["matchExpressions"][0]["key"] == keys.NODE_MODE
    assert "schedulingGates" not in after["spec"]


def test_gate_is_appended_once_to_other_gates():
    other = {"name": "example.org/quota"}

    once = admitted(a_pod({keys.GPU_WHOLE: 1}, schedulingGates=[other]))

    assert once["spec"]["schedulingGates"] == [other, GATE]
    assert admitted(once) == once


@pytest.mark.parametrize(
    ("own", "after"),
    [(None, "linkwise"), ("", "linkwise"), ("default-scheduler", "linkwise"), ("mine", "mine")],
)
def test_scheduler_named_by_the_user_is_kept(own, after):
    spec = {} if own is None else {"schedulerName": own}

    pod = admitted(
        a_pod({keys.GPU_WHOLE: 1}, labels=ARENA, **spec), a_snapshot("placement: {mode: scheduler}")
    )

    assert pod["spec"]["schedulerName"] == after


BY_SCHEDULER = "placement: {mode: scheduler}"
BY_ANOTHER = "placement: {mode: scheduler, schedulerName: second}"
RENAMED = f"{BY_SCHEDULER}\n{TIME_SLICING.rstrip()}\n  rename: true\n"
WHOLE = {keys.GPU_WHOLE: 1}


@pytest.mark.parametrize(
    ("pod", "policy"),
    [
        pytest.param(a_pod(WHOLE, schedulerName="mine"), BY_SCHEDULER, id="whole"),
        pytest.param(a_pod({keys.GPU_MEM: 1}, schedulerName="mine"), BY_SCHEDULER, id="share"),
        pytest.param(
            a_pod({keys.NVIDIA_GPU_SHARED: 1}, schedulerName="mine"), BY_SCHEDULER, id="replica"
        ),
        pytest.param(a_pod({keys.NVIDIA_GPU: 1}, schedulerName="mine"), RENAMED, id="renamed"),
        pytest.param(
            a_pod(WHOLE, labels=ARENA, owner="DaemonSet", schedulerName="mine"),
            BY_SCHEDULER,
            id="of-a-daemonset",
        ),
        pytest.param(
            a_pod(WHOLE, schedulerName="mine", schedulingGates=[{"name": "other"}]),
            BY_SCHEDULER,
            id="others-gate",
        ),
        pytest.param(
            a_pod(WHOLE, schedulerName=keys.SCHEDULER), BY_ANOTHER, id="not-the-policys-name"
        ),
    ],
)
def test_pod_that_another_scheduler_would_bind_without_gpus_is_refused(pod, policy):
    outcome = outcome_of(pod, a_snapshot(policy), capacity=SLICED)

    assert codes(outcome, Severity.ERROR) == [Code.SCHEDULER]
    (finding,) = (each for each in outcome.findings if each.code is Code.SCHEDULER)
    assert (finding.field, finding.value) == ("spec.schedulerName", pod["spec"]["schedulerName"])
    ours = "second" if policy is BY_ANOTHER else keys.SCHEDULER
    assert finding.fix == f"leave schedulerName out, or write {ours}"


@pytest.mark.parametrize(
    ("pod", "policy"),
    [
        pytest.param(a_pod(WHOLE), BY_SCHEDULER, id="no-scheduler"),
        pytest.param(
            a_pod(WHOLE, schedulerName=keys.DEFAULT_SCHEDULER), BY_SCHEDULER, id="the-clusters"
        ),
        pytest.param(a_pod(WHOLE, schedulerName=keys.SCHEDULER), BY_SCHEDULER, id="ours"),
        pytest.param(a_pod(WHOLE, schedulerName="second"), BY_ANOTHER, id="the-policys-name"),
        pytest.param(a_pod(WHOLE, labels=ARENA, schedulerName="mine"), BY_SCHEDULER, id="member"),
        pytest.param(
            a_pod(WHOLE, schedulerName="mine", schedulingGates=[GATE]), BY_SCHEDULER, id="our-gate"
        ),
        pytest.param(
            a_pod({"cpu": 1}, labels=ARENA, schedulerName="mine"), BY_SCHEDULER, id="launcher"
        ),
        pytest.param(
            a_pod({keys.NVIDIA_GPU: 1}, schedulerName="mine"), BY_SCHEDULER, id="nvidia-chooses"
        ),
        pytest.param(a_pod(WHOLE, schedulerName="mine"), "", id="gates"),
    ],
)
def test_pod_with_chosen_or_foreign_gpus_may_name_its_scheduler(pod, policy):
    assert codes(outcome_of(pod, a_snapshot(policy))) == []


def test_gated_pods_get_the_non_preempting_class_without_resolved_priority():
    policy = a_snapshot("gangs: {nonPreemptingClasses: {high: high-waits}}")
    spec = {"priorityClassName": "high", "priority": 7, "preemptionPolicy": "PreemptLowerPriority"}

    pod = admitted(a_pod({keys.GPU_WHOLE: 1}, **spec), policy)

    assert pod["spec"]["priorityClassName"] == "high-waits"
    assert not {"priority", "preemptionPolicy"} & pod["spec"].keys()
    assert outcome_of(pod, policy).patch == ()


@pytest.mark.parametrize(
    ("limits", "spec"),
    [
        pytest.param({keys.GPU_WHOLE: 1}, {"priorityClassName": "low"}, id="another class"),
        pytest.param({keys.GPU_WHOLE: 1}, {}, id="no class"),
        pytest.param({keys.NVIDIA_GPU: 1}, {"priorityClassName": "high"}, id="not held"),
    ],
)
def test_other_pods_keep_their_priority_class(limits, spec):
    policy = a_snapshot("gangs: {nonPreemptingClasses: {high: high-waits}}")
    resolved = {**spec, "priority": 7, "preemptionPolicy": "PreemptLowerPriority"}

    pod = admitted(a_pod(limits, **resolved), policy)

    assert resolved.items() <= pod["spec"].items()
    assert pod["spec"].get("priorityClassName") == spec.get("priorityClassName")


def test_gang_of_a_workload_is_validated_with_it():
    workload = GangOwner("StatefulSet", "web", members=4, ordered=STATEFUL_SET.ordered)

    outcome = outcome_of(a_pod({keys.GPU_WHOLE: 1}, labels=ARENA), workload=workload)

    assert codes(outcome, Severity.ERROR) == [Code.GANG_ORDERED]


def test_invalid_gang_size_is_a_finding_only_for_members():
    labels = {**ARENA, keys.POD_GROUP_MIN_AVAILABLE: "many"}

    assert Code.GANG_SIZE in codes(outcome_of(a_pod({keys.GPU_WHOLE: 1}, labels=labels)))
    assert Code.GANG_SIZE in codes(outcome_of(a_pod({keys.NVIDIA_GPU: 1}, labels=labels)))
    off = a_snapshot("placement: {nvidia: off}")
    assert codes(outcome_of(a_pod({keys.NVIDIA_GPU: 1}, labels=labels), off)) == [Code.GANG_COUNTED]

    by_another = a_pod({keys.NVIDIA_GPU: 1}, labels=labels, schedulerName="volcano")
    assert codes(outcome_of(by_another)) == []
