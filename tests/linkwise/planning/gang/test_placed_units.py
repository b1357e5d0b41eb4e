import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import a_counted_node, a_held_pod, a_node, a_pod, placed_pod

from linkwise.cluster import keys
from linkwise.cluster.account.accounting import ledger_of
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.objects.pod import Pod
from linkwise.planning.gang.owners import Owners
from linkwise.planning.gang.placed_units import EvictionRules, placed_units
from linkwise.planning.gang.pod_info import pod_info
from linkwise.policy.gangs_section import Preemption
from linkwise.workloads.members import ElasticSet, ExpectedPods

NOW = 1_767_225_600.0 + 3_600  # 2026-01-01T01:00:00Z
DEFAULT = Preemption()
JOB = {"kind": "JobSet", "name": "job", "uid": "job", "controller": True}


def a_running_pod(name, gpu, *, started="2026-01-01T00:00:00Z", **spec):
    pod = placed_pod(name, {keys.GPU_WHOLE: 1}, "n", GPUShare(gpu), **spec)
    pod["metadata"] |= {"uid": name, "ownerReferences": [JOB]}
    return pod | {"status": {"phase": "Running", "startTime": started}}


def of_gang(name, gpu, **fields):
    return a_running_pod(name, gpu, labels={keys.POD_GROUP_NAME: "bert"}, **fields)


def units(
    *pods,
    fragile=frozenset(),
    budgets=frozenset(),
    elastic=(),
    policy=DEFAULT,
    node=None,
    has_kueue=True,
):
    read = [msgspec.convert(pod, Pod) for pod in pods]
    nodes = ledger_of([node or a_node("n")], read).nodes
    rules = EvictionRules(
        NOW, policy, fragile, lambda pod: pod.life.started, lambda _, __: budgets, has_kueue
    )
    owners = Owners({}, {}, {"job": ExpectedPods(elastic=elastic)})
    found = placed_units(map(pod_info, read), owners, nodes, rules)
    assert all(len(unit.pods) >= len(unit.victim.pods) for unit in found)
    return [unit.victim for unit in found]


def test_a_gang_is_one_unit_of_its_highest_priority_and_a_pod_is_another():
    gang, pod = units(
        of_gang("a", 0, priority=1), of_gang("b", 1, priority=7), a_running_pod("single", 2)
    )

    assert (gang.name, gang.priority, len(gang.pods)) == ("default/bert", 7, 2)
    assert (pod.name, pod.priority, len(pod.pods)) == ("default/single", 0, 1)
    assert gang.gpu_seconds(NOW) == 7_200
    assert gang.protected is None


def test_pods_that_end_or_hold_no_gpus_are_in_no_unit():
    ending = of_gang("a", 0)
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:59:00Z"
    finished = of_gang("b", 1) | {"status": {"phase": "Succeeded"}}
    daemon = a_running_pod("c", 2)
    daemon["metadata"]["ownerReferences"] = [JOB | {"kind": "DaemonSet"}]

    assert units(ending, finished, daemon) == []


OLD, YOUNG = "2026-01-01T00:55:00Z", "2026-01-01T00:55:01Z"


@pytest.mark.parametrize(
    ("starts", "is_protected"),
    [
        pytest.param([OLD], False, id="an old pod"),
        pytest.param([YOUNG], True, id="a young pod"),
        pytest.param([YOUNG, YOUNG], True, id="a young gang"),
        pytest.param([OLD, YOUNG], False, id="a gang with a new member"),
        pytest.param([YOUNG, OLD], False, id="a gang whose first member is new"),
        pytest.param([None, YOUNG], True, id="one start is unknown"),
    ],
)
def test_a_unit_is_protected_until_its_first_pod_has_run_for_long_enough(starts, is_protected):
    (unit,) = units(*(of_gang(f"w-{i}", i, started=at) for i, at in enumerate(starts)))

    assert unit.protected == ("it started less than 5 min ago" if is_protected else None)


@pytest.mark.parametrize("started", [None, "", "yesterday"])
def test_a_pod_whose_start_is_unknown_has_lost_no_time(started):
    (unit,) = units(a_running_pod("a", 0, started=started))

    assert unit.gpu_seconds(NOW) == 0
    assert unit.protected is None


def test_jobs_that_fail_by_an_eviction_and_budgets_are_noted():
    (unit,) = units(a_running_pod("a", 0), fragile={"job"}, budgets=frozenset({"d/x"}))

    assert "Job job would count an evicted pod as a failure" in unit.protected
    assert unit.budgets == {"d/x": 1}


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        pytest.param(
            a_running_pod("a", 0, labels={"kueue.x-k8s.io/queue-name": "q"}), "Kueue", id="Kueue"
        ),
        pytest.param(a_running_pod("a", 0, bound=False), "pod a is not bound yet", id="unbound"),
    ],
)
def test_a_unit_that_others_decide_about_is_protected(pod, why):
    (unit,) = units(pod)

    assert why in unit.protected


def test_a_label_of_kueue_protects_nothing_in_a_cluster_without_kueue():
    pod = a_running_pod("a", 0, labels={"kueue.x-k8s.io/queue-name": "q"})
    (unit,) = units(pod, has_kueue=False)

    assert unit.protected is None


def test_a_pod_that_waits_counts_in_the_priority_of_its_gang():
    waiting = a_held_pod(1, "w", namespace="default", owner=JOB, priority=9)
    waiting["metadata"]["labels"] = {keys.POD_GROUP_NAME: "bert"}
    (gang,) = units(of_gang("a", 0), waiting)

    assert (gang.priority, len(gang.pods)) == (9, 1)


def test_too_many_budgets_protect():
    (unit,) = units(a_running_pod("a", 0), budgets=None)

    assert unit.protected == "its namespace has too many PodDisruptionBudgets"


def test_a_pod_of_two_budgets_protects_its_unit():
    (unit,) = units(a_running_pod("a", 0), budgets=frozenset({"default/x", "default/y"}))

    assert unit.protected == (
        "PodDisruptionBudget x selects a pod of another one: none can be evicted"
    )


def test_the_longest_grace_period_of_a_unit_is_a_cost():
    (unit,) = units(of_gang("a", 0), of_gang("b", 1, terminationGracePeriodSeconds=3_600))

    assert unit.numbers.grace == 12


def test_a_gang_is_protected_if_it_is_not_known_which_gpus_a_pod_has():
    (gang,) = units(of_gang("a", 0), of_gang("b", 0))

    assert gang.protected == "it is not known which GPUs pod b has"


def of_set(name, gpu, role, **fields):
    pod = of_gang(name, gpu, **fields)
    pod["metadata"]["labels"]["role"] = role
    return pod


WORKERS = frozenset({("role", "worker")})


@pytest.mark.parametrize(
    ("least", "spare"),
    [
        (0, ["worker-1", "worker-2", "worker-10"]),
        (1, ["worker-2", "worker-10"]),
        (2, ["worker-10"]),
        (3, []),
        (9, []),
    ],
)
def test_an_elastic_gang_can_do_without_its_last_pods_above_the_minimum(least, spare):
    pods = [of_set(f"worker-{index}", gpu, "worker") for gpu, index in enumerate([10, 2, 1])] + [
        of_set("master-0", 3, "master")
    ]

    (gang,) = units(*pods, elastic=(ElasticSet(WORKERS, least),))

    assert spare_of(gang) == spare
    assert len(gang.pods) == 4


def test_one_pod_of_an_elastic_gang_stays_in_any_case():
    (gang,) = units(
        of_set("worker-0", 0, "worker"),
        of_set("worker-1", 1, "worker"),
        elastic=(ElasticSet(WORKERS, 0), ElasticSet(WORKERS, 0)),
    )

    assert gang.spare == 1


ELASTIC = {
    "the last ones are young": (4, 2, {2, 3}, ["w-1"]),
    "one before the last is young": (4, 1, {2}, ["w-1", "w-3"]),
    "a young one counts in the minimum": (4, 2, {0}, ["w-2", "w-3"]),
    "no more than the surplus of many old ones": (5, 4, {4}, ["w-3"]),
    "the first one stays": (2, 1, {1}, []),
    "the first one goes where none is needed": (2, 0, {1}, ["w-0"]),
    "all are young": (3, 1, {0, 1, 2}, []),
    "none is above the minimum": (3, 3, {2}, []),
}


@pytest.mark.parametrize(("size", "least", "young", "spare"), ELASTIC.values(), ids=ELASTIC)
def test_members_above_the_minimum_go_if_they_have_run_for_long_enough(size, least, young, spare):
    (gang,) = elastic_gang(size, least, young)

    assert spare_of(gang) == spare
    assert (gang.protected is None) == (len(young) < size)


def elastic_gang(size, least, young):
    """Return the units of a gang of workers, of which those with some numbers are young."""
    starts = (YOUNG if i in young else OLD for i in range(size))
    pods = (of_set(f"w-{i}", i, "worker", started=at) for i, at in enumerate(starts))
    return units(*pods, elastic=(ElasticSet(WORKERS, least),))


def spare_of(unit):
    return [pod.holding.uid for pod in unit.pods][len(unit.pods) - unit.spare :]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(0, 7), st.sets(st.integers(0, 5)))
def test_the_minimum_and_all_young_members_stay_and_no_other_member_could_go(size, least, young):
    (gang,) = elastic_gang(size, least, young)

    gone = {int(uid.removeprefix("w-")) for uid in spare_of(gang)}
    stay = {*range(size)} - gone
    assert stay
    assert not gone & young
    assert not gone or len(stay) >= least
    able = stay - young - {0}
    assert not able or len(stay) <= max(least, 1)
    assert not gone or max(able, default=-1) < min(gone)


# ---- Pods that Linkwise did not place.

OTHERS = Preemption(others="lowerPriority")


def of_others(name, gpus=2, resource=keys.NVIDIA_GPU, annotations=None, labels=None, **spec):
    pod = a_pod(
        {resource: gpus}, name=name, nodeName="n", annotations=annotations, labels=labels, **spec
    )
    pod["metadata"] |= {"uid": name, "ownerReferences": [JOB]}
    return pod | {"status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}}


def owned_by(pod, **owner):
    pod["metadata"]["ownerReferences"] = [JOB | owner] if owner else []
    return pod


def on_a_counted_node(*pods, policy=OTHERS, **rules):
    return units(*pods, policy=policy, node=a_counted_node("n"), **rules)


def test_each_pod_of_others_is_a_unit_by_policy_alone():
    pods = [of_others("a", priority=-3), of_others("b")]
    young = Preemption(others="lowerPriority", min_run_minutes=61)

    a, b = on_a_counted_node(*pods)

    assert (a.name, a.priority, len(a.pods), a.amounts["n"].gpus) == ("default/a", -3, 1, 2)
    assert [unit.protected for unit in (a, b)] == [None, None]
    assert on_a_counted_node(*pods, policy=DEFAULT) == []
    assert all("61 min ago" in unit.protected for unit in on_a_counted_node(*pods, policy=young))


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(of_others("a", resource=keys.NVIDIA_GPU_SHARED), id="replicas"),
        pytest.param(of_others("a", resource="cpu"), id="no GPU"),
        pytest.param(owned_by(of_others("a"), kind="DaemonSet"), id="DaemonSet"),
        pytest.param(owned_by(of_others("a"), kind="Node", name="n"), id="mirror pod"),
    ],
)
def test_pods_of_others_whose_end_frees_no_whole_gpu_are_in_no_unit(pod):
    assert on_a_counted_node(pod) == []


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        pytest.param(owned_by(of_others("a")), "pod a has no controller", id="no controller"),
        pytest.param(
            of_others("a", annotations={"scheduling.k8s.io/group-name": "g"}),
            "pod a is part of a gang that Linkwise did not place "
            "(metadata.annotations[scheduling.k8s.io/group-name]), and would go alone",
            id="Volcano",
        ),
        pytest.param(of_others("a", annotations={"pod-group-name": "g"}), "a gang", id="KAI"),
        pytest.param(
            of_others("a", annotations={"yunikorn.apache.org/task-group-name": "g"}),
            "a gang",
            id="YuniKorn",
        ),
        pytest.param(of_others("a", labels={keys.POD_GROUP: "g"}), "a gang", id="coscheduling"),
        pytest.param(
            of_others("a", schedulingGroup={"podGroupName": "g"}), "a gang", id="Kubernetes"
        ),
        pytest.param(
            of_others("a", labels={"kueue.x-k8s.io/podset": "main"}), "Kueue decides", id="Kueue"
        ),
        pytest.param(
            owned_by(of_others("a"), kind="MPIJob", apiVersion="kubeflow.org/v2beta1"),
            "pod a is part of MPIJob job, whose pods are a gang",
            id="MPIJob",
        ),
        pytest.param(
            owned_by(of_others("a"), kind="PyTorchJob", apiVersion="kubeflow.org/v1"),
            "pod a is part of PyTorchJob job, whose pods are a gang",
            id="a kind that is not gathered",
        ),
        pytest.param(
            of_others("a", labels={keys.LWS_NAME: "l", keys.LWS_GROUP_INDEX: "0"}),
            "a gang",
            id="LeaderWorkerSet",
        ),
        pytest.param(of_others("a", schedulerName="hami-scheduler"), "pod a has shares", id="HAMi"),
        pytest.param(
            of_others("a", priority=2_000_000_000), "of system components", id="critical priority"
        ),
    ],
)
def test_a_pod_of_others_that_must_not_go_alone_is_protected(pod, why):
    (unit,) = on_a_counted_node(pod)

    assert why in unit.protected


def test_pods_of_others_follow_the_rules_of_our_units():
    pod = of_others("a")
    (failing,) = on_a_counted_node(pod, fragile={"job"})
    (many,) = on_a_counted_node(pod, budgets=None)

    assert "would count an evicted pod as a failure" in failing.protected
    assert "too many PodDisruptionBudgets" in many.protected


@pytest.mark.parametrize("policy", [DEFAULT, OTHERS], ids=["never", "lowerPriority"])
@pytest.mark.parametrize("resource", [keys.NVIDIA_GPU, keys.NVIDIA_GPU_SHARED])
def test_no_part_of_a_gang_goes_of_which_linkwise_did_not_place_a_member(resource, policy):
    first = of_others("b", 1, resource, labels={keys.POD_GROUP_NAME: "bert"})

    (unit,) = units(of_gang("a", 0), first, policy=policy)

    assert unit.protected in {
        "it is not known which GPUs pod b has",
        "pod b is part of a gang that Linkwise did not place "
        f"(metadata.labels[{keys.POD_GROUP_NAME}]), and would go alone",
    }
