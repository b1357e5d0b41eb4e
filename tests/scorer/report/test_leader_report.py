from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest
from support.builders import a_node
from support.servers.leader_harness import Cluster, beginning
from support.waiting import until

from linkwise.cluster.account.node_ledger import NodeLedger
from linkwise.cluster.gang import Link
from linkwise.cluster.nodes.node import DevicePool
from linkwise.planning.gang.crd import Gang, GangMetadata, GangSpec, GangStatus, Phase
from scorer.report.leader_report import LeaderGauges, LeaderReport, NodesReport

PHASES = (Phase.PLACED, Phase.PLACED, Phase.WAITING, None)
EMPTY = NodeLedger.empty(a_node("a"))
NODES = NodesReport(
    (
        EMPTY,
        replace(EMPTY, unaccounted="a pod has no record"),
        replace(EMPTY, node=replace(EMPTY.node, pool=DevicePool("a", (), missing="none"))),
        replace(EMPTY, node=replace(EMPTY.node, pool=DevicePool("a", ()))),
    ),
    {"a": "no rule", "b": "no rule"},
    taint_rules=7,
)
REPORT = LeaderReport(
    gangs=[Gang(GangMetadata("g"), GangSpec("g", Link.BEST), GangStatus(it)) for it in PHASES],
    partial=1,
    faulty=4,
    reserved_gpus={"replacement": 2, "nomination": 8},
    claim_problems={"ClaimDiffers": 5},
    unplanned=9,
    watch_ages={"pods": 2.5, "nodes": None},
    nodes=NODES,
)
HELP = {
    "linkwise_leader": "1 in the process that leads.",
    "linkwise_partial_gangs": (
        "Gangs that lack members: some have their GPUs, others wait for theirs."
    ),
    "linkwise_reserved_gpus": (
        "GPUs that are reserved for lost members of running gangs, and for units for which "
        "others are evicted."
    ),
    "linkwise_faulty_gangs": (
        "Running gangs with an unhealthy GPU, on a lost node, or with slower links than planned."
    ),
    "linkwise_unaccounted_nodes": (
        "Nodes on which nothing is placed, since the GPUs in use are unknown."
    ),
    "linkwise_unfenced_nodes": "Claims nodes whose GPUs claims of others may get.",
    "linkwise_taint_rules": "DeviceTaintRules of Linkwise that exist.",
    "linkwise_incomplete_nodes": (
        "Claims nodes on which nothing new is placed, since the driver's slices are incomplete."
    ),
    "linkwise_claim_problems": (
        "Pods whose claims hold other GPUs than planned, or are used by another pod."
    ),
    "linkwise_unplanned_pods": (
        "Pods that are not planned, since too much waits in their namespaces."
    ),
    "linkwise_gangs": "Gangs by the phase in their status.",
    "linkwise_watch_age_seconds": "Since the last event of a watch.",
}
SAMPLES = {
    "linkwise_leader": {"": 1.0},
    "linkwise_partial_gangs": {"": 1.0},
    "linkwise_reserved_gpus": {'{purpose="replacement"}': 2.0, '{purpose="nomination"}': 8.0},
    "linkwise_faulty_gangs": {"": 4.0},
    "linkwise_unaccounted_nodes": {"": 1.0},
    "linkwise_unfenced_nodes": {"": 2.0},
    "linkwise_taint_rules": {"": 7.0},
    "linkwise_incomplete_nodes": {"": 1.0},
    "linkwise_claim_problems": {'{reason="ClaimDiffers"}': 5.0},
    "linkwise_unplanned_pods": {"": 9.0},
    "linkwise_gangs": {
        '{phase="Assembling"}': 1.0,
        '{phase="Waiting"}': 1.0,
        '{phase="Committing"}': 0.0,
        '{phase="Placed"}': 2.0,
        '{phase="Finished"}': 0.0,
        '{phase="Suspended"}': 0.0,
        '{phase="Gone"}': 0.0,
    },
    "linkwise_watch_age_seconds": {'{resource="pods"}': 2.5},
}
"""By gauge: its samples of `REPORT`, by the value of the label."""


def shown(report):
    registry = CollectorRegistry()
    LeaderGauges(registry, lambda: report)
    return generate_latest(registry).decode()


def text(samples):
    """Return the text of all gauges, with these samples alone."""
    lines = []
    for name, documentation in HELP.items():
        lines += [f"# HELP {name} {documentation}", f"# TYPE {name} gauge"]
        lines += [f"{name}{label} {value}" for label, value in samples.get(name, {}).items()]
    return "".join(f"{line}\n" for line in lines)


def test_the_leader_shows_all_gauges_and_an_unknown_value_has_no_sample():
    assert shown(REPORT) == text(SAMPLES)


def test_a_process_that_does_not_lead_has_only_the_gauge_of_the_leader():
    assert shown(None) == text({"linkwise_leader": {"": 0.0}})


def test_gauges_of_nodes_have_no_sample_before_the_watches_have_synced():
    of_nodes = {
        f"linkwise_{name}"
        for name in ("unaccounted_nodes", "unfenced_nodes", "taint_rules", "incomplete_nodes")
    }
    expected = {name: samples for name, samples in SAMPLES.items() if name not in of_nodes}
    assert shown(replace(REPORT, nodes=None)) == text(expected)


async def test_the_report_knows_nodes_once_the_watches_have_synced():
    async with Cluster() as cluster, beginning(cluster) as leader:
        assert leader.report() is None
        await until(leader.report)
        assert leader.report().nodes is None
        await until(lambda: leader.report().nodes)
