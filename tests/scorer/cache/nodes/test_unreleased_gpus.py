"""GPUs of pods that were deleted while their containers may run get no new pods for a while."""

from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.builders import a_node
from support.servers.claims_cluster import allocate, claims_cluster, pod
from support.servers.leader_harness import leading
from support.waiting import until

from scorer.cache.nodes.unreleased_gpus import CLOSED_FOR, UnreleasedGPUs

UUIDS = [f"GPU-{i}" for i in range(8)]


def node_of(uuids=UUIDS):
    node = a_node()
    cards = (replace(card, uuid=uuid) for card, uuid in zip(node.cards, uuids, strict=True))
    return replace(node, cards=tuple(cards))


class Deletions(RuleBasedStateMachine):
    """A node whose pods are deleted, beside a list of when that was."""

    def __init__(self):
        super().__init__()
        self.now, self.last = 0.0, {}
        self.unreleased = UnreleasedGPUs(lambda: self.now)
        self.name = node_of().name
        self.node, self.delay = self.unreleased.cordoned(node_of())

    @rule(gpus=st.frozensets(st.integers(0, 7), min_size=1))
    def delete(self, gpus):
        self.unreleased.add(self.name, [f"GPU-{i}" for i in gpus], "team/pod")
        self.last |= dict.fromkeys(gpus, self.now)
        self.node, self.delay = self.unreleased.cordoned(node_of())

    @rule(seconds=st.sampled_from([1.0, 45.0, 89.0, CLOSED_FOR]))
    def wait(self, seconds):
        self.now += seconds
        self.node, self.delay = self.unreleased.cordoned(node_of())

    @rule()
    def wait_for_the_timer(self):
        if self.delay is not None:
            before = self.node.usable_mask
            self.now += self.delay
            self.node, self.delay = self.unreleased.cordoned(node_of())
            assert self.node.usable_mask > before

    @rule()
    def forget(self):
        self.unreleased.forget(self.name)
        self.last = {}
        self.node, self.delay = self.unreleased.cordoned(node_of())

    @invariant()
    def a_gpu_is_closed_for_so_long_and_no_longer(self):
        closed = {i for i, at in self.last.items() if self.now < at + CLOSED_FOR}
        assert {i for i, card in enumerate(self.node.cards) if card.is_closed} == closed
        assert len(self.node.warnings) == len(closed)
        assert (self.delay is None) == (not closed)


TestDeletions = Deletions.TestCase


def test_gpus_that_a_node_has_no_more_are_forgotten():
    unreleased = UnreleasedGPUs(lambda: 0.0)
    unreleased.add("node-0", ["GPU-gone"], "team/pod")
    assert unreleased.cordoned(replace(node_of(), name="node-0"))[1] is None
    assert unreleased.cordoned(replace(node_of(["GPU-gone", *UUIDS[1:]]), name="node-0"))[1] is None


def closed(leader):
    node = leader.context.informers.state.node("gpu-0")
    return [i for i, card in enumerate(node.cards) if card.cordoned]


@pytest.mark.parametrize("at_once", [True, False], ids=["forced", "graceful"])
async def test_gpus_of_a_pod_that_was_deleted_by_force_are_closed(at_once):
    async with claims_cluster() as cluster, leading(cluster) as leader:
        pod(cluster, "solo", 2)
        await until(lambda: cluster.allocated("solo"))
        gpus = sorted(gpu["i"] for gpu in cluster.record("solo")["gpus"])
        allocate(cluster, "solo", *(f"gpu-{i}" for i in gpus))
        cluster.bind("solo")
        await until(lambda: leader.context.informers.state.pod(("team", "solo")).bound)

        # Another pod takes its name in the same moment.
        cluster.remove("/api/v1/namespaces/team/pods/solo", at_once=at_once)
        pod(cluster, "solo", 1, uid="another")

        gone = leader.context.informers.state
        await until(lambda: gone.pod(("team", "solo")).uid == "another")
        assert closed(leader) == (gpus if at_once else [])


async def test_gpus_of_a_pod_without_a_node_stay_open():
    async with claims_cluster() as cluster, leading(cluster) as leader:
        pod(cluster, "solo", 2)
        await until(lambda: cluster.allocated("solo"))
        cluster.remove("/api/v1/namespaces/team/pods/solo", at_once=True)
        await until(lambda: leader.context.informers.state.pod(("team", "solo")) is None)
        assert closed(leader) == []
