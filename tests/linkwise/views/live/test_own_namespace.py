import gc
import json
import threading

import pytest
from support.builders import a_pod, dgx1_v100, node_object, placed_pod, topology_map
from support.servers.person_api import NODES, PODS, refused, served

from linkwise.admission.dry_run.dryrun import PATH, dry_run, encode_dry_run, read_manifest
from linkwise.cluster import keys
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.dry_run_proxy import PROXY, token_path
from linkwise.cluster.gang import GangKey
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.cluster.nodes.topology_configmap import PublishedTopology
from linkwise.manifest.objects import objects_in
from linkwise.planning.gang.crd import name_of
from linkwise.planning.whatif.preemption import without_names
from linkwise.views.analysis.fit import fit_results
from linkwise.views.files.cluster_file import collect_objects
from linkwise.views.files.current_cluster import current_cluster
from linkwise.views.files.inputs import Inputs
from linkwise.views.live import asked_placement

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


def members(gang, gpus=1):
    return [
        at_home(
            a_pod(
                {keys.GPU_WHOLE: gpus},
                name=f"{gang}-{i}",
                labels=marked(gang),
                schedulingGates=GATE,
            )
        )
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


def on_node(name, *gpus, namespace="team"):
    """Return the pods of a gang of a low priority that has GPUs of the node."""
    owner = {"kind": "JobSet", "name": name, "uid": name, "controller": True}
    labels = {keys.POD_GROUP_NAME: name, keys.POD_GROUP_MIN_AVAILABLE: str(len(gpus))}
    pods = [placed_pod(f"{name}-{i}", ONE, "gpu", GPUShare(i), labels=labels) for i in gpus]
    for pod in pods:
        pod["metadata"] |= {
            "namespace": namespace, "uid": pod["metadata"]["name"], "ownerReferences": [owner],
        }  # fmt: skip
    return pods


def answering(cluster, *pods):
    """Let the dry-run API answer about a node with these pods; return what it was sent."""
    sent = []
    node = node_object(
        "gpu", {keys.NODE_MODE: "topology"}, **{keys.GPU_WHOLE: "8", "cpu": "96", "pods": "9"}
    )
    topology = topology_map("gpu", PublishedTopology(dgx1_v100(), (True,) * 8))
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [node, topology, *pods]})
    seen = current_cluster(collect_objects(objects_in(text, "cluster"), "cluster"), "team", "")
    inputs = Inputs(
        templates=(), unjudged=(), policy=seen.policy, cluster=seen.cluster, namespaces={},
        claims_asked={}, capacity=Capacity(), warnings=(), stored=seen.objects,
    )  # fmt: skip

    def answer(query, body):
        sent.append(json.loads(body)["items"])
        home = query["namespace"]
        read = read_manifest(body, home)
        report = dry_run(read, namespaces={home: {}}, policy=seen.policy, capacity=Capacity())
        found = fit_results(inputs, seen.cluster, report.fit_request, 0.0)
        return 200, encode_dry_run(report, [without_names(fit, {home}) for fit in found])

    cluster.posts[token_path("team")] = lambda *_: (201, {"status": {"token": "of-team"}})
    cluster.posts[f"{PROXY}{PATH}"] = answer
    return sent


def waits(cluster, pods, gang="bert", **spec):
    """Let pods of a gang of a high priority wait."""
    for pod in pods:
        pod["spec"]["priority"] = 9
    cluster.objects[f"{HOME}/pods"] = pods
    cluster.objects[GANGS] = [gang_object(gang, "Waiting", WHY, **spec)]


def test_whoever_may_edit_the_namespace_learns_what_would_be_evicted(cluster, linkwise):
    waits(cluster, members("bert", 4))
    theirs = on_node("secret", *range(1, 8), namespace="other")
    sent = answering(cluster, *on_node("low", 0), *theirs)

    code, item = explained(linkwise, "gang", "bert")

    assert (code, item["state"], item["reason"]) == (1, "waits", WHY)
    named = [(unit["namespace"], unit["name"]) for unit in item["preempts"]]
    assert (named, item["preempts_others"]) == ([("team", "low")], 1)
    [pods] = sent
    assert [pod["metadata"]["name"] for pod in pods] == ["bert-0", "bert-1"]
    assert not any("schedulingGates" in pod["spec"] for pod in pods)
    shown = linkwise("explain", "gang", "bert").out
    assert "would preempt gang team/low: 1 pod" in shown
    assert "would preempt 1 unit of other namespaces" in shown


def of_job_set(cluster, gpus=3):
    """Return the pods of two Jobs of a JobSet, which are a gang by their owner."""
    pods, top = [], {
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "js", "uid": "js",
        "controller": True,
    }  # fmt: skip
    head = {"apiVersion": top["apiVersion"], "kind": "JobSet"}
    found = {**head, "metadata": {"name": "js", "namespace": "team", "uid": "js"}, "spec": {}}
    path = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets/js"
    cluster.faults[path] = lambda _: (200, found)
    for job in ("js-w-0", "js-w-1"):
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job}
        owner["controller"] = True
        metadata = {"name": job, "namespace": "team", "uid": job, "ownerReferences": [top]}
        made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {}}
        cluster.faults[f"/apis/batch/v1/namespaces/team/jobs/{job}"] = lambda _, made=made: (
            200,
            made,
        )
        mark = {keys.GANG: "js", keys.GANG_KIND: "JobSet"}
        labels = {"jobset.sigs.k8s.io/jobset-name": "js"}
        pod = at_home(
            a_pod(
                {keys.GPU_WHOLE: gpus},
                name=f"{job}-0",
                labels=labels,
                annotations=mark,
                schedulingGates=GATE,
            )
        )
        pod["metadata"]["ownerReferences"] = [owner]
        pods.append(pod)
    return pods


def test_a_gang_by_its_owner_is_asked_about_as_one(cluster, linkwise):
    waits(cluster, of_job_set(cluster), "js", owner="js", size=2)
    # Each Job alone would fit.
    answering(cluster, *on_node("low", *range(3)))

    _, item = explained(linkwise, "gang", "js")

    assert (item["state"], [unit["name"] for unit in item["preempts"]]) == ("waits", ["low"])


def test_an_elastic_gang_is_asked_about_with_the_members_without_which_it_does_not_start(
    cluster, linkwise
):
    waits(cluster, of_job_set(cluster, 5), "js", owner="js", size=1)
    answering(cluster, *on_node("low", *range(6)))

    _, item = explained(linkwise, "gang", "js")

    assert (item["state"], [unit["name"] for unit in item["preempts"]]) == ("waits", ["low"])


def test_a_gang_that_never_fits_is_told_from_one_that_waits(cluster, linkwise):
    waits(cluster, members("bert", 8))
    answering(cluster)

    _, item = explained(linkwise, "gang", "bert")

    assert (item["state"], item["reason"]) == ("never", WHY)
    assert item["help"] == ["it would not fit if nothing else ran: add nodes, or ask for less"]


@pytest.mark.parametrize(
    "status",
    [
        {"nominatedNodes": [{"node": "gpu", "gpus": [0]}]},
        {"phase": "Assembling", "reason": "2 of 3 members"},
    ],
    ids=["others are evicted for it", "members are missing"],
)
def test_a_gang_that_cannot_start_now_is_not_simulated(cluster, linkwise, status):
    waits(cluster, members("bert"))
    cluster.objects[GANGS][0]["status"] |= status
    sent = answering(cluster, *on_node("low", *range(8)))

    assert "preempts" not in explained(linkwise, "gang", "bert")[1]
    assert sent == []


@pytest.mark.parametrize(
    ("answer", "warning"),
    [
        pytest.param(
            lambda *_: (503, b"no endpoints available\n"),
            "the dry-run API answers with status 503: no endpoints available.",
            id="no pod",
        ),
        pytest.param(None, "the dry-run API answers with status 404: not found.", id="no Service"),
        pytest.param(lambda *_: (200, b"?"), "there is no answer of the dry-run API.", id="other"),
    ],
)
def test_an_explanation_says_that_the_dry_run_api_gives_no_answer(
    cluster, linkwise, answer, warning
):
    waits(cluster, members("bert"))
    answering(cluster)
    cluster.posts[f"{PROXY}{PATH}"] = answer

    ran = linkwise("explain", "gang", "bert")

    assert ran.out.startswith("waits gang team/bert\n")
    assert ran.err.count(f"linkwise: What would be preempted is not known: {warning}\n") == 1


# TLS has not been shut down where a call was given up, and the command ends.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_an_explanation_does_not_wait_for_a_way_that_is_closed(cluster, linkwise, monkeypatch):
    both = [*members("bert"), *members("bert")]
    for pod, owner in zip(both, ("a", "a", "b", "b"), strict=True):
        job = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner}
        pod["metadata"] |= {"ownerReferences": [{**job, "controller": True}]}
        pod["metadata"]["name"] += owner
    waits(cluster, both)
    cluster.objects[GANGS] = [gang_object("bert", "Waiting", WHY, owner=uid) for uid in "ab"]
    answering(cluster)
    asked, ended = [], threading.Event()

    def silent(*_):
        asked.append(1)
        ended.wait()
        return 503, b""

    cluster.posts[f"{PROXY}{PATH}"] = silent
    monkeypatch.setattr(asked_placement, "ANSWERED_IN", 1.0)
    try:
        ran = linkwise("explain", "gang", "bert")
    finally:
        ended.set()
        gc.collect()

    assert ran.out.count("waits gang team/bert\n") == 2
    assert ran.err.count("the dry-run API does not answer within 1 s") == 1
    # The other one is not asked about.
    assert len(asked) == 1


def test_whoever_may_not_edit_is_not_warned(cluster, linkwise):
    waits(cluster, members("bert"))
    answering(cluster)
    cluster.posts[token_path("team")] = lambda *_: (403, {"message": "no tokens"})

    ran = linkwise("explain", "gang", "bert")

    assert (ran.code, ran.err.count("linkwise: ")) == (1, 1)


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
