"""Admission on a real API server: what becomes of pods that a plain client creates."""

import json
import re
import ssl
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from controlplane.api import ApiError
from controlplane.process import wait_until
from controlplane.webhook import VALIDATING, run_webhook

from cluster import keys

PROFILES = f"/api/v1/namespaces/{keys.PROFILE_NAMESPACE}/configmaps"
POLICY = f"/api/v1/namespaces/{keys.POLICY_NAMESPACE}/configmaps"
DRIVER = [
    {
        "name": "gpu-hpn-driver",
        "objectSelector": {"matchLabels": {keys.COMPUTE_CLASS: "gpu-hpn"}},
        "effect": {"labels": {keys.DRIVER_VERSION: "1.5.0"}},
    }
]
SHARED = """
sharing:
  groups:
  - config:
      sharing:
        timeSlicing:
          renameByDefault: true
          failRequestsGreaterThanOne: true
          resources: [{name: nvidia.com/gpu, replicas: 4}]
"""


@pytest.fixture(scope="module")
def webhook(plane):
    with run_webhook(plane) as running:
        yield running


@pytest.fixture
def pods(webhook, namespace):
    """Creates pods in a namespace of the test's own."""

    class Pods:
        path = f"/api/v1/namespaces/{namespace}/pods"
        api = webhook.plane.api

        def create(self, *limits, name="pod", labels=None, annotations=None, **query):
            containers = [
                {
                    "name": f"c{index}",
                    "image": "registry.example/none",
                    "resources": {"limits": {key: str(value) for key, value in each.items()}},
                }
                for index, each in enumerate(limits)
            ]
            metadata = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
            body = {"metadata": metadata, "spec": {"containers": containers}}
            return self.api.create(self.path, body, **query)

        def refusal(self, *limits, **given):
            with pytest.raises(ApiError) as refused:
                self.create(*limits, **given)
            assert refused.value.status in {403, 422}
            return refused.value.message

        def driver(self, number):
            """Return the driver that a new pod of class gpu-hpn gets."""
            made = self.create({}, name=f"hpn-{number}", labels={keys.COMPUTE_CLASS: "gpu-hpn"})
            return made["metadata"]["labels"].get(keys.DRIVER_VERSION)

    return Pods()


@pytest.fixture
def profiles(webhook):
    yield from decisions(webhook, PROFILES, keys.PROFILE_NAME, keys.PROFILE_KEY)


@pytest.fixture
def policy(webhook):
    yield from decisions(webhook, POLICY, keys.POLICY_NAME, keys.POLICY_KEY)


def decisions(webhook, path, name, key):
    """Write a ConfigMap, delete it with None; the test's end deletes it."""
    api = webhook.plane.api

    def write(text):
        exists = any(item["metadata"]["name"] == name for item in api.get(path)["items"])
        if text is None:
            api.delete(f"{path}/{name}")
        elif exists:
            api.patch(f"{path}/{name}", {"data": {key: text}})
        else:
            api.create(path, {"metadata": {"name": name}, "data": {key: text}})

    yield write
    if any(item["metadata"]["name"] == name for item in api.get(path)["items"]):
        write(None)


def gates(pod):
    return [gate["name"] for gate in pod["spec"].get("schedulingGates", [])]


def required(pod):
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    return {
        one["key"]: one["values"]
        for term in terms.get("nodeSelectorTerms", [])
        for one in term["matchExpressions"]
    }


def variables(pod, container=0):
    env = pod["spec"]["containers"][container].get("env", [])
    return {one["name"]: one.get("value") or one.get("valueFrom") for one in env}


# ---- What pods ask for.


def test_memory_and_compute_go_where_both_are_given_out(pods):
    pod = pods.create({keys.GPU_MEM: 2, keys.GPU_CORE: 20})

    assert required(pod) == {keys.NODE_MODE: ["core_mem"]}
    assert gates(pod) == [keys.GANG]


def test_memory_alone_needs_no_label_and_its_env_refers_to_the_record(pods):
    pod = pods.create({keys.GPU_MEM: 5})

    reference = variables(pod)[keys.ENV_VISIBLE_DEVICES]["fieldRef"]["fieldPath"]
    assert required(pod) == {}
    assert keys.VISIBLE_DEVICES in reference
    assert variables(pod)[keys.MEM_CONTAINER] == "5"


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        pytest.param({keys.GPU_MEM: 2, keys.GPU_CORE: 22}, "20 or 25", id="core 22"),
        pytest.param({keys.GPU_CORE: 20}, keys.GPU_MEM, id="compute alone"),
        pytest.param({keys.GPU_MEM: 2, keys.GPU_WHOLE: 1}, "LW107", id="two families"),
    ],
)
def test_a_bad_request_is_denied_with_its_field_and_its_remedy(pods, limits, said):
    message = pods.refusal(limits)

    assert 'admission webhook "pods.linkwise.dev" denied the request' in message
    assert "spec.containers[0].resources.limits[" in message
    assert said in message


def test_all_problems_come_in_one_answer(pods):
    labels = {keys.COMPUTE_CLASS: "fast"}

    message = pods.refusal({keys.GPU_MEM: 2, keys.GPU_CORE: 22}, labels=labels)

    assert {"LW101", "LW201"} <= set(re.findall(r"LW\d+", message))


# ---- Classes, models, drivers.


def test_a_model_and_a_driver_that_exist_become_affinity(pods):
    labels = {keys.COMPUTE_CLASS: "gpu", keys.MODEL_SERIES: "T4", keys.DRIVER_VERSION: "535.161.08"}

    pod = pods.create({keys.NVIDIA_GPU: 1}, labels=labels)

    assert required(pod) == {keys.MODEL_SERIES: ["T4"], keys.DRIVER_VERSION: ["535.161.08"]}


@pytest.mark.parametrize(
    ("model", "driver", "said"),
    [
        pytest.param("example-model", "535.161.08", "placeholder", id="example"),
        pytest.param("T4", "1.2.3", "525.105.17", id="driver"),
    ],
)
def test_what_the_catalogue_does_not_have_is_denied_with_what_it_has(pods, model, driver, said):
    labels = {keys.COMPUTE_CLASS: "gpu", keys.MODEL_SERIES: model, keys.DRIVER_VERSION: driver}

    assert said in pods.refusal({keys.NVIDIA_GPU: 1}, labels=labels)


def test_more_shared_gpus_than_one_are_denied_at_creation(pods, policy):
    policy(SHARED)

    def denied():
        try:
            pods.create({keys.NVIDIA_GPU_SHARED: 2}, dryRun="All")
        except ApiError as error:
            return "LW301" in error.message
        return False

    wait_until(denied, "the policy is in force", 2)
    assert gates(pods.create({keys.NVIDIA_GPU_SHARED: 1})) == [keys.GANG]


# ---- Gangs and controllers.


def test_of_a_gang_as_arena_makes_it_workers_are_gated_and_the_launcher_is_not(pods):
    labels = {
        keys.GPU_TOPOLOGY: "job",
        keys.GPU_TOPOLOGY_REPLICA: "4",
        keys.POD_GROUP_NAME: "job",
        keys.POD_GROUP_MIN_AVAILABLE: "4",
    }

    worker = pods.create({keys.GPU_WHOLE: 1}, name="job-worker-0", labels=labels)
    launcher = pods.create({}, name="job-launcher", labels=labels)

    assert (gates(worker), gates(launcher)) == ([keys.GANG], [])
    assert required(worker) == {keys.NODE_MODE: ["topology"]}


def test_pods_of_a_deployment_are_made_as_one_asks_them_to_be(pods, namespace):
    labels = {"app": "serve"}
    container = {
        "name": "main",
        "image": "registry.example/none",
        "resources": {"limits": {keys.GPU_WHOLE: "1"}},
    }
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 3, "selector": {"matchLabels": labels}, "template": template}
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    pods.api.create(path, {"metadata": {"name": "serve"}, "spec": spec})

    wait_until(lambda: len(pods.api.get(pods.path)["items"]) == 3, "three pods are there")
    assert all(gates(pod) == [keys.GANG] for pod in pods.api.get(pods.path)["items"])


# ---- Dry runs, second passes.


def test_a_server_side_dry_run_shows_the_pod_as_it_would_be_and_makes_none(webhook, pods):
    container = {"name": "main", "image": "registry.example/none"}
    container["resources"] = {"limits": {keys.GPU_WHOLE: "1"}}
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "dry"},
        "spec": {"containers": [container]},
    }

    applied = webhook.plane.kubectl(
        "apply",
        "--dry-run=server",
        "--output=json",
        f"--namespace={pods.path.split('/')[4]}",
        "-f-",
        stdin=json.dumps(manifest),
    )

    assert (applied.returncode, applied.stderr) == (0, "")
    assert gates(json.loads(applied.stdout)) == [keys.GANG]
    assert pods.api.get(pods.path)["items"] == []


def test_a_pod_that_was_admitted_is_admitted_again_as_it_is(pods):
    first = pods.create({keys.GPU_MEM: 2, keys.GPU_CORE: 20})
    metadata = {"name": "again", "labels": first["metadata"].get("labels", {})}

    second = pods.api.create(pods.path, {"metadata": metadata, "spec": first["spec"]})

    assert second["spec"] == first["spec"]


# ---- The dry-run API.


def dry_run(webhook, token, namespace):
    """Return the status and the answer for one pod."""
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    limits = {"limits": {keys.GPU_WHOLE: "1"}}
    body["spec"] = {"containers": [{"name": "c", "resources": limits}]}
    request = Request(  # noqa: S310
        f"{webhook.dry_run}/v1/dry-run?namespace={namespace}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {token}"},
    )
    context = ssl.create_default_context(cadata=webhook.ca.cert_pem.decode())
    try:
        with urlopen(request, timeout=10, context=context) as answer:  # noqa: S310
            return answer.status, json.load(answer)
    except HTTPError as error:
        with error:
            return error.code, None


def account(webhook, namespace, name, *audiences):
    """Make a ServiceAccount, and return a token of it."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    api = webhook.plane.api
    if name not in {item["metadata"]["name"] for item in api.get(path)["items"]}:
        api.create(path, {"metadata": {"name": name}})
    answer = api.create(f"{path}/{name}/token", {"spec": {"audiences": list(audiences)}})
    return answer["status"]["token"]


def test_only_who_may_create_pods_and_brings_a_token_made_for_it_is_told(webhook, namespace):
    api = webhook.plane.api
    ours = account(webhook, namespace, "ann", keys.DRY_RUN_AUDIENCE)
    servers = account(webhook, namespace, "ann")

    assert dry_run(webhook, "nobody", namespace)[0] == 401
    assert dry_run(webhook, servers, namespace)[0] == 401
    assert dry_run(webhook, ours, namespace)[0] == 403
    binding = {
        "metadata": {"name": "ann"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "edit",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "ann", "namespace": namespace}],
    }
    api.create(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", binding)
    wait_until(lambda: dry_run(webhook, ours, namespace)[0] == 200, "the role is in force", 5)
    (pod,) = dry_run(webhook, ours, namespace)[1]["pods"]
    assert (pod["verdict"], gates(pod["patched"])) == ("allowed", [keys.GANG])
    assert dry_run(webhook, ours, "default")[0] == 403


# ---- Decisions.


def test_a_profile_is_in_force_within_two_seconds_broken_mended_and_deleted(
    webhook, pods, profiles
):
    numbers = iter(range(10_000))

    def gets(driver):
        wait_until(lambda: pods.driver(next(numbers)) == driver, f"new pods get {driver}", 2)

    assert pods.driver(next(numbers)) is None
    profiles(json.dumps(DRIVER))
    gets("1.5.0")

    with pytest.raises(ApiError, match="line 1"):
        profiles("[{")
    # Something that slips by, as when the webhook is away while it is written.
    registration = webhook.plane.api.get(VALIDATING)
    webhook.plane.api.delete(VALIDATING)
    try:
        wait_until(lambda: _writes(profiles, '[{"name": ""}]'), "the guard is gone")
    finally:
        del registration["metadata"]["resourceVersion"], registration["metadata"]["uid"]
        webhook.plane.api.create(VALIDATING.rpartition("/")[0], registration)
    wait_until(lambda: "name is empty" in _events(webhook), "the event is there", 2)
    assert {pods.driver(next(numbers)) for _ in range(5)} == {"1.5.0"}

    profiles(json.dumps(DRIVER).replace("1.5.0", "1.5.1"))
    gets("1.5.1")
    profiles(None)
    gets(None)


def _writes(profiles, text):
    try:
        profiles(text)
    except ApiError:
        return False
    return True


def _events(webhook):
    """Return what `kubectl get events` shows of warnings."""
    shown = webhook.plane.kubectl(
        "get", "events", f"--namespace={keys.PROFILE_NAMESPACE}", "--field-selector=type=Warning"
    )
    return shown.stdout
