import pytest
from prometheus_client import CollectorRegistry, generate_latest

from cluster.gang import Link
from scorer.gang.crd import Gang, GangMetadata, GangSpec, GangStatus, Phase
from scorer.metrics import EvictionReason, Metrics, PreemptionOutcome, show_state


def a_gang(phase):
    return Gang(GangMetadata("g"), GangSpec("g", Link.BEST), GangStatus(phase))


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
        "reserved_gpus": lambda: None,
        "unaccounted": lambda: None,
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


def test_nodes_with_unknown_free_gpus_are_counted(registry):
    assert "linkwise_unaccounted_nodes 3.0" in shown(registry, unaccounted=lambda: 3)


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
