import json

import msgspec
import pytest
from hypothesis import given
from support.builders import a_pod, dgx1_v100, topology_map
from support.dra import (
    DRIVER,
    a_claim,
    a_device,
    a_rule,
    a_slice,
    read_claim,
    read_rule,
    read_slice,
)
from support.strategies import pods

from linkwise.cluster import keys
from linkwise.cluster.allocations.record import Isolation, parse_record
from linkwise.cluster.gang import gang_mark, link_strictness
from linkwise.cluster.nodes.node_resources import NodeObject, read_node_resources
from linkwise.cluster.nodes.topology_configmap import PublishedTopology, read_published
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.request_reader import read_request
from linkwise.views.live.snapshot import reduced, snapshot_text
from linkwise.workloads.kinds.mpi_job import MPIJob
from linkwise.workloads.members import members_of

SECRET = "hunter2"  # noqa: S105 - what must not be found.
RECORD = '{"v":1,"node":"n","gpus":[{"i":3}]}'


def a_full_pod():
    pod = a_pod(
        {keys.GPU_WHOLE: "1", "cpu": "2"},
        labels={keys.POD_GROUP_NAME: "gang", keys.POD_GROUP_MIN_AVAILABLE: "2"},
        annotations={
            keys.ALLOCATION: RECORD,
            keys.LINK: "nvlink",
            "kubectl.kubernetes.io/last-applied-configuration": SECRET,
        },
        nodeName="n",
        schedulingGates=[{"name": keys.GANG}],
        tolerations=[{"key": "a", "operator": "Exists"}],
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}
            }
        },
        volumes=[{"name": "v", "secret": {"secretName": SECRET}}],
        imagePullSecrets=[{"name": SECRET}],
    )
    container = pod["spec"]["containers"][0]
    container |= {
        "image": SECRET,
        "command": ["run", SECRET],
        "args": [SECRET],
        "env": [{"name": "PASSWORD", "value": SECRET}],
        "envFrom": [{"secretRef": {"name": SECRET}}],
        "ports": [{"containerPort": 80, "hostPort": 80}],
        "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "A", "value": SECRET}]}},
    }
    pod["spec"]["initContainers"] = [container | {"name": "init"}]
    pod["metadata"] |= {"managedFields": [{"manager": SECRET}], "resourceVersion": "7"}
    pod["status"] = {"phase": "Running", "podIP": SECRET, "startTime": "2026-01-01T00:00:00Z"}
    return pod


def test_published_topology_is_kept():
    machine = dgx1_v100()
    published = PublishedTopology(
        machine, (True,) * machine.n, "535", mismatch="PID 7", isolation=Isolation.MPS
    )

    kept = reduced("ConfigMap", topology_map("dgx-0", published))

    assert read_published(kept["data"]) == published


def test_snapshot_drops_variables_commands_volumes_and_foreign_annotations():
    kept = reduced("Pod", a_full_pod())

    assert SECRET not in json.dumps(kept)
    assert "resourceVersion" not in json.dumps(kept)


@given(pods())
def test_reduced_pod_keeps_request_and_gang(pod):
    whole = msgspec.convert(pod, Pod)

    kept = msgspec.convert(reduced("Pod", pod), Pod)

    assert read_request(kept) == read_request(whole)
    assert gang_mark(kept) == gang_mark(whole)
    assert link_strictness(kept) == link_strictness(whole)
    assert kept.spec.affinity == whole.spec.affinity
    assert kept.spec.tolerations == whole.spec.tolerations


def test_a_kept_pod_keeps_its_record_gates_node_and_phase():
    kept = msgspec.convert(reduced("Pod", a_full_pod()), Pod)

    assert parse_record(kept.annotations) is not None
    assert kept.spec.node_name == "n"
    assert [gate.name for gate in kept.spec.scheduling_gates] == [keys.GANG]
    assert kept.spec.containers[0].ports[0].host_port == 80
    assert kept.status.phase == "Running"
    # A term that matches nothing is no term that is missing.
    required = kept.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    assert len(required.node_selector_terms) == 1


def test_reduced_node_has_no_fields_that_change_with_time():
    node = {
        "kind": "Node",
        "metadata": {
            "name": "n",
            "labels": {keys.NODE_MODE: "topology"},
            "annotations": {keys.CORDON: "1", "volumes.example.com/attached": SECRET},
        },
        "spec": {"unschedulable": True, "taints": [{"key": "a", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {keys.GPU_WHOLE: "4", "cpu": "1"},
            "capacity": {keys.GPU_WHOLE: "8", "cpu": "1"},
            "addresses": [
                {"type": "Hostname", "address": SECRET},
                {"type": "InternalIP", "address": "10.0.0.1"},
            ],
            "conditions": [
                {"type": "Ready", "status": "True", "lastHeartbeatTime": SECRET},
                {"type": "DiskPressure", "status": SECRET},
            ],
            "images": [{"names": [SECRET]}],
        },
    }

    kept = reduced("Node", node)

    assert SECRET not in json.dumps(kept)
    assert kept["status"]["addresses"] == [{"type": "InternalIP", "address": "10.0.0.1"}]
    before, after = (msgspec.convert(one, NodeObject) for one in (node, kept))
    assert read_node_resources(after, None).count == read_node_resources(before, None).count == 8
    assert after.spec == before.spec
    assert after.metadata.annotations == {keys.CORDON: "1"}


@pytest.mark.parametrize(
    ("metadata", "keeps"),
    [
        ({"namespace": "kube-system", "name": "acs-profile"}, {keys.PROFILE_KEY}),
        ({"namespace": "linkwise-system", "name": "linkwise"}, {keys.POLICY_KEY}),
        ({"namespace": "kube-system", "name": "unhealthy-gpu-n"}, {keys.UNHEALTHY_KEY}),
        (
            {"name": "any", "labels": {keys.TOPOLOGY_NODE: "n", keys.NODE_MODE: "topology"}},
            {keys.TOPOLOGY_DEVICES, keys.TOPOLOGY_MACHINE},
        ),
    ],
    ids=["profiles", "policy", "unhealthy GPUs", "topology"],
)
def test_of_our_config_maps_only_our_keys_are_kept(metadata, keeps):
    data = dict.fromkeys([*keeps, "password"], "text")

    kept = reduced("ConfigMap", {"metadata": metadata, "data": data})

    assert kept["data"].keys() == keeps


def test_other_config_maps_are_left_out():
    assert reduced("ConfigMap", {"metadata": {"name": "kubeconfig"}, "data": {"a": SECRET}}) is None


def test_reduced_workload_has_size_and_no_secrets():
    container = {
        "name": "c",
        "env": [{"name": "A", "value": SECRET}],
        "resources": {"limits": {keys.GPU_WHOLE: 1}},
    }
    job = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "job", "namespace": "team", "uid": "u", "annotations": {"a": SECRET}},
        "spec": {
            "mpiReplicaSpecs": {
                "Launcher": {"template": {"spec": {"containers": [{"name": "c"}]}}},
                "Worker": {"replicas": 4, "template": {"spec": {"containers": [container]}}},
            },
            "sshAuthMountPath": SECRET,
        },
    }

    kept = reduced("MPIJob", job)

    assert SECRET not in json.dumps(kept)
    assert members_of(msgspec.convert(kept, MPIJob)) == 4
    assert kept["metadata"] == {"name": "job", "namespace": "team", "uid": "u"}


def test_snapshot_text_does_not_depend_on_object_order():
    kinds = ["Pod", "Node", "Namespace", "MPIJob", "ConfigMap"]
    objects = [
        {"apiVersion": "v1", "kind": kind, "metadata": {"namespace": home, "name": name}}
        for kind in kinds
        for home in ("b", "a")
        for name in ("y", "x")
    ]

    text = snapshot_text(objects)

    assert text == snapshot_text(reversed(objects))
    read = [(one["kind"], one["metadata"]["name"]) for one in json.loads(text)["items"]]
    order = ["Namespace", "ConfigMap", "Node", "MPIJob", "Pod"]
    assert [kind for kind, _ in read] == [kind for kind in order for _ in range(4)]
    # One object a line, so that two snapshots can be compared line by line.
    assert len(text.splitlines()) == len(objects) + 2


def test_slices_and_claims_keep_what_is_read_of_gpus():
    raw = a_slice(
        a_device(0, taints=[("fault", "", "NoExecute")], counters=("set",), brand="Nvidia"),
        a_device(1, shared=True, partition2=1),
    )
    kept = reduced("ResourceSlice", raw)
    claim = {**a_claim("gpu-0"), "spec": {"secret": SECRET}}
    rule = a_rule("fault", "", "NoSchedule", driver=DRIVER, device="gpu-0")

    assert read_slice(kept) == read_slice(raw)
    assert read_slice(kept).devices[0].facts == read_slice(raw).devices[0].facts
    assert "brand" in json.dumps(kept)
    assert read_claim(reduced("ResourceClaim", claim)) == read_claim(claim)
    assert SECRET not in json.dumps(reduced("ResourceClaim", claim))
    assert read_rule(reduced("DeviceTaintRule", rule)) == read_rule(rule)


def test_slices_of_other_devices_are_left_out_and_claims_that_tie_to_no_node():
    assert reduced("ResourceSlice", a_slice(a_device(0), driver="other.example")) is None
    other = a_claim("nic-0", driver="other.example")
    selector = other["status"]["allocation"]["nodeSelector"]
    assert reduced("ResourceClaim", other)["status"]["allocation"]["nodeSelector"] == selector
    anywhere = a_claim("nic-0", driver="other.example", named_node=False)
    assert reduced("ResourceClaim", anywhere) is None
    assert reduced("DeviceTaintRule", a_rule("a", "", "NoSchedule", driver="other.example")) is None


def test_of_a_budget_its_selector_and_what_it_allows_are_kept():
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": "team", "annotations": {"note": SECRET}},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "serve"}}},
        "status": {"disruptionsAllowed": 3, "expectedPods": 5},
    }

    assert reduced("PodDisruptionBudget", budget) == {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": "team"},
        "spec": {"selector": {"matchLabels": {"app": "serve"}}},
        "status": {"disruptionsAllowed": 3},
    }
