from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_machine

from linkwise.topology.machine import (
    GPU,
    NIC,
    Level,
    Machine,
    TopologyError,
    gpu_records,
    gpus_of,
    mask_of,
)

FAR = ((Level.UNKNOWN, Level.SYS), (Level.SYS, Level.UNKNOWN))
PLAIN: dict[str, Any] = {"links": ((0, 2), (2, 0)), "levels": FAR, "gpus": (GPU(),) * 2}


def test_a_machine_knows_its_gpus_and_those_with_an_nvlink() -> None:
    machine = a_machine(3, {(0, 2): 1})

    assert machine.n == 3
    assert machine.fabric == mask_of({0, 2})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        pytest.param({"links": (), "levels": (), "gpus": ()}, "has 1 to 16 GPUs", id="no GPU"),
        pytest.param({"links": ((0,) * 17,) * 17}, "this one has 17", id="17 GPUs"),
        pytest.param({"links": ((0, 2), (2,))}, "2×2 matrices", id="ragged"),
        pytest.param({"levels": FAR[:1]}, "2×2 matrices", id="a row of levels missing"),
        pytest.param({"gpus": (GPU(),)}, "for all 2 GPUs", id="NUMA of one"),
        pytest.param({"nics": (NIC("NIC0", (Level.PIX,)),)}, "for all 2 GPUs", id="NIC of one"),
        pytest.param({"links": ((1, 2), (2, 0))}, "GPU0 has an NVLink to itself", id="itself"),
        pytest.param({"links": ((0, 2), (1, 0))}, "GPU0 and GPU1 are linked diff", id="one way"),
        pytest.param({"levels": (FAR[0], FAR[0])}, "linked differently", id="levels one way"),
    ],
)
def test_a_machine_that_contradicts_itself_cannot_be_made(
    fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(TopologyError) as caught:
        Machine(**{**PLAIN, **fields})

    assert words in str(caught.value)


@pytest.mark.parametrize(
    "column",
    [
        pytest.param({"uuids": ("GPU-a",)}, id="UUID of one"),
        pytest.param({"bus_ids": ("a", "b", "c")}, id="bus ids of three"),
        pytest.param({"memory": (16,)}, id="memory of one"),
    ],
)
def test_a_column_is_for_all_gpus_or_for_none(column: dict[str, Any]) -> None:
    with pytest.raises(TopologyError, match="for all 2 GPUs or for none"):
        gpu_records((0, 1), **column)


@given(st.frozensets(st.integers(0, 15)))
def test_a_mask_stands_for_its_set_of_gpus(gpus: frozenset[int]) -> None:
    assert gpus_of(mask_of(gpus)) == tuple(sorted(gpus))


def test_a_machine_has_few_nics_that_differ() -> None:
    levels = product((Level.PIX, Level.PHB, Level.SYS), repeat=4)
    nics = tuple(NIC(f"mlx5_{i}", each) for i, each in enumerate(levels))

    assert replace(a_machine(4), nics=nics[:32] * 8).nics
    with pytest.raises(TopologyError, match="more than 32 NICs differ"):
        replace(a_machine(4), nics=nics[:33])
