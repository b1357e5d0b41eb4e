"""The GPUs of claims nodes, as admission knows them."""

import json

import pytest
from support.builders import a_node
from support.dra import PRODUCT, a_device, a_slice, read_slice

from linkwise.cluster.nodes.gpu_kinds import (
    KINDS_MAX,
    decode_kinds,
    encode_kinds,
    kinds_of,
    may_select,
)
from linkwise.cluster.nodes.node_capacity import capacity_of

ATTRIBUTES = "device.attributes['gpu.nvidia.com']"


def facts(*devices):
    return [device.facts for device in read_slice(a_slice(*devices)).devices]


def products(count):
    return kinds_of(facts(*(a_device(i, productName=f"NVIDIA X{i}") for i in range(count))))


def test_gpus_of_one_product_are_one_kind():
    assert len(kinds_of(facts(*(a_device(i, minor=i) for i in range(8))))) == 1


def test_kinds_are_read_as_they_are_written():
    kinds = kinds_of(facts(a_device(0, architecture="Hopper"), a_device(1, memory="1500m")))

    assert frozenset(decode_kinds(encode_kinds(kinds))) == kinds
    assert json.loads(encode_kinds(kinds))[0]["attributes"]["driverVersion"] == {
        "version": "550.163.1"
    }


def test_of_too_many_kinds_none_is_known():
    assert len(decode_kinds(encode_kinds(products(KINDS_MAX)))) == KINDS_MAX
    assert encode_kinds(products(KINDS_MAX + 1)) == ""
    assert may_select(("false",), decode_kinds(""))


@pytest.mark.parametrize("text", ["{", "[1]", '[{"attributes": 1}]', "[" * 5000, "x" * 100_000])
def test_an_unreadable_text_has_no_kinds(text):
    assert decode_kinds(text) == ()


@pytest.mark.parametrize(
    ("expression", "is_possible"),
    [
        (f"{ATTRIBUTES}.productName == '{PRODUCT}'", True),
        (f"{ATTRIBUTES}.productName == 'Tesla T4'", False),
        (f"{ATTRIBUTES}.uuid == 'GPU-0'", True),
        (f"{ATTRIBUTES}.productName == 'Tesla T4' && {ATTRIBUTES}.uuid == 'GPU-0'", False),
        ("device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('1Ti')) > 0", False),
        (f"has({ATTRIBUTES}.new)", True),
        (f"{ATTRIBUTES}.driverVersion.compareTo(semver('600.0.0')) > 0", False),
    ],
)
def test_only_what_no_kind_can_satisfy_is_excluded(expression, is_possible):
    kinds = decode_kinds(encode_kinds(kinds_of(facts(*map(a_device, range(2))))))

    assert capacity_of([a_node()], 8, kinds).may_satisfy((expression,)) is is_possible
