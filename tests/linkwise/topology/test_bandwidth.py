from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import (
    a_machine,
    a_pcie_machine,
    an_nvswitch_machine,
    bridged_pairs,
    dgx1_p100,
    dgx1_v100,
    pcie_level,
    renumbered,
)
from support.strategies import machines

from linkwise.topology.bandwidth import bandwidths
from linkwise.topology.constants import Constants
from linkwise.topology.machine import Level, Machine, gpus_of, mask_of
from linkwise.topology.packing import pack_chains, pack_rings
from linkwise.topology.subsets import popcounts, sets_of


def a_of(machine: Machine, *gpus: int) -> float:
    return round(float(bandwidths(machine)[0][mask_of(gpus)]), 6)


def joined_by(gpus: tuple[int, ...], edges: set[tuple[int, int]]) -> bool:
    reached = {gpus[0]}
    for _ in gpus:
        reached |= {b for a, b in edges if a in reached} | {a for a, b in edges if b in reached}
    return reached >= set(gpus)


def rule(machine: Machine, gpus: tuple[int, ...]) -> float:
    """Work out A of one set as the model is written, one set at a time."""
    k, constants = len(gpus), machine.constants
    if k < 2:
        return 0.0
    pairs = list(combinations(gpus, 2))
    nvlink = {(i, j) for i, j in pairs if machine.links[i][j]}
    if not joined_by(gpus, nvlink):
        speed = {
            Level.PIX: constants.pcie,
            Level.PXB: constants.pcie,
            Level.PSB: constants.pcie,
            Level.PHB: constants.bridge,
            Level.NODE: constants.bridge,
            Level.SYS: constants.socket,
            Level.UNKNOWN: constants.socket,
        }
        enough = [
            w
            for w in speed.values()
            if joined_by(
                gpus, nvlink | {(i, j) for i, j in pairs if speed[machine.levels[i][j]] >= w}
            )
        ]
        return max(enough) * k / (2 * (k - 1))
    if machine.switched:
        return constants.nvlink * machine.links[gpus[0]][gpus[1]] * k / (2 * (k - 1))
    links = tuple(tuple(machine.links[i][j] for j in gpus) for i in gpus)
    if k == 2:
        return constants.nvlink * links[0][1]
    ring = constants.nvlink * pack_rings(links) * k / (k - 1)
    chain = 0.92 * constants.nvlink * pack_chains(links)
    return max(ring, chain)


@pytest.mark.parametrize(
    ("gpus", "a"),
    [
        ((0, 1, 2, 3), 55.2),
        ((4, 5, 6, 7), 55.2),
        ((0, 3), 40.0),
        ((0, 1), 20.0),
        ((0, 2, 3), 46.0),
        ((0, 1, 6, 7), 4.0),
        ((0, 5), 6.0),
        ((0, 1, 2, 3, 4), 36.8),
        ((2,), 0.0),
        ((), 0.0),
    ],
    ids=str,
)
def test_sets_of_a_dgx1_v100_have_the_published_bandwidths(gpus, a):
    assert a_of(dgx1_v100(), *gpus) == a


def test_of_the_sets_of_four_on_a_dgx1_v100_two_are_best_and_fourteen_cross_the_socket_link():
    a, exact = bandwidths(dgx1_v100())

    whole = Counter(round(x) for x in a[sets_of(8, 4)].tolist())

    assert whole == {55: 2, 43: 2, 37: 10, 28: 2, 18: 40, 4: 14}
    assert exact


def test_the_best_of_every_size_on_an_empty_dgx1_v100():
    a, _ = bandwidths(dgx1_v100())

    best = [round(float(a[popcounts(8) == k].max()), 3) for k in range(2, 9)]

    assert best == [40.0, 46.0, 55.2, 46.0, 51.52, 55.2, 68.571]


@pytest.mark.parametrize(
    ("machine", "gpus", "a"),
    [
        (an_nvswitch_machine(8, 12), range(8), 20 * 12 * 8 / 14),
        (an_nvswitch_machine(8, 12), (0, 5), 240.0),
        (an_nvswitch_machine(16, 6), range(16), 20 * 6 * 16 / 30),
        (an_nvswitch_machine(8, 12, off=1), range(7), 20 * 12 * 7 / 12),
        (an_nvswitch_machine(8, 12, off=1), (0, 5, 7), 10 * 3 / 4),
        (an_nvswitch_machine(8, 12, off=1), (0, 7), 6.0),
        (an_nvswitch_machine(8, 12, off=2), (6, 7), 12.0),
    ],
    ids=["eight", "pair", "sixteen", "off fabric", "one off", "pair across", "both off"],
)
def test_behind_an_nvswitch_the_links_of_one_gpu_count_and_those_off_it_use_the_host(
    machine, gpus, a
):
    assert a_of(machine, *gpus) == pytest.approx(a)


@pytest.mark.parametrize(
    ("gpus", "a"),
    [
        ((0, 1), 12.0),
        ((0, 2), 10.0),
        ((0, 4), 6.0),
        ((0, 1, 2, 3), 10 * 4 / 6),
        ((0, 1, 4, 5), 6 * 4 / 6),
        (range(8), 6 * 8 / 14),
    ],
    ids=str,
)
def test_without_nvlink_the_worst_level_needed_decides(gpus, a):
    assert a_of(a_pcie_machine(8, socket=4), *gpus) == pytest.approx(a)


@pytest.mark.parametrize(
    ("level", "a"),
    [
        (Level.PSB, 12.0),
        (Level.PIX, 12.0),
        (Level.PXB, 12.0),
        (Level.PHB, 10.0),
        (Level.NODE, 10.0),
        (Level.SYS, 6.0),
        (Level.UNKNOWN, 6.0),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_every_pcie_level_has_its_constant(level, a):
    assert a_of(a_machine(2, level=lambda _i, _j: level), 0, 1) == a


def test_only_the_level_needed_to_connect_a_set_counts_not_the_worst_in_it():
    # 0-1 and 1-2 meet at one switch; the pair 0-2 goes round it and is not needed.
    machine = a_machine(3, level=lambda i, j: Level.SYS if (i, j) == (0, 2) else Level.PIX)

    assert a_of(machine, 0, 1, 2) == pytest.approx(12 * 3 / 4)


def test_pairs_with_a_bridge_count_as_connected_where_the_rest_goes_over_pcie():
    machine = a_machine(
        4, {(0, 1): 4, (2, 3): 4}, level=lambda i, j: Level.PHB if (i, j) == (1, 2) else Level.SYS
    )

    assert a_of(machine, 0, 1, 2, 3) == pytest.approx(10 * 4 / 6)
    assert a_of(bridged_pairs(), 0, 1) == 80.0
    assert a_of(bridged_pairs(), 0, 1, 4, 5) == 4.0


def test_a_set_that_nvlink_connects_does_not_use_the_host():
    # A star has neither a ring nor a chain, and host(S) does not apply to it.
    star = a_machine(4, {(0, 1): 4, (0, 2): 4, (0, 3): 4}, level=pcie_level(4))

    assert a_of(star, 0, 1, 2, 3) == 0.0
    assert a_of(star, 1, 2, 3) == pytest.approx(7.5)


def test_a_gpu_off_the_fabric_of_a_mesh_is_reached_over_the_host():
    links = dict.fromkeys(combinations(range(3), 2), 2)
    machine = a_machine(4, links, level=pcie_level(4))

    assert a_of(machine, 0, 1, 2) == pytest.approx(max(20 * 2 * 3 / 2, 0.92 * 20 * 3))
    assert a_of(machine, 2, 3) == 12.0
    assert a_of(machine, 0, 1, 2, 3) == pytest.approx(12 * 4 / 6)


@given(machines(most=5))
@settings(max_examples=40)
def test_every_set_of_any_machine_has_the_bandwidth_the_rule_gives(machine):
    a, exact = bandwidths(machine)

    assert exact
    for mask in range(1 << machine.n):
        assert a[mask] == pytest.approx(rule(machine, gpus_of(mask)), abs=1e-7), gpus_of(mask)


@pytest.mark.parametrize(
    "machine", [an_nvswitch_machine(6, 18, off=2), dgx1_p100()], ids=["switched", "p100"]
)
def test_every_set_of_a_known_machine_has_the_bandwidth_the_rule_gives(machine):
    a, _ = bandwidths(machine)

    for mask in range(1 << machine.n):
        assert a[mask] == pytest.approx(rule(machine, gpus_of(mask)), abs=1e-7), gpus_of(mask)


@given(machines(), st.data())
@settings(max_examples=25)
def test_bandwidths_do_not_depend_on_numbering(machine, data):
    order = data.draw(st.permutations(range(machine.n)))
    a, _ = bandwidths(machine)
    other, _ = bandwidths(renumbered(machine, order))

    for mask in range(1 << machine.n):
        same = mask_of([order[i] for i in gpus_of(mask)])
        assert other[mask] == pytest.approx(a[same], abs=1e-7)


@given(machines(least=3, most=5), st.data())
@settings(max_examples=40)
def test_more_links_on_a_linked_pair_never_lower_the_bandwidth_of_a_set(machine, data):
    linked = [(i, j) for i, j in combinations(range(machine.n), 2) if machine.links[i][j]]
    more = data.draw(
        st.dictionaries(st.sampled_from(linked), st.integers(1, 4)) if linked else st.just({})
    )
    links = tuple(
        tuple(count + more.get((min(i, j), max(i, j)), 0) for j, count in enumerate(row))
        for i, row in enumerate(machine.links)
    )

    better, _ = bandwidths(replace(machine, links=links))

    assert np.all(better >= bandwidths(machine)[0] - 1e-7)


@given(
    machines(most=5),
    st.sampled_from(["nvlink", "pcie", "bridge", "socket"]),
    st.floats(0, 50, allow_subnormal=False),
)
@settings(max_examples=40)
def test_a_larger_constant_never_lowers_the_bandwidth_of_a_set(machine, name, more):
    constants = replace(machine.constants, **{name: getattr(machine.constants, name) + more})

    better, _ = bandwidths(replace(machine, constants=constants))

    assert np.all(better >= bandwidths(machine)[0] - 1e-7)


def test_large_meshes_are_exact_for_small_sets_and_get_an_upper_bound_for_the_rest():
    # Ten GPUs in a ring of double links, with single links to the second next.
    links = {(min(i, j), max(i, j)): 2 for i in range(10) for j in [(i + 1) % 10]}
    links |= {(min(i, j), max(i, j)): 1 for i in range(10) for j in [(i + 2) % 10]}
    machine = a_machine(10, links, level=pcie_level(5, 5))

    a, exact = bandwidths(machine)

    assert not exact
    for k in range(1, 5):
        for mask in sets_of(10, k).tolist():
            assert a[mask] == pytest.approx(rule(machine, gpus_of(mask)), abs=1e-7)
    for k in (5, 6, 7):
        for mask in sets_of(10, k)[::7].tolist():
            assert a[mask] >= rule(machine, gpus_of(mask)) - 1e-7
    assert a[-1] >= rule(machine, tuple(range(10))) - 1e-7


def test_a_mesh_of_two_small_components_is_exact_whatever_its_size():
    links = {
        (i + 5 * half, j + 5 * half): 1 for i, j in combinations(range(5), 2) for half in (0, 1)
    }
    machine = a_machine(10, links, level=pcie_level(5, 5))

    a, exact = bandwidths(machine)

    assert exact
    assert a[mask_of(range(5))] == pytest.approx(max(20 * 2 * 5 / 4, 0.92 * 20 * 2.5))
    assert a[-1] == pytest.approx(6 * 10 / 18)


def test_a_small_component_beside_a_large_one_is_exact_but_the_machine_is_not():
    links = {(i, (i + 1) % 9): 1 for i in range(9)} | {(9, 10): 4}

    a, exact = bandwidths(a_machine(11, links))

    assert not exact
    assert a[mask_of([9, 10])] == 80.0


def test_one_gpu_alone_is_a_machine_without_bandwidth():
    a, exact = bandwidths(a_machine(1))

    assert a.tolist() == [0.0, 0.0]
    assert exact


def test_blackwell_links_are_faster_than_voltas():
    links = {(0, 1): 1}

    assert a_of(a_machine(2, links, constants=Constants(nvlink=40.1)), 0, 1) == 40.1
