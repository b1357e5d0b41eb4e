"""The NICs in the drawing of a node."""

import re
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_node

from linkwise.dashboard.tree import tree_of
from linkwise.topology.catalogue import NAMES, entry
from linkwise.topology.machine import MAX_GPUS, NIC, Level
from linkwise.views.render.page.drawing import drawing_of
from linkwise.views.render.page.legend import legend
from linkwise.views.render.page.nics import HEIGHT, WIDTH
from linkwise.views.render.page.occupancy import empty_view

HOSTILE = '<img src=x onerror="alert(1)">'


def _drawn(machine):
    return drawing_of(empty_view(a_node("a", machine)), machine)


def _cards(machine):
    """Return the lines of text of each NIC, and its rectangle, and the limits of the drawing."""
    _, attributes, children = tree_of(_drawn(machine))
    left, top, width, height = map(float, attributes["viewBox"].split())
    groups = [child for tag, _, child in children if tag == "g"]
    found = []
    for title, rect, *texts in groups:
        if rect[1]["class"] == "nic":
            place = [float(rect[1][key]) for key in ("x", "y", "width", "height")]
            found.append((title[2][0], [text[2][0] for text in texts], place))
    return found, (left, top, left + width, top + height)


@pytest.mark.parametrize("name", NAMES)
def test_all_nics_of_a_machine_are_drawn_apart_and_inside(name):
    machine = entry(name).machine

    cards, (left, top, right, bottom) = _cards(machine)

    assert sorted(title.split()[1] for title, *_ in cards) == sorted(
        f"{nic.name}:" for nic in machine.nics
    )
    _check_apart([place for *_, place in cards])
    for *_, (x, y, width, height) in cards:
        assert left <= x <= x + width <= right
        assert top <= y <= y + height <= bottom


def _check_apart(places):
    for (ax, ay, *_), (bx, by, *_) in combinations(places, 2):
        assert abs(ax - bx) >= WIDTH or abs(ay - by) >= HEIGHT


@given(st.data())
def test_any_nics_are_drawn_apart(data):
    machine = entry(data.draw(st.sampled_from(NAMES))).machine
    levels = st.lists(st.sampled_from(Level), min_size=machine.n, max_size=machine.n)
    rows = data.draw(st.lists(levels, max_size=MAX_GPUS))
    nics = tuple(NIC(f"mlx5_{i}", tuple(row)) for i, row in enumerate(rows))

    cards, _ = _cards(replace(machine, nics=nics))

    assert len(cards) == len(nics)
    _check_apart([place for *_, place in cards])


def test_a_nic_is_beside_its_nearest_gpus_and_joined_with_them():
    machine = entry("dgx1-v100").machine

    cards, _ = _cards(machine)
    texts = {name: words for _, (name, words), _ in cards}

    assert texts == {
        "mlx5_0": "PIX 0-1",
        "mlx5_1": "PIX 2-3",
        "mlx5_2": "PIX 4-5",
        "mlx5_3": "PIX 6-7",
    }
    assert len(re.findall('class="wire nic"', _drawn(machine))) == 8
    places = {name: place for _, (name, _), place in cards}
    assert places["mlx5_0"][1] < 0 < places["mlx5_1"][1]


@pytest.mark.parametrize(
    ("levels", "words", "wires"),
    [
        pytest.param([Level.NODE] * 4 + [Level.SYS] * 4, "NODE 0-3", 0, id="all of a socket"),
        pytest.param([Level.SYS] * 8, "SYS 0-7", 0, id="none is near"),
        pytest.param([Level.UNKNOWN] * 8, "level ?", 0, id="unknown"),
        pytest.param([Level.PIX, Level.PXB] * 4, "PIX 4 GPUs", 2, id="many apart"),
    ],
)
def test_a_nic_has_a_wire_only_to_gpus_below_its_switch_or_bridge(levels, words, wires):
    machine = replace(entry("hgx-h200").machine, nics=(NIC("ib0", tuple(levels)),))

    ((_, texts, _),), _ = _cards(machine)

    assert texts == ["ib0", words]
    assert len(re.findall('class="wire nic"', _drawn(machine))) == wires


def test_a_long_hostile_name_is_cut_and_is_text():
    machine = replace(entry("dgx1-v100").machine, nics=(NIC(HOSTILE, (Level.PIX,) * 8),))

    ((title, (name, _), _),), _ = _cards(machine)

    assert name == "<img sr…"
    assert HOSTILE in title
    assert "<img" not in _drawn(machine)


def test_people_who_do_not_see_the_drawing_get_the_nics_as_text():
    assert "; NIC mlx5_3, PIX 6-7</desc>" in _drawn(entry("dgx1-v100").machine)


@pytest.mark.parametrize(("name", "shown"), [("dgx1-v100", True), ("dgx2", False)])
def test_the_legend_has_nics_where_some_are_drawn(name, shown):
    view = empty_view(a_node("a", entry(name).machine))

    assert ("NIC, with" in legend([view])) is shown
