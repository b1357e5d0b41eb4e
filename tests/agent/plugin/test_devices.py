"""Resources that a node offers, and the health of their slots."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_machine

from agent.driver.reading import GPU
from agent.kubelet.container_devices import ContainerDevices
from agent.plugin.devices import (
    Holder,
    Offer,
    holders,
    offers,
    unhealthy_slots,
    unusable_gpus,
)
from linkwise.cluster.keys import (
    GFD_REPLICAS,
    GPU_CORE,
    GPU_COUNT,
    GPU_MEM,
    GPU_WHOLE,
    NODE_GPUSHARE,
    NODE_MODE,
    NVIDIA_GPU,
    NVIDIA_GPU_SHARED,
    RESOURCE_NAME,
)


def machine_of(*memory):
    n = len(memory)
    return a_machine(n, memory=memory)


def gpus_of(n, **fields):
    return tuple(
        GPU(i, f"GPU-{i}", f"0000:{i:02x}:00.0", "T4", 15 << 30, **fields) for i in range(n)
    )


FOUR = machine_of(15, 15, 15, 15)
LARGEST = machine_of(*(288,) * 16)


def counts(labels, machine=FOUR):
    offered = offers(labels, machine, gpus_of(machine.n))
    assert offered.reason is None
    return {offer.resource: len(offer.slots) for offer in offered.offers}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, {}),
        ({NODE_MODE: "default"}, {}),
        ({NODE_MODE: "mig"}, {}),
        ({NODE_MODE: "disabled"}, {}),
        ({NODE_MODE: "topology"}, {GPU_WHOLE: 4}),
        ({NODE_MODE: "topology", RESOURCE_NAME: "aliyun.com-gpu"}, {GPU_WHOLE: 4}),
        ({NODE_MODE: "topology", RESOURCE_NAME: "nvidia.com-gpu"}, {NVIDIA_GPU: 4}),
        ({NODE_MODE: "share"}, {GPU_MEM: 60, GPU_COUNT: 4}),
        ({NODE_MODE: "share", RESOURCE_NAME: "nvidia.com-gpu"}, {GPU_MEM: 60, GPU_COUNT: 4}),
        ({NODE_GPUSHARE: "true"}, {GPU_MEM: 60, GPU_COUNT: 4}),
        ({NODE_MODE: "cgpu"}, {GPU_MEM: 60, GPU_COUNT: 4}),
        ({NODE_MODE: "core_mem"}, {GPU_MEM: 60, GPU_COUNT: 4, GPU_CORE: 400}),
        ({NODE_MODE: "mps"}, {GPU_MEM: 60, GPU_COUNT: 4, GPU_CORE: 400}),
        ({NODE_MODE: "timeslice", GFD_REPLICAS: "10"}, {NVIDIA_GPU_SHARED: 40}),
    ],
    ids=str,
)
def test_mode_decides_the_resources(labels, expected):
    assert counts(labels) == expected


def test_largest_machine_offers_each_gib_and_percent():
    labels = {NODE_MODE: "core_mem"}
    assert counts(labels, LARGEST) == {GPU_MEM: 4608, GPU_COUNT: 16, GPU_CORE: 1600}


def test_gpus_of_unequal_memory_offer_what_each_has():
    assert counts({NODE_MODE: "share"}, machine_of(15, 31)) == {GPU_MEM: 46, GPU_COUNT: 2}


@pytest.mark.parametrize(
    ("labels", "machine", "reason"),
    [
        ({NODE_MODE: "hami"}, FOUR, f"{NODE_MODE}=hami is no mode"),
        (
            {NODE_MODE: "topology", RESOURCE_NAME: "gpu"},
            FOUR,
            f"{RESOURCE_NAME}=gpu: write aliyun.com-gpu or nvidia.com-gpu or gpu.nvidia.com",
        ),
        ({NODE_MODE: "share"}, a_machine(4), "the memory of the GPUs is unknown"),
        ({NODE_MODE: "timeslice"}, FOUR, f"no label {GFD_REPLICAS}: write"),
        ({NODE_MODE: "timeslice", GFD_REPLICAS: "0"}, FOUR, f"{GFD_REPLICAS}=0: write"),
        ({NODE_MODE: "timeslice", GFD_REPLICAS: "-2"}, FOUR, f"{GFD_REPLICAS}=-2: write"),
        ({NODE_MODE: "timeslice", GFD_REPLICAS: "1001"}, FOUR, "from 1 to 1000"),
        ({NODE_MODE: "timeslice", GFD_REPLICAS: "9" * 5000}, FOUR, "from 1 to 1000"),
        ({NODE_MODE: "timeslice", GFD_REPLICAS: "٤"}, FOUR, "from 1 to 1000"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_node_that_cannot_offer_gives_the_reason(labels, machine, reason):
    offered = offers(labels, machine, gpus_of(4))
    assert offered.offers == ()
    assert reason in offered.reason


def test_a_node_whose_gpus_the_dra_driver_offers_is_only_watched():
    offered = offers({NODE_MODE: "topology", RESOURCE_NAME: "gpu.nvidia.com"}, FOUR, gpus_of(4))
    assert (offered.offers, offered.reason) == ((), None)


def test_node_with_mig_on_all_gpus_offers_nothing():
    offered = offers({NODE_MODE: "topology"}, FOUR, gpus_of(4, mig=True))
    assert offered.offers == ()
    assert "MIG mode is enabled on all GPUs" in offered.reason


def test_gpu_in_mig_mode_counts_as_an_unhealthy_slot():
    gpus = (*gpus_of(3), replace(gpus_of(4)[3], mig=True))
    (offer,) = offers({NODE_MODE: "topology"}, FOUR, gpus).offers
    assert len(offer.slots) == 4
    assert unusable_gpus(gpus) == {3: "MIG mode is enabled"}
    assert len(unhealthy_slots(offer, unusable_gpus(gpus), ())) == 1


def test_gpu_with_a_fault_is_unusable_for_that_reason():
    gpus = gpus_of(2, fault="fell off the bus", mig=True)
    assert unusable_gpus((gpus[1],)) == {1: "fell off the bus"}


@pytest.mark.parametrize("mode", ["share", "core_mem", "topology"])
def test_only_one_resource_of_a_mode_binds(mode):
    offered = offers({NODE_MODE: mode}, FOUR, gpus_of(4)).offers
    assert [offer.resource for offer in offered if offer.binds] == [offered[0].resource]


def test_slots_are_equal_after_a_restart_and_short_enough_for_the_kubelet():
    slots = Offer(GPU_MEM, LARGEST.memory).slots
    assert slots == Offer(GPU_MEM, LARGEST.memory).slots
    assert len(set(slots)) == 4608
    assert max(map(len, slots)) <= 63
    assert slots[17] == "slot-17"


def test_holders_have_the_gpus_that_their_container_is_bound_to():
    first = ContainerDevices("a", "pod", "main", GPU_CORE, frozenset({"slot-1"}))
    unbound = ContainerDevices("b", "pod", "main", GPU_CORE, frozenset({"slot-2"}))
    other = ContainerDevices("a", "pod", "main", GPU_MEM, frozenset({"slot-1"}))
    assert holders(GPU_CORE, [first, unbound, other], {("a", "pod", "main"): [3]}) == (
        Holder(frozenset({"slot-1"}), frozenset({3})),
        Holder(frozenset({"slot-2"}), frozenset()),
    )


@pytest.mark.parametrize(
    ("containers", "unusable", "expected"),
    [
        ([], {0}, {"slot-3"}),
        ([({0, 1}, {2, 3})], {0}, {"slot-3"}),
        ([({0, 1}, {2, 3})], {2}, {"slot-0"}),
        ([({0, 1}, {2, 3}), ({2}, {0})], {0, 2}, {"slot-0", "slot-2"}),
        ([({0, 1, 2}, {1, 2, 3}), ({3}, set())], {0}, {"slot-3"}),
        ([({2}, {0}), ({3}, set())], {1}, {"slot-1"}),
        ([({9}, {0})], {0}, {"slot-3"}),
        ([], {0, 1, 2, 3}, {"slot-0", "slot-1", "slot-2", "slot-3"}),
        ([], {7}, set()),
    ],
    ids=[
        "free",
        "free-not-of-healthy",
        "bound",
        "each-bound-container-first",
        "not-bound-yet-last",
        "free-before-not-bound-yet",
        "slot-that-is-gone",
        "all",
        "unknown-gpu",
    ],
)
def test_slots_of_affected_containers_are_unhealthy_first(containers, unusable, expected):
    held = [
        Holder(frozenset(f"slot-{i}" for i in slots), frozenset(gpus)) for slots, gpus in containers
    ]
    assert unhealthy_slots(Offer(GPU_WHOLE, (1,) * 4), unusable, held) == expected


@st.composite
def books(draw):
    """Return an offer, the containers on it, the slots of each on each GPU, and unusable GPUs."""
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=16))
    offer = Offer(GPU_MEM, tuple(sizes))
    slots = draw(st.permutations(offer.slots))
    left, containers = list(sizes), []
    for _ in range(draw(st.integers(0, 8))):
        gpus = draw(st.frozensets(st.sampled_from(range(len(sizes))), min_size=1, max_size=4))
        amount = draw(st.integers(1, 4))
        if any(left[i] < amount for i in gpus):
            continue
        for i in gpus:
            left[i] -= amount
        taken, slots = slots[: amount * len(gpus)], slots[amount * len(gpus) :]
        bound = draw(st.integers(0, 4)) > 0
        containers.append(Holder(frozenset(taken), gpus if bound else frozenset()))
    unusable = draw(st.frozensets(st.sampled_from(range(len(sizes)))))
    return offer, containers, unusable


@given(books())
def test_as_many_slots_are_healthy_as_usable_gpus_add(case):
    offer, containers, unusable = case
    unhealthy = unhealthy_slots(offer, unusable, containers)
    assert unhealthy <= set(offer.slots)
    usable = sum(size for i, size in enumerate(offer.slots_per_gpu) if i not in unusable)
    assert len(offer.slots) - len(unhealthy) == usable


@given(books())
def test_no_slot_of_a_container_on_usable_gpus_is_unhealthy(case):
    offer, containers, unusable = case
    unhealthy = unhealthy_slots(offer, unusable, containers)
    for container in containers:
        if container.gpus and not container.gpus & unusable:
            assert not container.slots & unhealthy


@given(books())
def test_each_container_on_an_unusable_gpu_has_an_unhealthy_slot(case):
    offer, containers, unusable = case
    unhealthy = unhealthy_slots(offer, unusable, containers)
    for container in containers:
        if container.gpus & unusable:
            assert container.slots & unhealthy
