"""kube-scheduler preempts one pod of a running gang for CPU: the pod is replaced, the gang runs."""

import pytest
from controlplane.gangs import make_stateful_gang, wait_for_phase, wait_until_placed, where
from controlplane.pods import container
from controlplane.process import wait_until
from controlplane.temporary import priority_class

from linkwise.cluster import keys

pytestmark = pytest.mark.usefixtures("placing")

POLICY = "apiVersion: linkwise.dev/v1alpha1\nkind: Policy\ngangs: {replacementSeconds: 2}\n"
PATIENCE = 120


def test_a_member_that_kube_scheduler_preempts_for_cpu_is_replaced_and_the_others_stay(
    pods, machines, policy, history
):
    policy(POLICY)
    machines(2)
    spec = {"containers": [container({keys.GPU_WHOLE: 2, "cpu": 40})]}
    make_stateful_gang(pods, "train", 2, {**spec, "terminationGracePeriodSeconds": 1})
    wait_until_placed(pods, "train", 2)
    wait_for_phase(pods, "train", "Placed", members="2/2")
    (home,) = {node for held in where(pods, "train").values() for node, _ in held}

    with priority_class(pods, "production", 1000):
        other = {"priorityClassName": "production", "nodeSelector": {keys.HOSTNAME: home}}
        pods.create({"cpu": 40}, name="other", spec=other)
        wait_until(lambda: "other" in pods.bound(), "kube-scheduler preempts for it", PATIENCE)

        def is_replaced():
            history.catch_up()
            made = history.creations(pods.namespace)
            kept, lost = sorted(made[f"train-{i}"] for i in range(2))
            return kept == 1 and lost > 1

        wait_until(is_replaced, "one member is created again", PATIENCE)
        wait_until_placed(pods, "train", 2)
        wait_for_phase(pods, "train", "Placed", members="2/2")
        # If its replacement was planned before the other pod was bound, it was evicted, too.
        history.catch_up()
        assert len(history.evictions(pods.namespace)) == 1
