"""The shipped manifests on a real API server: it takes them, and they hold what they promise."""

# ruff: noqa: ARG001 - what is shipped is applied by a fixture, which few tests read.

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from controlplane.api import refusal
from controlplane.pods import a_pod as pod
from controlplane.pods import container, requirement, terms
from controlplane.process import Process, answers, free_ports, wait_until
from controlplane.webhook import register_unreachable

from certs.leaf import read_leaf
from certs.settings import SERVERS, WEBHOOK_CONFIGURATIONS
from certs.store import CA_SECRET
from linkwise.cluster import container_variables, keys

ROOT = Path(__file__).parents[2]
BASE, PROFILES_ALL = ROOT / "manifests/base", ROOT / "manifests/profiles-all"
NAMESPACE = keys.POLICY_NAMESPACE
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POLICIES = f"{ADMISSION}/validatingadmissionpolicies"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
REGISTERED = [f"{ADMISSION}/{resource}/{name}" for resource, _, name in WEBHOOK_CONFIGURATIONS]
MUTATING = REGISTERED[0]
GPU = {keys.GPU_WHOLE: "1"}
RETRY = 'failed calling webhook "retry.pods.linkwise.dev"'


A = {"name": "A", "value": "b"}
NULL = {"name": "null", "hostPath": {"path": "/dev/null"}}
CONTROLLERS = "system:serviceaccount:kube-system"


def chooses(*before, name=container_variables.ENV_VISIBLE_DEVICES):
    variable = {"name": name, "value": "all"}
    return {**container(name="chooses"), "env": [*before, variable]}


def mounts(path):
    return {**container(name="mounts"), "volumeMounts": [{"name": "null", "mountPath": path}]}


def many(count):
    return [container(name=f"c{number}") for number in range(count)]


def others(count):
    return {f"example.com/{number}": "1" for number in range(count)}


def gated(name):
    return pod(name, GPU, schedulingGates=[{"name": keys.GANG}])


# ---- They are taken.


def test_every_file_is_taken_and_a_second_time_nothing_changes(shipped):
    assert (shipped[0].stdout, shipped[0].stderr, shipped[0].returncode) == ("", "", 0)


def test_the_overlay_is_taken_and_calls_the_webhook_for_every_pod(plane, shipped):
    assert shipped[1].returncode == 0, shipped[1].stderr
    built = yaml.safe_load_all(plane.kubectl("kustomize", str(PROFILES_ALL)).stdout)
    found = [one for one in built if one["kind"] == "MutatingWebhookConfiguration"]
    # The second try is for what would be refused, as without the overlay.
    assert [("matchConditions" in hook) for hook in found[0]["webhooks"]] == [False, True, True]


@pytest.mark.parametrize(
    ("path", "query", "flow"),
    [
        pytest.param("/api/v1/pods", {}, "linkwise-scorer", id="pods"),
        pytest.param(
            LEASES,
            {"fieldSelector": "metadata.name=linkwise-scorer"},
            "linkwise-leader-election",
            id="its Lease",
        ),
    ],
)
def test_requests_of_the_scorer_match_its_flow_schemas(plane, scorer, path, query, flow):
    dispatched = f'apiserver_flowcontrol_dispatched_requests_total{{flow_schema="{flow}"'

    def counted():
        scorer.get(path, **query)
        return dispatched in plane.api.text("/metrics")

    wait_until(counted, f"{path} is asked by {flow}")


@pytest.mark.parametrize(
    "name", ["linkwise-placed", "linkwise-placed-nvidia", "linkwise-guard", "linkwise-claims"]
)
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

    all_of_them = [*["certs"] * 2, *["scorer"] * 2, *["webhook"] * 3]
    wait_until(lambda: made() == all_of_them, "all pods are made")


def test_one_label_finds_all_that_stands_in_the_api_servers_way(plane, shipped):
    kinds = (
        *(resource for resource, _, _ in WEBHOOK_CONFIGURATIONS),
        "validatingadmissionpolicies",
    )
    chosen = {"labelSelector": "app.kubernetes.io/name=linkwise"}
    found = [
        item["metadata"]["name"]
        for kind in (*kinds, "validatingadmissionpolicybindings")
        for item in plane.api.get(f"{ADMISSION}/{kind}", **chosen)["items"]
    ]
    names = ("claims", "fence", "guard", "placed", "placed-nvidia")
    policies = [f"linkwise-{name}" for name in names]
    assert found == ["linkwise", "linkwise", *policies, *policies]


# ---- Which pods the webhook is called for.


@pytest.fixture
def pods(shipped, namespace):
    return f"/api/v1/namespaces/{namespace}/pods"


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
        pytest.param(pod("p", {"nvidia.com/gpuu": "1"}), id="misspelt"),
        pytest.param(pod("p", initContainers=[container(GPU, "init")]), id="init container"),
        pytest.param(pod("p", labels={"alibabacloud.com/any": "x"}), id="label of ACS"),
        pytest.param(pod("p", labels={keys.POD_GROUP: "g"}), id="pod group"),
        pytest.param(pod("p", labels={keys.POD_GROUP_NAME: "g"}), id="named pod group"),
        pytest.param(pod("p", annotations={keys.KOORDINATOR_GANG_NAME: "g"}), id="koordinator"),
        pytest.param(pod("p", annotations={keys.GANG: "g"}), id="our gang"),
        pytest.param(pod("p", initContainers=[chooses()]), id="names the GPUs it sees"),
        pytest.param(
            pod("p", containers=[chooses(name=container_variables.ENV_IMEX_CHANNELS)]), id="IMEX"
        ),
        pytest.param(
            pod("p", containers=[chooses(name=container_variables.ENV_MIG_CONFIG)]), id="MIG"
        ),
        pytest.param(
            pod("p", initContainers=[mounts(f"/a/..{container_variables.DEVICE_MOUNTS}/all")]),
            id="a mount",
        ),
        pytest.param(pod("p", containers=[chooses(*[A] * 1100)]), id="many variables"),
        pytest.param(pod("p", initContainers=many(70)), id="many containers"),
        pytest.param(pod("p", others(70)), id="many resources"),
        pytest.param(pod("p", labels=others(1100)), id="many labels"),
    ],
)
@pytest.mark.usefixtures("closed")
def test_the_webhook_is_called_for_pods_with_gpus_classes_or_gangs(plane, pods, made):
    message = refusal(lambda: plane.api.create(pods, made, dryRun="All"))
    assert 'failed calling webhook "pods.linkwise.dev"' in message


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(pod("p"), id="nothing"),
        pytest.param(pod("p", {"cpu": "1", "example.com/gpu": "1"}), id="other resources"),
        pytest.param(pod("p", labels={"app": "x"}, annotations={"a": "b"}), id="other marks"),
        pytest.param(pod("p", initContainers=[container(name="init")]), id="init container"),
        pytest.param(pod("p", containers=[{**container(), "env": [A]}]), id="other variables"),
        pytest.param(
            pod("p", containers=[chooses(name=container_variables.ENV_MIG_MONITOR)]),
            id="MIG is read",
        ),
        pytest.param(pod("p", containers=[mounts("/any")], volumes=[NULL]), id="another mount"),
        pytest.param(pod("p", annotations=others(10_000)), id="many annotations"),
    ],
)
@pytest.mark.usefixtures("closed")
def test_the_webhook_is_not_called_for_other_pods(plane, pods, made):
    assert refusal(lambda: plane.api.create(pods, made, dryRun="All")) == ""


# ---- What the condition costs. Beyond a limit of API servers it fails, and then so does the call.

ROOM = 3_140_000
"""A request may have 3 MiB [bytes]."""
LONG = f"{'x' * 249}/{'x' * 63}"
"""With four letters before it, the longest name of a resource."""


def crowded(*last, variables=0, mounts=0, letters=0, names=0, **given):
    """Return a pod of 64 containers, since more are not read.

    Args:
        last: Variables or mounts of the last container, which are read last.
        variables: Of each container; 256 variables and mounts are read.
        mounts: Of each container.
        letters: In the paths of all mounts together.
        names: Limits of each container, which are requests, too; 64 of both are read.
        given: Other arguments of a pod.
    """
    path = "/" + "x" * (letters // max(64 * mounts, 1))
    limits = {f"{number:03}.{LONG}": "1" for number in range(names)}
    parts = {"env": [A] * variables, "volumeMounts": [{"name": "n", "mountPath": path}] * mounts}
    made = [{**container(limits, f"c{number}"), **parts} for number in range(64)]
    for name, own in parts.items():
        made[-1][name] = [*own[len(last) :], *last] if own else []
    return pod("p", containers=made, **given)


LARGEST = {
    "variables": crowded(
        {"name": container_variables.ENV_IMEX_CHANNELS, "value": "0"}, variables=256
    ),
    "mounts": crowded(
        {"name": "n", "mountPath": f"{container_variables.DEVICE_MOUNTS}/all"},
        mounts=256,
        letters=ROOM - 700_000,
    ),
    "mounts and resources": crowded(
        mounts=10, letters=ROOM - 750_000, names=32, annotations={keys.GANG: "g"}
    ),
}


@pytest.mark.parametrize("made", [pytest.param(one, id=name) for name, one in LARGEST.items()])
@pytest.mark.usefixtures("closed")
def test_the_webhook_is_called_for_the_largest_pods_that_an_api_server_reads(plane, pods, made):
    message = refusal(lambda: plane.api.create(pods, made, dryRun="All"))
    assert 'failed calling webhook "pods.linkwise.dev"' in message


def too_costly():
    """Return a pod with a resource of a name that API servers refuse after they have read it."""
    return pod("p", {"x" * 2_900_000: "1"})


@pytest.mark.usefixtures("closed")
def test_a_condition_that_costs_too_much_fails(plane, pods):
    message = refusal(lambda: plane.api.create(pods, too_costly(), dryRun="All"))
    assert "actual cost limit exceeded" in message


def test_a_pod_whose_condition_costs_too_much_is_refused_for_its_names(plane, pods):
    message = refusal(lambda: plane.api.create(pods, too_costly(), dryRun="All"))
    assert "name part must be no more than 63" in message


def test_a_pod_that_is_too_costly_for_a_policy_is_refused(plane, pods):
    many = {f"example.com/{number}-{'x' * 50}": "1" for number in range(16)}
    made = [container(many, f"c{number}-{'x' * 50}") for number in range(1023)]
    taker = pod("p", containers=[*made, container(GPU, "taker")])
    message = refusal(lambda: plane.api.create(pods, taker, dryRun="All"))
    assert "linkwise-placed" in message
    assert "actual cost limit exceeded" in message


@pytest.mark.usefixtures("closed")
def test_the_webhook_is_not_called_in_namespaces_of_the_system(plane):
    path = "/api/v1/namespaces/kube-system/pods"
    assert refusal(lambda: plane.api.create(path, pod("p", GPU), dryRun="All")) == ""


# ---- Which pods it is called for a second time: the first call fails, and fails open.


@pytest.fixture
def closed_again(plane, shipped):
    """The second fails closed, so that a call shows."""
    path = "/webhooks/1/failurePolicy"
    plane.api.patch(MUTATING, [{"op": "replace", "path": path, "value": "Fail"}], "json")
    pods = "/api/v1/namespaces/default/pods"

    def message():
        return refusal(lambda: plane.api.create(pods, pod("probe", GPU), dryRun="All"))

    wait_until(lambda: RETRY in message(), "it fails closed")
    yield
    plane.api.patch(MUTATING, [{"op": "replace", "path": path, "value": "Ignore"}], "json")
    wait_until(lambda: RETRY not in message(), "it fails open")


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(pod("p", {keys.GPU_MEM: "2"}), id="a share"),
        pytest.param(pod("p", GPU, schedulingGates=[{"name": "other"}]), id="another's gate"),
        pytest.param(pod("p", initContainers=[container(GPU, "init")]), id="init container"),
        pytest.param(pod("p", {keys.NVIDIA_GPU_SHARED: "1"}), id="a replica"),
        pytest.param(pod("p", GPU, nodeName="n", schedulerName=keys.SCHEDULER), id="a node"),
    ],
)
@pytest.mark.usefixtures("closed_again")
def test_a_pod_that_would_be_refused_is_tried_again(plane, pods, made):
    assert RETRY in refusal(lambda: plane.api.create(pods, made, dryRun="All"))


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(gated("p"), id="our gate"),
        pytest.param(pod("p", GPU, schedulerName=keys.SCHEDULER), id="our scheduler"),
        pytest.param(pod("p", {keys.NVIDIA_GPU: "1"}), id="NVIDIA's"),
        pytest.param(
            pod("p", {keys.NVIDIA_GPU_SHARED: "1"}, nodeSelector={keys.NODE_MODE: "default"}),
            id="NVIDIA's replicas",
        ),
        pytest.param(pod("p", labels={keys.COMPUTE_CLASS: "gpu"}), id="class"),
        pytest.param(pod("p"), id="no GPU"),
        pytest.param(pod("p", {keys.GPU_WHOLE: "0"}), id="0 GPUs"),
    ],
)
@pytest.mark.usefixtures("closed_again")
def test_a_pod_that_was_judged_or_fails_open_is_not_tried_again(plane, pods, made):
    assert refusal(lambda: plane.api.create(pods, made, dryRun="All")) == ""


# ---- What fails closed.


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(pod("p", initContainers=many(1024)), id="containers"),
        pytest.param(pod("p", others(129)), id="limits, which are requests too"),
    ],
)
def test_a_pod_of_more_containers_or_resources_than_are_read_is_refused(plane, pods, made):
    message = refusal(lambda: plane.api.create(pods, made))
    assert "may have 1024 containers, and each of them 256 limits and requests" in message


def test_a_gate_among_more_than_are_read_is_not_taken_for_ours(plane, pods):
    many = [{"name": keys.GANG}, *({"name": f"example.com/{number}"} for number in range(1024))]
    message = refusal(lambda: plane.api.create(pods, pod("p", GPU, schedulingGates=many)))
    assert "would bypass Linkwise" in message
    assert refusal(lambda: plane.api.create(pods, pod("p", schedulingGates=many))) == ""


@pytest.mark.parametrize(
    "limits",
    [{keys.GPU_MEM: "2"}, GPU, {"aliyun.com/other": "1"}, {keys.NVIDIA_GPU_SHARED: "1"}],
)
def test_pod_that_would_bypass_linkwise_is_refused_with_a_fix(plane, pods, limits):
    message = refusal(lambda: plane.api.create(pods, pod("p", limits)))
    assert "create the pod again" in message
    init = pod("p", initContainers=[container(limits, "init")])
    assert "create the pod again" in refusal(lambda: plane.api.create(pods, init))
    another = pod("p", limits, schedulerName="another")
    assert "remove schedulerName" in refusal(lambda: plane.api.create(pods, another))


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(gated("p"), id="our gate"),
        pytest.param(pod("p", GPU, schedulerName=keys.SCHEDULER), id="our scheduler"),
        pytest.param(pod("p", {keys.NVIDIA_GPU: "1"}), id="NVIDIA's"),
        pytest.param(pod("p"), id="no GPU"),
        pytest.param(pod("p", {keys.GPU_WHOLE: "0"}, nodeName="n"), id="0 GPUs of a node"),
        pytest.param(pod("p", {keys.NVIDIA_GPU: "1"}, nodeName="n"), id="NVIDIA's, of a node"),
    ],
)
def test_placed_or_foreign_pod_is_created(plane, pods, made):
    assert refusal(lambda: plane.api.create(pods, made)) == ""


REPLICA = {keys.NVIDIA_GPU_SHARED: "1"}
ZONE = requirement("zone", "In", "a")
NAMED = {"matchFields": [requirement("metadata.name", "In", "n")]}


def of_mode(operator, *modes):
    return requirement(keys.NODE_MODE, operator, *modes)


def left(limits=REPLICA, **spec):
    return pod("p", limits, **spec)


def with_a_named_node(*of_each):
    """Return terms, and one more that names a node and no label."""
    spec = terms(*of_each)
    needed = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    needed["nodeSelectorTerms"].append(NAMED)
    return spec


EXCLUDED = terms([of_mode("NotIn", "timeslice")])


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(left(nodeSelector={keys.NODE_MODE: "default"}), id="selector"),
        pytest.param(left(**EXCLUDED), id="NotIn"),
        pytest.param(left(**terms([of_mode("In", "default", "topology")])), id="In"),
        pytest.param(left(**terms([of_mode("DoesNotExist")])), id="DoesNotExist"),
        pytest.param(left(**terms([ZONE, of_mode("NotIn", "a", "timeslice")], [])), id="and empty"),
        pytest.param(
            left(**terms(*[[ZONE, of_mode("NotIn", "timeslice")]] * 100)), id="as many as placed"
        ),
        pytest.param(left(schedulerName="another", **EXCLUDED), id="another scheduler"),
    ],
)
def test_a_pod_that_stays_off_nodes_of_mode_timeslice_is_left_to_nvidias_plugin(plane, pods, made):
    assert refusal(lambda: plane.api.create(pods, made)) == ""


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(left(nodeSelector={keys.NODE_MODE: "timeslice"}), id="selector"),
        pytest.param(left(nodeSelector={"zone": "a"}), id="other selector"),
        pytest.param(left(**terms([of_mode("In", "timeslice", "default")])), id="In"),
        pytest.param(left(**terms([of_mode("NotIn", "share")])), id="NotIn"),
        pytest.param(left(**terms([of_mode("Exists")])), id="Exists"),
        pytest.param(left(**terms([ZONE], [of_mode("DoesNotExist")])), id="one term of two"),
        pytest.param(left(**with_a_named_node([of_mode("DoesNotExist")])), id="a node's name"),
        pytest.param(
            left(**terms(*[[of_mode("DoesNotExist")]] * 1025)), id="more terms than are read"
        ),
        pytest.param(
            left(**terms([*[ZONE] * 256, of_mode("DoesNotExist")])), id="more labels than are read"
        ),
        pytest.param(left(GPU, **EXCLUDED), id="ours"),
        pytest.param(left({**REPLICA, **GPU}, **EXCLUDED), id="ours, too"),
        pytest.param(left(**terms(*[[ZONE] * 40 + [of_mode("Exists")]] * 1000)), id="very many"),
        pytest.param(
            left(initContainers=[container(GPU, "init")], **EXCLUDED),
            id="ours, in an init container",
        ),
    ],
)
def test_a_pod_that_could_take_replicas_that_linkwise_gives_out_is_refused(plane, pods, made):
    assert "linkwise-placed" in refusal(lambda: plane.api.create(pods, made))


def test_a_pod_that_names_its_node_is_refused_wherever_its_affinity_would_lead(plane, pods):
    message = refusal(lambda: plane.api.create(pods, left(nodeName="n", **EXCLUDED)))
    assert "remove nodeName" in message


MIRROR = {keys.MIRROR_POD: "x"}


@pytest.mark.parametrize("limits", [GPU, {keys.GPU_MEM: "2"}, {keys.NVIDIA_GPU_SHARED: "1"}])
def test_node_name_alone_does_not_prove_a_placement(plane, pods, limits):
    for given in ({}, {"schedulerName": keys.SCHEDULER}, {"annotations": MIRROR}):
        message = refusal(lambda given=given: plane.api.create(pods, on_node(limits, **given)))
        assert "remove nodeName" in message


def on_node(limits, **given):
    return pod("p", limits, nodeName="node-a", **given)


@pytest.mark.parametrize(
    ("user", "group", "made"),
    [
        pytest.param("system:node:node-a", "system:nodes", True, id="its node"),
        pytest.param("system:node:node-b", "system:nodes", False, id="another node"),
        pytest.param("system:node:node-a", "system:other", False, id="not in the group"),
        pytest.param(
            f"{CONTROLLERS}:daemon-set-controller", "system:nodes", False, id="a DaemonSet"
        ),
    ],
)
def test_only_the_node_itself_mirrors_a_pod_of_its_files(plane, pods, user, group, made):
    body = {"apiVersion": "v1", "kind": "Pod", **on_node(GPU, annotations=MIRROR)}
    who = (f"--as={user}", f"--as-group={group}", "--as-group=system:masters")
    home = f"--namespace={pods.split('/')[4]}"

    created = plane.kubectl("create", home, *who, "--filename=-", stdin=json.dumps(body))

    assert (created.returncode == 0) is made, created.stderr
    assert made or "remove nodeName" in created.stderr


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
        wait_until(lambda: bundles(plane) != {b""}, "a CA is written")
        trusted = read_leaf(secret(plane)["data"]).trusted
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
        plane.api.delete(f"/api/v1/namespaces/{NAMESPACE}/secrets/{CA_SECRET}")
        wait_until(lambda: all(len(x) > len(trusted) for x in bundles(plane)), "a CA is announced")
        assert all(bundle.startswith(trusted) for bundle in bundles(plane))
        wait_until(lambda: {"CAIssued", "CAAnnounced"} <= reasons(plane), "both have an Event")
        status = plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/linkwise-certs")
        assert json.loads(status["data"]["status.json"])["mode"] == "self"
        command = (sys.executable, "-m", "linkwise.cli", "certs", "status", "-o", "json")
        asked = (*command, f"--kubeconfig={plane.kubeconfig}")

        def report():
            return subprocess.run(asked, capture_output=True, text=True, check=False, cwd=ROOT)

        wait_until(lambda: json.loads(report().stdout)["phase"] == "wait", "the CA is announced")
        shown = report()
        assert (shown.returncode, shown.stderr) == (0, "")
        roles = [each["role"] for each in json.loads(shown.stdout)["authorities"]]
        assert roles == ["previous", "next"]
    finally:
        plane.processes.stop(process)
        register_unreachable(plane)


def reasons(plane):
    events = plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/events")["items"]
    return {event["reason"] for event in events}


def secret(plane):
    return plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/{SERVERS[0][1]}")


def bundles(plane):
    hooks = [hook for path in REGISTERED for hook in plane.api.get(path)["webhooks"]]
    return {base64.b64decode(hook["clientConfig"].get("caBundle", "")) for hook in hooks}
