import json
from dataclasses import replace

import pytest
from msgspec import structs
from support.builders import a_claimed_pod, a_pod, dgx1_v100, node_object, placed_pod, topology_map
from support.dra import a_claim, a_device, a_slice

from linkwise.cluster import keys
from linkwise.cluster.account.ledger import Ledger
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.gang import GangKey, Link
from linkwise.cluster.nodes.kubelet_policy import CPUManager, KubeletPolicy, TopologyManager
from linkwise.cluster.nodes.topology_configmap import PublishedTopology
from linkwise.manifest.objects import objects_in
from linkwise.planning.gang.crd import Gang, GangMetadata, GangSpec, GangStatus, Phase, name_of
from linkwise.planning.gang.crd_plan import NodeGPUs
from linkwise.planning.gang.exclusion import exclusion_id
from linkwise.planning.gang.owners import Owners
from linkwise.planning.placement.state.snapshot import snapshot_of
from linkwise.planning.state.reserved_gpus import ReservedGPUs
from linkwise.views.analysis.explain import explain_gang, explain_pod
from linkwise.views.analysis.planner_view import PlannerView, planner_view
from linkwise.views.analysis.unit_explanation import UnitState
from linkwise.views.files.cluster_file import collect_objects
from linkwise.views.files.current_cluster import current_cluster
from linkwise.views.live.snapshot import snapshot_text
from linkwise.views.render.explain_json import document as document_of
from linkwise.views.render.explain_text import show

ONE = {keys.GPU_WHOLE: 1}
GATE = [{"name": keys.GANG}]
DGX1 = PublishedTopology(dgx1_v100(), (True,) * 8)


def mark(name, size):
    return {keys.POD_GROUP_NAME: name, keys.POD_GROUP_MIN_AVAILABLE: str(size)}


def dgx(name):
    topology = {keys.NODE_MODE: "topology"}
    return [
        node_object(name, topology, **{keys.GPU_WHOLE: "8", "cpu": "96", "pods": "110"}),
        topology_map(name, DGX1),
    ]


def waiting(gang, size, present=None, limits=ONE, **annotations):
    """Return the pods of a gang behind our gate."""
    return [
        a_pod(
            limits,
            name=f"{gang}-{i}",
            labels=mark(gang, size),
            annotations=annotations,
            schedulingGates=GATE,
        )
        for i in range(present or size)
    ]


def settled(gang, node, *gpus, **fields):
    """Return the pods of a gang that has these GPUs, one each."""
    return [
        placed_pod(f"{gang}-{i}", ONE, node, GPUShare(gpu), labels=mark(gang, len(gpus)), **fields)
        for i, gpu in enumerate(gpus)
    ]


@pytest.fixture
def explain(linkwise, write):
    """Explains something of a cluster of these objects."""

    def call(objects, *arguments):
        write("cluster.json", snapshot_text(objects))
        return linkwise("explain", *arguments, "--cluster", "cluster.json")

    return call


@pytest.fixture
def document(explain):
    """The same, as scripts see it."""

    def call(objects, *arguments):
        return json.loads(explain(objects, *arguments, "-o", "json").out)["items"]

    return call


def test_placed_gang_shows_gpus_bandwidth_and_alternatives(explain):
    objects = [*dgx("dgx-0"), *settled("vgg16", "dgx-0", 0, 1, 2, 3)]

    ran = explain(objects, "gang", "default/vgg16")

    assert ran.out == (
        "placed gang default/vgg16 on dgx-0\n"
        "  55.2 GB/s modelled all-reduce bandwidth\n"
        "  55.2 GB/s the best that the empty cluster has\n"
        "  55.2 GB/s in index order (dgx-0: 0 1 2 3)\n"
        "  why: Only dgx-0 takes all 4 now.\n"
        "       dgx-0, GPUs 0 1 2 3: 55.2 GB/s; the next best kind of set gives 42.9 GB/s.\n"
        "       42.9 GB/s the runner-up, GPUs 0 3 4 7\n"
        "  POD      NODE   GPUS  STATE\n"
        "  vgg16-0  dgx-0  0     bound\n"
        "  vgg16-1  dgx-0  1     bound\n"
        "  vgg16-2  dgx-0  2     bound\n"
        "  vgg16-3  dgx-0  3     bound\n"
    )
    assert ran.code == 0


@pytest.mark.parametrize("pods", [settled("train", "dgx-0", 0, 1), waiting("train", 2)])
def test_policy_of_the_kubelet_of_its_node_is_a_note(explain, document, pods):
    policy = KubeletPolicy(CPUManager.STATIC, TopologyManager.BEST_EFFORT)
    node, _ = dgx("dgx-0")
    published = topology_map("dgx-0", replace(DGX1, kubelet=policy))

    message = explain([node, published, *pods], "gang", "train").out
    assert "  note: Of dgx-0: the exclusive CPUs of a Guaranteed pod may be" in message
    (unit,) = document([node, published, *pods], "gang", "train")
    assert unit["notes"] == [f"of dgx-0: {policy.numa_note}"]
    (unit,) = document([*dgx("dgx-0"), *pods], "gang", "train")
    assert unit["notes"] == []


@pytest.mark.parametrize("state", ["placed", "waiting"])
def test_gang_without_a_mark_says_why_it_is_one(explain, document, state):
    marks = {keys.GANG: "train", keys.GANG_SIZE: "2", keys.GANG_KIND: "MPIJob"}
    pods = [
        a_pod(ONE, name=f"train-{i}", annotations=marks, schedulingGates=GATE) for i in range(2)
    ]
    if state == "placed":
        pods = [placed_pod(f"train-{i}", ONE, "dgx-0", GPUShare(i)) for i in range(2)]
        for pod in pods:
            pod["metadata"]["annotations"] |= marks
    objects = [*dgx("dgx-0"), *pods]

    ran = explain(objects, "gang", "default/train")

    reason = "  note: Its pods are a gang because MPIJob train owns them (policy gangs.kinds)"
    assert reason in ran.out
    (item,) = document(objects, "pod", "default/train-0")
    assert item["membership"].startswith("its pods are a gang because MPIJob train owns them")


def test_membership_of_a_marked_gang_is_not_explained(document):
    marks = {keys.GANG: "train", keys.GANG_SIZE: "1", keys.GANG_KIND: "x" * 9999}
    pod = a_pod(ONE, name="train-0", annotations=marks, schedulingGates=GATE)

    (item,) = document([*dgx("dgx-0"), pod], "gang", "default/train")

    assert item["membership"] is None


def test_placed_gang_over_nodes_is_not_compared_with_one_node(explain, document):
    mark_of_all = {"labels": mark("vgg16", 4)}
    gang = [
        placed_pod(f"vgg16-{node}-{gpu}", ONE, f"dgx-{node}", GPUShare(gpu), **mark_of_all)
        for node in range(2)
        for gpu in (0, 3)
    ]
    objects = [*dgx("dgx-0"), *dgx("dgx-1"), *gang]

    ran = explain(objects, "gang", "default/vgg16")

    assert ran.out.splitlines()[1:4] == [
        "  16.0 GB/s modelled all-reduce bandwidth, NICs not counted",
        "  55.2 GB/s the best that the empty cluster has, not comparable: it spans 1 node, this"
        " plan 2",
        "  55.2 GB/s in index order (dgx-0: 0 1 2 3), not comparable: it spans 1 node, this plan 2",
    ]
    slowest = "The slowest link is PCIe out of dgx-0, which has 2 of the job's GPUs."
    assert f"  note: {slowest}" in ran.out.splitlines()
    [unit] = document(objects, "gang", "default/vgg16")
    assert (unit["bandwidth_note"], unit["best_possible_nodes"]) == ("nic unknown", 1)
    assert "the slowest link is PCIe out of dgx-0, which has 2 of the job's GPUs" in unit["notes"]


def test_changed_plan_of_a_placed_gang_is_a_note(document):
    objects = [*dgx("dgx-0"), *settled("vgg16", "dgx-0", 0, 1, 6, 7)]

    [unit] = document(objects, "gang", "default/vgg16")

    assert (unit["state"], unit["bandwidth"], unit["best_possible"]) == ("placed", 4.0, 55.2)
    assert unit["gpus"] == {"dgx-0": [0, 1, 6, 7]}
    assert unit["changed"] == "decided now, it would be dgx-0: 0 1 2 3 at 55.2 GB/s"
    assert unit["why"] is None


def test_waiting_gang_has_the_reason_of_simulate_and_pods_to_end(explain, linkwise, write):
    running = [*dgx("dgx-0"), *settled("old", "dgx-0", *range(6))]
    ran = explain([*running, *waiting("new", 4)], "gang", "default/new")

    write("cluster.json", snapshot_text(running))
    pods = waiting("new", 4)
    for pod in pods:
        del pod["spec"]["schedulingGates"]
    write("pods.json", snapshot_text(pods))
    simulated = linkwise("simulate", "pods.json", "--cluster", "cluster.json")
    reason = simulated.out.splitlines()[1]
    assert "2 of 4 workers fit now" in reason

    lines = ran.out.splitlines()
    assert lines[:4] == [
        "waits gang default/new",
        reason,
        "  help: It would fit once gang default/old on dgx-0 ends.",
        "  55.2 GB/s the best that the empty cluster has",
    ]
    assert ran.code == 1


def test_the_fewest_that_would_make_room_are_named(document):
    objects = [
        *dgx("dgx-0"),
        *settled("large", "dgx-0", 0, 1, 2, 3, 4),
        placed_pod("small", ONE, "dgx-0", GPUShare(5)),
        a_pod({keys.GPU_WHOLE: 3}, name="p", schedulingGates=GATE),
    ]

    [unit] = document(objects, "pod", "default/p")

    assert unit["help"] == ["it would fit once pod default/small on dgx-0 ends"]


def test_the_node_where_the_least_must_end_is_named(document):
    shares = tuple(map(GPUShare, range(6)))
    objects = [
        *dgx("dgx-0"),
        *dgx("dgx-1"),
        placed_pod("six", {keys.GPU_WHOLE: 6}, "dgx-0", *shares),
        placed_pod("five", {keys.GPU_WHOLE: 5}, "dgx-1", *shares[:5]),
        a_pod({keys.GPU_WHOLE: 4}, name="p", schedulingGates=GATE),
    ]

    [unit] = document(objects, "pod", "default/p")

    assert unit["help"] == ["it would fit once pod default/five on dgx-1 ends"]


def test_several_nodes_are_freed_where_one_is_not_enough(document):
    objects = [
        *dgx("dgx-0"),
        *dgx("dgx-1"),
        *settled("a", "dgx-0", 0, 1),
        *settled("b", "dgx-1", 0, 1),
        *waiting("new", 16),
    ]

    [unit] = document(objects, "gang", "default/new")

    assert unit["help"] == [
        "it would fit once gang default/a on dgx-0, gang default/b on dgx-1 end"
    ]


def test_gang_larger_than_the_cluster_never_fits(document):
    [unit] = document([*dgx("dgx-0"), *waiting("big", 9)], "gang", "default/big")

    assert unit["help"] == ["it would not fit if nothing else ran: add nodes, or ask for less"]
    assert (unit["state"], unit["best_possible"]) == ("never", None)


def test_gang_that_may_start_with_a_part_waits_for_room_for_this(document):
    objects = [*dgx("dgx-0"), *settled("old", "dgx-0", 0), *waiting("el", 8, present=9)]

    [unit] = document(objects, "gang", "default/el")

    assert unit["help"] == ["it would fit once gang default/old on dgx-0 ends"]
    assert unit["state"] == "waits"


def test_link_requirement_of_a_waiting_gang_is_a_suggestion(document):
    objects = [
        *dgx("dgx-0"),
        *settled("old", "dgx-0", 1, 2, 3, 4, 6, 7),
        *waiting("new", 1, limits={keys.GPU_WHOLE: 2}, **{keys.LINK: "nvlink"}),
    ]

    [unit] = document(objects, "gang", "default/new")

    assert unit["state"] == "waits"
    assert unit["help"][0].startswith("without its demand for links (nvlink) it would fit now at")


def test_incomplete_gang_states_its_missing_members(explain):
    lines = explain([*dgx("dgx-0"), *waiting("part", 4, 3)], "gang", "part").out.splitlines()

    assert lines[:3] == [
        "waits gang default/part",
        "  3 of 4 members.",
        "  help: Create 1 more pods with the gang's mark.",
    ]
    assert lines[4].split() == ["part-0", "-", "-", "waits"]


def test_the_size_that_a_workload_declares_counts(document):
    job = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "job", "namespace": "default", "uid": "u"},
        "spec": {
            "mpiReplicaSpecs": {
                "Worker": {
                    "replicas": 3,
                    "template": {"spec": {"containers": [{"resources": {"limits": ONE}}]}},
                }
            }
        },
    }
    owner = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": "job", "uid": "u"}
    pods = waiting("gang", 9, 2)
    for pod in pods:
        pod["metadata"]["labels"] = {keys.POD_GROUP_NAME: "gang"}
        pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]

    [unit] = document([*dgx("dgx-0"), job, *pods], "gang", "default/gang")

    assert unit["reason"] == "2 of 3 members"
    assert unit["help"] == ["see what keeps MPIJob job from making the others"]


@pytest.mark.parametrize(
    ("version", "spec", "named"),
    [
        pytest.param(
            keys.POD_GROUP_API,
            {"minMember": 3},
            {"labels": {keys.POD_GROUP: "gang"}},
            id="of scheduler-plugins",
        ),
        pytest.param(
            keys.NATIVE_GROUP_API,
            {"schedulingPolicy": {"gang": {"minCount": 3}}},
            {"spec": {"schedulingGroup": {"podGroupName": "gang"}}},
            id="of Kubernetes",
        ),
    ],
)
def test_the_size_that_a_pod_group_says_counts(document, version, spec, named):
    metadata = {"name": "gang", "namespace": "default"}
    group = {"apiVersion": version, "kind": "PodGroup", "metadata": metadata, "spec": spec}
    pods = waiting("gang", 9, 2)
    for pod in pods:
        pod["metadata"]["labels"] = named.get("labels", {})
        pod["spec"].update(named.get("spec", {}))

    [unit] = document([*dgx("dgx-0"), group, *pods], "gang", "default/gang")

    assert unit["reason"] == "2 of 3 members"


def test_pending_units_are_decided_in_queue_order(document):
    objects = [
        *dgx("dgx-0"),
        *waiting("young", 8),
        *[
            pod | {"metadata": pod["metadata"] | {"creationTimestamp": "2026-01-01T00:00:00Z"}}
            for pod in waiting("old", 8)
        ],
    ]
    for pod in objects[2:10]:
        pod["metadata"]["creationTimestamp"] = "2026-01-01T00:00:01Z"

    [old] = document(objects, "gang", "default/old")
    [young] = document(objects, "gang", "default/young")

    assert (old["state"], young["state"]) == ("fits", "waits")
    assert young["help"] == ["it would fit once gang default/old on dgx-0 ends"]
    assert old["pods"][0] == {
        "name": "old-0",
        "node": "dgx-0",
        "gpus": [0],
        "count": None,
        "state": "would go there",
    }


def test_a_member_is_explained_with_its_gang(explain):
    objects = [*dgx("dgx-0"), *settled("vgg16", "dgx-0", 0, 1, 2, 3)]

    of_pod = explain(objects, "pod", "default/vgg16-2").out

    assert of_pod == explain(objects, "gang", "default/vgg16").out


def test_a_job_that_was_submitted_again_is_another_gang(document):
    first, second = settled("job", "dgx-0", 0, 3), waiting("job", 2)
    for uid, pods in (("a", first), ("b", second)):
        for pod in pods:
            pod["metadata"]["name"] += uid
            owner = {"kind": "MPIJob", "apiVersion": "x/v1", "name": "job", "uid": uid}
            pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]

    unit = document([*dgx("dgx-0"), *first, *second], "gang", "default/job")

    assert sorted(one["state"] for one in unit) == ["fits", "placed"]


@pytest.mark.parametrize(
    ("phase", "state", "reason"),
    [
        (Phase.SUSPENDED, UnitState.SUSPENDED, "why"),
        (Phase.GONE, UnitState.GONE, "why"),
        (Phase.FINISHED, UnitState.ENDED, "why"),
        (Phase.PLACED, UnitState.GONE, "none of its pods is there"),
    ],
)
@pytest.mark.parametrize("name", ["bert", "bert-1234"])
def test_gang_without_pods_is_explained_by_its_object(name, phase, state, reason):
    gang = Gang(
        GangMetadata("bert-1234", "team"),
        GangSpec("bert", Link.BEST, owner="job"),
        GangStatus(phase, reason="why"),
    )
    gangs = {("team", "bert-1234"): gang}
    nothing = ReservedGPUs(lambda _: None)
    view = PlannerView(
        snapshot_of(Ledger()),
        {},
        (),
        Owners({}, {}),
        gangs,
        lambda _: False,
        nothing,
        lambda: None,
        0,
    )

    (unit,) = explain_gang(view, "team", name)

    assert (unit.name, unit.state, unit.pods, unit.reason) == ("bert", state, (), reason)
    assert explain_gang(view, "other", name) == ()


def pod_of(state, **spec):
    return a_pod(ONE, name="p", **spec) | {"status": {"phase": state}}


@pytest.mark.parametrize(
    ("pod", "state", "reason"),
    [
        (a_pod({"cpu": "1"}, name="p"), "not placed by Linkwise", "it asks for no GPU"),
        (
            a_pod({keys.NVIDIA_GPU: 1}, name="p", nodeName="dgx-0"),
            "not placed by Linkwise",
            "kube-scheduler chooses its node by count",
        ),
        (
            a_pod({f"{keys.MIG_PREFIX}1g.5gb": 1}, name="p"),
            "not placed by Linkwise",
            "it asks for MIG devices (nvidia.com/mig-1g.5gb)",
        ),
        (
            a_pod({"cpu": 1}, name="p", resourceClaims=[{"name": "gpu"}]),
            "not placed by Linkwise",
            "it asks for devices by a claim (DRA",
        ),
        (
            a_pod(
                {"cpu": 1},
                name="p",
                resourceClaims=[{"name": "gpu"}],
                annotations={keys.LEFT_TO_SCHEDULER: "template x: it has adminAccess"},
            ),
            "not placed by Linkwise",
            "it asks for devices by a claim (DRA, spec.resourceClaims): Linkwise does not place it "
            "(template x: it has adminAccess)",
        ),
        (
            a_pod({keys.NVIDIA_GPU: 1, "nvidia.com/gpumem": 3000}, name="p"),
            "not placed by Linkwise",
            "it asks for shares of GPUs from HAMi",
        ),
        (
            a_pod(ONE, name="p", nodeName="dgx-0"),
            "not placed by Linkwise",
            "default/p: it has GPUs of this node, but no",
        ),
        (a_pod(ONE, name="p"), "not placed by Linkwise", "it has no scheduling gate"),
        (a_pod({keys.GPU_WHOLE: 9}, name="p"), "never", "needs 9 GPUs on one node"),
        (pod_of("Succeeded", nodeName="dgx-0"), "finished", "it is finished and holds no GPUs"),
    ],
    ids=[
        "no GPUs",
        "counted",
        "mig",
        "claim",
        "claim with a reason",
        "hami",
        "unaccounted",
        "not gated",
        "too large",
        "finished",
    ],
)
def test_unplaced_pod_has_a_reason(document, pod, state, reason):
    [unit] = document([*dgx("dgx-0"), pod], "pod", "default/p")

    assert unit["state"] == state
    assert unit["reason"].startswith(reason)


def test_pods_without_uids_are_distinguished_by_name(document):
    pods = [a_pod(ONE, name=name, schedulingGates=GATE) for name in ("a", "b")]

    [unit] = document([*dgx("dgx-0"), *pods], "pod", "default/b")

    assert (unit["name"], unit["gpus"]) == ("b", {"dgx-0": [3]})


def test_a_pod_that_waits_for_the_scheduler_has_its_gpus_already(document):
    pod = placed_pod("p", {keys.GPU_WHOLE: 2}, "dgx-0", GPUShare(0), GPUShare(3), bound=False)

    [unit] = document([*dgx("dgx-0"), pod], "pod", "default/p")

    assert (unit["state"], unit["bandwidth"]) == ("placed", 40.0)
    assert unit["pods"] == [
        {"name": "p", "node": "dgx-0", "gpus": [0, 3], "count": None, "state": "not bound yet"}
    ]


def pinned_to(node):
    """Return the affinity by which the planner ties a pod to its node."""
    field = {"key": keys.NODE_NAME_FIELD, "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def test_our_own_pin_is_not_the_users_affinity_after_a_cordon(document):
    cordoned, map_of_it = dgx("dgx-0")
    cordoned["spec"] = {"unschedulable": True}
    gang = settled("g", "dgx-0", 0, 3, affinity=pinned_to("dgx-0"))

    [unit] = document([cordoned, map_of_it, *dgx("dgx-1"), *gang], "gang", "default/g")

    assert unit["changed"].startswith("decided now, it would be dgx-1:")


def test_gang_on_deleted_node_is_explained_by_its_record(document):
    [unit] = document([*dgx("dgx-1"), *settled("g", "dgx-0", 0, 3)], "gang", "default/g")

    assert (unit["state"], unit["changed"]) == ("placed", "a node of it is gone")
    assert [pod["gpus"] for pod in unit["pods"]] == [[0], [3]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pod", "default/none"), "there is no pod default/none. Write NAMESPACE/NAME"),
        (("gang", "none", "-n", "team"), "there is no gang team/none."),
    ],
)
def test_missing_object_is_an_error(explain, arguments, message):
    ran = explain(dgx("dgx-0"), *arguments)

    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_unhealthy_gpus_of_a_gang_are_named_with_their_pods(explain, document):
    listed = {"gpus": "2, 7"}
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{keys.UNHEALTHY_NAME_PREFIX}a", "namespace": "kube-system"},
        "data": listed,
    }
    objects = [*dgx("a"), config_map, *settled("bert", "a", 0, 1, 2, 3)]
    unhealthy = "unhealthy GPUs: 2 of a (pod bert-2); a pod that is created again gets healthy ones"
    assert document(objects, "gang", "bert")[0]["unhealthy"] == unhealthy
    assert document([*dgx("a"), *objects[3:]], "gang", "bert")[0]["unhealthy"] is None
    shown = " ".join(explain(objects, "gang", "bert").out.split())
    assert f"note: It has {unhealthy}." in shown
    # Nobody would make its pods again.
    assert "kubectl" not in shown
    for pod in objects[-4:]:
        pod["metadata"]["ownerReferences"] = [JOB]
    assert (
        "To place all its members again together: `kubectl delete pod -n default bert-0 bert-1 "
        "bert-2 bert-3`."
    ) in " ".join(explain(objects, "gang", "bert").out.split())


def claims_objects(*held, **attributes):
    """Return a claims node, and a pod that was planned on GPUs 0 and 1 with its claim."""
    gpus = [{"i": i, "uuid": f"GPU-{i}"} for i in range(2)]
    record = {"v": 1, "node": "a", "gpus": gpus, "plan": "7-1"}
    pod = a_claimed_pod(
        2, annotations={keys.ALLOCATION: json.dumps(record)}, labels=mark("bert", 1), nodeName="a"
    )
    pod["metadata"]["uid"] = "uid"
    (reference,) = pod["spec"]["resourceClaims"]
    claim = a_claim(*held, node="a", name=reference["resourceClaimName"], owner="uid")
    claim["metadata"]["namespace"] = "default"
    node = node_object("a", {keys.NODE_MODE: "topology"}, cpu="96", pods="110")
    devices = (a_device(i, **attributes) for i in range(8))
    return [node, a_slice(*devices, node="a"), claim, pod]


@pytest.mark.parametrize(
    ("held", "note"),
    [
        pytest.param(("gpu-0", "gpu-1"), None, id="planned"),
        pytest.param(
            ("gpu-0", "gpu-6"),
            "it has other GPUs than planned: 0 6 of a instead of 0 1 (pod pod)",
            id="others",
        ),
    ],
)
def test_gpus_that_a_claim_holds_instead_of_the_planned_ones_are_named(
    explain, document, held, note
):
    objects = claims_objects(*held)
    (unit,) = document(objects, "gang", "bert")
    assert [text for text in unit["notes"] if "planned" in text] == ([note] if note else [])
    text = " ".join(explain(objects, "gang", "bert").out.split())
    assert ("note: It has other GPUs than planned" in text) is bool(note)


def test_a_gang_whose_claims_hold_slower_links_can_be_placed_again(explain, document):
    objects = claims_objects("gpu-0", "gpu-6", productName="Tesla V100-SXM2-16GB", memory="16Gi")
    objects[-1]["metadata"]["ownerReferences"] = [JOB]
    note = (
        "it has other GPUs than planned: 0 6 of a instead of 0 1 (pod pod), with 6 instead of "
        "20 GB/s"
    )
    assert note in document(objects, "gang", "bert")[0]["notes"]
    text = " ".join(explain(objects, "gang", "bert").out.split())
    assert "To place all its members again together: `kubectl delete pod -n default pod`." in text


@pytest.mark.parametrize("is_in_condition", [False, True])
def test_pods_whose_claims_are_not_prepared_are_named_with_the_error_of_the_driver(
    explain, document, is_in_condition
):
    objects = claims_objects("gpu-0", "gpu-1")
    pod = objects[-1]
    waits = {"type": "PodReadyToStartContainers", "status": "False"}
    waits["lastTransitionTime"] = "2026-01-02T03:04:05Z"
    pod["status"] = {"phase": "Pending", "conditions": [waits]}
    pod["metadata"]["ownerReferences"] = [JOB]
    note = "not prepared for more than a minute: pod (node a)"
    says = f'{note}; the kubelet says of pod: "driver\x07"'
    condition = {**waits, "type": "PodsPrepared", "reason": "ClaimNotPrepared", "message": says}
    gang = {
        "apiVersion": keys.API_VERSION,
        "kind": "Gang",
        "metadata": {"name": name_of(GangKey("default", "bert", "job")), "namespace": "default"},
        "spec": {"gang": "bert", "link": "best", "owner": "job"},
        "status": {"conditions": [condition] if is_in_condition else []},
    }
    expected = says.replace("\x07", "\ufffd") if is_in_condition else note
    (unit,) = document([*objects, gang], "gang", "bert")
    assert expected in unit["notes"]
    text = " ".join(explain([*objects, gang], "gang", "bert").out.split())
    assert f"note: N{expected[1:]}" in text

    waits["status"] = "True"
    (unit,) = document([*objects, gang], "gang", "bert")
    assert "not prepared" not in str(unit["notes"])


def test_a_single_pod_whose_claim_is_not_prepared_says_so(document):
    objects = claims_objects("gpu-0", "gpu-1")
    waits = {"type": "PodReadyToStartContainers", "status": "False"}
    waits["lastTransitionTime"] = "2026-01-02T03:04:05Z"
    objects[-1]["status"] = {"phase": "Pending", "conditions": [waits]}
    objects[-1]["metadata"]["labels"] = {}
    (unit,) = document(objects, "pod", "pod")
    assert "not prepared for more than a minute: pod (node a)" in unit["notes"]


@pytest.mark.parametrize(
    ("message", "has_claims_node", "is_named"),
    [
        pytest.param("1 cannot allocate all claims.", True, True, id="beside a fence"),
        pytest.param("1 cannot allocate all claims.", False, False, id="no claims node"),
        pytest.param("1 Insufficient cpu.", True, False, id="another reason"),
    ],
)
def test_a_pod_whose_claim_waits_beside_fenced_nodes_names_the_fence(
    explain, message, has_claims_node, is_named
):
    pod = a_pod({"cpu": 1}, name="p", resourceClaims=[{"name": "gpu"}])
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    pod["status"] = {"phase": "Pending", "conditions": [condition]}
    nodes = claims_objects("gpu-0", "gpu-1")[:2] if has_claims_node else dgx("dgx-0")
    text = " ".join(explain([*nodes, pod], "pod", "p").out.split())
    assert "It asks for devices by a claim" in text
    assert ("GPUs of nodes with the taint linkwise.dev/placed" in text) is is_named


JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "bert", "uid": "job", "controller": True}
REASON = "1 of 2 members are there; GPUs of gpu-0 are reserved for its replacements until noon"


@pytest.fixture
def lacking():
    """A cluster where a gang has GPU 0, and GPU 1 is reserved for its other member."""
    (running,) = settled("bert", "gpu-0", 0)
    single = waiting("other", 1, limits={keys.GPU_WHOLE: 7})
    running["metadata"] |= {"uid": "here", "ownerReferences": [JOB]}
    members = [
        {"pod": f"bert-{i}", "uid": uid, "node": "gpu-0", "gpus": [i]}
        for i, uid in enumerate(("here", "gone"))
    ]
    gang = {
        "metadata": {"name": name_of(GangKey("default", "bert", "job")), "namespace": "default"},
        "spec": {
            "gang": "bert",
            "link": "best",
            "owner": "job",
            "plan": {"id": "1-1", "exact": True, "members": members},
        },
        "status": {"reserved": [{"node": "gpu-0", "gpus": [1]}], "reason": REASON},
    }
    items = [*dgx("gpu-0"), running, *single]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    objects = collect_objects(objects_in(text, "cluster.json"), "cluster.json")
    return planner_view(replace(current_cluster(objects, "default", "test"), gangs=(gang,)), 0.0)


def test_reserved_gpus_are_shown_with_the_gang_that_lacks_members(lacking, capsys):
    (unit,) = explain_gang(lacking, "default", "bert")

    show(unit)

    assert f"  {REASON}.\n" in capsys.readouterr().out
    assert unit.reserved == (NodeGPUs("gpu-0", (1,)),)


@pytest.mark.parametrize(
    ("record", "note"),
    [
        pytest.param(
            {"plan": "1-1", "at": 1_767_225_660, "why": "unhealthy GPUs: 3 of a (pod bert-1)"},
            "all its members were evicted at 2026-01-01T00:01:00Z because of unhealthy GPUs: 3 of"
            " a (pod bert-1)",
            id="with its faults",
        ),
        pytest.param({"plan": "1-1", "at": -1, "why": "a fault"}, None, id="unreadable"),
    ],
)
@pytest.mark.parametrize("is_present", [True, False], ids=["with pods", "without pods"])
def test_a_gang_that_was_moved_says_when_and_why(lacking, capsys, record, note, is_present):
    ((key, gang),) = lacking.gangs.items()
    metadata = structs.replace(gang.metadata, annotations={keys.MOVED: json.dumps(record)})
    moved = {key: structs.replace(gang, metadata=metadata)}
    view = replace(lacking, gangs=moved)
    view = view if is_present else replace(view, pods={}, pod_infos=())

    (unit,) = explain_gang(view, "default", "bert")

    show(unit)
    assert unit.evicted == (note or "")
    assert document_of([unit]).items[0].notes[:1] == ([note] if note else [])
    shown = " ".join(capsys.readouterr().out.split())
    assert ("note: All its members were evicted" in shown) is bool(note)


def test_a_pod_that_waits_does_not_fit_where_gpus_are_reserved(lacking):
    unit = explain_pod(lacking, "default", "other-0")

    assert unit.state is UnitState.WAITS


def test_a_gang_that_waits_names_the_gang_that_would_be_preempted(explain, document):
    owner = {"kind": "JobSet", "name": "low", "uid": "low", "controller": True}
    low = [
        pod | {"metadata": pod["metadata"] | {"ownerReferences": [owner], "uid": f"low-{i}"}}
        for i, pod in enumerate(settled("low", "dgx-0", *range(8)))
    ]
    high = [pod | {"spec": pod["spec"] | {"priority": 9}} for pod in waiting("high", 4)]

    ran = explain([*dgx("dgx-0"), *low, *high], "gang", "default/high")
    (item,) = document([*dgx("dgx-0"), *low, *high], "gang", "default/high")

    assert "  would preempt gang default/low: 8 pods\n" in ran.out
    assert [(unit["kind"], unit["name"]) for unit in item["preempts"]] == [("gang", "low")]


def test_a_pod_that_waits_names_the_pod_of_others_that_would_be_preempted(document):
    eight = {keys.NVIDIA_GPU: 8}
    counted = node_object("dgx-0", {}, **{keys.NVIDIA_GPU: "8", "cpu": "96", "pods": "110"})
    web = a_pod(eight, name="web", owner="ReplicaSet", nodeName="dgx-0")
    web["metadata"]["uid"] = "web"
    high = a_pod(eight, name="high", priority=9, schedulingGates=GATE)
    policy = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": keys.POLICY_NAME, "namespace": keys.POLICY_NAMESPACE},
        "data": {keys.POLICY_KEY: "gangs: {preemption: {others: lowerPriority}}"},
    }

    (item,) = document([counted, web, high, policy], "pod", "default/high")

    assert [(unit["kind"], unit["name"]) for unit in item["preempts"]] == [("pod", "web")]


def test_a_gang_that_is_placed_preempts_nothing(document):
    (item,) = document([*dgx("dgx-0"), *settled("low", "dgx-0", 0, 1)], "gang", "default/low")

    assert "preempts" not in item


# ---- Pods that kube-scheduler does not bind.


def excluding(until, *keys_of_units):
    """Return the scorer's Lease, which excludes node `dgx-0` for units."""
    nodes = {exclusion_id(key): {"dgx-0": until} for key in keys_of_units}
    annotations = {keys.EXCLUDED_NODES: json.dumps(nodes)}
    metadata = {"name": keys.SCORER, "namespace": keys.POLICY_NAMESPACE, "annotations": annotations}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}


FOR_EVER = 4_102_444_800.0


def test_a_node_where_a_gang_could_not_be_bound_is_named_until_when(explain):
    objects = [*dgx("dgx-0"), *waiting("bert", 2)]
    lease = excluding(FOR_EVER, GangKey("default", "bert", ""))

    ran = explain([*objects, lease], "gang", "default/bert")

    assert ran.out.startswith("waits gang default/bert\n")
    assert "could not be bound there: dgx-0 until 2100-01-01T00:00:00Z" in ran.out
    assert "linkwise-scorer is ready" not in ran.out
    assert "linkwise-scorer is ready" in explain(objects, "gang", "default/bert").out


@pytest.mark.parametrize("until", [1.0, 1e300])
def test_an_exclusion_that_has_ended_or_is_no_time_is_ignored(explain, until):
    lease = excluding(until, GangKey("default", "bert", ""))

    ran = explain([*dgx("dgx-0"), *waiting("bert", 2), lease], "gang", "default/bert")

    assert ran.out.startswith("fits gang default/bert")


def test_a_pod_that_is_not_bound_is_explained_in_the_words_of_kube_scheduler(explain):
    pod = placed_pod("alone", ONE, "dgx-0", GPUShare(0), bound=False)
    message = '0/1 nodes are available: persistentvolumeclaim "data" not found.'
    told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    pod["status"] = {"phase": "Pending", "conditions": [{**told, "message": message}]}

    ran = explain([*dgx("dgx-0"), pod], "pod", "default/alone")

    assert "kube-scheduler says: persistentvolumeclaim" in ran.out
    assert "nothing is evicted" in ran.out
