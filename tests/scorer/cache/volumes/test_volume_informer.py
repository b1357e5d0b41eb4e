"""The informer of volumes keeps what it knows while they may not be read, or are not served."""

import pytest
from structlog.testing import capture_logs
from support.servers.informers_harness import watching
from support.servers.leader_harness import Cluster
from support.volumes import CLAIMS, CLASSES, CSI_NODES, a_csi_node, a_storage_class, a_volume_claim
from support.waiting import until

VOLUMES_LEFT = "Left volumes to kube-scheduler"
LIMITS_LEFT = "Left attach limits of nodes to kube-scheduler"
RESOURCES = {"persistentvolumeclaims", "persistentvolumes", "storageclasses", "csinodes"}


def left(logs):
    """Return what was left to kube-scheduler, in order."""
    return [line["event"] for line in logs if line["event"].startswith("Left ")]


@pytest.mark.parametrize("refusing", ["forbidden", "unserved"])
async def test_what_was_listed_once_is_kept_whatever_is_refused_later(refusing):
    async with Cluster() as cluster:
        cluster.node()
        cluster.put(f"{CLAIMS}/data", a_volume_claim())
        cluster.put(f"{CLASSES}/local", a_storage_class())
        cluster.put(f"{CSI_NODES}/gpu-0", a_csi_node("gpu-0", ebs=1))
        with capture_logs() as logs:
            async with watching(cluster) as informers:
                volumes = informers.volumes
                setattr(cluster, refusing, RESOURCES)
                cluster.end_watches()
                reflectors = volumes.reflectors.values()
                await until(lambda: all(one.is_forbidden for one in reflectors))
                assert ("team", "data") in volumes.objects.claims
                assert ("", "local") in volumes.objects.classes
                assert ("", "gpu-0") in volumes.csi_nodes.items

                setattr(cluster, refusing, set())
                cluster.put(f"{CLAIMS}/later", a_volume_claim("later"))
                await until(lambda: ("team", "later") in volumes.objects.claims)
        assert not left(logs)
        lost = [one for one in logs if one["event"] == "Lost watch"]
        assert {one["resource"].rpartition("/")[2] for one in lost} == RESOURCES
        assert len(lost) == len(RESOURCES)


@pytest.mark.parametrize("refusing", ["forbidden", "unserved"])
@pytest.mark.parametrize(
    ("resource", "message"), [("storageclasses", VOLUMES_LEFT), ("csinodes", LIMITS_LEFT)]
)
async def test_what_was_never_listed_is_left_to_kube_scheduler_until_it_is(
    refusing, resource, message
):
    async with Cluster() as cluster:
        setattr(cluster, refusing, {resource})
        cluster.put(f"{CLAIMS}/data", a_volume_claim())
        with capture_logs() as logs:
            async with watching(cluster) as informers:
                volumes = informers.volumes
                assert informers.missing() is None
                assert (volumes.objects is None) == (message == VOLUMES_LEFT)
                setattr(cluster, refusing, set())
                await until(volumes.reflectors[resource].synced.is_set)
                assert ("team", "data") in volumes.objects.claims
        assert left(logs) == [message]
        [error] = [line["err"] for line in logs if line["event"] == message]
        assert resource in str(error)
