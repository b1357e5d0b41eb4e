import base64
import json
import ssl
import stat
import sys

import pytest
from support.builders import a_pod, node_object, placed_pod
from support.certificates import a_ca, a_leaf
from support.dra import a_claim, a_device, a_rule, a_slice
from support.servers.person_api import NODES, PODS, TOKEN, refused, served
from support.volumes import CLASSES, CSI_NODES, VOLUMES, a_volume, a_volume_claim

from linkwise.cluster import keys
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.gang import GangKey
from linkwise.planning.gang.crd import name_of

VOLUME_CLAIMS = "/api/v1/persistentvolumeclaims"


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    with served(tmp_path, monkeypatch) as made:
        yield made


def encoded(data):
    return base64.b64encode(data).decode()


def test_user_is_read_from_the_kubeconfig(cluster, linkwise):
    ran = linkwise("inspect")

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("gpu default, links unknown; 4 of 4 GPUs free\n")
    assert cluster.header("Authorization") == f"Bearer {TOKEN}"


def test_token_is_read_without_trailing_newline(cluster, linkwise, write):
    write("token", f"{TOKEN}\n")
    cluster.kubeconfig({"tokenFile": "token"})

    assert linkwise("inspect").code == 0
    assert cluster.header("Authorization") == f"Bearer {TOKEN}"


def test_a_credential_plugin_is_run(cluster, linkwise, write):
    version = "client.authentication.k8s.io/v1"
    plugin = write(
        "plugin",
        f"#!{sys.executable}\nimport json, os\n"
        "assert json.loads(os.environ['KUBERNETES_EXEC_INFO'])['kind'] == 'ExecCredential'\n"
        f"print(json.dumps({{'apiVersion': '{version}', 'kind': 'ExecCredential',\n"
        "  'status': {'token': os.environ['WHO']}}))\n",
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    env = [{"name": "WHO", "value": "plugged"}]
    cluster.kubeconfig({"exec": {"apiVersion": version, "command": str(plugin), "env": env}})

    assert linkwise("inspect").code == 0
    assert cluster.header("Authorization") == "Bearer plugged"


def test_failing_credential_plugin_is_an_error(cluster, linkwise):
    version = "client.authentication.k8s.io/v1"
    args = ["-c", "import sys; sys.exit('log in\\nfirst')"]
    user = {"exec": {"apiVersion": version, "command": sys.executable, "args": args}}
    cluster.kubeconfig(user)

    ran = linkwise("inspect")

    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "linkwise: the kubeconfig gives no access: exec: process returned 1. log in first. "
        "Try kubectl.\n"
    )


def test_a_client_certificate_is_shown(cluster, linkwise):
    cluster.context.load_verify_locations(cluster.folder / "ca.crt")
    cluster.context.verify_mode = ssl.CERT_REQUIRED
    ann = a_leaf(cluster.ca, name="ann", usage="CLIENT_AUTH")
    cluster.kubeconfig({})
    without = linkwise("inspect")
    certificate, key = encoded(ann.cert_pem), encoded(ann.key_pem)
    cluster.kubeconfig({"client-certificate-data": certificate, "client-key-data": key})

    assert without.code == 2
    assert linkwise("inspect").code == 0


def test_impersonation_sets_the_headers(cluster, linkwise):
    cluster.kubeconfig({"token": TOKEN, "as": "bob", "as-groups": ["a", "b"], "as-uid": "7"})

    assert linkwise("inspect").code == 0
    assert cluster.header("Impersonate-User") == "bob"
    _, _, headers = cluster.server.requests[0]
    assert headers.get_all("Impersonate-Group") == ["a", "b"]
    assert cluster.header("Impersonate-Uid") == "7"


def test_context_without_user_has_no_credentials(cluster, linkwise):
    assert linkwise("inspect", "--context", "play").code == 0
    assert cluster.header("Authorization") is None


def test_untrusted_server_is_contacted_only_with_insecure_setting(cluster, linkwise):
    other = encoded(a_ca().cert_pem)
    cluster.kubeconfig(**{"certificate-authority-data": other})
    ran = linkwise("inspect")
    assert (ran.code, cluster.requests) == (2, [])
    assert ran.err.startswith(f"linkwise: {cluster.url}: its certificate is not trusted (")

    config = cluster.kubeconfig(**{"insecure-skip-tls-verify": True})
    del config["clusters"][0]["cluster"]["certificate-authority"]
    (cluster.folder / "config").write_text(json.dumps(config))
    assert linkwise("inspect").code == 0


def test_first_kubeconfig_with_current_context_wins(cluster, linkwise, monkeypatch):
    other = cluster.kubeconfig(name="other", namespace="theirs")
    other["contexts"][0]["context"]["cluster"] = "nowhere"
    (cluster.folder / "other").write_text(json.dumps(other))
    monkeypatch.setenv("KUBECONFIG", "none:config:other")

    assert linkwise("inspect").code == 0
    assert linkwise("explain", "pod", "p").err.startswith("linkwise: there is no pod team/p.")


@pytest.mark.parametrize(
    ("arguments", "reply"),
    [
        (("--kubeconfig", "none"), "there is no kubeconfig none. Name one with --kubeconfig"),
        (
            ("--context", "home"),
            "there is no context home in the kubeconfig. Name one with --context: play, work.",
        ),
        (("--kubeconfig", "empty"), "the kubeconfig cannot be used: "),
        (("--kubeconfig", "list"), "the kubeconfig cannot be used: "),
        (("--kubeconfig", "no-yaml"), "the kubeconfig cannot be used: "),
        (("--kubeconfig", "chooses-none"), "the kubeconfig chooses no context. Name one with"),
        (("--kubeconfig", "no-server"), "the kubeconfig names no server."),
        (("--kubeconfig", "no-cluster"), "the kubeconfig gives no access: "),
        (("--kubeconfig", "no-file"), "the kubeconfig gives no access: "),
        (("--kubeconfig", "."), "there is no kubeconfig .."),
    ],
)
@pytest.mark.usefixtures("cluster")
def test_invalid_kubeconfig_is_one_line(cluster, linkwise, write, arguments, reply):
    write("empty", "")
    write("list", "[1]")
    write("no-yaml", "clusters:\n- a\nb: |x")
    good = json.dumps(cluster.kubeconfig())
    write("chooses-none", good.replace('"current-context"', '"other"'))
    write("no-server", good.replace('"server"', '"other"'))
    write("no-cluster", good.replace('"name": "here"', '"name": "there"'))
    write("no-file", good.replace("ca.crt", "none.crt"))

    ran = linkwise("inspect", *arguments)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"linkwise: {reply}")
    assert ran.err.count("\n") == 1


def test_unavailable_server_is_an_error(cluster, linkwise):
    cluster.kubeconfig(server="https://127.0.0.1:1")

    ran = linkwise("snapshot")

    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "linkwise: https://127.0.0.1:1: connect call failed ('127.0.0.1', 1). See whether kubectl "
        "gets an answer, or name a --context.\n"
    )


FORBIDDEN = 'pods is forbidden: User "ann" cannot list resource "pods" at the cluster scope'


@pytest.mark.parametrize(
    ("fault", "reply"),
    [
        (refused(401), "it rejects your credentials (status 401). Log in again"),
        (refused(403, FORBIDDEN), f"{FORBIDDEN}. Ask for the ClusterRole linkwise-view."),
        (refused(500, "etcd is away"), "/api/v1/pods: etcd is away (status 500). Try again."),
        (lambda _: (500, b"\xff"), "/api/v1/pods: \ufffd (status 500). Try again."),
        (lambda _: (200, b"<html>"), "it does not answer as an API server does."),
        (lambda _: (200, b'{"x":' + b"[" * 9999), "it does not answer as an API server does."),
        (
            lambda _: (200, {"items": [{"metadata": {"name": 1}}]}),
            "/api/v1/pods has an object that Kubernetes would not take: ",
        ),
    ],
    ids=["unknown", "forbidden", "broken", "no text", "no API server", "nested", "no pods"],
)
def test_unusable_response_is_one_line(cluster, linkwise, fault, reply):
    cluster.faults[PODS] = fault

    ran = linkwise("inspect")

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"linkwise: {cluster.url}: {reply}")
    assert ran.err.count("\n") == 1


def test_optional_objects_without_permission_are_a_warning(cluster, linkwise):
    cluster.faults["/api/v1/namespaces/kube-system/configmaps"] = refused(403, "configmaps: no")

    ran = linkwise("inspect")

    assert ran.code == 0
    assert ran.err == (
        "linkwise: configmaps: no: less is known. Ask for the Role linkwise-view in kube-system.\n"
    )


def test_lists_are_read_in_pages(cluster, linkwise):
    cluster.objects[PODS] = [
        {"metadata": {"name": f"p-{i}", "namespace": "team"}} for i in range(1001)
    ]

    document = json.loads(linkwise("snapshot").out)

    assert sum(one["kind"] == "Pod" for one in document["items"]) == 1001
    pages = [query for path, query, _ in cluster.server.requests if path == PODS]
    assert [page.get("continue") for page in pages] == [None, "500", "1000"]


def test_expired_list_is_read_again_without_pages(cluster, linkwise):
    pods = [{"metadata": {"name": f"p-{i}", "namespace": "team"}} for i in range(501)]
    cluster.objects[PODS] = pods

    def expired(query):
        if "continue" in query:
            return 410, {"kind": "Status", "reason": "Expired"}
        cut = pods[: int(query["limit"])] if "limit" in query else pods
        return 200, {"metadata": {"continue": "500" if "limit" in query else ""}, "items": cut}

    cluster.faults[PODS] = expired

    document = json.loads(linkwise("snapshot").out)

    assert sum(one["kind"] == "Pod" for one in document["items"]) == 501


def test_snapshot_file_is_read_as_the_same_cluster(cluster, linkwise):
    live = linkwise("inspect", "-o", "json").out

    ran = linkwise("snapshot", "--to", "cluster.json")

    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert linkwise("inspect", "--cluster", "cluster.json", "-o", "json").out == live
    assert (cluster.folder / "cluster.json").read_text() == linkwise("snapshot").out


def test_workloads_are_read_only_for_waiting_gangs(cluster, linkwise):
    version = "kubeflow.org/v2beta1"
    owner = {"apiVersion": version, "kind": "MPIJob", "name": "job", "uid": "u"}
    pod = {
        "metadata": {
            "name": "job-worker-0",
            "namespace": "team",
            "labels": {keys.POD_GROUP_NAME: "job"},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {
            "containers": [{"resources": {"limits": {keys.GPU_WHOLE: 1}}}],
            "schedulingGates": [{"name": keys.GANG}],
        },
    }
    template = {"spec": {"containers": [{"resources": {"limits": {keys.GPU_WHOLE: 1}}}]}}
    replicas = {"Worker": {"replicas": 2, "template": template}}
    job = {"apiVersion": version, "kind": "MPIJob", "metadata": {"name": "job", "uid": "u"}}
    path = f"/apis/{version}/namespaces/team/mpijobs/job"
    whole = {**job, "spec": {"mpiReplicaSpecs": replicas}}
    cluster.faults[path] = lambda _: (200, whole)
    assert linkwise("snapshot").code == 0
    assert path not in cluster.requests

    names = ("job-worker-0", "job-worker-1")
    cluster.objects[PODS] = [
        {**pod, "metadata": {**pod["metadata"], "name": name}} for name in names
    ]
    [unit] = json.loads(linkwise("explain", "gang", "job", "-o", "json").out)["items"]

    assert cluster.requests.count(path) == 1
    assert unit["reason"].startswith("needs 2 GPUs as 2 × 1 GPU")

    # Another job of its name, of which these pods are not.
    whole["metadata"] = {"name": "job", "uid": "other"}
    kept = json.loads(linkwise("snapshot").out)["items"]
    assert "MPIJob" not in {one["kind"] for one in kept}


def test_the_pod_group_of_a_gang_that_waits_is_kept(cluster, linkwise):
    metadata = {"name": "bert", "namespace": "team"}
    group = {"kind": "PodGroup", "metadata": {**metadata, "annotations": {"secret": "x"}}}
    path = f"/apis/{keys.NATIVE_GROUP_API_BEFORE}/namespaces/team/podgroups/bert"
    policy = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    whole = {"apiVersion": keys.NATIVE_GROUP_API_BEFORE, **group, "spec": {**policy, "other": 1}}
    cluster.faults[path] = lambda _: (200, whole)
    spec = {
        "containers": [{"resources": {"limits": {keys.GPU_WHOLE: 1}}}],
        "schedulingGates": [{"name": keys.GANG}],
        "schedulingGroup": {"podGroupName": "bert"},
    }
    cluster.objects[PODS] = [
        {"metadata": {"name": f"bert-{i}", "namespace": "team"}, "spec": spec} for i in range(2)
    ]

    kept = json.loads(linkwise("snapshot").out)["items"]
    [unit] = json.loads(linkwise("explain", "gang", "bert", "-o", "json").out)["items"]

    groups = [one for one in kept if one["kind"] == "PodGroup"]
    assert groups == [{**whole, "metadata": metadata, "spec": policy}]
    assert cluster.requests.count(path) == 2
    assert unit["reason"] == "2 of 3 members"


def test_recorded_plan_is_read_from_the_gang_object(cluster, linkwise):
    record = '{"v":1,"node":"gpu","gpus":[{"i":0}],"plan":"1-1"}'
    labels = {keys.POD_GROUP_NAME: "g", keys.POD_GROUP_MIN_AVAILABLE: "1"}
    metadata = {"name": "p", "namespace": "team", "uid": "u", "labels": labels}
    cluster.objects[NODES] = [
        node_object("gpu", {keys.NODE_MODE: "topology"}, **{keys.GPU_WHOLE: "4", "cpu": "4"})
    ]
    cluster.objects[PODS] = [
        {
            "metadata": {**metadata, "annotations": {keys.ALLOCATION: record}},
            "spec": {
                "nodeName": "gpu",
                "containers": [{"resources": {"limits": {keys.GPU_WHOLE: 1}}}],
            },
        }
    ]
    plan = {
        "id": "1-1",
        "exact": True,
        "members": [{"pod": "p", "uid": "u", "node": "gpu", "gpus": [0]}],
        "bandwidth": 30.5,
        "bestPossible": 40.5,
        "bestPossibleNodes": 1,
        "indexOrder": 20.5,
        "indexOrderNodes": 1,
    }
    name = linkwise("explain", "gang", "team/g", "-o", "json")
    assert json.loads(name.out)["items"][0]["bandwidth"] is None

    gang = {
        "metadata": {"name": name_of(GangKey("team", "g", "")), "namespace": "team"},
        "spec": {"gang": "g", "link": "best", "size": 1, "plan": plan},
    }
    cluster.objects[f"/apis/{keys.API_VERSION}/gangs"] = [gang]
    [unit] = json.loads(linkwise("explain", "gang", gang["metadata"]["name"], "-o", "json").out)[
        "items"
    ]

    assert (unit["bandwidth"], unit["best_possible"]) == (30.5, 40.5)
    assert unit["index_order"]["bandwidth"] == 20.5
    shown = linkwise("explain", "gang", "team/g").out
    assert "20.5 GB/s in index order (gpu: 0), 1.5 × less" in shown

    # A plan of other pods does not explain these.
    plan["members"][0]["uid"] = "other"
    [other] = json.loads(linkwise("explain", "gang", "team/g", "-o", "json").out)["items"]
    assert other["bandwidth"] is None


@pytest.mark.parametrize("version", ["v1", "v1beta2"])
def test_claims_nodes_are_read_and_kept_in_a_snapshot(cluster, linkwise, version):
    group = "/apis/resource.k8s.io"
    labels = {keys.NODE_MODE: "topology"}
    cluster.objects["/api/v1/nodes"] = [{"metadata": {"name": "claims", "labels": labels}}]
    cluster.objects[f"{group}/v1/resourceslices"] = [
        a_slice(*map(a_device, range(8)), node="claims")
    ]
    cluster.objects[f"{group}/v1/resourceclaims"] = [a_claim("gpu-3", node="claims")]
    cluster.objects[f"{group}/{version}/devicetaintrules"] = [
        a_rule("fault", "", "NoExecute", pool="claims", device="gpu-5")
    ]

    live = json.loads(linkwise("inspect", "-o", "json").out)
    linkwise("snapshot", "--to", "cluster.json")
    file = json.loads(linkwise("inspect", "--cluster", "cluster.json", "-o", "json").out)

    assert file == live
    [node] = live["nodes"]
    assert (node["machine_source"], node["unhealthy"]) == ("catalogue", [5])
    assert [device["id"] for device in node["devs"] if device["cordoned"]] == [3]


BUDGETS = "/apis/policy/v1/poddisruptionbudgets"


def pods_of_two_priorities(waiting):
    """Return a pod that has a GPU, of the Job `low`, and one that waits with a priority."""
    low = placed_pod("low-0", {keys.GPU_WHOLE: 1}, "gpu-0", GPUShare(0))
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "low", "uid": "j", "controller": True}
    low["metadata"] |= {"namespace": "team", "uid": "low-0", "ownerReferences": [owner]}
    high = a_pod({keys.GPU_WHOLE: 1}, name="high", priority=waiting)
    return [low, high]


@pytest.mark.parametrize("waiting", [1, 0])
def test_owners_and_budgets_of_pods_that_may_be_preempted_are_read(cluster, linkwise, waiting):
    cluster.objects[PODS] = pods_of_two_priorities(waiting)
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "low", "uid": "j"}}
    cluster.faults["/apis/batch/v1/namespaces/team/jobs/low"] = lambda _: (200, job)
    cluster.objects[BUDGETS] = [{"metadata": {"name": "keep", "namespace": "team"}}]

    document = json.loads(linkwise("snapshot").out)

    read = {one["kind"] for one in document["items"]} & {"Job", "PodDisruptionBudget"}
    assert read == ({"Job", "PodDisruptionBudget"} if waiting else set())


def test_budgets_without_permission_are_a_warning(cluster, linkwise):
    cluster.objects[PODS] = pods_of_two_priorities(1)
    cluster.faults[BUDGETS] = refused(403, "poddisruptionbudgets: no")

    ran = linkwise("snapshot")

    assert ran.code == 0
    assert "poddisruptionbudgets: no: less is known." in ran.err


def a_pod_with_a_claim():
    named = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    gates = [{"name": keys.GANG}]
    pod = a_pod({keys.GPU_WHOLE: 1}, name="train", volumes=named, schedulingGates=gates)
    pod["metadata"]["namespace"] = "team"
    return pod


def test_volumes_of_waiting_pods_are_read_where_the_user_may(cluster, linkwise):
    labels = {keys.NODE_MODE: "topology"}
    cluster.objects[NODES] = [node_object("gpu", labels, **{keys.GPU_WHOLE: "4"})]
    cluster.objects[PODS] = [a_pod_with_a_claim()]
    for path in (VOLUME_CLAIMS, VOLUMES, CLASSES, CSI_NODES):
        cluster.objects[path] = []

    assert (
        "PersistentVolumeClaim team/data, which does not exist"
        in linkwise("explain", "pod", "team/train").out
    )

    cluster.objects[VOLUME_CLAIMS] = [a_volume_claim(volume="pv")]
    cluster.objects[VOLUMES] = [a_volume(phase="Bound")]
    shown = linkwise("explain", "pod", "team/train").out
    assert "PersistentVolumeClaim" not in shown
    assert "Left to kube-scheduler" not in shown

    cluster.faults[VOLUMES] = refused(403, "persistentvolumes: no")
    assert "Left to kube-scheduler: volumes" in linkwise("explain", "pod", "team/train").out


def test_volumes_are_not_read_for_pods_without_claims(cluster, linkwise):
    cluster.objects[PODS] = [a_pod({keys.NVIDIA_GPU: 1}, name="train")]
    linkwise("explain", "pod", "default/train")
    assert not [path for path, *_ in cluster.server.requests if "persistentvolume" in path]
