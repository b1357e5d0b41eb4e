import textwrap

import pytest

from linkwise.manifest.guessed import TEMPLATES_MAX
from linkwise.manifest.objects import objects_in
from linkwise.manifest.value import InputError
from linkwise.manifest.workload import expanded, may_make_pods, templates_of

CONTAINER = "{name: main, resources: {limits: {aliyun.com/gpu: 1}}}"
TEMPLATE = f"template: {{metadata: {{labels: {{app: x}}}}, spec: {{containers: [{CONTAINER}]}}}}"


@pytest.fixture
def expand():
    def expand_text(text, namespace="default"):
        (document,) = objects_in(textwrap.dedent(text), "job.yaml")
        return templates_of(document, namespace)

    return expand_text


def a_workload(kind, spec, *, api_version="apps/v1", metadata="name: job"):
    return f"apiVersion: {api_version}\nkind: {kind}\nmetadata: {{{metadata}}}\nspec: {spec}\n"


def an_mpi_job(version, spec):
    return a_workload("MPIJob", spec, api_version=f"kubeflow.org/{version}")


def two_roles(extra=""):
    launcher = "{template: {spec: {containers: [{name: l}]}}}"
    worker = f"{{replicas: 3, {TEMPLATE}}}"
    return f"{{{extra} mpiReplicaSpecs: {{Launcher: {launcher}, Worker: {worker}}}}}"


def pods_of(template):
    return [template.pod(i) for i in range(template.replicas)]


def names_of(template):
    return [pod["metadata"]["name"] for pod in pods_of(template)]


def owner_of(template):
    (owner,) = template.pod()["metadata"]["ownerReferences"]
    return owner["apiVersion"], owner["kind"], owner["name"]


def test_a_pod_is_its_own_template(expand):
    (template,) = expand(
        "apiVersion: v1\nkind: Pod\n"
        "metadata: {name: a, uid: u, annotations: {k: v}}\n"
        "spec: {nodeName: , containers: [{name: c, command: , env: [{name: X, value: }]}]}\n"
    )

    assert (template.workload.kind, template.workload.name) == ("Pod", "a")
    assert (template.role, template.replicas, template.owners) == (None, 1, ())
    assert template.pod() == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "uid": "u", "namespace": "default", "annotations": {"k": "v"}},
        "spec": {"containers": [{"name": "c", "env": [{"name": "X"}]}]},
    }


@pytest.mark.parametrize(
    ("kind", "api_version", "owner"),
    [
        ("Deployment", "apps/v1", ("apps/v1", "ReplicaSet", "job")),
        ("ReplicaSet", "apps/v1", ("apps/v1", "ReplicaSet", "job")),
        ("StatefulSet", "apps/v1", ("apps/v1", "StatefulSet", "job")),
        ("DaemonSet", "apps/v1", ("apps/v1", "DaemonSet", "job")),
        ("Job", "batch/v1", ("batch/v1", "Job", "job")),
    ],
)
def test_a_workload_of_kubernetes_owns_one_kind_of_pods(expand, kind, api_version, owner):
    (template,) = expand(a_workload(kind, f"{{{TEMPLATE}}}", api_version=api_version), "team")

    assert names_of(template) == ["job-0"]
    assert owner_of(template) == owner
    assert template.role is None
    assert template.pod()["metadata"]["namespace"] == "team"
    assert template.pod()["metadata"]["labels"]["app"] == "x"
    assert template.owners[-1].kind == kind


def test_a_namespace_in_the_manifest_wins(expand):
    text = a_workload("Deployment", f"{{{TEMPLATE}}}", metadata="name: job, namespace: own")
    (template,) = expand(text, "team")

    assert template.namespace == "own"


def test_replicas_are_counted(expand):
    (template,) = expand(a_workload("Deployment", f"{{replicas: 3, {TEMPLATE}}}"))

    assert names_of(template) == ["job-0", "job-1", "job-2"]


def test_a_stateful_sets_pods_know_their_name_and_index(expand):
    (template,) = expand(a_workload("StatefulSet", f"{{replicas: 2, {TEMPLATE}}}"))

    labels = template.pod(1)["metadata"]["labels"]
    assert labels["statefulset.kubernetes.io/pod-name"] == "job-1"
    assert labels["apps.kubernetes.io/pod-index"] == "1"


@pytest.mark.parametrize(
    ("policy", "ordered"),
    [
        ("", True),
        ("podManagementPolicy: OrderedReady,", True),
        ("podManagementPolicy: Parallel,", False),
    ],
)
def test_a_stateful_set_is_ordered_unless_it_is_parallel(expand, policy, ordered):
    (template,) = expand(a_workload("StatefulSet", f"{{{policy} {TEMPLATE}}}"))

    assert bool(template.workload.ordered) is ordered


@pytest.mark.parametrize(
    ("spec", "rolled_out"),
    [
        ("replicas: 4,", 2),
        ("replicas: 2,", 1),
        ("replicas: 0,", None),
        ("", 1),
        ("replicas: 4, strategy: {type: Recreate},", None),
        ("replicas: 4, strategy: {rollingUpdate: {maxSurge: 100%, maxUnavailable: 0}},", 4),
        ("replicas: 4, strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 3}},", 3),
        ("replicas: 4, strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 9}},", 4),
        ("replicas: 3, strategy: {rollingUpdate: {maxSurge: 50%, maxUnavailable: 50%}},", 3),
        ("replicas: 4, strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 10%}},", 1),
        ("replicas: 4, strategy: {rollingUpdate: {maxSurge: x, maxUnavailable: 0}},", 1),
    ],
)
def test_a_deployment_makes_a_part_of_a_new_revision_at_once(expand, spec, rolled_out):
    (template,) = expand(a_workload("Deployment", f"{{{spec} {TEMPLATE}}}"))

    assert template.workload.rolled_out == rolled_out


def test_a_daemon_set_stands_for_all_its_nodes(expand):
    (template,) = expand(a_workload("DaemonSet", f"{{{TEMPLATE}}}"))

    assert "a pod for each node" in template.note


def a_job(spec):
    return a_workload("Job", f"{{{spec} {TEMPLATE}}}", api_version="batch/v1")


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ("", 1),
        ("parallelism: 4,", 4),
        ("parallelism: 4, completions: 2,", 2),
        ("parallelism: 2, completions: 8,", 2),
        ("suspend: true, parallelism: 2,", 2),
        ("parallelism: 0,", 0),
    ],
)
def test_a_job_makes_as_many_pods_as_run_at_once(expand, spec, count):
    (template,) = expand(a_job(spec))

    assert template.replicas == count
    assert template.workload.members == count


def test_a_jobs_pods_carry_its_name(expand):
    labels = expand(a_job(""))[0].pod()["metadata"]["labels"]

    assert labels == {"app": "x", "batch.kubernetes.io/job-name": "job", "job-name": "job"}


def test_an_indexed_job_numbers_its_pods(expand):
    (template,) = expand(a_job("completionMode: Indexed, parallelism: 2, completions: 2,"))

    metadata = template.pod(1)["metadata"]
    assert metadata["labels"]["batch.kubernetes.io/job-completion-index"] == "1"
    assert metadata["annotations"] == {"batch.kubernetes.io/job-completion-index": "1"}


DISRUPTION = "onPodConditions: [{type: DisruptionTarget}]"


@pytest.mark.parametrize(
    ("rule", "fails"),
    [
        pytest.param(None, True, id="no policy"),
        pytest.param(f"action: Ignore, {DISRUPTION}", False, id="ignored"),
        pytest.param(f"action: Count, {DISRUPTION}", True, id="counted"),
        pytest.param("action: Ignore, onExitCodes: {values: [1]}", True, id="about exit codes"),
    ],
)
def test_a_job_fails_when_evicted_unless_its_policy_ignores_it(expand, rule, fails):
    policy = f"podFailurePolicy: {{rules: [{{{rule}}}]}}," if rule else ""

    (template,) = expand(a_job(policy))

    assert template.workload.fails_when_evicted is fails


def test_a_pytorch_job_has_a_master_and_workers(expand):
    spec = (
        f"{{pytorchReplicaSpecs: {{Master: {{{TEMPLATE}}}, Worker: {{replicas: 2, {TEMPLATE}}}}}}}"
    )
    master, worker = expand(a_workload("PyTorchJob", spec, api_version="kubeflow.org/v1"))

    assert (master.role, worker.role) == ("master", "worker")
    assert names_of(master) == ["job-master-0"]
    assert names_of(worker) == ["job-worker-0", "job-worker-1"]
    assert master.pod()["metadata"]["labels"] == {
        "app": "x",
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/job-name": "job",
        "training.kubeflow.org/replica-type": "master",
        "training.kubeflow.org/job-role": "master",
        "training.kubeflow.org/replica-index": "0",
    }
    assert worker.pod(1)["metadata"]["labels"]["training.kubeflow.org/replica-index"] == "1"
    assert owner_of(worker) == ("kubeflow.org/v1", "PyTorchJob", "job")
    assert master.workload.members == worker.workload.members == 3


def test_an_mpi_job_of_training_operator_has_bare_pods(expand):
    launcher, worker = expand(an_mpi_job("v1", two_roles()))

    assert names_of(launcher) == ["job-launcher"]
    assert names_of(worker) == ["job-worker-0", "job-worker-1", "job-worker-2"]
    assert launcher.pod()["metadata"]["labels"] == {
        "training.kubeflow.org/operator-name": "mpijob-controller",
        "training.kubeflow.org/job-name": "job",
        "training.kubeflow.org/replica-type": "launcher",
    }
    assert worker.pod(2)["metadata"]["labels"]["training.kubeflow.org/replica-index"] == "2"
    assert owner_of(launcher) == owner_of(worker) == ("kubeflow.org/v1", "MPIJob", "job")
    assert worker.workload.members == 3


def test_an_mpi_job_of_mpi_operator_has_a_launcher_job(expand):
    launcher, worker = expand(an_mpi_job("v2beta1", two_roles()))

    assert names_of(launcher) == ["job-launcher"]
    assert owner_of(launcher) == ("batch/v1", "Job", "job-launcher")
    assert [owner.kind for owner in launcher.owners] == ["Job", "MPIJob"]
    assert launcher.owners[-1].uid == worker.owners[-1].uid
    assert launcher.pod()["metadata"]["labels"] == {
        "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/job-name": "job",
        "training.kubeflow.org/job-role": "launcher",
        "batch.kubernetes.io/job-name": "job-launcher",
        "job-name": "job-launcher",
    }
    labels = worker.pod(1)["metadata"]["labels"]
    assert labels["training.kubeflow.org/job-role"] == "worker"
    assert labels["training.kubeflow.org/replica-index"] == "1"


def test_a_launcher_without_gpus_is_shown_none(expand):
    for version in ("v1", "v2beta1"):
        launcher, worker = expand(an_mpi_job(version, two_roles()))

        (container,) = launcher.pod()["spec"]["containers"]
        assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": ""} in container["env"]
        assert "env" not in worker.pod()["spec"]["containers"][0]


def test_a_launcher_that_works_is_the_first_member(expand):
    spec = f"""{{runLauncherAsWorker: true, mpiReplicaSpecs: {{
        Launcher: {{{TEMPLATE}}}, Worker: {{replicas: 2, {TEMPLATE}}}}}}}"""
    launcher, worker = expand(an_mpi_job("v2beta1", spec))

    index = "training.kubeflow.org/replica-index"
    assert launcher.pod()["metadata"]["labels"][index] == "0"
    assert [pod["metadata"]["labels"][index] for pod in pods_of(worker)] == ["1", "2"]
    assert names_of(worker) == ["job-worker-0", "job-worker-1"]
    assert "env" not in launcher.pod()["spec"]["containers"][0]
    assert launcher.workload.members == 3


def test_training_operator_shows_gpus_to_a_launcher_that_asks_for_some(expand):
    gpus = "{name: l, resources: {limits: {nvidia.com/gpu: 1}}}"
    spec = f"{{mpiReplicaSpecs: {{Launcher: {{template: {{spec: {{containers: [{gpus}]}}}}}}}}}}"
    (launcher,) = expand(an_mpi_job("v1", spec))

    assert launcher.pod()["spec"]["containers"] == [
        {"name": "l", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    ]


def test_arenas_mpi_job_has_one_template_for_launcher_and_workers(expand):
    launcher, worker = expand(an_mpi_job("v1alpha1", f"{{replicas: 4, {TEMPLATE}}}"))

    assert names_of(launcher) == ["job-launcher"]
    assert names_of(worker) == [f"job-worker-{i}" for i in range(4)]
    assert launcher.pod()["spec"]["containers"] == [{"name": "main"}]
    assert worker.pod()["spec"]["containers"][0]["resources"]["limits"] == {"aliyun.com/gpu": 1}
    assert owner_of(launcher) == ("batch/v1", "Job", "job-launcher")
    assert owner_of(worker) == ("apps/v1", "StatefulSet", "job-worker")
    own = {"app": "x", "group_name": "kubeflow.org", "mpi_job_name": "job"}
    assert (
        launcher.pod()["metadata"]["labels"].items()
        >= (own | {"mpi_role_type": "launcher"}).items()
    )
    assert worker.pod(3)["metadata"]["labels"] == {
        **own,
        "mpi_role_type": "worker",
        "statefulset.kubernetes.io/pod-name": "job-worker-3",
        "apps.kubernetes.io/pod-index": "3",
    }
    assert worker.workload.members == 4
    assert not worker.workload.ordered


def test_jobs_made_from_one_generated_name_stay_two():
    one = a_job("").replace("name: job", "generateName: train-")
    first, second = objects_in(f"{one}---\n{one}", "jobs.yaml")
    (a,), (b,) = templates_of(first, "default"), templates_of(second, "default")

    assert a.workload.name == b.workload.name == "train-xxxxx"
    assert a.owners[0].uid != b.owners[0].uid


def test_a_uid_that_is_known_is_kept(expand):
    text = a_workload("Deployment", f"{{{TEMPLATE}}}", metadata="name: job, uid: abc")

    assert expand(text)[0].owners[-1].uid == "abc"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param(
            a_workload("Deployment", "{replicas: 2}"), "4: spec.template is missing", id="template"
        ),
        pytest.param(
            a_workload("Deployment", "{template: {}}"),
            "4: spec.template.spec is missing",
            id="spec",
        ),
        pytest.param(
            a_workload("Job", "[]", api_version="batch/v1"), "4: spec must be a map", id="list"
        ),
        pytest.param(
            a_workload("Deployment", f"{{replicas: two, {TEMPLATE}}}"),
            "4: spec.replicas must be a whole number",
            id="replicas",
        ),
        pytest.param(
            a_workload("Deployment", f"{{{TEMPLATE}}}", metadata=""),
            "3: metadata.name is missing",
            id="name",
        ),
        pytest.param(
            an_mpi_job("v1alpha1", f"{{{TEMPLATE}}}"), "4: spec.replicas is missing", id="arena"
        ),
        pytest.param(
            an_mpi_job("v2beta1", "{}"), "4: spec.mpiReplicaSpecs is missing", id="no roles"
        ),
        pytest.param(
            an_mpi_job("v1", "{mpiReplicaSpecs: {Worker: {}}}"),
            "4: spec.mpiReplicaSpecs.Launcher is missing",
            id="no launcher",
        ),
        pytest.param(
            an_mpi_job("v2beta1", two_roles("runLauncherAsWorker: 1,")),
            "4: spec.runLauncherAsWorker must be true or false",
            id="no truth",
        ),
        pytest.param(
            a_workload("PyTorchJob", "{pytorchReplicaSpecs: {}}", api_version="kubeflow.org/v1"),
            "4: spec.pytorchReplicaSpecs.Worker is missing",
            id="neither",
        ),
        pytest.param(
            a_job("").replace("app: x", "app: 1"),
            "4: spec.template.metadata.labels.app must be text; write it in quotes",
            id="a label that is a number",
        ),
        pytest.param(
            a_job("").replace("[{name: main", "{name: main").replace("}}]", "}}"),
            "4: spec.template.spec.containers: expected `array`, got `object`",
            id="containers that are no list",
        ),
    ],
)
def test_what_no_api_would_take_is_refused_with_its_line(expand, text, complaint):
    def make_pods():
        return [template.read(template.pod()) for template in expand(text)]

    with pytest.raises(InputError) as refused:
        make_pods()

    assert str(refused.value).partition("job.yaml:")[2].startswith(complaint)


@pytest.mark.parametrize(
    ("api_version", "kind", "may"),
    [
        ("v1", "ConfigMap", False),
        ("rbac.authorization.k8s.io/v1", "Role", False),
        ("apps/v1", "ControllerRevision", False),
        ("linkwise.dev/v1alpha1", "Policy", False),
        ("v1", "PodTemplate", False),
        ("example.org/v1", "Trainer", True),
        ("kubeflow.org/v1alpha2", "MPIJob", True),
    ],
)
def test_kinds_that_may_hide_pods_are_recognized(api_version, kind, may):
    text = f"apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: a}}\n"
    (document,) = objects_in(text, "a.yaml")

    assert templates_of(document, "default") is None
    assert may_make_pods(document) is may


# ---- Kinds of other operators, and CronJob.


def test_a_cron_job_stands_for_one_of_its_runs(expand):
    spec = f"{{schedule: '@daily', jobTemplate: {{spec: {{parallelism: 2, {TEMPLATE}}}}}}}"
    (template,) = expand(a_workload("CronJob", spec, api_version="batch/v1"))

    assert names_of(template) == ["job-xxxxx-0", "job-xxxxx-1"]
    assert owner_of(template) == ("batch/v1", "Job", "job-xxxxx")
    assert (template.workload.kind, template.workload.members) == ("CronJob", 2)
    assert template.workload.fails_when_evicted
    assert "one run" in template.note


def test_a_tf_job_has_the_roles_that_it_names(expand):
    roles = f"{{PS: {{{TEMPLATE}}}, Worker: {{replicas: 2, {TEMPLATE}}}}}"
    spec = f"{{tfReplicaSpecs: {roles}}}"
    servers, workers = expand(a_workload("TFJob", spec, api_version="kubeflow.org/v1"))

    assert (names_of(servers), names_of(workers)) == (
        ["job-ps-0"],
        ["job-worker-0", "job-worker-1"],
    )
    assert workers.pod(1)["metadata"]["labels"]["training.kubeflow.org/replica-index"] == "1"
    assert owner_of(workers)[1] == "TFJob"
    assert workers.workload.members == 3


RAY = (
    "{headGroupSpec: {template: {spec: {containers: [{name: h}]}}}, workerGroupSpecs: ["
    f"{{groupName: big, replicas: 2, numOfHosts: 2, {TEMPLATE}}},"
    f"{{groupName: idle, replicas: 2, suspend: true, {TEMPLATE}}}]}}"
)


@pytest.mark.parametrize(
    ("kind", "spec", "owners", "name"),
    [
        ("RayCluster", RAY, ["RayCluster"], "job"),
        ("RayJob", f"{{rayClusterSpec: {RAY}}}", ["RayCluster", "RayJob"], "job-xxxxx"),
        ("RayService", f"{{rayClusterConfig: {RAY}}}", ["RayCluster", "RayService"], "job-xxxxx"),
    ],
)
def test_the_pods_of_ray_belong_to_a_ray_cluster(expand, kind, spec, owners, name):
    head, workers, suspended = expand(a_workload(kind, spec, api_version="ray.io/v1"))

    assert (head.role, workers.role) == ("headgroup", "big")
    assert (head.replicas, workers.replicas, suspended.replicas) == (1, 4, 0)
    assert names_of(workers)[3] == f"{name}-big-worker-3"
    assert workers.pod()["metadata"]["labels"]["ray.io/cluster"] == name
    assert [owner.kind for owner in workers.owners] == owners
    assert workers.workload.members == 4


def test_a_ray_job_may_have_a_template_of_the_pod_that_submits_it(expand):
    spec = f"{{submitterPodTemplate: {{spec: {{containers: [{CONTAINER}]}}}}}}"
    (submitter,) = expand(a_workload("RayJob", spec, api_version="ray.io/v1"))

    assert (submitter.role, owner_of(submitter)) == ("submitter", ("batch/v1", "Job", "job"))


def a_volcano_job(spec, *tasks):
    spec = f"{{{spec} tasks: [{', '.join(f'{{{task}, {TEMPLATE}}}' for task in tasks)}]}}"
    return a_workload("Job", spec, api_version="batch.volcano.sh/v1alpha1")


@pytest.mark.parametrize(
    ("spec", "scheduler", "members"),
    [
        ("", "volcano", 3),
        ("schedulerName: default-scheduler,", "default-scheduler", 3),
        ("minAvailable: 2,", "volcano", 2),
        ("minAvailable: 9,", "volcano", 3),
    ],
)
def test_the_pods_of_a_volcano_job_have_its_scheduler(expand, spec, scheduler, members):
    master, workers = expand(a_volcano_job(spec, "name: master", "name: worker, replicas: 2"))

    assert names_of(workers) == ["job-worker-0", "job-worker-1"]
    assert master.pod()["spec"]["schedulerName"] == scheduler
    assert owner_of(master) == ("batch.volcano.sh/v1alpha1", "Job", "job")
    assert (master.workload.members, master.workload.ordered) == (members, None)


def test_a_volcano_job_whose_tasks_wait_for_others_is_ordered(expand):
    text = a_volcano_job("", "name: a", "name: b, dependsOn: {name: [a]}")

    assert all(template.workload.ordered for template in expand(text))


@pytest.mark.parametrize(
    ("launcher", "members"),
    [
        pytest.param("{aliyun.com/gpu: 2}", 4, id="works-too"),
        pytest.param("{aliyun.com/gpu: 1}", 4, id="asks-for-less"),
        pytest.param("{cpu: 1}", 3, id="without-gpus"),
        pytest.param("{aliyun.com/gpu: 8}", 3, id="asks-for-more"),
        pytest.param("{nvidia.com/gpu: 2}", 3, id="asks-for-something-else"),
    ],
)
def test_an_mpi_launcher_that_waits_for_its_workers_is_planned_with_them(expand, launcher, members):
    def template(limits):
        container = f"{{name: mpi, image: bert, resources: {{limits: {limits}}}}}"
        return f"template: {{spec: {{containers: [{container}]}}}}"

    worker = f"{{replicas: 3, {template('{aliyun.com/gpu: 2}')}}}"
    roles = f"mpiReplicaSpecs: {{Launcher: {{{template(launcher)}}}, Worker: {worker}}}"
    waits = "launcherCreationPolicy: WaitForWorkersReady"

    job = expand(an_mpi_job("v2beta1", f"{{{waits}, {roles}}}"))

    assert {part.workload.members for part in job} == {members}


def guessed(spec, kind="Trainer"):
    text = a_workload(kind, spec, api_version="example.org/v1")
    (document,) = objects_in(text, "job.yaml")
    return expanded([document], "team")


@pytest.mark.parametrize(
    ("spec", "pods"),
    [
        pytest.param(f"{{{TEMPLATE}}}", [["job-0"]], id="one"),
        pytest.param(f"{{replicas: 2, {TEMPLATE}}}", [["job-0", "job-1"]], id="replicas"),
        pytest.param(f"{{replicas: two, {TEMPLATE}}}", [["job-0"]], id="unreadable-replicas"),
        pytest.param(f"{{containers: [{CONTAINER}]}}", [["job-0"]], id="spec-of-a-pod"),
        pytest.param(
            f"{{roles: {{Worker: {{parallelism: 2, {TEMPLATE}}}, Chief: {{{TEMPLATE}}}}}}}",
            [["job-roles-worker-0", "job-roles-worker-1"], ["job-roles-chief-0"]],
            id="roles",
        ),
        pytest.param(
            f"{{groups: [{{{TEMPLATE}}}, {{{TEMPLATE}}}]}}",
            [["job-groups-0-0"], ["job-groups-1-0"]],
            id="list",
        ),
    ],
)
def test_templates_of_an_unknown_kind_are_guessed_by_their_shape(spec, pods):
    found = guessed(spec)

    assert [names_of(template) for template in found.templates] == pods
    assert {owner_of(template) for template in found.templates} == {
        ("example.org/v1", "Trainer", "job")
    }
    assert found.unjudged == ()
    assert all("are guessed by their shape" in warning for warning in found.warnings)
    assert len(found.warnings) == len(pods)


@pytest.mark.parametrize(
    "spec", ["{}", "{replicas: 2}", "{containers: []}", "{template: {containers: x}}", "null"]
)
def test_an_unknown_kind_without_a_template_is_not_judged(spec):
    found = guessed(spec)

    assert found.templates == ()
    assert [one.kind for one in found.unjudged] == ["Trainer"]


def test_only_some_templates_of_an_unknown_kind_are_guessed():
    many = ", ".join(f"{{{TEMPLATE}}}" for _ in range(TEMPLATES_MAX + 1))

    found = guessed(f"{{groups: [{many}]}}")

    assert len(found.templates) == TEMPLATES_MAX
    assert [one.reason for one in found.unjudged] == [
        f"was looked at in part: it has more than {TEMPLATES_MAX} pod templates"
    ]


# ---- JobSet and LeaderWorkerSet.


def a_job_set(order=None, gangs=("g", "g")):
    def job(name, replicas, gang):
        marks = f"metadata: {{annotations: {{linkwise.dev/gang: {gang}}}}}"
        pod = f"template: {{{marks}, spec: {{containers: [{CONTAINER}]}}}}"
        return (
            f"{{name: {name}, replicas: {replicas}, template: {{spec: {{parallelism: 2, {pod}}}}}}}"
        )

    jobs = f"[{job('a', 1, gangs[0])}, {job('b', 2, gangs[1])}]"
    policy = f"startupPolicy: {{startupPolicyOrder: {order}}}, " if order else ""
    spec = f"{{{policy}replicatedJobs: {jobs}}}"
    return a_workload("JobSet", spec, api_version="jobset.x-k8s.io/v1alpha2")


def test_a_job_set_makes_pods_that_know_their_job(expand):
    first, second = expand(a_job_set())

    assert (first.replicas, second.replicas, second.workload.members) == (2, 4, 6)
    labels = [second.stamp(index).labels for index in range(4)]
    names = ("job-index", "job-global-index")
    assert [[one[f"jobset.sigs.k8s.io/{key}"] for key in names] for one in labels] == [
        ["0", "1"],
        ["0", "1"],
        ["1", "2"],
        ["1", "2"],
    ]
    assert second.stamp(3).name == "job-b-1-1"
    assert owner_of(second)[1] == "Job"
    assert second.owners[-1].kind == "JobSet"


@pytest.mark.parametrize(
    ("order", "gangs", "ordered"),
    [
        (None, ("g", "g"), False),
        ("AnyOrder", ("g", "g"), False),
        ("InOrder", ("g", "g"), True),
        ("InOrder", ("g", "h"), False),
    ],
)
def test_a_job_set_in_order_keeps_a_gang_of_several_jobs_waiting(expand, order, gangs, ordered):
    templates = expand(a_job_set(order, gangs))

    assert {bool(template.workload.ordered) for template in templates} == {ordered}


def a_leader_worker_set(policy="LeaderCreated", leader="", size=4):
    marks = "metadata: {annotations: {linkwise.dev/gang: g}}"
    worker = f"workerTemplate: {{{marks}, spec: {{containers: [{CONTAINER}]}}}}"
    spec = f"{{replicas: 2, startupPolicy: {policy}, "
    spec += f"leaderWorkerTemplate: {{size: {size}, {leader}{worker}}}}}"
    api = "leaderworkerset.x-k8s.io/v1"
    return a_workload("LeaderWorkerSet", spec, api_version=api)


def test_a_leader_worker_set_makes_groups_of_a_leader_and_workers(expand):
    leaders, workers = expand(a_leader_worker_set())

    assert (leaders.replicas, workers.replicas, workers.workload.members) == (2, 6, 4)
    assert [leaders.stamp(index).name for index in range(2)] == ["job-0", "job-1"]
    name, labels, annotations = workers.stamp(4)
    prefix = "leaderworkerset.sigs.k8s.io"
    assert (name, labels[f"{prefix}/group-index"], labels[f"{prefix}/worker-index"]) == (
        "job-1-2",
        "1",
        "2",
    )
    assert annotations == {f"{prefix}/size": "4"}
    (alone,) = expand(a_leader_worker_set(size=1))
    assert alone.workload.members == 1


@pytest.mark.parametrize(
    ("policy", "leader", "ordered"),
    [
        ("LeaderReady", "", True),
        ("LeaderCreated", "", False),
        ("LeaderReady", "leaderTemplate: {spec: {containers: [{name: l}]}}, ", False),
    ],
    ids=["ready", "created", "a leader without GPUs"],
)
def test_workers_that_wait_for_a_leader_of_their_gang_are_known(expand, policy, leader, ordered):
    templates = expand(a_leader_worker_set(policy, leader))

    assert bool(templates[-1].workload.ordered) is ordered
