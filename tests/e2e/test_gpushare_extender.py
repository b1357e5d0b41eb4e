"""gpushare's own scheduler beside the planner, which both choose cards of the same nodes."""

import pytest
from controlplane.cards import where
from controlplane.gangs import events
from controlplane.gpushare import SCHEDULER, run_gpushare
from controlplane.process import wait_until

from linkwise.cluster import keys

SHARED = {"name": "share", "machine": "t4x4", "mode": "share", "gpuMemory": 15}
SPREAD = {**SHARED, "labels": {keys.NODE_PLACEMENT: "spread"}}
OTHER = {"schedulerName": SCHEDULER}
HURRY = f"""
apiVersion: {keys.API_VERSION}
kind: Policy
gangs: {{commitDeadlineSeconds: 5}}
"""


@pytest.fixture(scope="module")
def refusals(placing, plane, tmp_path_factory):
    """What the API server refuses to the extender."""
    del placing
    with run_gpushare(plane, tmp_path_factory.mktemp("gpushare")) as refusals:
        yield refusals


@pytest.fixture
def shares(pods, policy, refusals):
    """Pods that gpushare's scheduler binds, and that are late after 5 s."""
    refusals.clear()
    policy(HURRY)
    yield pods
    pods.clear()


def chosen_by_gpushare(pods, name):
    return pods.all()[name]["metadata"]["annotations"].get(keys.MEM_IDX)


def test_gpushare_binds_pods_to_the_cards_that_linkwise_chose(shares, nodes, refusals):
    nodes(SHARED)
    cards = []
    for name, memory in {"a": 8, "b": 5, "c": 9}.items():
        shares.create({keys.GPU_MEM: memory}, name=name, spec=OTHER)
        _, (card,) = where(shares, name)
        assert chosen_by_gpushare(shares, name) == str(card)
        cards.append(card)
    assert cards == [0, 0, 1]
    assert refusals == []


def test_a_card_that_linkwise_chose_is_not_changed_by_gpushare(shares, nodes, refusals):
    nodes(SPREAD)
    shares.create({keys.GPU_MEM: 8}, name="first", spec=OTHER)
    assert where(shares, "first") == ("share", (0,))

    # Linkwise takes the emptiest card, gpushare the fullest.
    shares.create({keys.GPU_MEM: 5}, name="second", spec=OTHER)
    wait_until(lambda: bool(refusals), "gpushare's choice is refused")

    assert "linkwise-guard" in refusals[0]
    assert "gpushare's scheduler extender" in refusals[0]
    wait_until(lambda: bool(late(shares)), "an Event says that the pod is not bound")
    assert "to share within 5 s" in late(shares)[0]
    second = shares.all()["second"]
    assert "nodeName" not in second["spec"]
    assert chosen_by_gpushare(shares, "second") == "1"


def late(pods):
    return [one for one in events(pods, "WaitingForGPUs", of="Pod") if "was not bound" in one]
