import pytest
from prometheus_client import CollectorRegistry, generate_latest
from support.builders import a_node

from linkwise.cluster import keys
from linkwise.cluster.account.gpu_amounts import GPUClass
from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.account.slots import free_slots
from linkwise.cluster.allocations.gpus import Exact, GPUShare
from scorer.metrics import EvictionReason, Metrics, PreemptionOutcome, WaitReason


def a_model(model, name="a"):
    """Return a node with GPUs of a model."""
    labels = {keys.NODE_MODE: "topology", keys.GFD_PRODUCT: model}
    return a_node(name, labels=labels)


@pytest.fixture
def registry():
    return CollectorRegistry()


def lines(registry):
    return generate_latest(registry).decode().splitlines()


def test_durations_and_conflicts_add_up(registry):
    metrics = Metrics(registry)
    metrics.planned(0.002)
    metrics.committed(0.03, conflicts=2)
    metrics.placed(0.07)
    metrics.evicted(4, EvictionReason.UNBOUND)
    metrics.preempted(PreemptionOutcome.STARTED)

    assert {
        'linkwise_planning_duration_seconds_bucket{le="0.0025"} 1.0',
        'linkwise_commit_duration_seconds_bucket{le="0.05"} 1.0',
        "linkwise_placement_duration_seconds_sum 0.07",
        "linkwise_placement_conflicts_total 2.0",
        'linkwise_evicted_pods_total{reason="unbound"} 4.0',
        'linkwise_evicted_pods_total{reason="preempted"} 0.0',
        'linkwise_preemptions_total{outcome="started"} 1.0',
    } <= set(lines(registry))


def value(registry, name, **labels):
    return registry.get_sample_value(name, labels)


def gpu_seconds(registry, namespace):
    labels = {"pod_namespace": namespace, "resource": keys.GPU_WHOLE, "share": "whole"}
    return value(registry, "linkwise_gpu_seconds_total", **labels)


def test_gpu_seconds_begin_at_zero_and_add_up(registry):
    metrics, amounts = Metrics(registry), {GPUClass("team", keys.GPU_WHOLE, "whole"): 4}
    metrics.used(amounts, 0)
    assert gpu_seconds(registry, "team") == 0

    metrics.used(amounts, 15)
    metrics.used({}, 15)
    metrics.used(amounts, 10)

    assert gpu_seconds(registry, "team") == 100


def test_namespaces_after_the_first_thousand_share_one_series(registry):
    metrics = Metrics(registry)
    for i in range(1500):
        metrics.used({GPUClass(f"team-{i}", keys.GPU_WHOLE, "whole"): 2}, 1)
    metrics.used({GPUClass("team-0", keys.GPU_WHOLE, "whole"): 2}, 1)

    assert gpu_seconds(registry, "team-0") == 4
    assert gpu_seconds(registry, "team-1200") is None
    assert gpu_seconds(registry, "_others") == 1000
    names = [line for line in lines(registry) if line.startswith("linkwise_gpu_seconds_total{")]
    assert len(names) == 1001


def test_free_sets_are_those_of_the_inspection_and_disappear_with_the_nodes(registry):
    metrics = Metrics(registry)
    full = NodeLedger.empty(a_model("V100"))
    part = NodeLedger.empty(a_model("V100", "b"))
    for i in (0, 3):
        part = part.hold(Holding(f"team/{i}", str(i), Exact((GPUShare(i),))))
    groups = free_slots([full, part])
    metrics.show_slots(groups)

    (group,) = groups
    assert value(registry, "linkwise_free_gpus", pool="", model="V100") == 14
    for sets in group.sets:
        labels = {"pool": "", "model": "V100", "size": str(sets.size)}
        assert value(registry, "linkwise_free_gpu_sets", **labels) == sets.total
        assert value(registry, "linkwise_free_gpu_sets_fastest", **labels) == sets.fastest
        assert value(registry, "linkwise_free_gpu_sets_together", **labels) == sets.together
    metrics.show_slots(())
    assert not any(line.startswith("linkwise_free_") for line in lines(registry))


def test_models_after_the_first_hundred_share_one_series(registry):
    metrics = Metrics(registry)
    metrics.show_slots(free_slots(NodeLedger.empty(a_model(f"M{i}")) for i in range(150)))

    assert sum(line.startswith("linkwise_free_gpus{") for line in lines(registry)) == 101
    assert value(registry, "linkwise_free_gpus", pool="_others", model="_others") == 50 * 8


def test_waiting_units_are_counted_by_reason(registry):
    metrics = Metrics(registry)
    metrics.waited({WaitReason.CAPACITY: 2}, 15)
    metrics.waited({WaitReason.CAPACITY: 1, WaitReason.QUEUED: 1}, 10)

    assert value(registry, "linkwise_waiting_units", reason="capacity") == 1
    assert value(registry, "linkwise_waiting_seconds_total", reason="capacity") == 40
    assert value(registry, "linkwise_waiting_seconds_total", reason="queued") == 10
    assert value(registry, "linkwise_waiting_seconds_total", reason="retry") == 0
