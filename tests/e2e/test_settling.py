"""After pods are deleted together, a gang gets GPUs as good as the ones that all of them leave."""

import pytest
from controlplane.gangs import make_gang
from controlplane.history import gpus
from controlplane.pods import a_pod, container, with_disk, write_disk
from controlplane.process import wait_until

from linkwise.cluster import keys
from linkwise.topology import catalogue
from linkwise.topology.machine import mask_of
from linkwise.topology.table import table_of

PATIENCE = 120
DGX = table_of(catalogue.entry("dgx1-v100").machine)
DISK = "held"
"""kube-scheduler binds no pod with it: nothing but its finalizer decides when it is gone."""


def hold_all(pods):
    """Create a pod for each GPU; return their names by GPU."""
    write_disk(pods, DISK, "gpu-0")
    for i in range(8):
        containers = [container({keys.GPU_WHOLE: 1})]
        body = a_pod(f"old-{i}", containers=containers, **with_disk(DISK, reads=True))
        body["metadata"]["finalizers"] = ["example.com/hold"]
        pods.api.create(pods.path, body)

    def held():
        return {name: gpus(pod) for name, pod in pods.all().items() if name.startswith("old-")}

    wait_until(lambda: all(held().values()), "all have GPUs", PATIENCE)
    return {taken[0][1]: name for name, taken in held().items()}


def release(pods, name):
    pods.api.patch(f"{pods.path}/{name}", {"metadata": {"finalizers": None}})


@pytest.mark.usefixtures("placing")
def test_a_gang_waits_for_pods_that_are_ending(pods, machines, policy):
    # The machine of this test may stand still for longer than the default.
    policy("apiVersion: linkwise.dev/v1alpha1\nkind: Policy\ngangs: {settleSeconds: 60}\n")
    machines(1)
    old = hold_all(pods)
    make_gang(pods, "train", 2, 1)
    for name in old.values():
        pods.api.delete(f"{pods.path}/{name}", gracePeriodSeconds="0")
    slow = min(((i, j) for i in old for j in old if i < j), key=lambda two: bandwidth(*two))
    for i in (*slow, *(set(old) - set(slow))):
        release(pods, old[i])

    def members():
        return [gpu for name in ("train-0", "train-1") for _, gpu in gpus(pods.all()[name])]

    wait_until(lambda: len(members()) == 2, "the gang has GPUs", PATIENCE)
    assert bandwidth(*members()) == max(bandwidth(0, j) for j in range(1, 8))


def bandwidth(*two):
    return DGX.bandwidth(mask_of(two))
