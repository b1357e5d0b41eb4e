"""Events about the first waiting pod of a unit, and their number."""

import pytest
from support.builders import a_seen
from support.servers.leader_harness import Cluster, leading
from support.waiting import until

from linkwise.cluster import keys
from linkwise.planning.gang.crd import Phase
from linkwise.planning.gang.owners import Owners
from linkwise.planning.gang.unit import units_of
from scorer.report.member_events import BURST, DROPPED_RETRY, REFILL, MemberEvents
from scorer.report.status_update import Evicted, StatusUpdate

JOB = {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "name": "bert", "uid": "job"}


class Unit:
    """A unit that waits, and the Events about its first member."""

    def __init__(self, *names, owner=JOB, gang=True, term=1):
        labels = {keys.POD_GROUP_NAME: "bert", keys.POD_GROUP_MIN_AVAILABLE: "2"} if gang else {}
        pods = [a_seen(1, name, labels=labels, owner=owner) for name in names]
        (self.unit,) = units_of(pods, Owners({}, {}))
        self.now, self.events, self.is_full = 0.0, [], False
        self.members = MemberEvents(self.record, term, lambda: self.now)

    def record(self, event):
        if not self.is_full:
            self.events.append(event)
        return not self.is_full

    def waits(self, reason, **update):
        update = StatusUpdate(self.unit, Phase.WAITING, (2, 2), reason=reason, **update)
        return self.members.record(update)

    @property
    def said(self):
        return [(event.about.name, event.reason, event.message) for event in self.events]


def test_the_first_member_by_rank_states_each_new_reason():
    unit = Unit("bert-worker-10", "bert-worker-2")
    for reason in ("1 of 2 fit", "1 of 2 fit", "none fits"):
        unit.waits(reason)
    about = ("bert-worker-2", "WaitingForGPUs")
    assert unit.said == [
        (*about, "Waits for its GPUs with gang bert: 1 of 2 fit"),
        (*about, "Waits for its GPUs with gang bert: none fits"),
    ]


def test_a_reason_that_holds_again_is_another_event():
    unit = Unit("bert-worker-0", "bert-worker-1")
    for reason in ("a", "b", "a"):
        unit.waits(reason)
    assert len({event.name for event in unit.events}) == 3


@pytest.mark.parametrize("is_gang", [True, False], ids=["gang", "pod"])
def test_a_reason_that_holds_again_under_the_next_leader_is_another_event(is_gang):
    first, second = (Unit("bert-0", owner=None, gang=is_gang, term=term) for term in (7, 8))
    for reason in ("a", "b"):
        first.waits(reason)
    second.waits("a")
    assert not {event.name for event in first.events} & {event.name for event in second.events}


def test_a_pod_without_a_gang_states_each_reason_once_and_has_no_other_event():
    unit = Unit("alone", owner=None, gang=False)
    for reason in ("a", "a", "b"):
        unit.waits(reason)
    about = ("alone", "WaitingForGPUs")
    assert unit.said == [(*about, "Waits for its GPUs: a"), (*about, "Waits for its GPUs: b")]
    assert StatusUpdate(unit.unit, Phase.WAITING, (1, 1), reason="a").event(None) is None


def test_an_event_that_is_dropped_is_tried_again_and_costs_none_of_the_allowed_ones():
    unit = Unit("bert-worker-0", "bert-worker-1")
    unit.is_full = True
    for _ in range(3 * BURST):
        assert unit.waits("a") == DROPPED_RETRY

    unit.is_full = False
    for number in range(BURST):
        assert unit.waits(f"reason {number}") == 0
    assert len(unit.events) == BURST


def test_flapping_reasons_cost_a_burst_of_events_and_then_few_of_which_the_last_is_true():
    unit = Unit("bert-worker-0", "bert-worker-1")
    delays = [unit.waits(f"reason {number}") for number in range(1000)]
    assert len(unit.events) == BURST
    assert delays[BURST:] == [REFILL] * (1000 - BURST)

    unit.now += REFILL
    assert unit.waits("reason 999") == 0
    assert unit.said[-1][2].endswith("reason 999")
    assert len(unit.events) == BURST + 1


@pytest.mark.parametrize(
    "update",
    [
        pytest.param({"reason": ""}, id="no reason"),
        pytest.param({"reason": "a", "evicted": Evicted(2, "not bound")}, id="evicted"),
    ],
)
def test_a_unit_that_does_not_wait_has_no_event(update):
    unit = Unit("bert-worker-0", "bert-worker-1")
    unit.waits(**update)
    assert unit.events == []


async def test_a_gang_of_any_size_states_its_reason_on_one_member():
    async with Cluster() as cluster, leading(cluster):
        cluster.node()
        cluster.gang(workers=30, gpus=8)
        await until(lambda: cluster.events("WaitingForGPUs"))
        await until(lambda: cluster.phase() == "Waiting")
        reason = cluster.the_gang()["status"]["reason"]
        await until(lambda: reason in cluster.events("WaitingForGPUs")[-1]["message"])
    assert {event["involvedObject"]["name"] for event in cluster.events("WaitingForGPUs")} == {
        "bert-0"
    }


async def test_the_newest_event_of_a_waiting_pod_is_of_the_leader():
    async with Cluster() as cluster:
        cluster.node()
        cluster.pod("alone", 16)
        for events, term in enumerate((7, 8), start=1):
            async with leading(cluster, term=term):
                await until(lambda count=events: len(cluster.events("WaitingForGPUs")) == count)
