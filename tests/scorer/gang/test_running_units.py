import msgspec
import pytest
from support.builders import a_node, placed_pod

from cluster import keys
from cluster.account.accounting import ledger_of
from cluster.allocations.gpus import GPUShare
from cluster.objects.pod import Pod
from scorer.gang.pod_info import pod_info
from scorer.gang.running_units import EvictionRules, running_units
from scorer.gang.unit import Owners

NOW = 1_767_225_600.0 + 3_600  # 2026-01-01T01:00:00Z
JOB = {"kind": "JobSet", "name": "job", "uid": "job", "controller": True}


def a_running_pod(name, gpu, *, started="2026-01-01T00:00:00Z", **spec):
    pod = placed_pod(name, {keys.GPU_WHOLE: 1}, "n", GPUShare(gpu), **spec)
    pod["metadata"] |= {"uid": name, "ownerReferences": [JOB]}
    return pod | {"status": {"phase": "Running", "startTime": started}}


def of_gang(name, gpu, **fields):
    return a_running_pod(name, gpu, labels={keys.POD_GROUP_NAME: "bert"}, **fields)


def units(*pods, blocker=lambda _: None, budgets=frozenset()):
    read = [msgspec.convert(pod, Pod) for pod in pods]
    nodes = ledger_of([a_node("n")], read).nodes
    started = {pod.metadata.name: pod.status.start_time for pod in read}
    rules = EvictionRules(NOW, 300.0, blocker, lambda pod: started[pod.name], lambda _: budgets)
    return running_units(map(pod_info, read), Owners({}, {}), nodes, rules)


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


def test_a_unit_is_protected_while_one_of_its_pods_is_young():
    (gang,) = units(of_gang("a", 0), of_gang("b", 1, started="2026-01-01T00:55:01Z"))

    assert gang.protected == "pod b started less than 5 min ago"
    (older,) = units(of_gang("a", 0), of_gang("b", 1, started="2026-01-01T00:55:00Z"))
    assert older.protected is None


@pytest.mark.parametrize("started", [None, "", "yesterday"])
def test_a_pod_whose_start_is_unknown_has_lost_no_time(started):
    (unit,) = units(a_running_pod("a", 0, started=started))

    assert unit.gpu_seconds(NOW) == 0
    assert unit.protected is None


def test_the_reason_that_forbids_an_eviction_and_budgets_are_noted():
    (unit,) = units(
        a_running_pod("a", 0), blocker=lambda pods: f"{len(pods)}!", budgets=frozenset({"d/x"})
    )

    assert unit.protected == "1!"
    assert unit.budgets == {"d/x": 1}


def test_a_gang_is_protected_if_it_is_not_known_which_gpus_a_pod_has():
    (gang,) = units(of_gang("a", 0), of_gang("b", 0))

    assert gang.protected == "it is not known which GPUs pod b has"
