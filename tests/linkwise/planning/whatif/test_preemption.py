from dataclasses import replace

import pytest
from support.builders import a_node, a_seen, a_snapshot, exact

from linkwise.cluster.account.node_ledger import Holding
from linkwise.cluster.gang import GangKey
from linkwise.cluster.keys import GANG, GANG_SIZE
from linkwise.cluster.whatif_api import FitResult, Preempted
from linkwise.planning.gang.owners import Owners
from linkwise.planning.gang.unit import units_of
from linkwise.planning.gang.victim_choice import Promise, RunningUnits
from linkwise.planning.placement.preemption.victim import Disruptions, Victim, VictimPod
from linkwise.planning.whatif.preemption import Preemptions, without_names

NOW = 36_000.0


def running(*names, gang=None, gpus=4, budgets=()):
    """Return a full node of units of some GPUs each, and these units."""
    pods = [
        VictimPod(
            "n",
            Holding(name, name, exact(*range(i * gpus, i * gpus + gpus)), gang=gang),
            0.0,
            frozenset(budgets),
        )
        for i, name in enumerate(names)
    ]
    snapshot = a_snapshot(a_node("n")).hold_all((pod.node, pod.holding) for pod in pods)
    units = [Victim(pod.holding.pod, 0, (pod,)) for pod in pods]
    return snapshot, RunningUnits(units, Disruptions(NOW))


def leaving(units, count):
    """Return the units without the first ones, which are being evicted."""
    pods = [(pod.node, pod.holding) for unit in units.units[:count] for pod in unit.pods]
    return replace(units, units=units.units[count:], leaving=pods)


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


def test_nothing_is_evicted_for_a_unit_that_fits():
    snapshot, units = running("o/a")
    (unit,) = waiting("high")

    assert Preemptions(units).find(snapshot, unit) == ()


def test_a_unit_is_evicted_once():
    snapshot, units = running("o/a", "o/b")
    found = Preemptions(units)

    evicted = [found.find(snapshot, unit) for unit in waiting("x", "y", "z")]

    assert [[one.name for one in each] for each in evicted] == [["a"], ["b"], []]


@pytest.mark.parametrize(("lowest", "names"), [(1, ["a", "b"]), (0, [])])
def test_units_are_evicted_only_for_a_gang_of_which_each_pod_has_a_higher_priority(lowest, names):
    snapshot, units = running("o/a", "o/b")
    pods = [
        a_seen(4, name, priority=priority, annotations={GANG: "g", GANG_SIZE: "2"})
        for name, priority in (("x", 1), ("y", lowest))
    ]
    (gang,) = units_of(pods, Owners({}, {}))

    assert [one.name for one in Preemptions(units).find(snapshot, gang)] == names


def test_equal_units_are_searched_once_where_nothing_is_found():
    snapshot, units = running("o/a", "o/b")
    found = Preemptions(units, searches=2)
    for unit in waiting("x", "y", priority=0):
        assert found.find(snapshot, unit) == ()

    (high,) = waiting("high")
    assert found.find(snapshot, high)


@pytest.mark.parametrize(("allowed", "names"), [(0, []), (1, []), (2, ["a", "b"])])
def test_nothing_is_evicted_that_budgets_do_not_allow_as_a_whole(allowed, names):
    snapshot, units = running("o/a", "o/b", budgets=["o/budget"])
    units = replace(units, disruptions=Disruptions(NOW, {"o/budget": allowed}))
    (unit,) = waiting("high", gpus=8)

    assert [one.name for one in Preemptions(units).find(snapshot, unit)] == names


@pytest.mark.parametrize(
    ("gpus", "promised_to", "names"),
    [
        pytest.param(4, None, [], id="it fits then"),
        pytest.param(8, None, ["b"], id="it needs more"),
        pytest.param(4, 1, ["b"], id="another unit gets them"),
        pytest.param(4, 0, [], id="a unit of a lower priority gets them"),
    ],
)
def test_gpus_of_pods_that_are_leaving_count_as_free(gpus, promised_to, names):
    snapshot, units = running("o/a", "o/b")
    units = leaving(units, 1)
    if promised_to is not None:
        place = "n", Holding("o/other", "other", exact(*range(4)))
        units = replace(units, promises=[Promise(GangKey("o", "other", ""), promised_to, [place])])
    (unit,) = waiting("high", gpus=gpus)

    assert [one.name for one in Preemptions(units).find(snapshot, unit)] == names


def test_no_second_set_is_named_for_a_unit_for_which_others_are_evicted():
    snapshot, units = running("o/a", "o/b")
    high, same = waiting("high", "same")
    units = replace(units, promises=[Promise(high.key, high.priority, [])])

    evicted = [Preemptions(units).find(snapshot, unit) for unit in (high, same)]

    assert [[one.name for one in each] for each in evicted] == [[], ["a"]]


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
