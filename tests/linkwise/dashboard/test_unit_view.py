from dataclasses import replace

import msgspec
import pytest
from support.dashboard import nodes_in, owned, placed_pod, urgent, waiting_pod

from linkwise.cluster import keys
from linkwise.cluster.gang import GangKey, Link
from linkwise.dashboard.gang_changes import Past
from linkwise.dashboard.moment import Moment
from linkwise.dashboard.unit_view import unit_views, waiting_view
from linkwise.planning.gang.crd import ASSEMBLED, name_of
from linkwise.views.analysis.pending import HELPED

VGG = placed_pod("vgg-0", 0), placed_pod("vgg-1", 3)

NO_PAST = Past({}, ())


def a_condition(kind: str, since: str):
    fields = {"type": kind, "status": "True", "reason": "Complete", "message": ""}
    return {**fields, "lastTransitionTime": since}


def test_waiting_units_have_the_reasons_of_the_planner(moment):
    rows = {
        row.name: row
        for row in waiting_view(moment(waiting_pod("fits", 2), waiting_pod("big", 99)))
    }

    assert rows["fits"].reason == "It fits now: the planner places it next."
    assert not rows["fits"].never
    assert rows["big"].never
    assert rows["big"].help.startswith("It would not fit if nothing else ran: ")
    assert not rows["fits"].help
    assert rows["big"].kind == "gang"
    assert rows["big"].asks == "99 GPUs"


def test_a_waiting_unit_names_the_units_that_would_be_preempted_for_it(moment):
    low = [owned(placed_pod(f"low-{i}", i, "low", "dgx-0")) for i in range(8)]
    single = [owned(placed_pod(f"p-{i}", i, f"g{i}", "dgx-1")) for i in range(8)]
    names = ("first", "second", "third")
    here = moment(*low, *single, *(urgent(waiting_pod(name, 8)) for name in names))

    preempts = {row.name: row.preempts for row in waiting_view(here)}
    (view,) = unit_views(here, NO_PAST, "gang", "team", "second")

    assert preempts["first"] == view.preempts == ("gang team/low: 8 pods",)
    assert preempts["second"][:2] == ("gang team/g0: 1 pod", "gang team/g1: 1 pod")
    assert preempts["second"][5:] == ("3 more",)
    assert preempts["third"] == ()


def test_the_first_waiting_units_say_what_would_help_them(moment):
    taken = [placed_pod(f"p{i}-{n}", i, "low", f"dgx-{n}") for i in range(8) for n in (0, 1)]
    rows = waiting_view(moment(*taken, *(waiting_pod(f"g{i}", 8) for i in range(HELPED + 1))))

    assert rows[0].help == "It would fit once gang team/low on dgx-0 ends."
    assert [bool(row.help) for row in rows] == [True] * HELPED + [False]


def test_a_waiting_unit_of_no_higher_priority_preempts_nothing(moment):
    low = [owned(placed_pod(f"p{i}-{n}", i, "low", f"dgx-{n}")) for i in range(8) for n in (0, 1)]
    (row,) = waiting_view(moment(*low, waiting_pod("equal", 8)))

    assert row.preempts == ()


@pytest.mark.parametrize(("waited", "nodes"), [(599, 0), (600, 2), (1199, 2), (1200, 0)], ids=str)
def test_a_starving_unit_has_the_nodes_that_are_reserved_for_it(moment, waited, nodes):
    taken = [placed_pod(f"p-{n}", 0, f"g{n}", f"dgx-{n}") for n in (0, 1)]
    since = 1_795_341_600.0  # 2026-11-22T10:00:00Z
    key = GangKey("team", "big", "")
    gang = {
        "metadata": {"name": name_of(key), "namespace": "team"},
        "spec": {"gang": "big", "link": Link.BEST},
        "status": {"conditions": [a_condition(ASSEMBLED, "2026-11-22T10:00:00Z")]},
    }
    current = moment(*taken, waiting_pod("big", 8), waiting_pod("small", 1)).current

    rows = waiting_view(Moment(replace(current, gangs=(gang,)), since + waited))

    assert {row.name: row.reserved for row in rows} == {"big": nodes, "small": 0}


def test_a_placed_gang_is_drawn_on_its_node(moment):
    (view,) = unit_views(moment(*VGG), NO_PAST, "gang", "team", "vgg")

    assert view.unit.state == "placed"
    assert [node.name for node in view.nodes] == ["dgx-0"]
    assert len(nodes_in(view.nodes[0].drawing, "rect", "tile placed")) == 2


def test_a_gang_that_fits_is_drawn_where_it_would_go(moment):
    (view,) = unit_views(moment(waiting_pod("soon", 4)), NO_PAST, "gang", "team", "soon")

    assert view.unit.state == "fits"
    assert len(nodes_in(view.nodes[0].drawing, "rect", "tile placed")) == 4


def test_the_history_of_a_gang_has_its_conditions_and_its_move_in_order_of_time(moment):
    gang = {
        "metadata": {
            "name": name_of(GangKey("team", "vgg", "")),
            "namespace": "team",
            "annotations": {keys.MOVED: '{"plan":"p","at":1795341660.5,"why":"a fault"}'},
        },
        "spec": {"gang": "vgg", "link": Link.BEST},
        "status": {
            "conditions": [
                a_condition("Placed", "2026-11-22T10:02:00Z"),
                a_condition(ASSEMBLED, "2026-11-22T10:00:00Z"),
            ]
        },
    }
    here = Moment(replace(moment(*VGG).current, gangs=(gang,)), 0.0)

    (view,) = unit_views(here, NO_PAST, "gang", "team", "vgg")

    assert [(time[14:16], what) for time, what, _ in view.plan.events] == [
        ("00", "Assembled is True"),
        ("01", "Moved off a fault"),
        ("02", "Placed is True"),
    ]


def test_a_gang_that_waits_has_a_reason_and_what_would_help(moment):
    taken = [placed_pod(f"p{i}-{n}", i, f"g{i}", f"dgx-{n}") for i in range(8) for n in (0, 1)]
    (view,) = unit_views(moment(*taken, waiting_pod("late", 8)), NO_PAST, "gang", "team", "late")

    assert view.unit.state == "waits"
    assert view.unit.reason
    assert view.unit.help
    assert not view.nodes


@pytest.mark.parametrize("kind", ["gang", "pod"])
def test_there_is_no_view_of_an_unknown_unit(moment, kind):
    assert unit_views(moment(*VGG), NO_PAST, kind, "team", "none") == []


def test_a_pod_without_a_gang_has_a_view(moment):
    (view,) = unit_views(moment(*VGG), NO_PAST, "pod", "team", "vgg-0")

    assert view.unit.name == "vgg"
    assert view.unit.kind == "gang"


def test_views_of_units_are_json(moment):
    here = moment(*VGG, waiting_pod("a", 2))

    for view in (waiting_view(here), unit_views(here, NO_PAST, "gang", "team", "vgg")):
        assert msgspec.json.decode(msgspec.json.encode(view))
