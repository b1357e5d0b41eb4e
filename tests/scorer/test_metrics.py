import pytest
from prometheus_client import CollectorRegistry, generate_latest
from support.builders import a_node

from linkwise.cluster import keys
from linkwise.cluster.account.gpu_amounts import GPUClass
from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.account.slots import free_slots
from linkwise.cluster.allocations.gpus import Exact, GPUShare
from linkwise.cluster.gang import Link
from linkwise.planning.gang.crd import Gang, GangMetadata, GangSpec, GangStatus, Phase
from scorer.metrics import EvictionReason, Metrics, PreemptionOutcome, WaitReason, show_state


def a_gang(phase):
    return Gang(GangMetadata("g"), GangSpec("g", Link.BEST), GangStatus(phase))


def a_model(model, name="a"):
    """Return a node with GPUs of a model."""
    labels = {keys.NODE_MODE: "topology", keys.GFD_PRODUCT: model}
    return a_node(name, labels=labels)


@pytest.fixture
def registry():
    return CollectorRegistry()


def lines(registry):
    return generate_latest(registry).decode().splitlines()


def shown(registry, **values):
    defaults = {
        "leads": lambda: True,
        "gangs": lambda: (),
        "partial": lambda: None,
        "reserved_gpus": {},
        "faulty": lambda: None,
        "unaccounted": lambda: None,
        "unfenced": lambda: None,
        "taint_rules": lambda: None,
        "incomplete": lambda: None,
        "claim_problems": dict,
        "unplanned": lambda: None,
        "watch_ages": dict,
    }
    show_state(registry, **{**defaults, **values})
    return lines(registry)


def test_gangs_are_counted_by_phase_and_one_without_a_phase_is_assembling(registry):
    phases = (Phase.PLACED, Phase.PLACED, Phase.WAITING, None)
    samples = shown(registry, gangs=lambda: map(a_gang, phases))

    assert [line for line in samples if line.startswith("linkwise_gangs{")] == [
        'linkwise_gangs{phase="Assembling"} 1.0',
        'linkwise_gangs{phase="Waiting"} 1.0',
        'linkwise_gangs{phase="Committing"} 0.0',
        'linkwise_gangs{phase="Placed"} 2.0',
        'linkwise_gangs{phase="Finished"} 0.0',
        'linkwise_gangs{phase="Suspended"} 0.0',
        'linkwise_gangs{phase="Gone"} 0.0',
    ]


def test_a_process_that_does_not_lead_counts_no_gangs(registry):
    samples = shown(registry, leads=lambda: False, gangs=lambda: [a_gang(Phase.PLACED)])

    assert "linkwise_leader 0.0" in samples
    assert not any(line.startswith("linkwise_gangs{") for line in samples)


def test_an_unknown_value_has_no_sample(registry):
    samples = shown(registry, watch_ages=lambda: {"pods": 2.5, "nodes": None})

    assert 'linkwise_watch_age_seconds{resource="pods"} 2.5' in samples
    assert not any('resource="nodes"' in line for line in samples)
    assert not any(line.startswith("linkwise_unaccounted_nodes ") for line in samples)


def test_reserved_gpus_are_counted_by_purpose(registry):
    samples = shown(registry, reserved_gpus={"replacement": lambda: 2, "nomination": lambda: 8})

    assert 'linkwise_reserved_gpus{purpose="replacement"} 2.0' in samples
    assert 'linkwise_reserved_gpus{purpose="nomination"} 8.0' in samples


def test_nodes_with_unknown_free_gpus_are_counted(registry):
    assert "linkwise_unaccounted_nodes 3.0" in shown(registry, unaccounted=lambda: 3)


def test_nodes_that_claims_of_others_may_use_are_counted(registry):
    assert "linkwise_unfenced_nodes 2.0" in shown(registry, unfenced=lambda: 2)


def test_device_taint_rules_are_counted(registry):
    assert "linkwise_taint_rules 7.0" in shown(registry, taint_rules=lambda: 7)


def test_nodes_without_all_slices_of_their_driver_are_counted(registry):
    assert "linkwise_incomplete_nodes 2.0" in shown(registry, incomplete=lambda: 2)


def test_pods_that_are_not_planned_are_counted(registry):
    assert "linkwise_unplanned_pods 3.0" in shown(registry, unplanned=lambda: 3)


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
