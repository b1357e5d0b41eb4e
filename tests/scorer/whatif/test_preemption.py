from support.builders import a_node, a_seen, a_snapshot, exact

from cluster.account.node_ledger import Holding
from cluster.whatif_api import FitResult, Preempted
from scorer.gang.unit import Owners, units_of
from scorer.placement.preemption.victim import Disruptions, Victim, VictimPod
from scorer.whatif.preemption import Preemptions, RunningUnits, without_names

NOW = 36_000.0


def running(*names, gang=None, gpus=4):
    """Return a full node of units of some GPUs each, and these units."""
    pods = [
        VictimPod(
            "n", Holding(name, name, exact(*range(i * gpus, i * gpus + gpus)), gang=gang), 0.0
        )
        for i, name in enumerate(names)
    ]
    snapshot = a_snapshot(a_node("n")).hold_all((pod.node, pod.holding) for pod in pods)
    units = [Victim(pod.holding.pod, 0, (pod,)) for pod in pods]
    return snapshot, RunningUnits(units, Disruptions(NOW))


def waiting(*names, gpus=4, priority=1):
    pods = [a_seen(gpus, name, priority=priority) for name in names]
    return units_of(pods, Owners({}, {}))


def test_a_unit_that_would_be_evicted_is_named_with_its_time():
    snapshot, units = running("o/a", "o/b")
    (unit,) = waiting("high", gpus=8)

    assert Preemptions(units).find(snapshot, unit) == tuple(
        Preempted(
            kind="pod", namespace="o", name=name, pods=1, running_seconds=36_000, gpu_hours=40.0
        )
        for name in ("a", "b")
    )


def test_a_unit_is_evicted_once():
    snapshot, units = running("o/a", "o/b")
    found = Preemptions(units)

    evicted = [found.find(snapshot, unit) for unit in waiting("x", "y", "z")]

    assert [[one.name for one in each] for each in evicted] == [["a"], ["b"], []]


def test_equal_units_are_searched_once_where_nothing_is_found():
    snapshot, units = running("o/a", "o/b")
    found = Preemptions(units, searches=2)
    for unit in waiting("x", "y", priority=0):
        assert found.find(snapshot, unit) == ()

    (high,) = waiting("high")
    assert found.find(snapshot, high)


def test_at_most_so_many_searches_are_made():
    snapshot, units = running("o/a", "o/b")
    found = Preemptions(units, searches=1)

    assert [bool(found.find(snapshot, unit)) for unit in waiting("x", "y")] == [True, False]


def a_fit(*namespaces):
    units = [
        Preempted(kind="pod", namespace=each, name="p", pods=1, running_seconds=1, gpu_hours=1.0)
        for each in namespaces
    ]
    return FitResult(False, None, [], [], None, None, None, [], "full", preempts=units)


def test_units_of_other_namespaces_are_counted_and_not_named():
    fit = without_names(a_fit("own", "b", "c"), {"own"})

    assert [unit.namespace for unit in fit.preempts] == ["own"]
    assert fit.preempts_others == 2


def test_a_list_of_names_that_would_be_empty_is_left_out():
    fit = without_names(a_fit("b"), {"own"})

    assert not fit.preempts
    assert fit.preempts_others == 1
