"""Pods for `nvidia.com/gpu` that are planned on nodes where NVIDIA's plugin chooses the GPUs."""

from typing import Any

import msgspec
import pytest
from support.admission import (
    ARENA,
    EXACT,
    GATE,
    SLICED,
    a_snapshot,
    admitted,
    codes,
    env_of,
    outcome_of,
)
from support.builders import TIED, a_container, a_counted_node, a_pod, an_exact_node

from linkwise.cluster import container_variables, keys
from linkwise.cluster.finding import Code, Severity
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.cluster.nodes.node_capacity import capacity_of
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.request import Family
from linkwise.cluster.requests.request_reader import read_request

COUNTED = capacity_of([a_counted_node(labels={})])
AUTO, COUNT, OFF = "", "placement: {nvidia: count}", "placement: {nvidia: off}"
RUNTIME_CLASS = "containers: {gpuInjection: runtimeClass}\n"
GPU = {keys.NVIDIA_GPU: 1}
GANG, SINGLE = a_pod(GPU, labels=ARENA), a_pod(GPU)
HAMI = {keys.NVIDIA_GPU: 1, "nvidia.com/gpumem": 3000}


def is_by_count(pod: dict[str, Any], policy: str, capacity: Capacity) -> bool:
    """Return whether a pod is planned on counted nodes, too, as the scorer reads it."""
    after = admitted(pod, a_snapshot(policy), capacity=capacity)
    again = outcome_of(after, a_snapshot(policy), capacity=capacity)
    assert again.patch == ()
    request, _ = read_request(msgspec.convert(after, Pod))
    assert (after["spec"].get("schedulingGates", []) == [GATE]) is request.places
    return request.by_count


@pytest.mark.parametrize("capacity", [COUNTED, EXACT, Capacity()], ids=["counted", "exact", "none"])
@pytest.mark.parametrize(
    ("pod", "policy", "expected"),
    [
        pytest.param(GANG, AUTO, True, id="gang, auto"),
        pytest.param(SINGLE, AUTO, False, id="single, auto"),
        pytest.param(GANG, COUNT, True, id="gang, count"),
        pytest.param(SINGLE, COUNT, True, id="single, count"),
        pytest.param(GANG, OFF, False, id="gang, off"),
        pytest.param(SINGLE, OFF, False, id="single, off"),
        pytest.param(a_pod(GPU, labels=ARENA, **TIED), COUNT, False, id="tied to exact nodes"),
        pytest.param(
            a_pod(GPU, nodeSelector={keys.NODE_MODE: "default"}), COUNT, True, id="counted only"
        ),
        pytest.param(a_pod(GPU, nodeName="n"), COUNT, False, id="node name"),
        pytest.param(a_pod(GPU, schedulerName="volcano"), COUNT, False, id="other scheduler"),
        pytest.param(a_pod(HAMI), COUNT, False, id="HAMi"),
        pytest.param(a_pod({keys.NVIDIA_GPU: 0}), COUNT, False, id="no GPU"),
        pytest.param(a_pod({keys.NVIDIA_GPU_SHARED: 1}), COUNT, False, id="replica of the plugin"),
        pytest.param(a_pod(GPU, owner="DaemonSet"), COUNT, True, id="daemon, count"),
        pytest.param(a_pod(GPU, labels=ARENA, owner="DaemonSet"), AUTO, False, id="daemon, auto"),
    ],
)
def test_policy_decides_which_pods_are_planned_by_count(
    pod: dict[str, Any], policy: str, expected: bool, capacity: Capacity
):
    assert is_by_count(pod, policy, capacity) is expected


def test_gang_whose_containers_need_a_variable_is_planned_on_one_kind_of_nodes():
    assert not is_by_count(GANG, RUNTIME_CLASS, EXACT)
    assert is_by_count(GANG, RUNTIME_CLASS, COUNTED)


def test_gang_that_is_too_large_for_exact_nodes_excludes_them_if_containers_need_a_variable():
    large = a_pod({keys.NVIDIA_GPU: 9}, labels=ARENA)

    after = admitted(large, a_snapshot(RUNTIME_CLASS), capacity=EXACT)

    assert "'operator': 'NotIn', 'values': ['topology']" in str(after)
    assert "runtimeClassName" not in after["spec"]


def test_gang_without_a_placement_is_a_finding():
    outcome = outcome_of(GANG, a_snapshot(OFF), capacity=COUNTED)

    (finding,) = (each for each in outcome.findings if each.code is Code.GANG_COUNTED)
    assert finding.fix == "set placement.nvidia: auto in the policy, or remove the mark"
    assert outcome.request.family is Family.NVIDIA


@pytest.mark.parametrize("policy", [AUTO, COUNT])
def test_gang_that_is_placed_is_no_finding(policy: str):
    assert codes(outcome_of(GANG, a_snapshot(policy), capacity=COUNTED)) == []


def test_gang_with_a_node_name_is_a_finding():
    outcome = outcome_of(a_pod(GPU, labels=ARENA, nodeName="n"), capacity=COUNTED)

    assert codes(outcome) == [Code.GANG_COUNTED]
    assert outcome.findings[0].fix == "remove nodeName, or the mark"


@pytest.mark.parametrize("policy", [AUTO, COUNT, OFF], ids=["auto", "count", "off"])
@pytest.mark.parametrize("fields", [{}, {"labels": ARENA}], ids=["single", "gang"])
def test_node_name_is_an_error_where_only_linkwise_chooses_the_gpus(
    fields: dict[str, Any], policy: str
):
    both = capacity_of([a_counted_node("counted"), an_exact_node("exact")])

    def refused(node: str, **more: object) -> bool:
        pod = a_pod(GPU, nodeName=node, **fields, **more)
        outcome = outcome_of(pod, a_snapshot(policy), capacity=both)
        assert "schedulingGates" not in str(outcome.patch)
        return Code.NODE_NAME in codes(outcome, Severity.ERROR)

    assert not refused("counted")
    assert refused("exact") is (policy != OFF)
    assert refused("counted", **TIED) is (policy != OFF)


def test_request_above_the_largest_counted_node_is_a_finding():
    outcome = outcome_of(a_pod({keys.NVIDIA_GPU: 9}, labels=ARENA), capacity=COUNTED)

    (finding,) = outcome.findings
    assert finding.code is Code.CAPACITY
    assert "9 nvidia.com/gpu is more than any node has: at most 8" in finding.message


def test_variable_of_nvidias_plugin_is_left_to_the_plugin():
    assert env_of(admitted(GANG, capacity=COUNTED)) == {}


def test_variable_of_the_user_would_override_that_of_the_plugin_and_is_removed():
    everything = [{"name": container_variables.ENV_VISIBLE_DEVICES, "value": "all"}]
    pod = a_pod(containers=[a_container(GPU, env=everything)], labels=ARENA)

    outcome = outcome_of(pod, capacity=COUNTED)

    assert env_of(admitted(pod, capacity=COUNTED)) == {}
    assert codes(outcome, Severity.WARNING) == [Code.ENVIRONMENT]


def test_container_without_gpus_sees_none():
    everything = [{"name": container_variables.ENV_VISIBLE_DEVICES, "value": "all"}]
    pod = a_pod(
        containers=[a_container(GPU), a_container(name="a"), a_container(name="b", env=everything)],
        labels=ARENA,
    )

    after = admitted(pod, capacity=COUNTED)

    assert env_of(after, 1) == env_of(after, 2) == {container_variables.ENV_VISIBLE_DEVICES: "void"}


def test_annotations_that_name_devices_are_refused():
    annotations = {"cdi.k8s.io/mine": "nvidia.com/gpu=all"}

    outcome = outcome_of(a_pod(GPU, labels=ARENA, annotations=annotations), capacity=COUNTED)

    assert codes(outcome, Severity.ERROR) == [Code.CDI_ANNOTATION]


def test_pod_by_count_waits_for_the_planner_in_mode_scheduler_too():
    policy = "placement: {mode: scheduler, nvidia: count}"

    after = admitted(SINGLE, a_snapshot(policy), capacity=SLICED)

    assert after["spec"]["schedulingGates"] == [GATE]
    assert after["spec"]["schedulerName"] == keys.SCHEDULER
