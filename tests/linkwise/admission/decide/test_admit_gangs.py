"""Pods of an owner whose kind the policy names: a gang without a mark."""

import pytest
from support.admission import ARENA, EXACT, GATE, a_snapshot, admitted, codes, outcome_of
from support.builders import a_pod

from linkwise.admission.decide.outcome import Verdict
from linkwise.cluster import keys
from linkwise.workloads import operator_keys
from linkwise.workloads.gang_owner import GangOwner
from linkwise.workloads.registry import GANG_KINDS

V1 = {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob"}
MADE = {keys.GANG: "train", keys.GANG_KIND: "MPIJob"}
BY_SCHEDULER = a_snapshot("placement: {mode: scheduler}")


def a_worker(limits, owner=V1, **pod):
    raw = a_pod(limits, **pod)
    owner = {"name": "train", "uid": "u", "controller": True, **owner}
    raw["metadata"]["ownerReferences"] = [owner]
    return raw


@pytest.mark.parametrize(
    ("limits", "capacity"),
    [
        pytest.param({keys.GPU_WHOLE: 1}, EXACT, id="whole"),
        pytest.param({keys.GPU_MEM: 4}, EXACT, id="share"),
        pytest.param({keys.NVIDIA_GPU: 1}, EXACT, id="nvidia-on-exact-nodes"),
    ],
)
def test_worker_of_an_mpi_job_is_marked_and_gated(limits, capacity):
    pod = admitted(a_worker(limits), BY_SCHEDULER, capacity=capacity)

    assert pod["metadata"]["annotations"].items() >= MADE.items()
    assert pod["spec"]["schedulingGates"] == [GATE]
    assert admitted(pod, BY_SCHEDULER, capacity=capacity) == pod


def test_annotations_of_the_user_stay():
    pod = admitted(a_worker({keys.GPU_WHOLE: 1}, annotations={"a": "b"}))

    assert pod["metadata"]["annotations"] == {"a": "b", **MADE}


@pytest.mark.parametrize(
    "annotation", [{"team": "a"}, {keys.ALLOCATION: "{}"}], ids=["kept", "of-the-record"]
)
def test_annotations_of_profiles_stay(annotation):
    profile = {"name": "all", "objectSelector": {}, "effect": {"annotations": annotation}}

    pod = admitted(a_worker({keys.GPU_WHOLE: 1}), a_snapshot(profiles=[profile]))

    kept = {key: text for key, text in annotation.items() if key != keys.ALLOCATION}
    assert pod["metadata"]["annotations"] == kept | MADE


@pytest.mark.parametrize(
    ("pod", "policy"),
    [
        pytest.param(a_worker({keys.NVIDIA_GPU: 1}), "placement: {nvidia: off}", id="nvidia-off"),
        pytest.param(a_worker({keys.GPU_WHOLE: 1}), "gangs: {kinds: []}", id="no-kinds"),
        pytest.param(
            a_worker({keys.GPU_WHOLE: 1}, labels={keys.GANG: "false"}), "", id="taken-out"
        ),
        pytest.param(
            a_worker({keys.GPU_WHOLE: 1}, {"apiVersion": "apps/v1", "kind": "ReplicaSet"}),
            "",
            id="other-kind",
        ),
        pytest.param(
            a_worker({keys.GPU_WHOLE: 1}, {**V1, "kind": "PyTorchJob"}),
            "gangs: {kinds: [MPIJob]}",
            id="kind-not-in-policy",
        ),
        pytest.param(a_worker({keys.GPU_WHOLE: 1}, labels=ARENA), "", id="own-mark"),
    ],
)
def test_other_pods_are_not_marked(pod, policy):
    after = admitted(pod, a_snapshot(policy), capacity=EXACT)

    assert after["metadata"].get("annotations", {}).keys().isdisjoint(MADE)


DEFAULT = {
    "MPIJob": (V1, {}),
    "PyTorchJob": ({**V1, "kind": "PyTorchJob"}, {}),
    "TFJob": ({**V1, "kind": "TFJob"}, {}),
    "JobSet": ({"apiVersion": "batch/v1", "kind": "Job"}, {operator_keys.JOBSET_NAME: "train"}),
    "LeaderWorkerSet": (
        {"apiVersion": "apps/v1", "kind": "StatefulSet"},
        {keys.LWS_NAME: "train", keys.LWS_GROUP_INDEX: "0"},
    ),
    "RayCluster": ({"apiVersion": "ray.io/v1", "kind": "RayCluster"}, {}),
    "Job.batch.volcano.sh": ({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}, {}),
}


def test_the_default_has_every_kind():
    assert DEFAULT.keys() == set(GANG_KINDS)


@pytest.mark.parametrize("kind", DEFAULT)
def test_pods_of_every_kind_are_a_gang_by_default(kind):
    owner, labels = DEFAULT[kind]

    pod = admitted(a_worker({keys.NVIDIA_GPU: 1}, owner, labels=labels), capacity=EXACT)

    made = {keys.GANG: "train", keys.GANG_KIND: kind}
    assert pod["metadata"]["annotations"].items() >= made.items()
    assert pod["spec"]["schedulingGates"] == [GATE]


@pytest.mark.parametrize(
    ("kind", "annotations", "is_gang"),
    [
        pytest.param("JobSet", [operator_keys.JOBSET_EXCLUSIVE], False, id="job-set"),
        pytest.param(
            "JobSet",
            [operator_keys.JOBSET_EXCLUSIVE, operator_keys.JOBSET_NODE_SELECTOR],
            True,
            id="job-set-by-node-selector",
        ),
        pytest.param("LeaderWorkerSet", [operator_keys.LWS_EXCLUSIVE], False, id="group"),
    ],
)
def test_pods_that_are_made_once_others_have_nodes_are_no_gang(kind, annotations, is_gang):
    owner, labels = DEFAULT[kind]
    written = dict.fromkeys(annotations, "rack")
    raw = a_worker({keys.GPU_WHOLE: 1}, owner, labels=labels, annotations=written)

    assert (keys.GANG in admitted(raw)["metadata"]["annotations"]) is is_gang


def test_launcher_without_gpus_is_left_alone():
    outcome = outcome_of(a_worker({"cpu": 1}))

    assert (outcome.verdict, outcome.patch) == (Verdict.SKIPPED, ())


def test_kinds_of_the_policy_are_marked():
    owner = {"apiVersion": "batch/v1", "kind": "Job"}
    pod = a_worker({keys.GPU_WHOLE: 1}, owner, labels={operator_keys.JOBSET_NAME: "set"})

    after = admitted(pod, a_snapshot("gangs: {kinds: [JobSet]}"))

    assert after["metadata"]["annotations"] == {keys.GANG: "set", keys.GANG_KIND: "JobSet"}


def test_findings_name_the_owner():
    workload = GangOwner("MPIJob", "train", members=None)

    (found,) = outcome_of(a_worker({keys.GPU_WHOLE: 1}), workload=workload).findings

    assert (found.code, found.field) == ("LW402", "metadata.ownerReferences")


def test_a_worker_of_volcano_keeps_its_scheduler():
    owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    pod = a_worker({keys.NVIDIA_GPU: 1}, owner, schedulerName="volcano")
    policy = a_snapshot("gangs: {kinds: [Job.batch.volcano.sh]}")

    after = admitted(pod, policy, capacity=EXACT)

    assert "schedulingGates" not in after["spec"]
    assert codes(outcome_of(pod, policy, capacity=EXACT)) == []


@pytest.mark.parametrize(
    ("limits", "spec", "found"),
    [
        pytest.param({}, {}, ["LW408"], id="placed one by one"),
        pytest.param({}, {"nodeName": "n"}, [], id="bound by its author"),
        pytest.param({"nvidia.com/gpumem": 3000}, {}, [], id="share of HAMi"),
    ],
)
def test_only_pods_that_linkwise_may_place_together_are_said_to_be_placed_one_by_one(
    limits, spec, found
):
    pod = a_worker({keys.NVIDIA_GPU: 1, **limits}, **spec)
    workload = GangOwner("MPIJob", "train", members=4)

    outcome = outcome_of(pod, a_snapshot("gangs: {kinds: []}"), workload=workload)

    assert [code for code in codes(outcome) if code == "LW408"] == found
