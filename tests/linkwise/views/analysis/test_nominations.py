import json

import pytest
from support.dashboard import owned, placed_pod, urgent, waiting_pod

from linkwise.cluster.gang import GangKey, Link
from linkwise.cluster.keys import API_VERSION
from linkwise.planning.gang.crd import name_of
from linkwise.views.analysis.explain import explain_gang
from linkwise.views.analysis.pending import pending_units
from linkwise.views.analysis.planner_view import planner_view
from linkwise.views.live.kubeconfig import Access
from linkwise.views.live.load import load_cluster

CLUSTER = """
apiVersion: linkwise.dev/v1alpha1
kind: Cluster
nodes:
  - {name: dgx, count: 2, machine: dgx1-v100, mode: topology, cpu: 96, memory: 768Gi}
"""
NOW = 1_795_341_600.0
ENDS = "2026-11-22T10:00:20Z"
EVICTED = "8 pods of 1 gang or single pod of lower priority are evicted for it, until 10:00:50Z"
NOMINATED = f"{EVICTED} at the latest; it is nominated for GPUs 0 1 2 3 4 5 6 7 of dgx-0"


def ending(pod):
    return pod.replace("  annotations:", f'  deletionTimestamp: "{ENDS}"\n  annotations:', 1)


def nominated(gang, node="dgx-0"):
    return {
        "apiVersion": API_VERSION,
        "kind": "Gang",
        "metadata": {"name": name_of(GangKey("team", gang, "")), "namespace": "team"},
        "spec": {"gang": gang, "link": Link.BEST},
        "status": {
            "reason": f"{EVICTED} at the latest",
            "nominatedNodes": [{"node": node, "gpus": list(range(8))}],
        },
    }


@pytest.fixture
def view(write):
    """The planner's view of two nodes: `low` and `other` have one each, and these pods wait."""

    def make(*waiting, low=ending, gone=0, gangs=()):
        pods = [low(owned(placed_pod(f"low-{i}", i, "low", "dgx-0"))) for i in range(gone, 8)]
        others = [owned(placed_pod(f"o-{i}", i, "other", "dgx-1")) for i in range(8)]
        units = [urgent(waiting_pod(name, 8)) for name in waiting]
        objects = [f"---\n{json.dumps(gang)}" for gang in gangs]
        file = write("cluster.yaml", "".join([CLUSTER, *pods, *others, *units, *objects]))
        return planner_view(load_cluster(Access(), str(file)), NOW)

    return make


def shown(view, name):
    """Return the reason of a unit and the units that would be evicted, as all commands do."""
    (explained,) = explain_gang(view, "team", name)
    (pending,) = [unit for unit in pending_units(view) if unit.name == name]
    assert (explained.reason, explained.preempts) == (pending.reason, pending.preempts)
    return pending.reason, [unit.name for unit in pending.preempts]


def unchanged(pod):
    return pod


@pytest.mark.parametrize("low", [ending, unchanged], ids=["ending", "not evicted yet"])
def test_a_nominated_gang_says_what_is_evicted_where_and_until_when(view, low):
    here = view("high", low=low, gangs=[nominated("high")])

    assert shown(here, "high") == (f"{NOMINATED}; gang team/low is evicted for it", [])


def test_the_gpus_of_a_nomination_fit_no_other_unit_and_are_evicted_once(view):
    here = view("high", "second", gone=8, gangs=[nominated("high")])

    reason, preempts = shown(here, "second")
    assert "it is nominated" not in reason
    assert preempts == ["other"]


@pytest.mark.parametrize("low", [ending, unchanged], ids=["ending", "not evicted yet"])
def test_units_that_are_evicted_for_a_gang_are_not_evicted_for_another(view, low):
    here = view("high", "second", low=low, gangs=[nominated("high")])

    assert shown(here, "second")[1] == ["other"]


def test_no_second_set_is_named_while_the_first_is_ending(view):
    reason, preempts = shown(view("high"), "high")

    assert "nominated" not in reason
    assert preempts == []


def test_pods_that_do_not_end_in_time_do_not_count_as_ending(view):
    late = ending

    def stuck(pod):
        return late(pod).replace(ENDS, "2026-11-22T09:00:00Z")

    assert shown(view("high", low=stuck), "high")[1] == ["other"]
