import textwrap

import pytest

from linkwise.cluster import keys
from linkwise.manifest.objects import objects_in
from linkwise.manifest.workload import expanded
from linkwise.workloads import operator_keys

GPUS = "resources: {limits: {aliyun.com/gpu: 4}}"
STEP = f"metadata: {{labels: {{{operator_keys.TRAIN_JOB_STEP}: "


def a_job(trainer="{}", ref="{name: torch}"):
    return textwrap.dedent(f"""
        apiVersion: trainer.kubeflow.org/v1alpha1
        kind: TrainJob
        metadata: {{name: bert, namespace: team}}
        spec:
          runtimeRef: {ref}
          trainer: {trainer}
        """)


def replicated(name, step, container, *, count="", resources=GPUS):
    labels = f"{STEP}{step}}}}}, " if step else ""
    containers = f"[{{name: {container}, {resources}}}, {{name: log}}]"
    template = f"template: {{spec: {{containers: {containers}}}}}"
    return f"{{name: {name}, template: {{{labels}spec: {{{count}{template}}}}}}}"


def a_runtime(*jobs, policy="{}", kind="ClusterTrainingRuntime", home="", name="torch"):
    return textwrap.dedent(f"""
        apiVersion: trainer.kubeflow.org/v1alpha1
        kind: {kind}
        metadata: {{name: {name}, {home}}}
        spec:
          mlPolicy: {policy}
          template: {{spec: {{replicatedJobs: [{", ".join(jobs)}]}}}}
        """)


NODE = replicated("node", "trainer", "node", resources="image: torch")
DATA = replicated("data", "dataset-initializer", "dataset-initializer", resources="image: data")


def read(*texts):
    return expanded(objects_in("---".join(texts), "job.yaml"), "default")


def limits(template):
    return template.pod()["spec"]["containers"][0].get("resources", {}).get("limits")


@pytest.mark.parametrize(
    ("trainer", "nodes", "members", "unknown"),
    [
        pytest.param(
            f"{{numNodes: 3, resourcesPerNode: {{limits: {{{keys.GPU_WHOLE}: 8}}}}}}",
            *(3, 3, "labels and other containers"),
            id="nodes and GPUs",
        ),
        pytest.param("{numNodes: 3}", 3, 0, "GPUs, labels and other containers", id="nodes"),
        pytest.param("{}", 1, 0, "number, GPUs, labels and other containers", id="nothing"),
    ],
)
def test_a_warning_names_what_the_missing_runtime_has(trainer, nodes, members, unknown):
    found = read(a_job(trainer))

    (template,) = found.templates
    assert (template.replicas, template.workload.members) == (nodes, members)
    assert found.warnings == (
        f"job.yaml:7: ClusterTrainingRuntime torch is not in the files, so {unknown} of these pods"
        " are unknown.",
    )
    assert (found.unjudged, found.invalid) == ((), ())


def test_pods_belong_to_the_train_job_through_a_job_set():
    (template,) = read(a_job("{numNodes: 2}")).templates

    assert [(owner.kind, owner.name) for owner in template.owners] == [
        ("Job", "bert-node"),
        ("JobSet", "bert"),
        ("TrainJob", "bert"),
    ]
    assert template.stamp(1).name == "bert-node-0-1"
    assert template.stamp(1).labels[operator_keys.JOBSET_NAME] == "bert"


@pytest.mark.parametrize(
    ("trainer", "policy", "node", "nodes", "gpus"),
    [
        pytest.param("{}", "{}", GPUS, 1, 4, id="all by default"),
        pytest.param("{}", "{numNodes: 3}", GPUS, 3, 4, id="all of the runtime"),
        pytest.param("{numNodes: 2}", "{numNodes: 3}", GPUS, 2, 4, id="its own number"),
        pytest.param(
            f"{{resourcesPerNode: {{limits: {{{keys.GPU_WHOLE}: 8}}}}}}",
            *("{}", GPUS, 1, 8),
            id="its own GPUs",
        ),
        pytest.param(
            f"{{numNodes: 2, resourcesPerNode: {{limits: {{{keys.GPU_WHOLE}: 8}}}}}}",
            *("{}", "image: torch", 2, 8),
            id="a runtime without GPUs",
        ),
    ],
)
def test_nodes_are_those_of_the_runtime_unless_it_has_its_own(trainer, policy, node, nodes, gpus):
    node = replicated("node", "trainer", "node", count="parallelism: 5, ", resources=node)

    found = read(a_job(trainer), a_runtime(DATA, node, policy=policy))

    data, trained = found.templates
    assert (data.role, data.replicas, limits(data)) == ("data", 1, None)
    assert (trained.role, trained.replicas) == ("node", nodes)
    assert limits(trained) == {keys.GPU_WHOLE: gpus}
    assert [one["name"] for one in trained.pod()["spec"]["containers"]] == ["node", "log"]
    assert trained.workload.members == nodes
    assert found.warnings == found.invalid == ()


@pytest.mark.parametrize(
    ("works", "nodes", "members"), [("false", 3, 3), ("true", 2, 3)], ids=["only starts", "works"]
)
def test_a_launcher_of_mpi_may_be_one_of_the_nodes(works, nodes, members):
    launcher = replicated("launcher", "trainer", "launcher", resources="image: mpi")
    node = replicated("node", None, "node", resources="image: mpi")
    trainer = f"{{numNodes: 3, resourcesPerNode: {{limits: {{{keys.GPU_WHOLE}: 8}}}}}}"
    policy = f"{{mpi: {{runLauncherAsNode: {works}}}}}"

    first, second = read(a_job(trainer), a_runtime(launcher, node, policy=policy)).templates

    assert (first.replicas, second.replicas) == (1, nodes)
    assert first.workload.members == members


@pytest.mark.parametrize(
    ("ref", "runtime", "is_found"),
    [
        pytest.param("{name: torch}", a_runtime(NODE), True, id="of the cluster"),
        pytest.param("{name: torch}", a_runtime(NODE, name="jax"), False, id="of another name"),
        pytest.param(
            "{name: torch, kind: TrainingRuntime}", a_runtime(NODE), False, id="of another kind"
        ),
        pytest.param(
            "{name: torch, kind: TrainingRuntime}",
            a_runtime(NODE, kind="TrainingRuntime", home="namespace: team"),
            *(True,),
            id="of its namespace",
        ),
        pytest.param(
            "{name: torch, kind: TrainingRuntime}",
            a_runtime(NODE, kind="TrainingRuntime", home="namespace: other"),
            *(False,),
            id="of another namespace",
        ),
        pytest.param(
            "{name: torch, apiGroup: example.org}", a_runtime(NODE), False, id="of another group"
        ),
    ],
)
def test_the_runtime_is_found_by_its_reference(ref, runtime, is_found):
    found = read(a_job(ref=ref), runtime)

    assert bool(found.warnings) is not is_found
    assert len(found.templates) == 1


@pytest.mark.parametrize("field", ["runtimePatches", "podTemplateOverrides"])
def test_a_warning_names_patches_that_are_not_applied(field):
    job = f"{a_job()}  {field}: [{{}}]\n"

    (warning,) = read(job, a_runtime(NODE)).warnings

    assert "patches of TrainJob bert may change these pods" in warning


def test_a_runtime_makes_no_pods():
    assert read(a_runtime(NODE)) == ((), (), (), ())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param(a_job(ref="{}"), "6: spec.runtimeRef.name is missing", id="no runtime"),
        pytest.param(
            a_job("{numNodes: -1}"), "7: spec.trainer.numNodes must be a whole number", id="nodes"
        ),
        pytest.param(
            a_job("{resourcesPerNode: {limits: 8}}"),
            "7: spec.trainer.resourcesPerNode.limits: expected",
            id="resources",
        ),
    ],
)
def test_what_the_api_rejects_is_refused_with_its_line(text, complaint):
    (problem,) = read(text).invalid

    assert problem.startswith(f"job.yaml:{complaint}")
