import pytest

CLUSTER = """
apiVersion: linkwise.dev/v1alpha1
kind: Cluster
nodes:
  - {name: gpu, count: 120, machine: dgx1-v100, mode: topology, cpu: 96, memory: 768Gi}
"""
PODS = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 130
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: x, resources: {limits: {aliyun.com/gpu: 8}}}]}
"""
GANG = """
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  parallelism: 100
  completions: 100
  completionMode: Indexed
  template:
    metadata: {annotations: {linkwise.dev/gang: train, linkwise.dev/gang-size: "100"}}
    spec:
      restartPolicy: Never
      containers: [{name: c, image: x, resources: {limits: {aliyun.com/gpu: 8}}}]
"""


@pytest.fixture
def simulated(linkwise, write):
    def run(manifest: str, *options: str) -> list[str]:
        write("cluster.yaml", CLUSTER)
        write("job.yaml", manifest)
        return linkwise(
            "simulate", "job.yaml", "--cluster", "cluster.yaml", *options
        ).out.splitlines()

    return run


def test_many_pods_are_cut_and_counted(simulated):
    lines = simulated(PODS)

    assert sum(line.startswith("placed pod") for line in lines) == 50
    assert "… 70 more (-o wide)" in lines
    assert sum(line.startswith("waits pod") for line in lines) == 10
    assert lines[-1] == "130 pods: 120 placed, 10 waiting"


def test_more_pods_than_any_cluster_has_are_refused(linkwise, write):
    write("cluster.yaml", CLUSTER)
    write("job.yaml", PODS.replace("replicas: 130", "replicas: 1000000000"))

    answer = linkwise("simulate", "job.yaml", "--cluster", "cluster.yaml")

    assert answer.code == 2
    assert answer.err == (
        "linkwise: job.yaml:2: 1000000000 pods: simulate creates at most 100000 at once.\n"
    )


def test_node_table_is_cut_to_nodes_with_placed_pods(simulated):
    lines = simulated(PODS.replace("replicas: 130", "replicas: 1"))

    assert sum(line.startswith("gpu-") for line in lines) == 50
    assert "… 70 more (-o wide)" in lines
    assert [line for line in lines if line.endswith("0 of 8 GPUs")]


def test_a_gang_over_many_nodes_has_short_lines(simulated):
    lines = simulated(GANG)

    assert lines[0].startswith("placed gang default/train on gpu-")
    assert lines[0].endswith("and 92 more")
    assert max(map(len, lines)) <= 200
    assert sum(line.startswith("  train-") for line in lines) == 50


def test_wide_shows_all(simulated):
    lines = simulated(GANG, "-o", "wide")

    assert "more" not in lines[0]
    assert sum(line.startswith("  train-") for line in lines) == 100
    assert sum(line.startswith("gpu-") for line in lines) == 120
    assert not [line for line in lines if "-o wide" in line]


@pytest.mark.parametrize(("output", "nodes"), [("table", 50), ("wide", 120)])
def test_inspect_cuts_nodes_unless_it_is_wide(linkwise, write, output, nodes):
    write("cluster.yaml", CLUSTER)

    lines = linkwise("inspect", "--cluster", "cluster.yaml", "-o", output).out.splitlines()

    assert sum(line.startswith("gpu-") for line in lines) == nodes
    assert ("… 70 more (-o wide)" in lines) is (output == "table")
    assert lines[-1].startswith("120 nodes with 960 GPUs")
