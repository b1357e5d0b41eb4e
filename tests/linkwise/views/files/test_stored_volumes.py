"""Objects about volumes in a file count for the pods beside them."""

import json
from dataclasses import replace

import msgspec
import pytest
from support.builders import a_held_pod, a_node, a_pod, a_snapshot
from support.volumes import a_csi_node, a_storage_class, a_volume, a_volume_claim, volume_objects

from linkwise.cluster import keys
from linkwise.cluster.objects.pod import Pod
from linkwise.planning.placement.explain import notes_on
from linkwise.planning.placement.result import Plan
from linkwise.planning.whatif.simulate import Intended, simulate
from linkwise.views.analysis.planner_view import planner_view
from linkwise.views.live.kubeconfig import Access
from linkwise.views.live.load import load_cluster
from linkwise.views.live.snapshot import reduced, snapshot_text

KINDS = {
    "PersistentVolumeClaim": "v1",
    "PersistentVolume": "v1",
    "StorageClass": "storage.k8s.io/v1",
    "CSINode": "storage.k8s.io/v1",
}


def kubernetes(kind, plain):
    return {"apiVersion": KINDS[kind], "kind": kind, **plain}


def node(name):
    amounts = {keys.GPU_WHOLE: "8", "cpu": "96", "memory": "768Gi", "pods": "110"}
    labels = {keys.NODE_MODE: "topology", keys.HOSTNAME: name}
    metadata = {"name": name, "labels": labels}
    status = {"allocatable": amounts, "capacity": amounts}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


@pytest.fixture
def decide(write):
    """Return the decision for a waiting pod that names the claim `data`, beside some objects."""

    def decided(*objects, snapshot=False):
        named = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        pod = a_held_pod(1, "train", volumes=named)
        items = [node("gpu-0"), node("gpu-1"), *objects, pod]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        if snapshot:
            text = snapshot_text([kept for one in items if (kept := reduced(one["kind"], one))])
        view = planner_view(load_cluster(Access(), str(write("cluster.json", text))), 0)
        return view.decisions["team", "train"]

    return decided


CLAIM = kubernetes("PersistentVolumeClaim", a_volume_claim(volume="pv"))
VOLUME = kubernetes("PersistentVolume", a_volume(hosts=["gpu-1"], phase="Bound"))


@pytest.mark.parametrize("snapshot", [False, True], ids=["file", "snapshot"])
def test_a_pod_is_planned_where_its_volume_can_be_used(decide, snapshot):
    decision = decide(CLAIM, VOLUME, snapshot=snapshot)
    assert isinstance(decision.outcome, Plan)
    assert set(decision.outcome.gpus) == {"gpu-1"}
    assert not [note for note in notes_on(decision.snapshot, decision.outcome) if "volumes" in note]


def test_a_claim_that_is_not_there_is_waited_for(decide):
    reason = decide(VOLUME).unit.blocked
    assert "PersistentVolumeClaim team/data, which does not exist" in reason


def test_without_these_objects_volumes_are_left_to_kube_scheduler(decide):
    decision = decide()
    assert isinstance(decision.outcome, Plan)
    assert "left to kube-scheduler: volumes" in notes_on(decision.snapshot, decision.outcome)


def test_limits_of_a_node_and_classes_are_read(decide):
    limits = kubernetes("CSINode", a_csi_node("gpu-0", ebs=0))
    csi = {"driver": "ebs", "volumeHandle": "vol"}
    anywhere = kubernetes("PersistentVolume", a_volume(phase="Bound", csi=csi))
    assert set(decide(CLAIM, anywhere, limits, snapshot=True).outcome.gpus) == {"gpu-1"}
    unbound = kubernetes("PersistentVolumeClaim", a_volume_claim(storage_class="local"))
    made = kubernetes("StorageClass", a_storage_class())
    local = kubernetes("PersistentVolume", a_volume(hosts=["gpu-1"], storage_class="local"))
    assert set(decide(unbound, made, local, snapshot=True).outcome.gpus) == {"gpu-1"}


def test_a_reduced_object_has_no_labels_of_others_but_is_read_the_same():
    secret = {"kubectl.kubernetes.io/last-applied-configuration": "hunter2"}
    claim = {
        **CLAIM,
        "metadata": {
            **CLAIM["metadata"],
            "annotations": {**CLAIM["metadata"]["annotations"], **secret},
        },
    }
    assert "hunter2" not in json.dumps(reduced("PersistentVolumeClaim", claim))


def test_a_pod_that_is_about_to_be_created_goes_where_its_claims_can_be_used():
    objects = volume_objects([a_volume_claim(volume="pv")], [a_volume(hosts=["n1"])])
    snapshot = replace(a_snapshot(*map(a_node, ("n0", "n1"))), volumes=objects)
    named = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "later", "persistentVolumeClaim": {"claimName": "made-with-the-pod"}},
        {"name": "scratch", "ephemeral": {}},
    ]
    pod = msgspec.convert(a_pod({keys.GPU_WHOLE: 1}, name="train", volumes=named), Pod)
    ((unit,), _) = simulate(snapshot, [Intended(pod, "team")], ())
    assert isinstance(unit.plan, Plan)
    assert set(unit.plan.gpus) == {"n1"}
    assert notes_on(snapshot, unit.plan) == [
        "left to kube-scheduler: PersistentVolumeClaim made-with-the-pod, which does not exist yet"
    ]


def test_of_two_pods_that_are_simulated_one_has_a_claim_that_only_one_pod_may_use():
    claim = a_volume_claim(volume="pv", accessModes=["ReadWriteOncePod"])
    objects = volume_objects([claim], [a_volume()])
    snapshot = replace(a_snapshot(a_node("n0")), volumes=objects)
    named = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    pods = [
        msgspec.convert(a_pod({keys.GPU_WHOLE: 1}, name=name, volumes=named), Pod)
        for name in ("first", "second")
    ]
    (first, second), _ = simulate(snapshot, [Intended(pod, "team") for pod in pods], ())
    assert isinstance(first.plan, Plan)
    assert "pod first, which names PersistentVolumeClaim data, too" in second.reason
