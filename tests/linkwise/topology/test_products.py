import pytest

from linkwise.topology.catalogue import entry
from linkwise.topology.products import PRODUCTS, has_memory, machine_of_product


@pytest.mark.parametrize(("product", "count"), PRODUCTS)
def test_product_is_that_of_the_machine_in_the_catalogue(product, count):
    name, memory = PRODUCTS[product, count]
    machine, known = machine_of_product(product, count), entry(name).machine

    assert (machine.n, machine.links, machine.nics) == (count, known.links, ())
    assert machine.memory == (memory,) * count
    words = known.model.replace(" ", "-").removeprefix("NVIDIA-").split("-")
    # Boards of one kind are sold with more or less memory.
    assert words[:2] == product.removeprefix("NVIDIA-").split("-")[:2] or words[0] == "A100"
    assert has_memory(machine, memory * 1024 - 600)
    assert not has_memory(machine, memory * 512)


@pytest.mark.parametrize(("product", "count"), [("NVIDIA-L4", 8), ("NVIDIA-H200", 4), ("", 0)])
def test_machines_that_are_built_in_different_ways_are_not_guessed(product, count):
    assert machine_of_product(product, count) is None
