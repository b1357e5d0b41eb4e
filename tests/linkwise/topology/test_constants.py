import pytest

from linkwise.topology.constants import (
    AMPERE,
    AMPERE_SM86,
    BLACKWELL,
    HOPPER,
    PASCAL,
    PCIE,
    PRODUCTS,
    VOLTA,
    Architecture,
    Constants,
    architecture,
)
from linkwise.topology.machine import TopologyError


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("P100", PASCAL),
        ("Tesla P100-SXM2-16GB", PASCAL),
        ("v100", VOLTA),
        ("3090", AMPERE_SM86),
        ("rtx_3090", AMPERE_SM86),
        ("Tesla V100-SXM2-16GB", VOLTA),
        ("Tesla-V100S-PCIE-32GB", VOLTA),
        ("A100", AMPERE),
        ("NVIDIA A100-SXM4-80GB", AMPERE),
        ("NVIDIA A800-SXM4-80GB", AMPERE),
        ("NVIDIA A40", AMPERE_SM86),
        ("NVIDIA A10", AMPERE_SM86),
        ("NVIDIA A10G", AMPERE_SM86),
        ("NVIDIA RTX A6000", AMPERE_SM86),
        ("NVIDIA GeForce RTX 3090", AMPERE_SM86),
        ("nvidia-geforce-rtx-3090", AMPERE_SM86),
        ("rtx3090", AMPERE_SM86),
        ("NVIDIA H100 80GB HBM3", HOPPER),
        ("H800", HOPPER),
        ("NVIDIA H200", HOPPER),
        ("NVIDIA H20", HOPPER),
        ("NVIDIA GH200 480GB", HOPPER),
        ("NVIDIA B200", BLACKWELL),
        ("gb200", BLACKWELL),
        ("NVIDIA B300 SXM6 AC", BLACKWELL),
    ],
)
def test_product_name_or_a_part_of_it_identifies_the_architecture(
    model: str, expected: Architecture
) -> None:
    assert architecture(model) is expected


@pytest.mark.parametrize("model", ["", "T4", "L4", "A4000", "Quadro RTX 8000", "V1000"])
def test_an_unknown_model_is_refused_with_the_list_of_known_ones(model: str) -> None:
    with pytest.raises(TopologyError, match="unknown GPU model") as caught:
        architecture(model)

    assert all(product in str(caught.value) for product in PRODUCTS)


def test_a_name_of_two_generations_is_refused() -> None:
    with pytest.raises(TopologyError, match="unknown GPU model"):
        architecture("V100 and H100")


def test_each_architecture_has_the_speed_and_the_links_of_the_model() -> None:
    rates = {(each.nvlink, each.links) for each in PRODUCTS.values()}

    assert rates == {(18.0, 4), (20.0, 6), (20.0, 12), (12.0, 12), (20.6, 18), (40.1, 18)}


def test_defaults_apply_to_a_text_without_model_and_cpu() -> None:
    assert Constants() == Constants(nvlink=20.0, pcie=PCIE[3], bridge=10.0, socket=6.0)
