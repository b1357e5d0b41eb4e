"""Dry runs of pods that a scheduler beside the scorer binds."""

from controlplane.cards import where
from controlplane.dryruns import assignments, person
from controlplane.pods import a_pod
from controlplane.process import wait_until
from controlplane.scorer import LEASE

from linkwise.cluster import keys

SHARE = {keys.GPU_MEM: 10, keys.GPU_CORE: 30}


def test_share_is_placed_as_in_the_dry_run_while_the_scheduler_renews_the_lease(
    webhook, namespace, nodes, pods
):
    ann = person(webhook, namespace)
    nodes({"name": "share", "machine": "t4x4", "mode": "core_mem", "gpuMemory": 15})
    wait_until(lambda: ann.fits(a_pod("a", SHARE)), "the node is known")
    renewed = renewals(webhook.plane)
    wait_until(lambda: renewals(webhook.plane) != renewed, "the scheduler renews the Lease")

    (placement,) = ann.placements(a_pod("a", SHARE))
    pods.create(SHARE, name="a")

    node, cards = where(pods, "a")
    assert assignments([placement]) == {"a": (node, list(cards))}
    (note,) = placement["notes"]
    assert note.startswith("kube-scheduler chooses among the nodes that fit")


def renewals(plane):
    return plane.api.get(LEASE)["spec"]["renewTime"]
