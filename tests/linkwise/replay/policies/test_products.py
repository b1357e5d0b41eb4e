from dataclasses import replace

import pytest
from support.traces import a_job, a_policy, occupied, placed, whole_fleet

from linkwise.planning.placement.options import Preferences
from linkwise.replay.job import members_of
from linkwise.topology.catalogue import entry
from linkwise.topology.choice import ChoiceMode, ChoiceRequest, choose
from linkwise.topology.machine import gpus_of, mask_of
from linkwise.topology.table import table_of


def place(name, fleet, **shape):
    return placed(a_policy(name), fleet, shared=False, **shape)


def full(*nodes):
    return [(node, gpu, None) for node in nodes for gpu in range(8)]


def nodes_of(placements):
    return placements and sorted(node for node, _ in placements)


@pytest.mark.parametrize("taken", [(), (0, 3), (1, 4, 6)])
@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_nvidia_chooses_the_set_of_its_best_effort_policy(taken, gpus):
    fleet = occupied(whole_fleet(1), *(("node-0", gpu, None) for gpu in taken))
    table = table_of(entry("dgx1-v100").machine)
    free = 255 & ~mask_of(taken)
    expected = choose(table, ChoiceRequest(free, gpus, mode=ChoiceMode.COMPAT))

    assert place("nvidia", fleet, gpus=gpus) == [("node-0", list(gpus_of(expected)))]


@pytest.mark.parametrize(
    ("taken", "gpus", "chosen"),
    [
        # GPUs 2, 3 have two NVLinks as 0, 3 have, and one PCIe switch.
        ((), 2, [2, 3]),
        ((2, 6), 2, [0, 3]),
        # GPU 4 has no NVLink to another free one.
        ((0, 5, 6, 7), 1, [4]),
        ((0, 1, 2, 3), 4, [4, 5, 6, 7]),
    ],
)
@pytest.mark.parametrize("name", ["hami-binpack", "hami-spread"])
def test_hami_chooses_whole_gpus_by_pair_scores(name, taken, gpus, chosen):
    fleet = occupied(whole_fleet(1), *(("node-0", gpu, None) for gpu in taken))

    assert place(name, fleet, gpus=gpus) == [("node-0", chosen)]


def test_kube_scheduler_prefers_the_node_with_the_most_cpu_left():
    fleet = whole_fleet(2, cpu=10_000)
    policy = a_policy("nvidia")
    job = a_job(cpu=4_000)
    (placement,) = policy.place(fleet, job.shape, members_of(job, 1, shared=False))
    fleet = fleet.hold_all([(placement.node, placement.holding)])

    assert nodes_of(placed(policy, fleet, shared=False, cpu=4_000)) != [placement.node]


def test_a_native_gang_is_in_one_domain():
    fleet = occupied(whole_fleet(4, zones="aabb"), *full("node-0"))

    assert nodes_of(place("native-gangs", fleet, gpus=8, pods=2)) == ["node-2", "node-3"]
    assert place("native-gangs", fleet, gpus=8, pods=3) is None
    assert nodes_of(place("native-gangs", fleet, gpus=8)) != ["node-0"]


def test_the_domain_of_a_native_gang_has_the_nearest_label_that_nodes_have():
    fleet = whole_fleet(4, zones="aabb")
    fleet = replace(fleet, preferences=Preferences(domains=("clique", "zone")))

    assert nodes_of(place("native-gangs", fleet, gpus=8, pods=2)) == ["node-0", "node-1"]


def test_without_a_domain_a_native_gang_is_anywhere():
    fleet = occupied(whole_fleet(4), *full("node-0"))

    assert nodes_of(place("native-gangs", fleet, gpus=8, pods=3)) == ["node-1", "node-2", "node-3"]


# Pods of four GPUs: node-0 takes two, node-1 one, node-2 two.
HALF = [("node-1", gpu, None) for gpu in range(4)]


@pytest.mark.parametrize(
    ("pods", "nodes"),
    [
        (1, ["node-1"]),
        (2, ["node-0", "node-0"]),
        # The largest node first, then the smallest one that takes the rest.
        (3, ["node-0", "node-0", "node-1"]),
        (4, ["node-0", "node-0", "node-2", "node-2"]),
        (6, None),
    ],
)
def test_kueue_takes_the_fewest_nodes(pods, nodes):
    fleet = occupied(whole_fleet(3), *HALF)

    assert nodes_of(place("kueue-tas", fleet, gpus=4, pods=pods)) == nodes


def test_kueue_takes_the_domain_with_the_least_room_that_fits():
    fleet = occupied(whole_fleet(5, zones="aaabb"), *HALF)

    # Three pods of four GPUs fit both zones: a takes five, b four.
    assert nodes_of(place("kueue-tas", fleet, gpus=4, pods=3)) == ["node-3", "node-3", "node-4"]
    # Five fit only a; more than a has are taken from both.
    assert "node-3" not in nodes_of(place("kueue-tas", fleet, gpus=4, pods=5))
    assert len(set(nodes_of(place("kueue-tas", fleet, gpus=4, pods=8)))) == 4
