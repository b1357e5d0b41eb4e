import pytest

from linkwise.topology.bandwidth import bandwidths
from linkwise.topology.catalogue import NAMES, entry
from linkwise.topology.constants import Constants
from linkwise.topology.machine import Level, TopologyError, mask_of


def test_the_catalogue_has_the_machines_that_people_may_name() -> None:
    promised = (
        "dgx1-p100 dgx1-v100 v100x4-square v100x4-p3 dgx2 dgx-a100 hgx-a100 dgx-h100 hgx-h200 b200"
        " gb200-tray gh200x4 a100x4-mesh a100x8-bridges l4x8 t4x4 rtx4090x8 rtx8000x4"
    )

    assert set(promised.split()) <= set(NAMES)


def test_an_unknown_name_is_refused_with_the_list() -> None:
    with pytest.raises(TopologyError, match=r"'dgx9'.*dgx1-p100, dgx1-v100"):
        entry("dgx9")


@pytest.mark.parametrize("name", NAMES)
def test_every_machine_has_a_title_a_source_a_model_and_memory(name: str) -> None:
    machine = entry(name).machine

    assert entry(name).name == name
    assert entry(name).title
    assert entry(name).source.endswith(".")
    assert machine.model
    assert len(machine.memory) == machine.n
    assert machine.warnings == ()


@pytest.mark.parametrize(
    ("name", "gpus", "switched", "row_sum", "speeds", "memory"),
    [
        ("dgx1-p100", 8, False, 4, (18.0, 12.0), 16),
        ("dgx1-v100", 8, False, 6, (20.0, 12.0), 32),
        ("v100x4-square", 4, False, 5, (20.0, 12.0), 16),
        ("v100x4-p3", 4, False, 5, (20.0, 12.0), 16),
        ("dgx2", 16, True, 90, (20.0, 12.0), 32),
        ("dgx-a100", 8, True, 84, (20.0, 24.0), 40),
        ("hgx-a100", 8, True, 84, (20.0, 24.0), 80),
        ("dgx-h100", 8, True, 126, (20.6, 48.0), 80),
        ("hgx-h200", 8, True, 126, (20.6, 48.0), 140),
        ("b200", 8, True, 126, (40.1, 48.0), 179),
        ("gb200-tray", 4, True, 54, (40.1, 48.0), 185),
        ("gh200x4", 4, False, 18, (20.6, 48.0), 96),
        ("a100x4-mesh", 4, False, 12, (20.0, 24.0), 40),
        ("a100x8-bridges", 8, False, 12, (20.0, 24.0), 80),
        ("l4x8", 8, False, 0, (20.0, 12.0), 22),
        ("t4x4", 4, False, 0, (20.0, 12.0), 15),
        ("rtx4090x8", 8, False, 0, (20.0, 12.0), 24),
        ("rtx8000x4", 4, False, 2, (20.0, 12.0), 48),
    ],
)
def test_links_speed_and_memory_are_those_of_the_product(
    name: str, gpus: int, switched: bool, row_sum: int, speeds: tuple[float, float], memory: int
) -> None:
    machine = entry(name).machine

    assert machine.n == gpus
    assert machine.switched is switched
    assert max(sum(row) for row in machine.links) == row_sum
    nvlink, pcie = speeds
    assert machine.constants == Constants(nvlink=nvlink, pcie=pcie)
    assert set(machine.memory) == {memory}


@pytest.mark.parametrize(
    ("name", "pair", "level"),
    [
        ("dgx1-v100", (0, 1), Level.PIX),
        ("dgx1-v100", (0, 3), Level.PHB),
        ("dgx1-v100", (0, 4), Level.SYS),
        ("dgx1-p100", (0, 2), Level.PIX),
        ("dgx1-p100", (5, 7), Level.PIX),
        ("dgx1-p100", (0, 1), Level.PHB),
        ("rtx8000x4", (0, 1), Level.NODE),
        ("rtx8000x4", (2, 3), Level.NODE),
        ("rtx8000x4", (0, 3), Level.SYS),
        ("a100x8-bridges", (0, 2), Level.UNKNOWN),
        ("a100x8-bridges", (0, 1), Level.SYS),
        ("dgx-h100", (0, 7), Level.UNKNOWN),
        ("l4x8", (0, 3), Level.PHB),
        ("l4x8", (3, 4), Level.SYS),
        ("t4x4", (0, 3), Level.PHB),
        ("rtx4090x8", (0, 1), Level.SYS),
    ],
)
def test_pcie_levels_are_set_where_the_source_has_them(
    name: str, pair: tuple[int, int], level: Level
) -> None:
    assert entry(name).machine.levels[pair[0]][pair[1]] is level


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [((0, 1, 2, 3), 55.2), ((0, 3), 40.0), ((0, 2, 3), 46.0), ((0, 1, 6, 7), 4.0)],
)
def test_dgx1_v100_reaches_the_bandwidths_that_the_model_promises(
    gpus: tuple[int, ...], expected: float
) -> None:
    values = bandwidths(entry("dgx1-v100").machine)[0]

    assert round(float(values[mask_of(gpus)]), 1) == expected


def test_the_nics_of_a_dgx1_stand_at_the_switches_of_its_gpus() -> None:
    nics = {nic.name: nic.levels for nic in entry("dgx1-v100").machine.nics}

    assert nics["mlx5_1"] == (*(Level.PHB,) * 2, *(Level.PIX,) * 2, *(Level.SYS,) * 4)
