import gc
import tracemalloc
import weakref
from dataclasses import replace
from itertools import permutations

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
    numa_of,
    renumbered,
    with_gpus,
)
from support.strategies import machines

from linkwise.topology.bandwidth import bandwidths
from linkwise.topology.choice import ChoiceMode, ChoiceRequest, choose
from linkwise.topology.machine import NIC, Level, Machine, gpus_of, mask_of
from linkwise.topology.table import CACHE_MAX, Table, machine_class, table_bytes, table_of


def unchanged_by(machine: Machine, order: tuple[int, ...]) -> bool:
    other = renumbered(machine, order)
    return (
        other.links == machine.links
        and other.levels == machine.levels
        and [numa_of(other).index(node) for node in numa_of(other)]
        == [numa_of(machine).index(node) for node in numa_of(machine)]
        and sorted(nic.levels for nic in other.nics) == sorted(nic.levels for nic in machine.nics)
    )


@given(machines(), st.data())
@settings(max_examples=25)
def test_the_images_of_a_set_are_those_that_some_symmetry_maps_it_to(machine, data):
    mask = data.draw(st.integers(0, (1 << machine.n) - 1))

    images = np.flatnonzero(Table(machine).images(mask)).tolist()

    assert images == sorted(
        {
            mask_of([order[i] for i in gpus_of(mask)])
            for order in permutations(range(machine.n))
            if unchanged_by(machine, order)
        }
    )


@pytest.mark.parametrize(
    ("machine", "kinds"),
    [(dgx1_v100(), 75), (dgx1_p100(), 33), (a_pcie_machine(8, socket=4), 20), (a_machine(8), 8)],
    ids=["v100", "p100", "pcie", "all alike"],
)
def test_known_machines_have_as_many_kinds_of_sets_as_were_counted(machine, kinds):
    table = Table(machine)

    assert len({table.images(mask).tobytes() for mask in range(1, 256)}) == kinds


def test_symmetric_sets_agree_in_all_that_a_choice_looks_at():
    table = Table(replace(dgx1_v100(), nics=(NIC("n", (Level.PIX,) * 4 + (Level.PHB,) * 4),)))

    for mask in range(256):
        images = table.images(mask)
        for values in (np.round(table.a, 6), table.w, table.numa, table.near, table.partition(3)):
            assert len(np.unique(values[images])) == 1


@given(machines(), st.data())
@settings(max_examples=25)
def test_all_machines_of_a_class_have_the_very_same_bandwidths(machine, data):
    order = data.draw(st.permutations(range(machine.n)))
    here, there = Table(machine), Table(renumbered(machine, order))

    assert there.key == here.key
    for mask in range(1 << machine.n):
        assert there.bandwidth(mask) == here.bandwidth(mask_of([order[i] for i in gpus_of(mask)]))


def test_a_table_gives_the_bandwidths_of_its_own_numbering():
    machine = renumbered(dgx1_v100(), (3, 6, 0, 2, 7, 5, 1, 4))

    table = Table(machine)

    assert table.a == pytest.approx(bandwidths(machine)[0])
    assert table.bandwidth(mask_of([0, 2])) == 40.0


def test_bandwidths_are_rounded_to_a_millionth():
    table = Table(a_pcie_machine(8, socket=4))

    assert table.bandwidth(0b1111) == 6.666667
    assert table.best_possible(8) == 3.428571


def test_machines_that_differ_only_in_identity_share_their_table():
    named = replace(
        with_gpus(
            bridged_pairs(),
            uuid=tuple(f"GPU-{i}" for i in range(8)),
            bus_id=tuple(f"0000:{i:02x}:00.0" for i in range(8)),
            memory=(48,) * 8,
        ),
        model="NVIDIA A40",
        warnings=("guessed",),
    )

    assert table_of(named) is table_of(bridged_pairs())
    assert table_of(dgx1_v100()) is not table_of(bridged_pairs())


def test_the_best_of_a_size_is_that_of_the_empty_machine():
    table = Table(dgx1_v100())

    assert [table.best_possible(k) for k in (1, 2, 4, 9)] == [0.0, 40.0, 55.2, 0.0]


def test_what_remains_is_worth_a_quarter_of_its_pairs_and_fours():
    table = Table(dgx1_v100())

    assert table.remainder(255) == pytest.approx(0.25 * (4 * 40 + 2 * 55.2))
    assert table.remainder(mask_of([4, 5, 6, 7])) == pytest.approx(0.25 * (2 * 40 + 55.2))
    assert table.remainder(0) == table.remainder(1) == 0.0


def test_numa_nodes_and_the_nearest_nic_of_each_gpu_are_counted_for_every_set():
    nics = (
        NIC("a", (Level.PIX, Level.SYS, Level.SYS)),
        NIC("b", (Level.PHB, Level.NODE, Level.SYS)),
    )
    table = Table(a_machine(3, numa=(0, 5, 0), nics=nics))

    assert table.numa.tolist() == [0, 1, 1, 2, 1, 1, 2, 2]
    assert table.near.tolist() == [0, 50, 20, 70, 10, 60, 30, 80]


def test_a_set_knows_whether_nvlink_alone_connects_it():
    table = Table(bridged_pairs())

    assert table.linked[[0b11, 0b110, 0b1111, 0b1]].tolist() == [True, False, False, True]


def test_a_prepared_table_chooses_what_an_unprepared_one_does():
    prepared, fresh = Table(dgx1_p100()), Table(dgx1_p100())
    prepared.prepare()

    for mode in ChoiceMode:
        for free in (255, 0b1011_0110):
            for k in (1, 3, 4):
                ask = ChoiceRequest(free, k, mode=mode)
                assert choose(prepared, ask) == choose(fresh, ask)


def test_large_meshes_say_that_they_are_not_exact():
    ring = {(i, (i + 1) % 9): 1 for i in range(9)}

    assert not Table(a_machine(9, ring)).exact
    assert Table(dgx1_v100()).exact


@pytest.fixture(scope="module")
def sixteen() -> Table:
    return Table(a_pcie_machine(16, socket=8, switch=4))


@pytest.mark.parametrize(
    ("free", "k", "gpus"),
    [
        (range(16), 4, (0, 1, 2, 3)),
        (range(16), 8, tuple(range(8))),
        (set(range(16)) - {0}, 4, (4, 5, 6, 7)),
        (set(range(16)) - {0}, 2, (1, 2)),
        (set(range(16)) - {0, 5, 6}, 1, (1,)),
    ],
    ids=str,
)
def test_sixteen_gpus_on_pcie_keep_whole_switches_together(sixteen, free, k, gpus):
    assert gpus_of(choose(sixteen, ChoiceRequest(mask_of(set(free)), k)) or 0) == gpus


@pytest.mark.no_cover
@pytest.mark.parametrize("n", [1, 4, 8, 13])
def test_all_tables_of_a_machine_take_no_more_memory_than_is_counted(n):
    # NumPy and the caches of sets allocate memory once.
    Table(a_pcie_machine(n, socket=n, switch=1)).prepare()
    gc.collect()
    tracemalloc.start()
    table = Table(a_pcie_machine(n, socket=n, switch=2))
    table.prepare()
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert used <= table_bytes(table.n)


@pytest.mark.no_cover
def test_building_all_tables_of_sixteen_gpus_takes_little_more_memory_than_they_have():
    rng = np.random.default_rng(16)
    links = np.triu(rng.choice(3, (16, 16)), 1)
    pairs = tuple(map(tuple, (links + links.T).tolist()))
    machine = replace(a_pcie_machine(16, socket=8, switch=2), links=pairs)
    tracemalloc.start()
    Table(machine).prepare()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak <= table_bytes(16) + (12 << 20)


def test_tables_and_choices_of_many_machines_stay_within_their_limit():
    most = CACHE_MAX // table_bytes(16)
    seen = []
    for links in range(1, 4 * most):
        table = table_of(an_nvswitch_machine(16, links))
        choose(table, ChoiceRequest(0xFFFF, 2))
        seen.append(weakref.ref(table))
        del table
    gc.collect()

    assert sum(one() is not None for one in seen) <= most


def test_names_of_nics_are_not_kept_with_tables():
    named = replace(a_machine(2), nics=(NIC("mlx5_0" * 600, (Level.PIX, Level.SYS)),))

    assert machine_class(named).nics == (NIC("", (Level.PIX, Level.SYS)),)


def near(i: int, j: int) -> tuple[Level, Level]:
    """Return the levels of a NIC that is below the switch of one of two pairs of GPUs."""
    return (Level.PIX, Level.PXB) if i == j else (Level.SYS, Level.SYS)


@pytest.mark.parametrize(
    ("gpus", "nics", "links"),
    [
        pytest.param((0,), (), 1, id="one GPU"),
        pytest.param((0, 1), (), 1, id="both below one switch"),
        pytest.param((0, 2), (), 2, id="below two switches"),
        pytest.param((0, 1, 2, 3), (), 2, id="four below two switches"),
        pytest.param((0, 1, 2, 3), (0,), 2, id="a NIC below one of them"),
        pytest.param((0, 1, 2, 3), (0, 0), 3, id="two NICs below one of them"),
        pytest.param((2, 3), (0, 0), 1, id="NICs below the other one"),
        pytest.param((0,), (0, 0), 1, id="one GPU beside two NICs"),
    ],
)
def test_gpus_leave_the_machine_through_the_links_of_their_switches(
    gpus: tuple[int, ...], nics: tuple[int, ...], links: int
) -> None:
    machine = replace(
        a_pcie_machine(4, socket=4, switch=2),
        nics=tuple(
            NIC(f"mlx5_{i}", (*near(switch, 0), *near(switch, 1))) for i, switch in enumerate(nics)
        ),
    )

    assert Table(machine).speed_out(mask_of(gpus)) == links * 12.0
    assert Table(dgx1_v100()).speed_out(0b11111111) == 4 * 12.0


@settings(max_examples=30)
@given(machines(), st.data())
def test_more_gpus_never_leave_more_slowly_and_never_faster_than_one_link_each(
    machine: Machine, data: st.DataObject
) -> None:
    table, pcie = Table(machine), machine.constants.pcie
    mask = data.draw(st.integers(0, (1 << machine.n) - 2))
    more = mask | mask + 1

    assert table.speed_out(mask) <= table.speed_out(more) <= more.bit_count() * pcie
