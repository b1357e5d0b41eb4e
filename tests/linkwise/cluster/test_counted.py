import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import TIED, a_counted_node, a_pod, an_exact_node, node_object

from linkwise.cluster.account.accounting import ledger_of
from linkwise.cluster.account.ledger import Ledger
from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.keys import ALLOCATION, GANG, NVIDIA_GPU
from linkwise.cluster.nodes.node import Node
from linkwise.cluster.nodes.node_reader import read_node
from linkwise.cluster.nodes.node_resources import NodeObject
from linkwise.cluster.objects.pod import Pod

NODE = "counted-0"


def a_record(*, node: str = NODE, count: int = 1, **fields: Any) -> dict[str, str]:
    record = {"v": 1, "node": node, "gpus": None, "count": count, **fields}
    return {ALLOCATION: json.dumps(record)}


def a_gpu_pod(
    name: str, gpus: int = 1, *, node: str = NODE, phase: str = "Running", **pod: Any
) -> Pod:
    raw = a_pod({NVIDIA_GPU: gpus}, name=name, **({"nodeName": node} if node else {}), **pod)
    raw["status"] = {"phase": phase}
    return msgspec.convert(raw, Pod)


def ledger_with(*pods: Pod, node: Node | None = None) -> NodeLedger:
    return ledger_of([node or a_counted_node()], pods).nodes[NODE]


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param({}, id="of another scheduler, or from before"),
        pytest.param({"annotations": a_record()}, id="planned and bound"),
        pytest.param({"annotations": a_record(), "node": ""}, id="planned and not bound yet"),
        pytest.param({"annotations": a_record(node="other")}, id="bound past its plan"),
        pytest.param({"annotations": a_record(count=7)}, id="record with another count"),
        pytest.param({"annotations": {ALLOCATION: "{"}}, id="unreadable record"),
        pytest.param(TIED, id="tied to exact nodes"),
    ],
)
def test_counted_node_counts_what_each_pod_requests(pod: dict[str, Any]):
    ledger = ledger_with(a_gpu_pod("a", 1, **pod))

    assert ledger.counted_free(NVIDIA_GPU) == 7
    assert ledger.gpus_free == 7
    assert ledger.unaccounted is None


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_finished_pod_of_a_counted_node_holds_nothing(phase: str):
    assert ledger_with(a_gpu_pod("a", 8, phase=phase)).gpus_free == 8


def test_init_containers_count_by_the_rule_of_kubernetes():
    limits = {"resources": {"limits": {NVIDIA_GPU: 1}}}
    sidecar = {"name": "side", "restartPolicy": "Always", **limits}
    init = {"name": "init", "resources": {"limits": {NVIDIA_GPU: 4}}}

    ledger = ledger_with(a_gpu_pod("a", 1, initContainers=[sidecar, init]))

    assert ledger.gpus_free == 3


def test_pods_of_several_schedulers_are_counted_together():
    pods = [a_gpu_pod("stock"), a_gpu_pod("ours", 2, annotations=a_record(count=2))]

    assert ledger_with(*pods, a_gpu_pod("volcano", 3, schedulerName="volcano")).gpus_free == 2


def counted_from(allocatable: str, capacity: str = "8") -> Node:
    raw = node_object(NODE, {}, **{NVIDIA_GPU: allocatable, "cpu": "96", "memory": "768Gi"})
    raw["status"]["capacity"] = {NVIDIA_GPU: capacity}
    return read_node(msgspec.convert(raw, NodeObject))


def test_restart_of_the_plugin_loses_no_pod_and_frees_no_gpu():
    pods = [a_gpu_pod("a", 3), a_gpu_pod("b", 2, node="", annotations=a_record(count=2))]

    states = [ledger_with(*pods, node=counted_from(n)) for n in ("8", "0", "8")]

    assert [ledger.gpus_free for ledger in states] == [3, 0, 3]
    assert {len(ledger.holdings) for ledger in states} == {2}
    assert {ledger.unaccounted for ledger in states} == {None}


def test_unhealthy_gpu_of_a_counted_node_is_not_free():
    assert ledger_with(a_gpu_pod("a", 3), node=counted_from("7")).gpus_free == 4


def test_node_that_lost_its_resource_has_nothing_free():
    lost = replace(a_counted_node(), resources={})

    assert ledger_with(a_gpu_pod("a"), node=lost).gpus_free == 0


def test_overcommitted_counted_node_has_nothing_free():
    ledger = ledger_with(a_gpu_pod("a", 5), a_gpu_pod("b", 5))

    assert ledger.counted_free(NVIDIA_GPU) == -2
    assert ledger.gpus_free == 0
    assert ledger.unaccounted is None


def test_gpus_by_record_make_a_node_unaccounted_that_became_counted():
    record = {ALLOCATION: json.dumps({"v": 1, "node": NODE, "gpus": [{"i": 0}]})}

    ledger = ledger_with(a_gpu_pod("a", annotations=record))

    assert ledger.unaccounted == (
        f"default/a: its {ALLOCATION} names GPUs that NVIDIA's plugin may allocate"
    )


def test_count_makes_a_node_unaccounted_that_became_exact():
    ledger = ledger_with(a_gpu_pod("a", annotations=a_record()), node=an_exact_node(NODE))

    assert ledger.unaccounted is not None


def test_pod_planned_by_count_for_a_node_that_became_exact_is_a_conflict():
    planned = a_gpu_pod("a", node="", annotations=a_record())

    ledger: Ledger = ledger_of([an_exact_node(NODE)], [planned])

    assert [conflict.pod for conflict in ledger.conflicts] == ["default/a"]
    assert ledger.nodes[NODE].unaccounted is None


@given(
    st.lists(
        st.tuples(
            st.integers(1, 8),
            st.sampled_from(["stock", "planned", "bound", "gated", "Failed", "Succeeded"]),
        ),
        max_size=12,
    )
)
def test_books_of_a_counted_node_equal_the_requests_of_its_pods(kinds: list[tuple[int, str]]):
    pods = []
    for i, (gpus, kind) in enumerate(kinds):
        has_record = kind in {"planned", "bound"}
        gates = {"schedulingGates": [{"name": GANG}]} if kind == "gated" else {}
        pods.append(
            a_gpu_pod(
                f"p{i}",
                gpus,
                node="" if kind in {"planned", "gated"} else NODE,
                phase=kind if kind in {"Failed", "Succeeded"} else "Running",
                annotations=a_record(count=gpus) if has_record else None,
                **gates,
            )
        )

    ledger = ledger_with(*pods)

    used = sum(gpus for gpus, kind in kinds if kind in {"stock", "planned", "bound"})
    assert ledger.counted_free(NVIDIA_GPU) == 8 - used
    assert ledger.unaccounted is None
