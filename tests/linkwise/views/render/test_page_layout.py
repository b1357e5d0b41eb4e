from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_machine, a_pcie_machine, an_nvswitch_machine, pcie_level, renumbered

from linkwise.topology.catalogue import NAMES, entry
from linkwise.topology.machine import Level
from linkwise.views.render.page.layout import Spot, layout_of
from linkwise.views.render.page.pcie import clusters, groups, sockets

HEIGHT = 48.0


@st.composite
def meshes(draw):
    n = draw(st.integers(1, 16))
    pairs = list(combinations(range(n), 2)) or [(0, 0)]
    linked = st.dictionaries(st.sampled_from(pairs), st.sampled_from((1, 2, 4)), max_size=24)
    links = draw(linked) if n > 1 else {}
    numa = tuple(draw(st.lists(st.integers(-1, 2), min_size=n, max_size=n)))
    level = draw(
        st.sampled_from((pcie_level(4), pcie_level(8, 3), lambda i, j: Level((i ^ j) % 6 * 10)))
    )
    return a_machine(n, links, level=level, numa=numa)


def _check(machine):
    layout = layout_of(machine, HEIGHT)
    assert len(layout.spots) == machine.n
    for spot in layout.spots:
        assert layout.tile / 2 <= spot.x <= layout.width - layout.tile / 2
        assert HEIGHT / 2 <= spot.y <= layout.height - HEIGHT / 2
    for a, b in combinations(layout.spots, 2):
        assert abs(a.x - b.x) >= layout.tile or abs(a.y - b.y) >= HEIGHT - 1
    return layout


@given(meshes())
def test_any_mesh_has_all_gpus_apart_and_every_link_once(machine):
    layout = _check(machine)

    drawn = {wire.gpus: wire.count for wire in layout.wires}
    assert len(drawn) == len(layout.wires)
    assert drawn == {
        (i, j): machine.links[i][j]
        for i, j in combinations(range(machine.n), 2)
        if machine.links[i][j]
    }


@pytest.mark.parametrize("name", NAMES)
def test_on_machines_of_the_catalogue_wires_run_clear_of_other_gpus(name):
    machine = entry(name).machine

    layout = _check(machine)

    assert not layout.is_ring
    for wire in layout.wires:
        others = [spot for gpu, spot in enumerate(layout.spots) if gpu not in wire.gpus]
        for a, b in zip(wire.points, wire.points[1:], strict=False):
            assert not any(_runs_behind(a, b, other, layout.tile) for other in others)


def _runs_behind(a: Spot, b: Spot, tile: Spot, width: float) -> bool:
    """Return whether a straight line touches a tile, looked at in many places."""
    places = [(a.x + (b.x - a.x) * t / 100, a.y + (b.y - a.y) * t / 100) for t in range(101)]
    return any(abs(x - tile.x) < width / 2 and abs(y - tile.y) < HEIGHT / 2 for x, y in places)


def test_a_renumbered_cube_mesh_is_two_squares_all_the_same():
    machine = renumbered(entry("dgx1-v100").machine, (3, 1, 4, 0, 5, 2, 6, 7))

    layout = layout_of(machine, HEIGHT)

    assert sorted({spot.x for spot in layout.spots}) == [50, 152, 264, 366]
    assert sum(len(wire.points) > 2 for wire in layout.wires) == 2


def test_behind_an_nvswitch_each_gpu_has_one_wire_to_it():
    layout = _check(an_nvswitch_machine(8, 12, off=2))

    assert layout.switch is not None
    assert [wire.gpus for wire in layout.wires] == [(i,) for i in range(6)]
    assert {wire.count for wire in layout.wires} == {12}


def test_a_tray_of_four_stands_in_one_row():
    layout = _check(an_nvswitch_machine(4, 18))

    assert len({spot.y for spot in layout.spots}) == 1


def test_sockets_and_switches_are_named_with_what_their_gpus_share():
    components = [(group.label, group.gpus) for group in groups(a_pcie_machine(8, socket=4))]

    assert components == [
        ("NUMA 0, PHB", (0, 1, 2, 3)),
        ("PIX", (0, 1)),
        ("PIX", (2, 3)),
        ("NUMA 1, PHB", (4, 5, 6, 7)),
        ("PIX", (4, 5)),
        ("PIX", (6, 7)),
    ]


def test_sockets_without_numa_are_found_by_pcie_level():
    machine = a_machine(4, level=lambda i, j: Level.PHB if i // 2 == j // 2 else Level.SYS)

    assert sockets(machine) == [[0, 1], [2, 3]]


def test_numa_node_per_gpu_is_not_a_socket():
    machine = a_machine(4, dict.fromkeys(combinations(range(4), 2), 4), numa=(3, 2, 1, 0))

    assert sockets(machine) == [[0, 1, 2, 3]]


def test_several_levels_of_switches_are_framed_from_the_outer_to_the_inner():
    levels = {0: Level.PIX, 1: Level.PXB, 2: Level.PHB}
    machine = a_machine(8, level=lambda i, j: levels[((i ^ j).bit_length() - 1)])

    depths = {group.label: group.depth for group in groups(machine)}

    assert depths == {"PHB": 0, "PXB": 1, "PIX": 2}


def test_clusters_hold_together_through_chains():
    components = clusters(range(6), lambda i, j: abs(i - j) == 2)

    assert components == [[0, 2, 4], [1, 3, 5]]
