"""The manifests have the shapes of these types, in words of our own.

kubeflow/training-operator `pkg/apis/kubeflow.org/v1` (MPIJob, PyTorchJob), kubeflow/mpi-operator
`pkg/apis/kubeflow/v2beta1` and, as arena submits it, `v1alpha1`; kubernetes/api `batch/v1` and
`apps/v1`; kubernetes-sigs/jobset `api/jobset/v1alpha2`.
"""

import json

import msgspec
import pytest
import yaml
from support.builders import a_pod

from linkwise.cluster import keys
from linkwise.cluster.objects.metadata import Owner
from linkwise.cluster.objects.pod import Pod
from linkwise.workloads import operator_keys
from linkwise.workloads.kinds import stateful_set
from linkwise.workloads.members import ExpectedPods, OwnerPods
from linkwise.workloads.members import declared as declared_by
from linkwise.workloads.operator_keys import KUEUE_MIN_PARALLELISM
from linkwise.workloads.paths import path_of
from linkwise.workloads.pod_group import PodGroup, group_paths
from linkwise.workloads.registry import kind_of
from linkwise.workloads.state import OwnerState

MPI_V1 = """
apiVersion: kubeflow.org/v1
kind: MPIJob
metadata: {name: bert, namespace: team}
spec:
  slotsPerWorker: 2
  cleanPodPolicy: Running
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      restartPolicy: Never
      template:
        spec:
          containers:
          - {name: mpi, image: bert, command: [mpirun, -np, "8", python, train.py]}
    Worker:
      replicas: 4
      restartPolicy: OnFailure
      template:
        metadata: {labels: {team: a}}
        spec:
          containers:
          - {name: mpi, image: bert, resources: {limits: {aliyun.com/gpu: 2, cpu: "8"}}}
"""
MPI_V2 = """
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: bert}
spec:
  slotsPerWorker: 8
  runLauncherAsWorker: true
  launcherCreationPolicy: WaitForWorkersReady
  sshAuthMountPath: /home/mpiuser/.ssh
  mpiImplementation: OpenMPI
  runPolicy: {cleanPodPolicy: Running, backoffLimit: 3, schedulingPolicy: {minAvailable: 4}}
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
          - {name: mpi, resources: {limits: {aliyun.com/gpu: 8}}}
    Worker:
      replicas: 3
      template:
        spec:
          initContainers:
          - {name: fetch, image: fetch}
          containers:
          - {name: mpi, resources: {limits: {aliyun.com/gpu: "8"}}}
          - {name: metrics, image: metrics}
status: {replicaStatuses: {Worker: {active: 3}}}
"""
MPI_V1ALPHA1 = """
apiVersion: kubeflow.org/v1alpha1
kind: MPIJob
metadata: {name: bert}
spec:
  replicas: 2
  template:
    spec:
      containers:
      - {name: mpi, resources: {limits: {aliyun.com/gpu: 4}}}
"""
PYTORCH = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: llama}
spec:
  nprocPerNode: auto
  elasticPolicy: {minReplicas: 1, maxReplicas: 4, rdzvBackend: c10d}
  runPolicy: {cleanPodPolicy: None}
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template:
        spec:
          containers: [{name: pytorch, resources: {limits: {aliyun.com/gpu: 8}}}]
    Worker:
      replicas: 3
      template:
        spec:
          containers: [{name: pytorch, resources: {limits: {aliyun.com/gpu: 8}}}]
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: sweep}
spec:
  completions: 6
  parallelism: 6
  completionMode: Indexed
  backoffLimit: 0
  template:
    spec:
      subdomain: sweep
      restartPolicy: Never
      containers: [{name: c, resources: {limits: {nvidia.com/gpu.shared: 1}}}]
"""
JOB_SET = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: pipeline}
spec:
  successPolicy: {operator: All}
  replicatedJobs:
  - name: driver
    template:
      spec:
        template:
          spec:
            containers: [{name: driver}]
  - name: workers
    replicas: 2
    template:
      metadata: {labels: {a: b}}
      spec:
        parallelism: 4
        completions: 4
        template:
          spec:
            containers: [{name: worker, resources: {limits: {aliyun.com/gpu: 1}}}]
  - name: evaluator
    template:
      spec:
        template:
          spec:
            containers: [{name: evaluator, resources: {limits: {aliyun.com/gpu-mem: 8}}}]
"""
STATEFUL_SET = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: serve}
spec:
  replicas: 3
  serviceName: serve
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: serve}}
  volumeClaimTemplates:
  - {metadata: {name: data}, spec: {accessModes: [ReadWriteOnce]}}
  template:
    metadata: {labels: {app: serve}}
    spec:
      containers: [{name: server, resources: {limits: {aliyun.com/gpu: 1}}}]
"""
LWS = """
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: serve}
spec:
  replicas: 3
  leaderWorkerTemplate:
    size: 4
    workerTemplate:
      spec:
        containers: [{name: server, resources: {limits: {aliyun.com/gpu: 1}}}]
"""


TF = """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: resnet}
spec:
  tfReplicaSpecs:
    PS: {replicas: 2, template: {spec: {containers: [{name: tensorflow}]}}}
    Worker:
      replicas: 3
      template:
        spec:
          containers: [{name: tensorflow, resources: {limits: {nvidia.com/gpu: 1}}}]
"""
RAY_CLUSTER = """
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: ray}
spec:
  headGroupSpec: {template: {spec: {containers: [{name: head}]}}}
  workerGroupSpecs:
  - groupName: gpus
    replicas: 2
    minReplicas: 1
    numOfHosts: 2
    template:
      spec:
        containers: [{name: worker, resources: {limits: {nvidia.com/gpu: 8}}}]
  - groupName: more
    minReplicas: 1
    template:
      spec:
        containers: [{name: worker, resources: {limits: {nvidia.com/gpu: 8}}}]
  - groupName: cpus
    replicas: 4
    template: {spec: {containers: [{name: worker}]}}
"""
VOLCANO = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: horovod}
spec:
  minAvailable: 5
  tasks:
  - {name: master, replicas: 1, template: {spec: {containers: [{name: master}]}}}
  - name: worker
    replicas: 4
    template:
      spec:
        containers: [{name: worker, resources: {limits: {nvidia.com/gpu: 1}}}]
  - name: evaluator
    dependsOn: {name: [worker]}
    template:
      spec:
        containers: [{name: worker, resources: {limits: {nvidia.com/gpu: 1}}}]
"""


def read(document, uid="u"):
    """Return what an object declares, as the owner of a uid."""
    kind = kind_of(document["apiVersion"], document["kind"])
    document.setdefault("metadata", {}).setdefault("uid", "u")
    return declared_by(kind, kind.decoder.decode(json.dumps(document)), uid)


def declared(text, *changes):
    document = yaml.safe_load(text)
    for change in changes:
        change(document["spec"])
    return read(document).members


def template(spec):
    return spec["template"]["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("text", "members"),
    [
        pytest.param(MPI_V1, 4, id="MPIJob v1 without its launcher"),
        pytest.param(MPI_V2, 4, id="MPIJob v2beta1 whose launcher waits for its workers"),
        pytest.param(MPI_V1ALPHA1, 2, id="MPIJob v1alpha1"),
        pytest.param(PYTORCH, 4, id="PyTorchJob"),
        pytest.param(JOB, 6, id="Job"),
        pytest.param(JOB_SET, 9, id="JobSet"),
        pytest.param(STATEFUL_SET, 3, id="StatefulSet"),
        pytest.param(LWS, 4, id="one group of a LeaderWorkerSet"),
        pytest.param(TF, 3, id="TFJob"),
        pytest.param(RAY_CLUSTER, 5, id="RayCluster"),
        pytest.param(VOLCANO, 5, id="Volcano Job"),
    ],
)
def test_an_owner_declares_how_many_of_its_pods_have_gpus(text, members):
    assert declared(text) == members


@pytest.mark.parametrize(
    ("text", "change", "members"),
    [
        pytest.param(JOB, lambda s: s.pop("parallelism"), 1, id="Job"),
        pytest.param(STATEFUL_SET, lambda s: s.pop("replicas"), 1, id="StatefulSet"),
        pytest.param(JOB_SET, lambda s: s["replicatedJobs"][1].pop("replicas"), 5, id="JobSet"),
    ],
)
def test_missing_count_is_one(text, change, members):
    assert declared(text, change) == members


def test_an_mpi_job_without_a_number_has_no_workers():
    assert declared(MPI_V1, lambda spec: spec["mpiReplicaSpecs"]["Worker"].pop("replicas")) == 0


@pytest.mark.parametrize(
    ("text", "change", "members"),
    [
        pytest.param(
            MPI_V2,
            lambda s: s.pop("launcherCreationPolicy"),
            4,
            id="MPIJob with a launcher that works too",
        ),
        pytest.param(
            RAY_CLUSTER,
            lambda s: s["workerGroupSpecs"][0].update(suspend=True),
            1,
            id="RayCluster with a suspended group",
        ),
        pytest.param(
            RAY_CLUSTER,
            lambda s: s.update(headGroupSpec=s["workerGroupSpecs"][0]),
            6,
            id="RayCluster whose head has GPUs",
        ),
        pytest.param(
            VOLCANO, lambda s: s.update(minAvailable=2), 2, id="Volcano Job with a minimum"
        ),
    ],
)
def test_settings_of_an_owner_change_its_size(text, change, members):
    assert declared(text, change) == members


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda s: s.update(parallelism=0), id="suspended by parallelism"),
        pytest.param(lambda s: template(s).pop("resources"), id="no GPUs"),
        pytest.param(
            lambda s: template(s).update(resources={"limits": {"nvidia.com/mig-1g.5gb": 1}}),
            id="GPUs that others choose",
        ),
    ],
)
def test_pods_that_linkwise_does_not_place_do_not_count(change):
    assert declared(JOB, change) == 0


@pytest.mark.parametrize(
    ("completions", "members"),
    [(4, 4), (6, 6), (12, 6), (None, 6)],
    ids=["fewer than run at once", "as many", "more", "not set"],
)
def test_a_job_never_runs_more_pods_than_it_completes(completions, members):
    assert declared(JOB, lambda spec: spec.update(completions=completions)) == members


@pytest.mark.parametrize(
    ("annotations", "total"),
    [({}, 6), ({KUEUE_MIN_PARALLELISM: "2"}, 0)],
    ids=["as it was made", "Kueue may have reduced it"],
)
def test_the_pods_of_a_job_that_kueue_may_reduce_are_not_all_that_it_was_made_with(
    annotations, total
):
    document = yaml.safe_load(JOB)
    document["metadata"]["annotations"] = annotations
    assert (read(document).total, read(document).members) == (total, 6)


@pytest.mark.parametrize(
    ("text", "change"),
    [
        pytest.param(STATEFUL_SET, lambda s: s.update(replicas=-1), id="replicas"),
        pytest.param(
            PYTORCH,
            lambda s: [role.update(replicas=-1) for role in s["pytorchReplicaSpecs"].values()],
            id="of a role",
        ),
        pytest.param(JOB, lambda s: s.update(parallelism=-1), id="parallelism"),
        pytest.param(JOB, lambda s: s.update(completions=-1), id="completions"),
        pytest.param(
            JOB_SET,
            lambda s: [job.update(replicas=-1) for job in s["replicatedJobs"]],
            id="of a replicated job",
        ),
    ],
)
def test_less_than_none_is_none(text, change):
    assert declared(text, change) == 0


def ordered(text, **spec):
    document = yaml.safe_load(text)
    document["spec"] |= spec
    return read(document).expected.ordered is not None


NO_GPUS = {"spec": {"containers": [{"name": "leader"}]}}


@pytest.mark.parametrize(
    ("text", "spec", "expected"),
    [
        pytest.param(LWS, {"startupPolicy": "LeaderReady"}, True, id="leader first"),
        pytest.param(LWS, {"startupPolicy": "LeaderCreated"}, False, id="leader created"),
        pytest.param(
            JOB_SET, {"startupPolicy": {"startupPolicyOrder": "InOrder"}}, True, id="jobs"
        ),
        pytest.param(JOB_SET, {}, False, id="jobs at once"),
        pytest.param(
            JOB_SET,
            {
                "replicatedJobs": [
                    yaml.safe_load(JOB_SET)["spec"]["replicatedJobs"][1],
                    yaml.safe_load(JOB_SET)["spec"]["replicatedJobs"][2]
                    | {"dependsOn": [{"name": "workers", "status": "Ready"}]},
                ]
            },
            True,
            id="a job after another",
        ),
        pytest.param(VOLCANO, {}, True, id="a task after another"),
        pytest.param(
            LWS,
            {
                "startupPolicy": "LeaderReady",
                "leaderWorkerTemplate": {
                    "size": 4,
                    "leaderTemplate": NO_GPUS,
                    "workerTemplate": yaml.safe_load(LWS)["spec"]["leaderWorkerTemplate"][
                        "workerTemplate"
                    ],
                },
            },
            False,
            id="a leader without GPUs",
        ),
    ],
)
def test_owners_that_order_their_pods_are_recognized(text, spec, expected):
    assert ordered(text, **spec) is expected


def test_an_owner_with_fields_of_another_kind_is_not_ordered():
    tasks = yaml.safe_load(VOLCANO)["spec"]["tasks"]

    assert not ordered(MPI_V2, tasks=tasks)


GROUP = frozenset(
    {"ray.io/cluster": "ray", "ray.io/node-type": "worker", "ray.io/group": "more"}.items()
)
WORKERS = frozenset(
    {
        operator_keys.OPERATOR_NAME: "pytorchjob-controller",
        operator_keys.JOB_NAME: "llama",
        operator_keys.REPLICA_TYPE: "worker",
    }.items()
)


@pytest.mark.parametrize(
    ("text", "spec", "elastic"),
    [
        pytest.param(PYTORCH, {}, [(WORKERS, 1)], id="PyTorchJob"),
        pytest.param(PYTORCH, {"elasticPolicy": {"maxReplicas": 4}}, [], id="no minimum"),
        pytest.param(PYTORCH, {"elasticPolicy": None}, [], id="no policy"),
        pytest.param(
            PYTORCH, {"elasticPolicy": {"minReplicas": -1}}, [(WORKERS, 0)], id="a negative one"
        ),
        pytest.param(
            # Its replicas of two hosts may only end together.
            RAY_CLUSTER,
            {"enableInTreeAutoscaling": True},
            [(GROUP, 1)],
            id="RayCluster with an autoscaler",
        ),
        pytest.param(RAY_CLUSTER, {}, [], id="RayCluster without one"),
        pytest.param(JOB, {}, [], id="Job"),
    ],
)
def test_elastic_owners_say_how_many_of_which_pods_they_need(text, spec, elastic):
    document = yaml.safe_load(text)
    document["spec"] |= spec

    assert [*read(document).expected.elastic] == elastic


@pytest.mark.parametrize(
    ("text", "spec", "number"),
    [
        pytest.param(PYTORCH, {}, 2, id="PyTorchJob: master and one worker"),
        pytest.param(PYTORCH, {"elasticPolicy": {"minReplicas": 0}}, 1, id="the master alone"),
        pytest.param(PYTORCH, {"elasticPolicy": {"minReplicas": 9}}, None, id="more than it has"),
        pytest.param(PYTORCH, {"elasticPolicy": {"maxReplicas": 4}}, None, id="no minimum"),
        pytest.param(PYTORCH, {"elasticPolicy": None}, None, id="PyTorchJob that is not elastic"),
        pytest.param(RAY_CLUSTER, {}, None, id="RayCluster without an autoscaler"),
        pytest.param(JOB_SET, {}, None, id="JobSet"),
    ],
)
def test_elastic_owners_start_with_their_minimum(text, spec, number):
    document = yaml.safe_load(text)
    document["spec"] |= spec

    assert read(document).expected.starts_with == number


def test_a_ray_cluster_with_an_autoscaler_starts_with_the_minimum_of_its_groups():
    gpus = {"spec": {"containers": [{"resources": {"limits": {keys.GPU_WHOLE: 1}}}]}}
    group = {"groupName": "g", "replicas": 7, "minReplicas": 2, "template": gpus}
    document = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "ray"},
        "spec": {
            "enableInTreeAutoscaling": True,
            "headGroupSpec": {"template": {"spec": {"containers": [{}]}}},
            "workerGroupSpecs": [group, {**group, "groupName": "h", "numOfHosts": 3}],
        },
    }

    found = read(document)
    document["spec"]["workerGroupSpecs"] = [{**group, "minReplicas": 0}]
    from_nothing = read(document)

    assert (found.members, found.expected.starts_with) == (7 + 21, 2 + 6)
    # It may shrink to none: each of its workers starts by itself.
    assert (from_nothing.members, from_nothing.expected.starts_with) == (7, 1)


@pytest.mark.parametrize("spec", [{}, {"tasks": []}])
def test_an_owner_of_another_shape_declares_nothing(spec):
    job = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "spec": spec}

    assert read(job).members == 0


def test_another_owner_of_the_same_name_declares_nothing():
    assert read(yaml.safe_load(JOB), "before") == OwnerPods()


@pytest.mark.parametrize(
    ("api_version", "kind", "path"),
    [
        ("kubeflow.org/v2beta1", "MPIJob", "/apis/kubeflow.org/v2beta1/namespaces/team/mpijobs/x"),
        (
            "kubeflow.org/v1",
            "PyTorchJob",
            "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/x",
        ),
        ("batch/v1", "Job", "/apis/batch/v1/namespaces/team/jobs/x"),
        (
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets/x",
        ),
        ("apps/v1", "StatefulSet", "/apis/apps/v1/namespaces/team/statefulsets/x"),
        ("ray.io/v1", "RayCluster", "/apis/ray.io/v1/namespaces/team/rayclusters/x"),
        ("kubeflow.org/v1", "TFJob", "/apis/kubeflow.org/v1/namespaces/team/tfjobs/x"),
        (
            "batch.volcano.sh/v1alpha1",
            "Job",
            "/apis/batch.volcano.sh/v1alpha1/namespaces/team/jobs/x",
        ),
        ("apps/v1", "ReplicaSet", None),
        ("v1", "ReplicationController", None),
        ("v1", "Job", None),
        ("", "Job", None),
    ],
)
def test_only_owners_that_declare_a_size_have_a_path(api_version, kind, path):
    owner = Owner(api_version=api_version, kind=kind, name="x", uid="u")

    assert path_of(owner, "team") == path


@pytest.mark.parametrize(
    ("api_version", "name"),
    [
        ("batch/v1", "../../../secrets/x"),
        ("batch/v1", "x?watch=true"),
        ("batch/v1", ".."),
        ("batch/v1", "x%2fy"),
        ("batch/v1", ""),
        ("../v1", "x"),
        ("batch/v1/namespaces/kube-system", "x"),
    ],
)
def test_a_pods_author_cannot_have_anything_else_read(api_version, name):
    assert path_of(Owner(api_version=api_version, kind="Job", name=name), "team") is None


@pytest.mark.parametrize(
    ("annotations", "names"),
    [
        pytest.param({}, ["ann-0"], id="runs"),
        pytest.param({"kubeflow-resource-stopped": "2026-01-01T00:00:00Z"}, [], id="stopped"),
    ],
)
def test_a_notebook_has_one_pod_unless_it_is_stopped(annotations, names):
    text = json.dumps({"metadata": {"name": "ann", "annotations": annotations}})
    workload = kind_of("kubeflow.org/v1", "Notebook").decoder.decode(text)

    (pods,) = workload.pod_sets()

    assert [pods.stamp(index).name for index in range(pods.count)] == names


RUNNING, ENDED, NOT_YET = (
    {"conditions": [{"type": kind, "status": status}]}
    for kind, status in (("Running", "True"), ("Succeeded", "True"), ("Succeeded", "False"))
)


@pytest.mark.parametrize(
    ("text", "spec", "status", "state"),
    [
        pytest.param(PYTORCH, {}, RUNNING, OwnerState.ACTIVE, id="running"),
        pytest.param(PYTORCH, {}, NOT_YET, OwnerState.ACTIVE, id="a condition that does not hold"),
        pytest.param(PYTORCH, {}, ENDED, OwnerState.SUCCEEDED, id="succeeded"),
        pytest.param(
            MPI_V1,
            {"runPolicy": {"suspend": True}},
            RUNNING,
            OwnerState.SUSPENDED,
            id="suspended by the run policy",
        ),
        pytest.param(
            MPI_V2,
            {"runPolicy": {"suspend": True}},
            ENDED,
            OwnerState.SUCCEEDED,
            id="suspended since it has ended",
        ),
        pytest.param(
            MPI_V1ALPHA1, {}, {"launcherStatus": "Failed"}, OwnerState.FAILED, id="launcher status"
        ),
        pytest.param(JOB, {"suspend": True}, {}, OwnerState.SUSPENDED, id="Job"),
        pytest.param(JOB_SET, {"suspend": True}, {}, OwnerState.SUSPENDED, id="JobSet"),
        pytest.param(STATEFUL_SET, {"replicas": 0}, {}, OwnerState.SUSPENDED, id="StatefulSet"),
        pytest.param(LWS, {"replicas": 0}, {}, OwnerState.SUSPENDED, id="LeaderWorkerSet"),
        pytest.param(RAY_CLUSTER, {"suspend": True}, {}, OwnerState.SUSPENDED, id="RayCluster"),
        pytest.param(RAY_CLUSTER, {}, {"state": "failed"}, OwnerState.ACTIVE, id="state of Ray"),
        pytest.param(
            VOLCANO,
            {},
            {"state": {"phase": "Completed"}},
            OwnerState.SUCCEEDED,
            id="phase of a Volcano Job",
        ),
    ],
)
def test_an_owner_is_active_suspended_or_ended(text, spec, status, state):
    document = yaml.safe_load(text)
    document["spec"] |= spec

    assert read(document | {"status": status}).state is state


# ---- Which pods, and in which order.


GPU_TEMPLATE = {"spec": {"containers": [{"resources": {"limits": {keys.GPU_WHOLE: 1}}}]}}
PLAIN_TEMPLATE = {"spec": {"containers": [{}]}}


@pytest.mark.parametrize(
    ("api_version", "kind", "spec", "makes"),
    [
        pytest.param(
            "kubeflow.org/v1",
            "MPIJob",
            {
                "mpiReplicaSpecs": {
                    "Launcher": {"template": PLAIN_TEMPLATE},
                    "Worker": {"replicas": 4, "template": GPU_TEMPLATE},
                }
            },
            ExpectedPods((("bert-worker", 4),)),
            id="MPIJob",
        ),
        pytest.param(
            "kubeflow.org/v1",
            "PyTorchJob",
            {
                "pytorchReplicaSpecs": {
                    "Master": {"template": GPU_TEMPLATE},
                    "Worker": {"replicas": 3, "template": GPU_TEMPLATE},
                }
            },
            ExpectedPods((("bert-master", 1), ("bert-worker", 3))),
            id="PyTorchJob",
        ),
        pytest.param(
            "apps/v1",
            "StatefulSet",
            {"replicas": 2, "podManagementPolicy": "Parallel", "template": GPU_TEMPLATE},
            ExpectedPods((("bert", 2),)),
            id="StatefulSet, all at once",
        ),
        pytest.param(
            "apps/v1",
            "StatefulSet",
            {"replicas": 2, "template": GPU_TEMPLATE},
            ExpectedPods((("bert", 2),), ordered=stateful_set.STATEFUL_SET.ordered),
            id="StatefulSet, as they come by default",
        ),
        pytest.param(
            "batch/v1",
            "Job",
            {"parallelism": 2, "template": GPU_TEMPLATE},
            ExpectedPods(),
            id="random suffixes",
        ),
    ],
)
def test_the_pods_that_an_owner_makes_are_known_by_their_names(api_version, kind, spec, makes):
    metadata = {"name": "bert"}
    job = {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}

    assert read(job).expected == makes


@pytest.mark.parametrize(
    ("pod", "paths"),
    [
        pytest.param(a_pod(), (), id="none"),
        pytest.param(
            a_pod(labels={keys.POD_GROUP: "bert"}),
            ("/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team/podgroups/bert",),
            id="label",
        ),
        pytest.param(
            a_pod(labels={keys.POD_GROUP: "x"}, schedulingGroup={"podGroupName": "bert"}),
            (
                "/apis/scheduling.k8s.io/v1beta1/namespaces/team/podgroups/bert",
                "/apis/scheduling.k8s.io/v1alpha2/namespaces/team/podgroups/bert",
            ),
            id="native",
        ),
        pytest.param(a_pod(labels={keys.POD_GROUP: "../nodes"}), (), id="no name"),
        pytest.param(a_pod(labels={keys.POD_GROUP_NAME: "bert"}), (), id="a mark without one"),
    ],
)
def test_the_pod_group_of_a_mark_is_looked_for_where_it_is_served(pod, paths):
    assert group_paths(msgspec.convert(pod, Pod), "team") == paths


@pytest.mark.parametrize(
    ("spec", "members"),
    [
        ({"minMember": 4}, 4),
        ({"schedulingPolicy": {"gang": {"minCount": 3}}}, 3),
        ({"schedulingPolicy": {"basic": {}}}, None),
        ({}, None),
        ({"minMember": -1}, None),
    ],
)
def test_a_pod_group_says_how_many_are_placed_together(spec, members):
    assert msgspec.convert({"spec": spec}, PodGroup).members == members
