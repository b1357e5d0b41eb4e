"""The shipped manifests on a real API server: it takes them, and they hold what they promise."""

# ruff: noqa: ARG001 - what is shipped is applied by a fixture, which few tests read.

import base64
import os
import sys
from pathlib import Path

import pytest
import yaml
from controlplane.api import ApiError
from controlplane.process import Process, answers, free_ports, wait_until

from certs.bundle import read_bundle
from certs.settings import REGISTRATIONS, SECRET
from cluster import keys

ROOT = Path(__file__).parents[2]
BASE, PROFILES_ALL = ROOT / "manifests/base", ROOT / "manifests/profiles-all"
NAMESPACE = keys.POLICY_NAMESPACE
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POLICIES = f"{ADMISSION}/validatingadmissionpolicies"
REGISTERED = [f"{ADMISSION}/{resource}/{name}" for resource, _, name in REGISTRATIONS]
MUTATING = REGISTERED[0]
GATE = {"name": keys.GANG}
RECORD = {keys.ALLOCATION: "{}"}
GPU = {keys.GPU_WHOLE: "1"}


@pytest.fixture(scope="module")
def shipped(plane):
    """The base, applied; nobody listens where its webhooks are said to be."""
    applied = plane.kubectl("apply", "-k", str(BASE))
    try:
        assert applied.returncode == 0, applied.stderr
        difference = plane.kubectl("diff", "-k", str(BASE))
        overlay = plane.kubectl("apply", "--dry-run=server", "-k", str(PROFILES_ALL))
        for path in REGISTERED:
            plane.api.patch(path, nowhere(), "json")
        wait_until(lambda: in_force(plane.api), "the policies are in force")
        yield difference, overlay
    finally:
        plane.kubectl("delete", "--ignore-not-found", "-k", str(BASE))
        wait_until(lambda: not there(plane.api, f"/api/v1/namespaces/{NAMESPACE}"), "it is gone")


@pytest.fixture
def pods(shipped, namespace):
    return f"/api/v1/namespaces/{namespace}/pods"


@pytest.fixture
def scorer(plane, shipped):
    """The API server as the scorer's account sees it."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    name = "linkwise-scorer"
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    if not there(plane.api, f"{accounts}/{name}"):
        plane.api.create(accounts, {"metadata": {"name": name}})
        rule = {"apiGroups": [""], "resources": ["pods", "pods/binding"], "verbs": ["*"]}
        plane.api.create(f"{rbac}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
        subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
        binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
        plane.api.create(f"{rbac}/clusterrolebindings", binding)
    yield plane.api_as(plane.token(NAMESPACE, name))
    for kind in ("clusterroles", "clusterrolebindings"):
        plane.api.delete(f"{rbac}/{kind}/{name}")
    plane.api.delete(f"{accounts}/{name}")


def nowhere():
    config = {"url": "https://127.0.0.1:1/"}
    return [{"op": "replace", "path": "/webhooks/0/clientConfig", "value": config}]


def in_force(api):
    """Whether both policies are: each refuses something that it alone minds."""
    pods = "/api/v1/namespaces/default/pods"
    bodies = (pod("probe", GPU), pod("probe", annotations=RECORD))
    said = [refusal(lambda body=body: api.create(pods, body, dryRun="All")) for body in bodies]
    return "linkwise-placed" in said[0] and "linkwise-guard" in said[1]


def there(api, path):
    return refusal(lambda: api.get(path)) == ""


def refusal(call):
    """Return what a call is refused with; empty when it is not."""
    try:
        call()
    except ApiError as error:
        return error.message
    return ""


def pod(name, limits=None, *, annotations=None, labels=None, **spec):
    return {
        "metadata": {"name": name, "annotations": annotations or {}, "labels": labels or {}},
        "spec": {"containers": [container(limits)], **spec},
    }


def container(limits=None, name="main"):
    resources = {"limits": limits} if limits else {}
    return {"name": name, "image": "registry.example/none", "resources": resources}


def gated(name, **given):
    return pod(name, GPU, schedulingGates=[GATE], **given)


def place(scorer, pods, name):
    """Write a record and take the gate off, as the scorer does: in one patch."""
    metadata = scorer.get(f"{pods}/{name}")["metadata"]
    annotations = {**metadata.get("annotations", {}), **RECORD}
    steps = [
        {"op": "add", "path": "/metadata/annotations", "value": annotations},
        {"op": "remove", "path": "/spec/schedulingGates"},
    ]
    return scorer.patch(f"{pods}/{name}", steps, "json")


# ---- They are taken.


def test_every_file_is_taken_and_a_second_time_nothing_changes(shipped):
    assert (shipped[0].stdout, shipped[0].stderr, shipped[0].returncode) == ("", "", 0)


def test_the_overlay_is_taken_and_calls_the_webhook_for_every_pod(plane, shipped):
    assert shipped[1].returncode == 0, shipped[1].stderr
    built = yaml.safe_load_all(plane.kubectl("kustomize", str(PROFILES_ALL)).stdout)
    found = [one for one in built if one["kind"] == "MutatingWebhookConfiguration"]
    assert [("matchConditions" in hook) for one in found for hook in one["webhooks"]] == [False]


@pytest.mark.parametrize("name", ["linkwise-placed", "linkwise-guard"])
def test_expressions_of_the_policies_are_of_the_types_that_the_api_server_knows(
    plane, shipped, name
):
    def checked():
        return plane.api.get(f"{POLICIES}/{name}").get("status", {}).get("typeChecking")

    wait_until(lambda: checked() is not None, "types are checked")
    assert checked() == {}


def test_pods_of_the_components_pass_the_restricted_level(plane, shipped):
    def made():
        pods = plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        return sorted(one["metadata"]["labels"]["app.kubernetes.io/component"] for one in pods)

    wait_until(lambda: made() == ["certs", "certs", "webhook", "webhook"], "all pods are made")


def test_one_label_finds_all_that_stands_in_the_api_servers_way(plane, shipped):
    kinds = (*(resource for resource, _, _ in REGISTRATIONS), "validatingadmissionpolicies")
    chosen = {"labelSelector": "app.kubernetes.io/name=linkwise"}
    found = [
        item["metadata"]["name"]
        for kind in (*kinds, "validatingadmissionpolicybindings")
        for item in plane.api.get(f"{ADMISSION}/{kind}", **chosen)["items"]
    ]
    policies = ["linkwise-guard", "linkwise-placed"]
    assert found == ["linkwise", "linkwise", *policies, *policies]


# ---- Which pods the webhook is called for.


@pytest.fixture
def closed(plane, shipped):
    """Fails closed, so that a call shows."""
    path = "/webhooks/0/failurePolicy"
    plane.api.patch(MUTATING, [{"op": "replace", "path": path, "value": "Fail"}], "json")
    hpn = pod("probe", labels={keys.COMPUTE_CLASS: "gpu"})
    pods = "/api/v1/namespaces/default/pods"
    wait_until(
        lambda: refusal(lambda: plane.api.create(pods, hpn, dryRun="All")) != "", "it fails closed"
    )
    yield
    plane.api.patch(MUTATING, [{"op": "replace", "path": path, "value": "Ignore"}], "json")
    wait_until(
        lambda: refusal(lambda: plane.api.create(pods, hpn, dryRun="All")) == "", "it fails open"
    )


@pytest.mark.parametrize(
    "made",
    [
        *(pytest.param(pod("p", {name: "1"}), id=name) for name in keys.RESOURCES),
        pytest.param(pod("p", initContainers=[container(GPU, "init")]), id="init container"),
        pytest.param(pod("p", labels={"alibabacloud.com/any": "x"}), id="label of ACS"),
        pytest.param(pod("p", labels={keys.POD_GROUP: "g"}), id="pod group"),
        pytest.param(pod("p", labels={keys.POD_GROUP_NAME: "g"}), id="named pod group"),
        pytest.param(pod("p", annotations={keys.KOORDINATOR_GANG_NAME: "g"}), id="koordinator"),
        pytest.param(pod("p", annotations={keys.GANG: "g"}), id="our gang"),
    ],
)
@pytest.mark.usefixtures("closed")
def test_the_webhook_is_called_for_pods_with_gpus_classes_or_gangs(plane, pods, made):
    said = refusal(lambda: plane.api.create(pods, made, dryRun="All"))
    assert 'failed calling webhook "pods.linkwise.dev"' in said


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(pod("p"), id="nothing"),
        pytest.param(pod("p", {"cpu": "1", "example.com/gpu": "1"}), id="other resources"),
        pytest.param(pod("p", labels={"app": "x"}, annotations={"a": "b"}), id="other marks"),
        pytest.param(pod("p", initContainers=[container(name="init")]), id="init container"),
    ],
)
@pytest.mark.usefixtures("closed")
def test_the_webhook_is_not_called_for_other_pods(plane, pods, made):
    assert refusal(lambda: plane.api.create(pods, made, dryRun="All")) == ""


@pytest.mark.usefixtures("closed")
def test_the_webhook_is_not_called_in_namespaces_of_the_system(plane):
    path = "/api/v1/namespaces/kube-system/pods"
    assert refusal(lambda: plane.api.create(path, pod("p", GPU), dryRun="All")) == ""


# ---- What fails closed.


@pytest.mark.parametrize("limits", [{keys.GPU_MEM: "2"}, GPU, {"aliyun.com/other": "1"}])
def test_a_pod_that_nobody_would_place_is_refused_with_what_to_do(plane, pods, limits):
    said = refusal(lambda: plane.api.create(pods, pod("p", limits)))
    assert "create it again" in said
    init = pod("p", initContainers=[container(limits, "init")])
    assert "create it again" in refusal(lambda: plane.api.create(pods, init))


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(gated("p"), id="our gate"),
        pytest.param(pod("p", GPU, schedulerName=keys.SCHEDULER), id="our scheduler"),
        pytest.param(pod("p", {keys.NVIDIA_GPU: "1"}), id="NVIDIA's"),
        pytest.param(pod("p"), id="no GPU"),
    ],
)
def test_a_pod_that_somebody_places_or_that_is_not_ours_is_made(plane, pods, made):
    assert refusal(lambda: plane.api.create(pods, made)) == ""


# ---- The guard.


def ephemeral(**given):
    return {"name": "debug", "image": "registry.example/none", **given}


@pytest.mark.parametrize("key", [keys.ALLOCATION, keys.TERM, f"{keys.VISIBLE_DEVICES_OF}main"])
def test_an_allocation_cannot_be_written_by_any_of_the_ways_there_are(plane, pods, key):
    api, record = plane.api, {key: "0"}
    api.create(pods, gated("held"))
    api.create(pods, pod("free", nodeName=None))
    change = {"metadata": {"annotations": record}}
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "free", "annotations": record},
        "target": {"kind": "Node", "name": "none"},
    }
    bindings = pods.removesuffix("pods") + "bindings"
    ways = {
        "pods, create": lambda: api.create(pods, gated("new", annotations=record)),
        "pods, update": lambda: api.patch(f"{pods}/held", change),
        "pods/status": lambda: api.patch(f"{pods}/held/status", change),
        "pods/binding": lambda: api.create(f"{pods}/free/binding", binding),
        "bindings": lambda: api.create(bindings, binding),
    }
    said = {way: refusal(call) for way, call in ways.items()}
    assert {way for way, text in said.items() if "written by linkwise-scorer alone" in text} == set(
        ways
    ), said
    # What has no way to change annotations must go on having none.
    for way in ("ephemeralcontainers", "resize"):
        refusal(lambda way=way: api.patch(f"{pods}/held/{way}", change, "strategic"))
    assert key not in api.get(f"{pods}/held")["metadata"].get("annotations", {})


def test_a_record_cannot_be_taken_away_or_changed_once_it_is_there(plane, pods, scorer):
    plane.api.create(pods, gated("placed"))
    place(scorer, pods, "placed")
    for value in (None, "{}x"):
        change = {"metadata": {"annotations": {keys.ALLOCATION: value}}}
        for path in (f"{pods}/placed", f"{pods}/placed/status"):
            said = refusal(lambda path=path, change=change: plane.api.patch(path, change))
            assert "written by linkwise-scorer alone" in said


def test_our_gate_is_removed_by_the_scorer_alone_and_others_by_whoever_set_them(
    plane, pods, scorer
):
    plane.api.create(pods, pod("two", GPU, schedulingGates=[GATE, {"name": "example.com/other"}]))
    gates = "/spec/schedulingGates"
    said = refusal(
        lambda: plane.api.patch(f"{pods}/two", [{"op": "remove", "path": gates}], "json")
    )
    assert "removed by linkwise-scorer alone" in said
    plane.api.patch(f"{pods}/two", [{"op": "remove", "path": f"{gates}/1"}], "json")
    assert "schedulingGates" not in place(scorer, pods, "two")["spec"]


@pytest.mark.parametrize(
    "given",
    [
        {"env": [{"name": keys.ENV_VISIBLE_DEVICES, "value": "all"}]},
        {"env": [{"name": keys.ENV_MPS_THREADS, "value": "100"}]},
        {"envFrom": [{"configMapRef": {"name": "any"}}]},
    ],
    ids=["devices", "MPS", "envFrom"],
)
def test_an_ephemeral_container_of_a_pod_with_gpus_cannot_choose_its_own(
    plane, pods, scorer, given
):
    plane.api.create(pods, gated("placed"))
    place(scorer, pods, "placed")
    path = f"{pods}/placed/ephemeralcontainers"
    change = {"spec": {"ephemeralContainers": [ephemeral(**given)]}}
    assert "cannot choose its own" in refusal(lambda: plane.api.patch(path, change, "strategic"))
    harmless = {"spec": {"ephemeralContainers": [ephemeral(env=[{"name": "A", "value": "b"}])]}}
    assert refusal(lambda: plane.api.patch(path, harmless, "strategic")) == ""


def test_an_ephemeral_container_of_another_pod_is_nobodys_business(plane, pods):
    plane.api.create(pods, pod("plain"))
    env = [{"name": keys.ENV_VISIBLE_DEVICES, "value": "all"}]
    change = {"spec": {"ephemeralContainers": [ephemeral(env=env)]}}
    path = f"{pods}/plain/ephemeralcontainers"
    assert refusal(lambda: plane.api.patch(path, change, "strategic")) == ""


def test_controllers_of_jobs_and_stateful_sets_work_unhindered(
    plane, pods, namespace, scorer, nodes
):
    nodes({"name": "gpu", "count": 2, "machine": "dgx1-v100", "mode": "topology"})
    labels = {"app": "set"}
    spec = gated("any")["spec"]
    template = {"metadata": {"labels": labels}, "spec": spec}
    sets = f"/apis/apps/v1/namespaces/{namespace}/statefulsets"
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    plane.api.create(
        sets,
        {
            "metadata": {"name": "set"},
            "spec": {
                "replicas": 2,
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": labels},
                "serviceName": "set",
                "template": template,
            },
        },
    )
    finishing = {"metadata": {}, "spec": {**spec, "restartPolicy": "Never"}}
    job = {"completions": 2, "parallelism": 2, "template": finishing}
    plane.api.create(jobs, {"metadata": {"name": "job"}, "spec": job})

    def waiting():
        items = plane.api.get(pods)["items"]
        return [one["metadata"]["name"] for one in items if "schedulingGates" in one["spec"]]

    wait_until(lambda: len(waiting()) == 4, "four pods wait")
    for name in waiting():
        place(scorer, pods, name)
    wait_until(
        lambda: plane.api.get(f"{sets}/set")["status"].get("readyReplicas") == 2, "the set is ready"
    )
    wait_until(
        lambda: plane.api.get(f"{jobs}/job")["status"].get("succeeded") == 2, "the Job is done"
    )
    plane.api.delete(f"{pods}/set-0")
    wait_until(lambda: waiting() == ["set-0"], "the set makes its pod again")


# ---- Certificates, with the access that is shipped.


def test_certs_with_its_shipped_access_makes_the_secret_and_keeps_the_registrations_trusting(
    plane, shipped
):
    for path in REGISTERED:
        plane.api.delete(path)
    assert plane.kubectl("apply", "-k", str(BASE)).returncode == 0
    folder = plane.site.folder / "certs"
    folder.mkdir()
    (folder / "token").write_text(plane.token(NAMESPACE, "linkwise-certs"))
    (port,) = free_ports(1)
    process = Process(
        "certs",
        (sys.executable, "-m", "certs"),
        folder / "log",
        env={
            "PYTHONPATH": os.fspath(ROOT),
            "LINKWISE_HOST": "127.0.0.1",
            "LINKWISE_PROBE_PORT": str(port),
            "LINKWISE_API_SERVER": plane.server,
            "LINKWISE_API_TOKEN_FILE": str(folder / "token"),
            "LINKWISE_API_CA_FILE": str(plane.ca_file),
        },
    )
    plane.processes.start(process)
    try:
        process.wait_ready(lambda: answers(f"http://127.0.0.1:{port}/readyz"))
        trusted = read_bundle(secret(plane)["data"]).trusted
        wait_until(lambda: bundles(plane) == {trusted}, "all registrations trust it")
        clear = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
        plane.api.patch(MUTATING, clear, "json")
        wait_until(lambda: bundles(plane) == {trusted}, "what was cleared is there again")
        assert plane.kubectl("apply", "-k", str(BASE)).returncode == 0
        assert bundles(plane) == {trusted}
        managers = {
            entry["manager"] for entry in plane.api.get(MUTATING)["metadata"]["managedFields"]
        }
        assert "linkwise-certs" in managers
        plane.api.delete(f"/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}")
        wait_until(lambda: len(bundles(plane) - {trusted}) == 1, "it is made anew")
    finally:
        plane.processes.stop(process)
        for path in REGISTERED:
            plane.api.patch(path, nowhere(), "json")


def secret(plane):
    return plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}")


def bundles(plane):
    hooks = [hook for path in REGISTERED for hook in plane.api.get(path)["webhooks"]]
    return {base64.b64decode(hook["clientConfig"].get("caBundle", "")) for hook in hooks}
