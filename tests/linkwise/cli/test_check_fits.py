import json

import pytest
from support.builders import placed_pod

from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.whatif_api import MAX_PODS

CLUSTER = """\
apiVersion: linkwise.dev/v1alpha1
kind: Cluster
nodes:
- {name: dgx-0, machine: dgx1-v100, mode: topology, used: [{gpu: 0}, {gpu: 3}]}
- {name: share-0, machine: t4x4, mode: core_mem, gpuMemory: 15, used: [{gpu: 0, mem: 3, core: 10}]}
- {name: slice-0, machine: t4x4, mode: timeslice, replicas: 4}
- {name: plain-0, machine: l4x8}
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: serve}
spec:
  replicas: REPLICAS
  template: {spec: {containers: [{name: c, resources: {limits: {LIMITS}}}]}}
"""
WHOLE = "aliyun.com/gpu: 2"
SHARE = "aliyun.com/gpu-mem: 10, aliyun.com/gpu-core.percentage: 30"


@pytest.fixture
def check(linkwise, write):
    """Checks pods of these limits on the cluster above."""

    def check(limits, *arguments, replicas=1):
        write("cluster.yaml", CLUSTER)
        write("job.yaml", DEPLOYMENT.replace("REPLICAS", str(replicas)).replace("LIMITS", limits))
        return linkwise("check", "job.yaml", "--cluster", "cluster.yaml", *arguments)

    return check


GANG = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  parallelism: 4
  completions: 4
  template:
    metadata:
      labels:
        pod-group.scheduling.sigs.k8s.io/name: train
        pod-group.scheduling.sigs.k8s.io/min-available: "4"
    spec: {restartPolicy: Never, containers: [{name: c, resources: {limits: {aliyun.com/gpu: 1}}}]}
"""
GANG_OVER_NODES = """\
  fits now on dgx-0, dgx-1
    16.0 GB/s modelled all-reduce bandwidth, NICs not counted, 55.2 on the empty cluster, not \
comparable: it spans 1 node, this plan 2
"""


@pytest.mark.parametrize(
    ("limits", "replicas", "expected"),
    [
        pytest.param(
            WHOLE,
            1,
            """\
  fits now on dgx-0
    40.0 GB/s modelled all-reduce bandwidth, 40.0 on the empty cluster
    why: Only dgx-0 takes it now.
    serve-0  dgx-0  GPUs 1 2
    left on dgx-0: 4 of 8 GPUs, of 6 that are free now
""",
            id="whole",
        ),
        pytest.param(
            SHARE,
            5,
            """\
  4 of 5 fit now
    Needs 10 GiB of one card and 30 % of its compute; of 4 nodes: requested GPU resource not \
offered (3), no card with enough free memory and compute (1).
    serve-0  share-0  GPU 0
    serve-1  share-0  GPU 1
    serve-2  share-0  GPU 2
    serve-3  share-0  GPU 3
    left on share-0: 2 5 5 5 GiB and 60 70 70 70 % of compute, GPU by GPU
""",
            id="shares",
        ),
        pytest.param(
            "aliyun.com/gpu: 9",
            1,
            """\
  never fits, even if nothing else ran
    Needs 9 GPUs on one node; the freest suitable node has 6; of 4 nodes: requested GPU resource \
not offered (3), too few free GPUs (1).
""",
            id="too many for any node",
        ),
        pytest.param(
            "aliyun.com/gpu: 8",
            1,
            """\
  does not fit now
    Needs 8 GPUs on one node; the freest suitable node has 6; of 4 nodes: requested GPU resource \
not offered (3), too few free GPUs (1).
""",
            id="too many now",
        ),
        pytest.param(
            "nvidia.com/gpu.shared: 1",
            1,
            """\
  fits now on slice-0
    why: Only slice-0 takes it now.
    serve-0  slice-0  GPU 0
    left on slice-0: 3 4 4 4 replicas, GPU by GPU
""",
            id="replica",
        ),
        pytest.param(
            "nvidia.com/gpu: 3",
            1,
            """\
  fits now on plain-0
    why: Only plain-0 takes it now.
    note: A guess by count: kube-scheduler chooses the node, and NVIDIA's plugin the GPUs.
    serve-0  plain-0  3, chosen by NVIDIA's plugin
    left on plain-0: 5 of 8 GPUs, of 8 that are free now
""",
            id="counted",
        ),
    ],
)
def test_table_shows_placement_and_remaining_gpus(check, limits, replicas, expected):
    code, out, _ = check(limits, replicas=replicas)

    assert code == int("fits now" not in expected)
    assert expected in out


def test_gang_over_nodes_is_not_compared_with_one_node(linkwise, write):
    used = "[" + ", ".join(f"{{gpu: {i}}}" for i in range(8) if i not in {0, 3}) + "]"
    nodes = "".join(
        f"- {{name: dgx-{i}, machine: dgx1-v100, mode: topology, used: {used}}}\n" for i in range(2)
    )
    write("cluster.yaml", CLUSTER[: CLUSTER.index("- ")] + nodes)
    write("job.yaml", GANG)

    assert GANG_OVER_NODES in linkwise("check", "job.yaml", "--cluster", "cluster.yaml").out


def test_local_json_equals_the_json_of_a_server(check):
    (whole,) = json.loads(check(WHOLE, "-o", "json").out)["items"]
    (denied,) = json.loads(check("aliyun.com/gpu: 0", "-o", "json").out)["items"]

    assert whole["placement"]["fits"] is True
    assert whole["placement"]["pods"] == [
        {"name": "serve-0", "node": "dgx-0", "gpus": [1, 2], "count": None}
    ]
    assert whole["placement"]["nodes"][0]["free_after"] == 4
    assert denied["placement"] is None


def test_without_a_cluster_placement_is_not_reported(check, linkwise):
    check(WHOLE)

    (entry,) = json.loads(linkwise("check", "job.yaml", "-o", "json").out)["items"]

    assert entry["placement"] is None


def test_too_many_pods_are_not_placed_and_noted(check):
    code, out, err = check(WHOLE, replicas=10**9)

    assert (code, "fit" in out) == (0, False)
    assert f"of more than {MAX_PODS} pods, ask linkwise simulate" in err
    assert check(WHOLE, "--strict", replicas=10**9).code == 0


@pytest.mark.parametrize(
    ("limits", "reply"),
    [("aliyun.com/gpu: 8", "does not fit now"), ("aliyun.com/gpu: 9", "never fits")],
)
@pytest.mark.parametrize("arguments", [(), ("--strict",), ("-o", "junit"), ("-o", "github")])
def test_pods_that_do_not_fit_are_a_failure(check, limits, reply, arguments):
    code, out, _ = check(limits, *arguments)

    assert code == 1
    assert reply in out


def test_pods_that_do_not_fit_are_results_of_sarif(check):
    code, out, _ = check("aliyun.com/gpu: 8", "-o", "sarif")

    (result,) = json.loads(out)["runs"][0]["results"]
    assert (code, result["level"]) == (1, "error")
    assert result["message"]["text"].startswith("Deployment default/serve: does not fit now: ")
    (location,) = result["locations"]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == "job.yaml"


@pytest.mark.parametrize(
    ("priority", "line"),
    [
        pytest.param("priority: 9", "  would preempt pod team-b/low\n", id="higher"),
        pytest.param("priority: 0", "", id="equal"),
    ],
)
def test_check_names_what_would_be_preempted(linkwise, write, priority, line):
    low = placed_pod("low", {"aliyun.com/gpu": 8}, "dgx-0", *map(GPUShare, range(8)))
    owner = {"kind": "ReplicaSet", "name": "low", "uid": "low", "controller": True}
    low["metadata"] |= {"namespace": "team-b", "uid": "low-0", "ownerReferences": [owner]}
    kind = "apiVersion: linkwise.dev/v1alpha1\nkind: Cluster\n"
    node = "nodes: [{name: dgx-0, machine: dgx1-v100, mode: topology}]\n"
    write("cluster.yaml", f"{kind}{node}---\n{json.dumps(low)}")
    limits = DEPLOYMENT.replace("REPLICAS", "1").replace("LIMITS", "aliyun.com/gpu: 8")
    write("job.yaml", limits.replace("{spec: {", f"{{spec: {{{priority}, "))

    ran = linkwise("check", "job.yaml", "--cluster", "cluster.yaml")

    assert "  does not fit now\n" in ran.out
    assert ("would preempt" in ran.out) == bool(line)
    assert line in ran.out


TWO_NODES = """\
apiVersion: linkwise.dev/v1alpha1
kind: Cluster
nodes:
- {name: a, machine: dgx1-v100, mode: topology}
- {name: b, machine: dgx1-v100, mode: topology}
"""
POD = "{spec: {containers: [{name: w, resources: {limits: {aliyun.com/gpu: 8}}}]}}"
JOB = f"{{parallelism: 1, completions: 1, template: {POD}}}"
ELASTIC = f"""\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: el}}
spec:
  elasticPolicy: {{minReplicas: 2, maxReplicas: 8}}
  pytorchReplicaSpecs: {{Worker: {{replicas: 4, template: {POD}}}}}
"""
AUTOSCALED = f"""\
apiVersion: ray.io/v1
kind: RayCluster
metadata: {{name: ray}}
spec:
  enableInTreeAutoscaling: true
  headGroupSpec: {{template: {{spec: {{containers: [{{name: h}}]}}}}}}
  workerGroupSpecs:
  - {{groupName: g, replicas: 3, minReplicas: 0, maxReplicas: 10, template: {POD}}}
"""
IN_ORDER = f"""\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: js}}
spec:
  startupPolicy: {{startupPolicyOrder: InOrder}}
  replicatedJobs:
  - {{name: a, replicas: 2, template: {{spec: {JOB}}}}}
  - {{name: b, replicas: 2, template: {{spec: {JOB}}}}}
"""
GROUPS = f"""\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: vllm}}
spec:
  replicas: 2
  leaderWorkerTemplate: {{size: 2, workerTemplate: {POD}}}
"""


@pytest.mark.parametrize(
    ("job", "waiting"),
    [
        pytest.param(ELASTIC, 2, id="elastic"),
        pytest.param(AUTOSCALED, 1, id="autoscaled"),
        pytest.param(IN_ORDER, 2, id="in order"),
        pytest.param(GROUPS, 2, id="groups"),
    ],
)
def test_a_job_of_which_a_part_starts_never_never_fits(linkwise, write, job, waiting):
    write("cluster.yaml", TWO_NODES)
    write("job.yaml", job)
    arguments = "job.yaml", "--cluster", "cluster.yaml", "-o", "json"

    checked = json.loads(linkwise("check", *arguments).out)
    simulated = json.loads(linkwise("simulate", *arguments).out)

    fits = [item["placement"] for item in checked["items"] if item["placement"]]
    placed = [pod["node"] for fit in fits for pod in fit["pods"]]
    assert sorted(filter(None, placed)) == ["a", "b"]
    assert placed.count(None) == waiting
    assert not any(fit["never"] for fit in fits)
    assert [gang["placed"] for gang in simulated["gangs"]] == [True, False]
    assert not any(gang["never"] for gang in simulated["gangs"])
