from itertools import permutations

import msgspec
import pytest
from support.builders import a_container, a_held_pod, a_seen

from linkwise.cluster import keys
from linkwise.cluster.gang import GangKey, Link
from linkwise.cluster.objects.metadata import Owner
from linkwise.cluster.objects.pod import Pod
from linkwise.planning.gang.owners import Owners
from linkwise.planning.gang.pod_info import pod_info
from linkwise.planning.gang.unit import units_of
from linkwise.workloads import operator_keys
from linkwise.workloads.kinds.job_set import JOB_SET
from linkwise.workloads.kinds.leader_worker_set import LEADER_WORKER_SET
from linkwise.workloads.kinds.stateful_set import STATEFUL_SET
from linkwise.workloads.members import ExpectedPods

JOB = {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "name": "bert", "uid": "job"}
NO_OWNERS = Owners({}, {})


def arena(size=2, **labels):
    return {keys.POD_GROUP_NAME: "bert", keys.POD_GROUP_MIN_AVAILABLE: str(size), **labels}


def workers(count, first=0, **pod):
    return [
        a_seen(1, f"bert-worker-{i}", **{"labels": arena(count), "owner": JOB, **pod})
        for i in range(first, first + count)
    ]


def the_unit(pods, owners=NO_OWNERS):
    (unit,) = units_of(pods, owners)
    return unit


def names(unit):
    return [pod.name for pod in unit.waiting]


# ---- Which gang.


@pytest.mark.parametrize(
    ("parts", "needed"),
    [
        pytest.param({"schedulingGroup": {"podGroupName": "bert"}}, None, id="native"),
        pytest.param({"labels": {keys.POD_GROUP: "bert"}}, None, id="scheduler-plugins"),
        pytest.param({"labels": arena()}, 2, id="arena"),
        pytest.param(
            {
                "annotations": {
                    keys.KOORDINATOR_GANG_NAME: "bert",
                    keys.KOORDINATOR_GANG_MIN_AVAILABLE: "2",
                }
            },
            2,
            id="koordinator",
        ),
        pytest.param({"annotations": {keys.GANG: "bert", keys.GANG_SIZE: "2"}}, 2, id="ours"),
    ],
)
def test_pods_with_the_same_mark_are_one_gang(parts, needed):
    unit = the_unit([a_seen(1, name, owner=JOB, **parts) for name in ("b", "a")])

    assert unit.key == GangKey("team", "bert", "job")
    assert unit.is_gang
    assert unit.needed == needed
    assert names(unit) == ["a", "b"]
    assert [member.name for member in unit.members] == ["team/a", "team/b"]
    assert {member.gang for member in unit.members} == {"team/bert"}
    assert unit.owner == msgspec.convert({**JOB, "controller": True}, Owner)


def test_a_job_that_is_submitted_again_does_not_join_the_one_before():
    again = workers(2, 2, owner={**JOB, "uid": "again"})

    units = units_of([*workers(2), *again], NO_OWNERS)

    assert [unit.key.owner for unit in units] == ["job", "again"]
    assert [names(unit) for unit in units] == [
        ["bert-worker-0", "bert-worker-1"],
        ["bert-worker-2", "bert-worker-3"],
    ]


def test_members_without_an_owner_are_a_gang_by_name():
    unit = the_unit(workers(2, owner=None))

    assert unit.key == GangKey("team", "bert", "")
    assert unit.owner is None


def test_namespaces_keep_gangs_apart():
    units = units_of([*workers(2), *workers(2, namespace="other")], NO_OWNERS)

    assert [unit.key.namespace for unit in units] == ["team", "other"]


def test_jobs_of_one_job_set_are_one_gang():
    job_set = Owner(api_version="jobset.x-k8s.io/v1alpha2", kind="JobSet", name="s", uid="set")
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "s-workers-0"}
    owners = Owners({"j0": job_set, "j1": job_set, "alone": None}, {})
    pods = [
        a_seen(1, f"s-workers-{i}-0", labels=arena(), owner={**job, "uid": f"j{i}"}) for i in (0, 1)
    ]

    unit = the_unit(pods, owners)

    assert unit.key == GangKey("team", "bert", "set")
    assert unit.owner == job_set
    assert unit.blocked is None
    alone = the_unit(workers(2, owner={**job, "uid": "alone"}), owners)
    assert alone.key.owner == "alone"


def test_jobs_that_own_each_other_in_a_circle_have_an_owner_all_the_same():
    circle = [Owner(kind="Job", name=uid, uid=uid) for uid in ("a", "b", "c")]
    owners = Owners({"a": circle[1], "b": circle[2], "c": circle[0]}, {})

    tops = {owners.top(one).uid for one in circle}

    assert tops <= {"a", "b", "c"}


def test_pod_without_a_mark_is_a_unit_of_its_own():
    pod = a_seen(2, "notebook", owner=JOB)

    unit = the_unit([pod])

    assert unit.key == GangKey("team", "notebook", "notebook")
    assert not unit.is_gang
    assert (unit.needed, unit.present, unit.link, unit.blocked) == (1, 1, Link.BEST, None)
    assert unit.owner.uid == "job"
    assert unit.members[0].gang is None


@pytest.mark.parametrize(("gpus", "link"), [(2, Link.NVLINK), (1, Link.BEST)])
def test_single_pod_with_several_gpus_keeps_its_link_strictness(gpus, link):
    pod = a_seen(gpus, "notebook", annotations={keys.LINK: "nvlink"})

    assert the_unit([pod]).link is link


def test_a_pod_that_does_not_wait_is_nothing_to_place():
    placed = a_seen(1, "placed", gates=(), nodeName="gpu-0")

    assert units_of([placed, a_seen(1, "ungated", gates=())], NO_OWNERS) == []
    assert units_of(workers(2, gates=(), nodeName="gpu-0"), NO_OWNERS) == []


def test_a_launcher_without_gpus_is_no_member():
    launcher = a_seen(0, "bert-launcher", labels=arena(), owner=JOB)

    unit = the_unit([*workers(2), launcher])

    assert names(unit) == ["bert-worker-0", "bert-worker-1"]
    assert unit.present == 2


# ---- Groups of a LeaderWorkerSet, and Jobs of a JobSet.

LWS = Owner(kind="LeaderWorkerSet", name="serve", uid="lws")
LEADERS = Owner(kind="StatefulSet", name="serve", uid="leaders")


def a_group(group, size=4, labels=None):
    """Return a leader and its workers, as that controller's StatefulSets make them."""
    marks = {
        **(arena(size) if labels is None else labels),
        keys.LWS_NAME: "serve",
        keys.LWS_GROUP_INDEX: str(group),
    }
    given = {"apiVersion": "apps/v1", "kind": "StatefulSet"}
    above = [{**given, "name": "serve", "uid": "leaders"}] + [
        {**given, "name": f"serve-{group}", "uid": f"workers-{group}"}
    ] * (size - 1)
    names = [f"serve-{group}"] + [f"serve-{group}-{i}" for i in range(1, size)]
    return [
        a_seen(1, name, labels={**marks, operator_keys.LWS_WORKER_INDEX: str(i)}, owner=owner)
        for i, (name, owner) in enumerate(zip(names, above, strict=True))
    ]


def followed(*groups, declared=None):
    """Return what is known of owners once all of them were seen."""
    above = {"leaders": LWS}
    for group in groups:
        leader = f"serve-{group}"
        above[leader] = LEADERS
        above[f"workers-{group}"] = Owner(kind="Pod", name=leader, uid=leader)
    return Owners(above, declared or {})


def test_each_group_of_a_leader_worker_set_is_a_gang_with_its_leader_first():
    pods = [*a_group(1)[::-1], *a_group(0)]

    units = units_of(pods, followed(0, 1, declared={"lws": 4}))

    assert {unit.key for unit in units} == {
        GangKey("team", "bert-0", "lws"),
        GangKey("team", "bert-1", "lws"),
    }
    assert {(unit.needed, unit.blocked, unit.owner.kind) for unit in units} == {
        (4, None, "LeaderWorkerSet")
    }
    assert names(units[0])[:2] == ["serve-1", "serve-1-1"]


@pytest.mark.parametrize("known", [(), ("leaders",), ("leaders", "serve-0")])
def test_a_group_whose_owners_are_not_all_known_yet_is_not_placed_by_parts(known):
    whole = followed(0).controllers
    declared = {"leaders": 1, "workers-0": 3, "lws": 4}
    owners = Owners({uid: whole[uid] for uid in known}, declared)

    units = units_of(a_group(0), owners)

    assert all(unit.blocked and unit.needed == 4 for unit in units)


def test_group_size_falls_back_to_the_annotation():
    (pod, *_) = a_group(0, labels={keys.POD_GROUP: "bert"})
    pod = a_seen(
        1, pod.name, labels=pod.waiting.labels, annotations={keys.LWS_SIZE: "4"}, owner=JOB
    )

    assert the_unit([pod]).needed == 4


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (JOB_SET, "with startupPolicyOrder: AnyOrder"),
        (LEADER_WORKER_SET, "with startupPolicy: LeaderCreated"),
    ],
)
def test_owner_that_orders_its_pods_is_named_as_the_reason(kind, reason):
    owners = Owners({}, {}, {"job": ExpectedPods(ordered=kind.ordered)})

    unit = the_unit(workers(2, owner={**JOB, "kind": kind.name})[:1], owners)

    assert reason in unit.blocked


def test_pods_of_a_job_set_are_in_the_order_of_their_jobs():
    def of(job, index, number):
        labels = {**arena(4), operator_keys.JOBSET_JOB_INDEX: str(job)}
        labels[operator_keys.JOB_COMPLETION_INDEX] = str(index)
        return a_seen(1, f"s-w-{job}-{index}-{number}", labels=labels, owner=JOB)

    pods = [of(job, index, "xyz"[index]) for index in (0, 1) for job in (10, 2)]

    assert [name.rpartition("-")[0] for name in names(the_unit(pods))] == [
        "s-w-2-0",
        "s-w-2-1",
        "s-w-10-0",
        "s-w-10-1",
    ]


# ---- How many.


@pytest.mark.parametrize(
    ("labels", "declared", "needed"),
    [
        pytest.param(arena(4), None, 4, id="stated"),
        pytest.param(arena(4), 4, 4, id="stated and declared"),
        pytest.param(arena(5), 4, 4, id="mpi-operator counts the launcher"),
        pytest.param(arena(2), 4, 2, id="fewer than there are to be"),
        pytest.param(arena(2, **{keys.GPU_TOPOLOGY_REPLICA: "4"}), None, 2, id="a total beside it"),
        pytest.param(
            {keys.POD_GROUP_NAME: "bert", keys.GPU_TOPOLOGY_REPLICA: "4"}, None, 4, id="total alone"
        ),
        pytest.param({keys.POD_GROUP: "bert"}, 3, 3, id="declared alone"),
        pytest.param({keys.POD_GROUP: "bert"}, None, None, id="unknown"),
    ],
)
def test_member_count_comes_from_labels_or_owner(labels, declared, needed):
    owners = Owners({}, {} if declared is None else {"job": declared})

    unit = the_unit([a_seen(1, "bert-worker-0", labels=labels, owner=JOB)], owners)

    assert unit.needed == needed
    reason = f"1 of {needed} members" if needed else "the number of its members is unknown"
    assert unit.blocked.startswith(reason)


def test_gang_without_a_mark_names_its_owner_if_its_size_is_unknown():
    marks = {keys.GANG: "train", keys.GANG_KIND: "MPIJob"}
    forged = {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "name": "train", "uid": "none"}

    unit = the_unit([a_seen(1, "train-worker-0", annotations=marks, owner=forged)])

    assert "MPIJob train has it, which may not exist" in unit.blocked
    assert 'with label linkwise.dev/gang: "false"' in unit.blocked


@pytest.mark.parametrize(
    ("group", "declared", "needed"),
    [
        pytest.param(3, None, 3, id="stated"),
        pytest.param(5, 4, 4, id="more than its owner makes"),
        pytest.param(2, 4, 2, id="fewer than its owner makes"),
    ],
)
def test_a_pod_group_says_how_many_there_must_be_where_the_pods_do_not(group, declared, needed):
    owners = Owners(
        {},
        {} if declared is None else {"job": declared},
        groups={GangKey("team", "bert", "job"): group},
    )
    marks = ({keys.POD_GROUP: "bert"}, arena(4))

    units = [the_unit([a_seen(1, "b-0", labels=marks[i], owner=JOB)], owners) for i in (0, 1)]

    assert units[0].needed == needed
    assert units[1].needed == 4


def test_missing_members_are_named():
    owners = Owners({}, {}, {"job": ExpectedPods((("bert-worker", 4),))})

    unit = the_unit(workers(4)[1:3], owners)

    assert unit.blocked == "2 of 4 members; missing: bert-worker-0, bert-worker-3"


@pytest.mark.parametrize(
    ("members", "ordered", "blocked"),
    [(1, STATEFUL_SET.ordered, True), (1, None, False), (2, STATEFUL_SET.ordered, False)],
)
def test_ordered_stateful_set_is_named_as_the_reason(members, ordered, blocked):
    owners = Owners({}, {}, {"job": ExpectedPods((("bert-worker", 2),), ordered=ordered)})

    unit = the_unit(workers(2, owner={**JOB, "kind": "StatefulSet"})[:members], owners)

    assert ("podManagementPolicy: Parallel" in (unit.blocked or "")) is blocked


def test_members_that_ask_for_other_things_are_unlike():
    other = a_seen(2, "bert-worker-9", labels=arena(3), owner=JOB)

    assert the_unit(workers(2)).is_uniform
    assert not the_unit([*workers(2), other]).is_uniform


def test_a_gang_of_which_all_members_are_there_is_placed():
    pods = workers(3)

    assert the_unit(pods[:2]).blocked == "2 of 3 members"
    assert the_unit(pods).blocked is None


def test_members_above_the_minimum_are_placed_with_the_others():
    pods = [a_seen(1, f"w-{i}", labels=arena(2), owner=JOB) for i in range(3)]

    unit = the_unit(pods)

    assert (len(unit.members), unit.needed, unit.blocked) == (3, 2, None)


@pytest.mark.parametrize(
    ("became", "counts"),
    [
        pytest.param({"nodeName": "gpu-0", "phase": "Running", "gates": ()}, True, id="running"),
        pytest.param({"nodeName": "gpu-0", "phase": "Succeeded", "gates": ()}, True, id="done"),
        pytest.param({"nodeName": "gpu-0", "phase": "Failed", "gates": ()}, False, id="failed"),
        pytest.param(
            {
                "annotations": {
                    keys.ALLOCATION: '{"v":1,"node":"gpu-0","gpus":[{"i":0}],"plan":"1-1"}'
                },
                "gates": (),
            },
            True,
            id="on its way to its node",
        ),
    ],
)
def test_a_replacement_is_planned_alone_beside_the_members_that_have_theirs(became, counts):
    old = a_seen(1, "bert-worker-0", labels=arena(), owner=JOB, **became)
    new = a_seen(1, "bert-worker-1", labels=arena(), owner=JOB)

    unit = the_unit([old, new])

    assert names(unit) == ["bert-worker-1"]
    assert [pod.name for pod in unit.settled] == (["bert-worker-0"] if counts else [])
    assert unit.blocked == (None if counts else "1 of 2 members; missing: bert-worker-0")


def test_a_waiting_pod_that_is_being_deleted_does_not_count():
    raw = a_held_pod(1, "bert-worker-1", labels=arena(), owner=JOB)
    raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    leaving = pod_info(msgspec.convert(raw, Pod))

    assert the_unit([workers(2)[0], leaving]).blocked == "1 of 2 members"


# ---- When.


@pytest.mark.parametrize("gates", [(keys.GANG, "theirs"), ("theirs", keys.GANG)], ids=str)
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "in a gang"])
def test_a_gate_of_another_system_holds_us_back(gates, alone):
    labels = None if alone else arena(1)

    unit = the_unit([a_seen(1, "w", labels=labels, owner=JOB, gates=gates)])

    assert unit.blocked == "pod w waits for the scheduling gate theirs of another system"


def share(name, **labels):
    containers = [a_container({keys.GPU_MEM: "1"})]
    return a_seen(0, name, labels=labels, owner=JOB, containers=containers)


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "in a gang"])
def test_a_pod_whose_request_breaks_a_rule_since_its_label_was_changed_is_not_planned(alone):
    labels = {} if alone else arena(1)

    unit = the_unit([share("w", **labels, **{keys.GPU_COUNT: "4"})])

    assert unit.blocked == (
        "pod w makes a request for GPUs that breaks a rule: "
        "metadata.labels[aliyun.com/gpu-count]: 1 GiB cannot be divided evenly over 4 cards; "
        "ask for 4 GiB in total, or for a number of cards that divides 1 [LW106]; "
        "or create the pod again"
    )


def test_one_member_whose_request_breaks_a_rule_keeps_its_gang_waiting():
    unit = the_unit([share("w-0", **arena(2)), share("w-1", **arena(2, **{keys.GPU_COUNT: "4"}))])

    assert unit.blocked.startswith("pod w-1 makes a request for GPUs that breaks a rule")


# ---- In which order.


def test_members_are_in_the_order_of_their_ranks():
    launcher = a_seen(
        1, "bert-launcher", labels=arena(4, **{operator_keys.REPLICA_TYPE: "Launcher"}), owner=JOB
    )
    numbered = a_seen(1, "a", labels=arena(4, **{operator_keys.REPLICA_INDEX: "7"}), owner=JOB)
    pods = [launcher, numbered, *(a_seen(1, f"w-{i}", labels=arena(4), owner=JOB) for i in (2, 10))]

    for order in permutations(pods):
        assert names(the_unit(order)) == ["bert-launcher", "w-2", "a", "w-10"]


def test_a_launcher_that_is_a_worker_too_is_the_first_of_its_gang():
    labels = arena(3, **{operator_keys.JOB_ROLE: "launcher"})
    launcher = a_seen(1, "bert-launcher", labels=labels, owner=JOB)

    unit = the_unit([*workers(2, labels=arena(3)), launcher])

    assert names(unit)[0] == "bert-launcher"
    assert unit.blocked is None


def test_a_gang_is_as_old_as_its_oldest_member_that_waits_and_as_urgent_as_its_least_urgent():
    pods = [
        a_seen(1, "w-0", labels=arena(), owner=JOB, created="2026-01-01T00:00:09Z", priority=3),
        a_seen(1, "w-1", labels=arena(), owner=JOB, created="2026-01-01T00:00:05Z"),
    ]

    unit = the_unit(pods)

    assert unit.since == "2026-01-01T00:00:05Z"
    assert unit.priority == 0


def test_a_gang_waits_with_the_priority_of_a_member_that_has_gpus_if_it_is_lower():
    """One pod of a high class must not wait for the rest of a running gang."""
    pods = [
        a_seen(1, "w-0", labels=arena(), owner=JOB, nodeName="n", priority=1),
        a_seen(1, "w-1", labels=arena(), owner=JOB, priority=3),
    ]

    unit = the_unit(pods)

    assert [pod.name for pod in unit.settled] == ["w-0"]
    assert unit.priority == 1


@pytest.mark.parametrize(("ports", "blocked"), [(256, False), (257, True)])
def test_a_gang_of_which_a_pod_has_too_many_host_ports_is_not_placed(ports, blocked):
    opened = [{"hostPort": port} for port in range(1, ports + 1)]
    limits = {"limits": {keys.GPU_WHOLE: 1}}
    many = a_seen(1, "many", containers=[{"name": "c", "resources": limits, "ports": opened}])

    (unit,) = units_of([many], NO_OWNERS)

    reason = "it is too large to plan: it asks for more than 256 host ports"
    assert (reason in (unit.blocked or "")) is blocked


@pytest.mark.parametrize(("each", "blocked"), [(16, False), (17, True)])
def test_a_gang_that_requests_too_many_different_resources_is_not_placed(each, blocked):
    pods = [
        a_seen(1, name, labels=arena(), overhead={f"vendor.com/{name}-{i}": 1 for i in range(each)})
        for name in ("w-0", "w-1")
    ]

    (unit,) = units_of(pods, NO_OWNERS)

    reason = "its members request more than 32 different resources: let them request less"
    assert (unit.blocked == reason) is blocked


_KEYS = {"nodeSelector": {f"k{i}": "v" for i in range(1025)}}
_TOLERATIONS = {"tolerations": [{"key": f"k{i}", "operator": "Exists"} for i in range(1025)]}


def _affinity(terms, values):
    requirement = {"key": "k", "operator": "In", "values": [f"v{i}" for i in range(values)]}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [requirement]}] * terms}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": selector}
    return {"affinity": {"nodeAffinity": required}}


@pytest.mark.parametrize(
    ("spec", "blocked"),
    [
        pytest.param(_KEYS, True, id="labels"),
        pytest.param(_TOLERATIONS, True, id="tolerations"),
        pytest.param(_affinity(400, 1), True, id="terms"),
        pytest.param(_affinity(1, 1100), True, id="values"),
        pytest.param(_affinity(100, 8), False, id="fewer"),
    ],
)
def test_a_gang_of_which_a_pod_says_too_much_of_nodes_is_not_placed(spec, blocked):
    (unit,) = units_of([a_seen(1, "w", **spec)], NO_OWNERS)

    assert ("it is too large to plan" in (unit.blocked or "")) is blocked


@pytest.mark.parametrize(("size", "reason"), [(4096, "2 of 4096 members"), (4097, "at most 4096")])
def test_a_gang_is_as_large_as_a_gang_object_may_be(size, reason):
    labels = {keys.POD_GROUP_NAME: "g", keys.POD_GROUP_MIN_AVAILABLE: str(size)}

    (unit,) = units_of([a_seen(1, f"w-{i}", labels=labels) for i in range(2)], NO_OWNERS)

    assert reason in unit.blocked


def test_the_first_in_rank_says_how_strict_links_are():
    pods = [
        a_seen(1, f"w-{i}", labels=arena(), owner=JOB, annotations={keys.LINK: link})
        for i, link in ((1, "best"), (0, "one-node"))
    ]

    assert the_unit(pods).link is Link.ONE_NODE


def test_a_gang_of_which_one_member_is_not_planned_waits_and_says_whose_fault_it_is():
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}] * 101}
        }
    }
    unit = the_unit([*workers(2), *workers(3, first=2, affinity=affinity)][:3])

    assert unit.blocked.startswith("pod bert-worker-2: it is too large to plan: ")


# ---- Members that Linkwise did not place.


def placed_by_others(name="bert-worker-0", gpus=1, node="gpu-0", phase="Running", claims=(), **pod):
    """Return a pod that was bound without admission, as kube-scheduler does."""
    raw = a_held_pod(0, name, **{"labels": arena(), "owner": JOB, "gates": (), **pod})
    raw["spec"]["containers"] = [a_container({keys.NVIDIA_GPU: gpus} if gpus else {})]
    raw["spec"] |= {"nodeName": node} if node else {}
    raw["spec"]["resourceClaims"] = [{"name": each, "resourceClaimName": each} for each in claims]
    raw["status"]["phase"] = phase
    return pod_info(msgspec.convert(raw, Pod))


@pytest.mark.parametrize("phase", ["Running", "Pending", "Succeeded"])
@pytest.mark.parametrize("parts", [{"gpus": 1}, {"gpus": 0, "claims": ["gpu"]}], ids=repr)
@pytest.mark.parametrize(
    ("labels", "owner"),
    [
        pytest.param(arena(), JOB, id="mark"),
        pytest.param({}, JOB, id="owner"),
        pytest.param(arena(), None, id="mark alone"),
    ],
)
def test_a_member_counts_whoever_has_placed_it(labels, owner, parts, phase):
    first = placed_by_others(phase=phase, labels=labels, owner=owner, **parts)
    unit = the_unit([first, *workers(1, 1, labels=arena(), owner=owner)])

    assert (unit.present, unit.needed, unit.blocked) == (2, 2, None)
    assert unit.settled == (first,)


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({"gpus": 0}, id="no GPUs"),
        pytest.param({"node": ""}, id="not bound"),
        pytest.param({"gpus": 0, "claims": ["gpu"], "node": ""}, id="with a claim, not bound"),
        pytest.param({"phase": "Failed"}, id="failed"),
        pytest.param({"owner": {**JOB, "kind": "DaemonSet"}}, id="of a DaemonSet"),
        pytest.param({"labels": {}, "owner": None}, id="neither mark nor owner"),
        pytest.param({"labels": {keys.GANG: "false"}}, id="taken out of the job"),
        pytest.param({"owner": {**JOB, "uid": "before"}}, id="of an earlier job"),
    ],
)
def test_a_pod_of_others_is_no_member_without_gpus_a_node_and_the_same_owner(parts):
    (unit,) = units_of([placed_by_others(**parts), *workers(1, 1, labels=arena())], NO_OWNERS)

    assert unit.present == 1
    assert unit.blocked == "1 of 2 members; missing: bert-worker-0"


# ---- Gangs by the kind of their owner.

TORCH = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "train", "uid": "torch"}
BY_OWNER = {keys.GANG: "train", keys.GANG_KIND: "PyTorchJob"}
HELD = {keys.ALLOCATION: '{"v": 1, "node": "gpu-0", "gpus": [{"i": 0}]}'}
FOUR = Owners({}, {"torch": 4}, totals={"torch": 4})


def made(name, **pod):
    """Return a pod that was created while the policy had its kind."""
    return a_seen(1, name, **{"owner": TORCH, "annotations": BY_OWNER, **pod})


def before(name, *, runs=True, **pod):
    """Return a pod that was created before, and is placed by itself; it has GPUs if it runs."""
    placed = {"gates": (), "annotations": HELD, "nodeName": "gpu-0", "phase": "Running"}
    return a_seen(1, name, **{"owner": TORCH, **(placed if runs else {}), **pod})


@pytest.mark.parametrize(
    ("others", "needed"),
    [
        pytest.param([], 4, id="none"),
        pytest.param([before("a"), before("b"), before("c")], 1, id="all run"),
        pytest.param([before("a"), before("b"), before("c", runs=False)], 1, id="one waits"),
        pytest.param([before("a", phase="Succeeded"), before("b")], 2, id="one has succeeded"),
        pytest.param([before(name) for name in "abcdef"], 1, id="more than declared"),
        pytest.param([before("a", owner={**TORCH, "uid": "other"})], 4, id="of another job"),
        pytest.param([before("a", phase="Failed")], 4, id="failed"),
        pytest.param(
            [placed_by_others("a", labels={}, owner=TORCH, node="")], 3, id="waits for a plugin"
        ),
        pytest.param([before("a", labels={keys.GANG: "false"})], 3, id="taken out"),
    ],
)
def test_pods_that_were_placed_one_by_one_are_not_missed(others, needed):
    units = {unit.key.name: unit for unit in units_of([made("train-0"), *others], FOUR)}

    gang = units["train"]
    assert gang.needed == needed
    # They stay units of their own, which nothing can evict with the gang.
    assert [pod.name for pod in (*gang.waiting, *gang.settled)] == ["train-0"]
    assert (gang.blocked is None) is (needed == 1)


def test_pods_beside_a_gang_count_without_being_assembled_with_it():
    others = [before("a"), before("b", runs=False), before("c")]

    (unit,) = units_of([made("train-0")], FOUR, others)

    assert (unit.needed, unit.blocked) == (1, None)


def test_each_group_misses_its_own_pods_only():
    def pod(name, group, **more):
        labels = {keys.LWS_NAME: "serve", keys.LWS_GROUP_INDEX: group}
        owner = {**SET_OF_GROUP, "uid": f"set-{group}"}
        return a_seen(1, name, **{"labels": labels, "owner": owner, **more})

    mark = {keys.GANG: "serve", keys.GANG_KIND: "LeaderWorkerSet", keys.LWS_SIZE: "3"}
    placed = {"gates": (), "annotations": HELD, "nodeName": "gpu-0", "phase": "Running"}
    pods = [
        pod("serve-0-1", "0", annotations=mark),
        pod("serve-0-2", "0", **placed),
        pod("serve-1-1", "1", **placed),
    ]
    tops = {f"set-{i}": Owner(kind="LeaderWorkerSet", name="serve", uid="lws") for i in range(2)}

    (unit,) = units_of(pods, Owners(tops, {"lws": 3}, totals={"lws": 3}))

    assert (unit.key.name, unit.needed) == ("serve-0", 2)


SET_OF_GROUP = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "serve"}


def test_an_elastic_gang_needs_its_minimum():
    owners = Owners({}, {"torch": 4}, {"torch": ExpectedPods(starts_with=2)}, totals={"torch": 4})

    unit = the_unit([made(f"train-{i}") for i in range(4)], owners)

    assert (unit.needed, unit.fewest, unit.blocked) == (2, 2, None)
    assert names(unit.first(unit.fewest)) == ["train-0", "train-1"]
    assert unit.first(4) is unit


def test_a_stated_size_of_an_elastic_gang_counts():
    owners = Owners({}, {"job": 4}, {"job": ExpectedPods(starts_with=2)}, totals={"job": 4})

    assert the_unit(workers(4), owners).needed == 4


def test_a_gang_by_an_owner_that_makes_pods_in_order_is_placed_one_by_one():
    expected = ExpectedPods(ordered=JOB_SET.ordered)
    owners = Owners({}, {"torch": 4}, {"torch": expected}, totals={"torch": 4})

    unit = the_unit([made("train-0")], owners)

    assert (unit.needed, unit.blocked) == (1, None)
