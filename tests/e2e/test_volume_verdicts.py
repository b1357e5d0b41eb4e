"""The planner and kube-scheduler judge the volumes of pods on the same nodes alike."""

from random import Random

import msgspec
import pytest
from controlplane.nodes import NODES
from controlplane.pods import Pods, a_pod, container
from controlplane.soak import often
from controlplane.temporary import temporary_namespace
from controlplane.verdicts import refusal
from controlplane.volume_store import NFS, volume_store
from support.builders import a_held_pod
from support.volumes import (
    CLASSES,
    CSI_NODES,
    a_csi_node,
    a_storage_class,
    a_volume_claim,
    one_of,
)

from linkwise.cluster import keys, volume_keys
from linkwise.cluster.objects.pod import Pod
from linkwise.planning.gang.pod_info import pod_info
from linkwise.planning.gang.pod_volumes import with_volumes
from linkwise.planning.placement.schedule import feasible_nodes
from linkwise.views.analysis.fit import placement_snapshot
from linkwise.views.live.kubeconfig import Access
from linkwise.views.live.load import load_cluster

pytestmark = pytest.mark.usefixtures("bare")

HOSTS = ("v-0", "v-1", "v-2", "v-3")
ZONES = {
    "v-0": {volume_keys.ZONE: "z1"},
    "v-1": {volume_keys.ZONE: "z2", volume_keys.REGION: "r"},
    "v-2": {volume_keys.ZONE_BEFORE: "z1"},
    "v-3": {},
}
NOT_Z1 = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": volume_keys.ZONE, "operator": "NotIn", "values": ["z1"]}]}
    ]
}
PODS = often(30, 400)
DRIVER = "disk.example"


def csi(handle):
    return {"csi": {"driver": DRIVER, "volumeHandle": handle}}


BOUND = {
    "host": {**NFS, "hosts": ["v-1", "v-3"]},
    "zone": {**NFS, "nodeAffinity": {"required": one_of(volume_keys.ZONE, "z1")}},
    "not-z1": {**NFS, "nodeAffinity": {"required": NOT_Z1}},
    "label": {**NFS, "labels": {volume_keys.ZONE: "z1"}},
    "labels": {**NFS, "labels": {volume_keys.ZONE: "z1__z2", volume_keys.REGION: "r"}},
    "old-label": {**NFS, "labels": {volume_keys.ZONE_BEFORE: "z2"}},
    "free": NFS,
    "disk-0": csi("0"),
    "disk-1": csi("1"),
    "disk-2": csi("2"),
}
UNBOUND = {"pending": {"storage_class": "later"}, "nowhere": {"storage_class": "no-such-class"}}
NAMES = (*BOUND, *UNBOUND, "missing")


@pytest.fixture
def pods(plane, nodes):
    """Four nodes with zones, of which one has its only disk, and claims of every kind."""
    line = {"name": "v", "count": len(HOSTS), "machine": "dgx1-v100", "mode": "topology"}
    nodes({**line, "cpu": 96, "memory": "768Gi"})
    api = plane.api
    with temporary_namespace(api, "volumes-") as namespace:
        found = Pods(api, namespace)
        with volume_store(found) as store:
            for host in HOSTS:
                labels = {keys.HOSTNAME: host, **ZONES[host]}
                api.patch(f"{NODES}/{host}", {"metadata": {"labels": labels}})
                store.create(CSI_NODES, a_csi_node(host, **{DRIVER: 1 if host == "v-0" else 2}))
            store.create(CLASSES, a_storage_class("later", "none.example", immediate=True))
            for name, fields in BOUND.items():
                store.bound(name, f"{namespace}-{name}", **fields)
            for name, fields in UNBOUND.items():
                store.create(store.claims, a_volume_claim(name, **fields))
            spec = {"nodeName": "v-0", "volumes": naming("disk-0")}
            found.create({}, name="has-disk", spec=spec)
            # The command reads volumes only while a pod waits for some.
            found.create({keys.GPU_WHOLE: 1}, name="waits", spec=gated("free"))
            yield found
            found.clear()


def naming(*claims):
    return [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in claims]


def gated(*claims):
    return {"volumes": naming(*claims), "schedulingGates": [{"name": keys.GANG}]}


def test_a_pod_is_refused_where_kube_scheduler_cannot_use_its_volumes(plane, pods):
    current = load_cluster(Access(str(plane.kubeconfig)))
    snapshot, known = placement_snapshot(current.cluster, current.policy), current.cluster.volumes
    random = Random(36)  # noqa: S311 - the same draws in every run.
    wrong, verdicts = [], set()
    for index in range(PODS):
        claims = random.sample(NAMES, random.choice((1, 1, 2)))
        for host in HOSTS:
            spec = {"containers": [container()], **gated(*claims)}
            body = a_pod(f"pod-{index}-{host}", **spec)
            asking = a_held_pod(1, "asking", namespace=pods.namespace, volumes=naming(*claims))
            info = pod_info(msgspec.convert(asking, Pod))
            member = with_volumes(info, known, lambda _: ()).member
            fits = not member.volumes.waits and host in feasible_nodes(snapshot, [member])
            why = refusal(pods, body, host)
            verdicts.add((fits, why is None))
            if fits != (why is None):
                wrong.append(f"{claims} on {host}: {why or 'bound'}: {member.volumes.waits}")
    assert not wrong, "\n".join(wrong)
    assert verdicts == {(True, True), (False, False)}
