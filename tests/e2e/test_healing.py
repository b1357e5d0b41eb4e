"""A GPU fails under a running gang: all its members restart elsewhere, or nobody moves."""

import pytest
from controlplane.gangs import (
    events,
    make_stateful_gang,
    wait_for_event,
    wait_for_phase,
    wait_until_placed,
    where,
)
from controlplane.nodes import NODES, unhealthy
from controlplane.pods import container
from controlplane.process import wait_until

from linkwise.cluster import keys

pytestmark = pytest.mark.usefixtures("placing")

POLICY = (
    "apiVersion: linkwise.dev/v1alpha1\nkind: Policy\ngangs: {{onFault: {}, onFaultSeconds: 1}}\n"
)
PATIENCE = 120


def run_gang(pods, name):
    """Run a gang of two that fills a node; return the node."""
    make_stateful_gang(pods, name, 2, {"containers": [container({keys.GPU_WHOLE: 4})]})
    wait_until_placed(pods, name, 2)
    wait_for_phase(pods, name, "Placed", members="2/2")
    return home(pods, name)


def home(pods, name):
    (node,) = {node for held in where(pods, name).values() for node, _ in held}
    return node


def uids(pods, name):
    return {pod["metadata"]["uid"] for key, pod in pods.all().items() if key.startswith(name)}


def test_all_members_restart_together_elsewhere_and_no_other_gang_moves(
    pods, machines, policy, history
):
    policy(POLICY.format("evict"))
    machines(3)
    failed, beside = run_gang(pods, "train"), run_gang(pods, "beside")
    before, others = uids(pods, "train"), uids(pods, "beside")
    with unhealthy(pods.api, failed, 3):
        wait_for_event(pods, "GangEvicted", f"3 of {failed}", of="StatefulSet")
        wait_until(lambda: not uids(pods, "train") & before, "all members are gone", PATIENCE)
        wait_until_placed(pods, "train", 2)
        wait_for_phase(pods, "train", "Placed", members="2/2")
    assert home(pods, "train") not in {failed, beside}
    assert uids(pods, "beside") == others
    (event,) = events(pods, "GangEvicted", of="StatefulSet")
    assert event.startswith("All 2 members of gang train were evicted")
    history.catch_up()
    assert history.evictions(pods.namespace) == {"train-0": 1, "train-1": 1}


def test_nobody_moves_where_the_policy_only_reports(pods, machines, policy, history):
    policy(POLICY.format("report"))
    machines(3)
    failed = run_gang(pods, "train")
    before = uids(pods, "train")
    with unhealthy(pods.api, failed, 3):
        wait_for_event(pods, "GangGPUUnhealthy", f"3 of {failed}", of="StatefulSet")
        # Takes longer than a fault would have to last.
        run_gang(pods, "beside")
        wait_for_phase(pods, "train", "Placed", members="2/2")
        assert (uids(pods, "train"), home(pods, "train")) == (before, failed)
    assert not events(pods, "GangEvicted", of="StatefulSet")
    assert set(history.creations(pods.namespace).values()) == {1}


def test_a_gang_is_moved_once_as_a_whole_off_a_node_that_was_deleted(
    pods, machines, policy, history
):
    policy(POLICY.format("evict"))
    machines(2)
    failed = run_gang(pods, "train")
    before = uids(pods, "train")

    pods.api.delete(f"{NODES}/{failed}")

    wait_for_event(pods, "GangEvicted", f"all of {failed}, which was deleted", of="StatefulSet")
    wait_until(lambda: not uids(pods, "train") & before, "all members are gone", PATIENCE)
    wait_until_placed(pods, "train", 2)
    wait_for_phase(pods, "train", "Placed", members="2/2")
    assert home(pods, "train") != failed
    history.catch_up()
    assert history.creations(pods.namespace) == {"train-0": 2, "train-1": 2}
