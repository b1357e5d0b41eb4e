import json

import pytest
from msgspec import convert
from support.builders import a_pod, placed_pod
from support.servers.person_api import NODES, PODS, refused, served

from linkwise.admission.dry_run.dryrun import PATH, dry_run, encode_dry_run, read_manifest
from linkwise.cluster import keys
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.dry_run_proxy import PROXY, token_path
from linkwise.cluster.gang import GangKey
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.cluster.whatif_api import FitResult
from linkwise.planning.gang.crd import name_of
from linkwise.policy.snapshot import PolicySnapshot

GATE = [{"name": keys.GANG}]
ONE = {keys.GPU_WHOLE: 1}
HOME = "/api/v1/namespaces/team"
GANGS = "/apis/linkwise.dev/v1alpha1/namespaces/team/gangs"
NO_NODES = 'nodes is forbidden: User "ann" cannot list resource "nodes" at the cluster scope'
WHY = "it needs 4 GPUs on one node: 2 nodes have too few free GPUs"


def marked(name):
    return {keys.POD_GROUP_NAME: name, keys.POD_GROUP_MIN_AVAILABLE: "2"}


def at_home(pod):
    pod["metadata"]["namespace"] = "team"
    return pod


def members(gang):
    return [
        at_home(a_pod(ONE, name=f"{gang}-{i}", labels=marked(gang), schedulingGates=GATE))
        for i in range(2)
    ]


def gang_object(gang, phase, reason="", owner="", conditions=(), **spec):
    return {
        "apiVersion": keys.API_VERSION,
        "kind": "Gang",
        "metadata": {"name": name_of(GangKey("team", gang, owner)), "namespace": "team"},
        "spec": {"gang": gang, "link": "best", **({"owner": owner} if owner else {}), **spec},
        "status": {"phase": phase, "reason": reason, "conditions": list(conditions)},
    }


def condition(kind, status, message):
    since = "2026-11-22T10:00:00Z"
    return {
        "type": kind, "status": status, "reason": "R", "message": message,
        "lastTransitionTime": since,
    }  # fmt: skip


def event(uid, message, at, component=keys.SCORER):
    return {
        "reason": "WaitingForGPUs",
        "message": message,
        "lastTimestamp": at,
        "source": {"component": component},
        "involvedObject": {"uid": uid},
    }


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """An API server that lets its user read namespace `team` alone."""
    with served(tmp_path, monkeypatch) as made:
        made.faults = {NODES: refused(403, NO_NODES), PODS: refused(403, "pods: no")}
        made.objects |= {f"{HOME}/pods": [], GANGS: [], f"{HOME}/events": []}
        yield made


def explained(linkwise, kind, name):
    ran = linkwise("explain", kind, name, "-o", "json")
    assert ran.err.startswith("linkwise: You may not read nodes and the pods of all namespaces")
    (item,) = json.loads(ran.out)["items"]
    return ran.code, item


def test_a_waiting_gang_has_the_reason_of_its_object(cluster, linkwise):
    cluster.objects[f"{HOME}/pods"] = members("bert")
    cluster.objects[GANGS] = [gang_object("bert", "Waiting", WHY)]

    code, item = explained(linkwise, "gang", "team/bert")

    assert (code, item["state"], item["reason"]) == (1, "waits", WHY)
    assert [(pod["name"], pod["state"]) for pod in item["pods"]] == [
        ("bert-0", "waits"), ("bert-1", "waits"),
    ]  # fmt: skip
    assert explained(linkwise, "pod", "bert-1") == (1, item)


LOW = {
    "kind": "gang", "namespace": "team", "name": "low", "pods": 8, "running_seconds": 60,
    "gpu_hours": 0.1,
}  # fmt: skip


def answering(cluster, **fit):
    """Let the dry-run API answer about pods; return the manifests that it was sent."""
    sent = []
    result = {
        "fits": False, "gang": "bert", "pods": [], "nodes": [], "bandwidth": None,
        "best_possible": None, "why": None, "notes": [], "reason": "other words", **fit,
    }  # fmt: skip

    def answer(query, body):
        manifest = json.loads(body)
        sent.append((query["namespace"], manifest["items"]))
        read = read_manifest(body, query["namespace"])
        report = dry_run(
            read, namespaces={"team": {}}, policy=PolicySnapshot(), capacity=Capacity()
        )
        found = [convert(result, FitResult) for _ in report.fit_templates]
        return 200, encode_dry_run(report, found)

    cluster.posts[token_path("team")] = lambda *_: (201, {"status": {"token": "of-team"}})
    cluster.posts[f"{PROXY}{PATH}"] = answer
    return sent


def test_whoever_may_edit_the_namespace_learns_what_would_be_evicted(cluster, linkwise):
    cluster.objects[f"{HOME}/pods"] = members("bert")
    cluster.objects[GANGS] = [gang_object("bert", "Waiting", WHY)]
    sent = answering(cluster, preempts=[LOW], preempts_others=2)

    code, item = explained(linkwise, "gang", "bert")

    assert (code, item["state"], item["reason"]) == (1, "waits", WHY)
    assert (item["preempts"], item["preempts_others"]) == ([LOW], 2)
    [(namespace, pods)] = sent
    assert namespace == "team"
    assert [pod["metadata"]["name"] for pod in pods] == ["bert-0", "bert-1"]
    assert not any("schedulingGates" in pod["spec"] for pod in pods)
    shown = linkwise("explain", "gang", "bert").out
    assert "would preempt gang team/low: 8 pods" in shown
    assert "would preempt 2 units of other namespaces" in shown


def test_a_gang_that_never_fits_is_told_from_one_that_waits(cluster, linkwise):
    cluster.objects[f"{HOME}/pods"] = members("bert")
    cluster.objects[GANGS] = [gang_object("bert", "Waiting", WHY)]
    answering(cluster, never=True)

    _, item = explained(linkwise, "gang", "bert")

    assert (item["state"], item["reason"]) == ("never", WHY)
    assert item["help"] == ["it would not fit if nothing else ran: add nodes, or ask for less"]


def test_a_gang_for_which_others_are_evicted_is_not_simulated(cluster, linkwise):
    cluster.objects[f"{HOME}/pods"] = members("bert")
    gang = gang_object("bert", "Waiting", WHY)
    gang["status"]["nominatedNodes"] = [{"node": "gpu", "gpus": [0]}]
    cluster.objects[GANGS] = [gang]
    sent = answering(cluster, preempts=[LOW])

    assert "preempts" not in explained(linkwise, "gang", "bert")[1]
    assert sent == []


@pytest.mark.parametrize(
    ("phase", "reason", "shown"),
    [
        ("Assembling", "1 of 2 members", (1, "waits", "1 of 2 members")),
        ("Committing", "", (0, "fits", "its GPUs are reserved, and its pods are released to "
         "kube-scheduler")),
        ("Placed", "", (0, "placed", None)),
        ("Waiting", "", (1, "waits", "Linkwise has not said why: ask whether linkwise-scorer is "
         "ready, and look at `kubectl describe` of the pod")),
        ("Gone", "none", (1, "waits", "none")),
        ("Finished", "", (0, "finished", "it is finished and holds no GPUs")),
    ],
)  # fmt: skip
def test_the_phase_is_the_state(cluster, linkwise, phase, reason, shown):
    cluster.objects[f"{HOME}/pods"] = members("bert")
    cluster.objects[GANGS] = [gang_object("bert", phase, reason)]

    code, item = explained(linkwise, "gang", "bert")

    assert (code, item["state"], item["reason"]) == shown


def test_a_gang_whose_owner_may_not_be_read_is_found_by_its_name(cluster, linkwise):
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    pods = members("bert")
    for pod in pods:
        pod["metadata"]["ownerReferences"] = [owner]
    cluster.objects[f"{HOME}/pods"] = pods
    cluster.faults["/apis/batch/v1/namespaces/team/jobs/j"] = refused(403, "jobs: no")
    cluster.objects[GANGS] = [gang_object("bert", "Waiting", WHY, owner="the-jobset")]

    assert explained(linkwise, "gang", "bert")[1]["reason"] == WHY


def test_a_gang_without_an_object_or_without_pods_is_explained(cluster, linkwise):
    cluster.objects[f"{HOME}/pods"] = members("new")
    cluster.objects[GANGS] = [gang_object("old", "Suspended", "its Job is suspended")]

    assert explained(linkwise, "gang", "new")[1]["reason"].startswith("Linkwise has not said why")
    assert explained(linkwise, "gang", "old")[1]["state"] == "suspended"


def test_conditions_that_do_not_hold_are_notes(cluster, linkwise):
    cluster.objects[f"{HOME}/pods"] = members("bert")
    conditions = [
        condition("GPUsHealthy", "False", "1 unhealthy GPU"),
        condition("PodsPrepared", "True", "all are prepared"),
    ]
    cluster.objects[GANGS] = [gang_object("bert", "Placed", conditions=conditions)]

    _, item = explained(linkwise, "gang", "bert")

    assert item["unhealthy"] == "1 unhealthy GPU"
    assert item["notes"] == []


def test_the_last_event_of_the_scorer_says_why_a_pod_waits(cluster, linkwise):
    pod = at_home(a_pod(ONE, name="single", schedulingGates=GATE))
    pod["metadata"]["uid"] = "u"
    cluster.objects[f"{HOME}/pods"] = [pod]
    cluster.objects[f"{HOME}/events"] = [
        event("u", f"Waits for its GPUs: {WHY}", "2026-11-22T10:00:01Z"),
        event("u", "Waits for its GPUs: older", "2026-11-22T10:00:00Z"),
        event("u", "Waits for its GPUs: forged", "2026-11-22T10:00:02Z", "someone"),
    ]

    code, item = explained(linkwise, "pod", "single")

    assert (code, item["state"], item["reason"]) == (1, "waits", WHY)
    query = next(query for path, query, _ in cluster.server.requests if path.endswith("/events"))
    assert query["fieldSelector"] == "involvedObject.uid=u,reason=WaitingForGPUs"


def test_a_placed_pod_and_one_of_another_system_are_told_apart(cluster, linkwise):
    placed = at_home(placed_pod("placed", ONE, "gpu", GPUShare(3)))
    other = at_home(a_pod({"nvidia.com/mig-1g.5gb": 1}, name="mig"))
    cluster.objects[f"{HOME}/pods"] = [placed, other, at_home(a_pod({"cpu": 1}, name="cpu"))]

    _, item = explained(linkwise, "pod", "placed")
    assert (item["state"], item["pods"][0]["node"], item["pods"][0]["gpus"]) == (
        "placed", "gpu", [3],
    )  # fmt: skip
    assert explained(linkwise, "pod", "mig")[1]["reason"].startswith("it asks for MIG devices")
    assert explained(linkwise, "pod", "cpu")[1]["reason"].startswith("it asks for no GPU")


@pytest.mark.parametrize(
    ("path", "refusal", "reply"),
    [
        (f"{HOME}/pods", "pods: no", "pods: no. Ask for the role view in namespace team."),
        (GANGS, "gangs: no", "gangs: no. Ask for the ClusterRole linkwise-user in namespace team."),
    ],
    ids=["pods", "gangs"],
)
def test_a_namespace_that_may_not_be_read_is_refused(cluster, linkwise, path, refusal, reply):
    cluster.faults[path] = refused(403, refusal)

    ran = linkwise("explain", "gang", "team/bert")

    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"linkwise: {cluster.url}: {reply}\n"


@pytest.mark.usefixtures("cluster")
def test_an_unknown_name_is_an_error(linkwise):
    ran = linkwise("explain", "pod", "none", "-n", "team")

    assert (ran.code, ran.out) == (2, "")
    assert "there is no pod team/none." in ran.err


def test_whoever_may_read_no_nodes_is_told_what_answers(cluster, linkwise):
    del cluster.faults[PODS]
    ran = linkwise("dashboard", "--no-browser")

    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        f"linkwise: {cluster.url}: {NO_NODES}. Ask for the ClusterRole linkwise-view. Without it, "
        "`linkwise explain` and `linkwise check --server cluster` answer about your own "
        "namespace.\n"
    )
