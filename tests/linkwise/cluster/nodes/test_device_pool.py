"""Pools of devices, and their GPUs."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dra import a_device, a_slice, read_slice

from linkwise.cluster.nodes.device_pool import NO_SLICES, GPUPool, gpu_pool, pools_of
from linkwise.topology.machine import MAX_GPUS

NODE = "node-a"


def slices_of(*raw):
    return [read_slice(a_slice(*devices, **fields)) for devices, fields in raw]


def gpus_of(*raw, last=None):
    """Return the GPUs of the node's pool: of slices, each as devices and fields."""
    return gpu_pool(NODE, pools_of(slices_of(*raw)).get(NODE), last)


def eight(*, without=()):
    return [a_device(i) for i in range(8) if i not in without]


EIGHT = gpus_of((eight(), {}))


@st.composite
def slice_sets(draw):
    """Slices of one node: of some generations, some of them incomplete or contradictory."""
    return [
        read_slice(
            a_slice(
                *(a_device(i) for i in draw(st.lists(st.integers(0, 9), max_size=4))),
                pool=draw(st.sampled_from([NODE, "other"])),
                generation=draw(st.integers(1, 3)),
                count=draw(st.integers(1, 3)),
            )
        )
        for _ in range(draw(st.integers(0, 6)))
    ]


@given(slice_sets(), st.randoms())
def test_the_order_of_slices_and_devices_does_not_matter(slices, random):
    shuffled = [
        type(one)(
            one.node,
            one.pool,
            one.generation,
            one.count,
            tuple(random.sample(one.devices, len(one.devices))),
        )
        for one in random.sample(slices, len(slices))
    ]
    for name in (NODE, "other"):
        assert gpu_pool(name, pools_of(slices).get(name), EIGHT) == gpu_pool(
            name, pools_of(shuffled).get(name), EIGHT
        )


@given(slice_sets())
def test_only_slices_of_the_highest_generation_count(slices):
    highest = {
        name: max((one.generation for one in slices if one.pool == name), default=0)
        for name in (NODE, "other")
    }
    newest = [one for one in slices if one.generation == highest[one.pool]]
    assert pools_of(slices) == pools_of(newest)


@given(slice_sets())
def test_a_pool_has_the_gpus_of_all_its_slices_or_a_reason(slices):
    pool = gpu_pool(NODE, pools_of(slices).get(NODE), None)
    assert bool(pool.missing) or [gpu.uuid for gpu in pool.gpus] == sorted(
        {gpu.uuid for gpu in pool.gpus}
    )
    assert len(pool.gpus) <= MAX_GPUS


def test_gpus_are_in_the_order_of_their_bus_ids():
    devices = [a_device(0, bus=0x90), a_device(1, bus=0x10), a_device(2, bus=0x50)]
    assert [gpu.name for gpu in gpus_of((devices, {})).gpus] == ["gpu-1", "gpu-2", "gpu-0"]


def test_gpus_without_bus_ids_are_in_the_order_of_their_numbers():
    devices = [a_device(i, **{"resource.kubernetes.io/pciBusID": None}) for i in (10, 9, 2)]
    assert [gpu.name for gpu in gpus_of((devices, {})).gpus] == ["gpu-2", "gpu-9", "gpu-10"]


@pytest.mark.parametrize(
    ("slices", "reason"),
    [
        ([], NO_SLICES),
        ([(eight(), {"count": 2})], "incomplete: 1 of 2"),
        ([(eight(), {}), ([], {"generation": 2, "count": 2})], "incomplete: 1 of 2"),
        ([([a_device(0)], {}), ([a_device(1)], {})], "incomplete: 2 of 1"),
        ([([a_device(0), a_device(1, name="gpu-0")], {})], "device gpu-0 occurs twice"),
        ([([a_device(0), a_device(1, uuid="GPU-0")], {})], "2 GPUs have UUID GPU-0"),
        ([([a_device(0), a_device(1, bus=0x10)], {})], "2 GPUs have bus id 0000:10:00.0"),
        ([([a_device(0, uuid=None)], {})], "no valid UUID of device gpu-0"),
        ([([a_device(0, uuid="GPU-0' || true")], {})], "no valid UUID of device gpu-0"),
        ([([a_device(i, bus=i) for i in range(17)], {})], "17 GPUs; at most 16"),
    ],
    ids=[
        "none",
        "slice missing",
        "slice of newer generation missing",
        "too many slices",
        "name twice",
        "UUID twice",
        "bus id twice",
        "no UUID",
        "UUID that is none",
        "too many GPUs",
    ],
)
def test_without_a_pool_the_last_gpus_stay(slices, reason):
    for last, gpus in ((None, ()), (EIGHT, EIGHT.gpus)):
        pool = gpus_of(*slices, last=last)
        assert pool.gpus == gpus
        assert reason in pool.missing


def test_a_pool_that_returns_is_as_before():
    gone = gpus_of(last=EIGHT)
    assert gpus_of((eight(), {"generation": 1}), last=gone) == EIGHT


def test_two_slices_make_one_pool():
    halves = (eight(without=range(4)), {"count": 2}), (eight(without=range(4, 8)), {"count": 2})
    assert gpus_of(*halves) == EIGHT


def test_a_gpu_that_the_pool_lacks_keeps_its_place():
    pool = gpus_of((eight(without=(3,)), {}), last=EIGHT)
    assert pool == replace(EIGHT, lost=frozenset({"gpu-3"}))
    assert gpus_of((eight(), {}), last=pool) == EIGHT


def test_a_gpu_in_the_slot_of_another_one_replaces_it():
    swapped = [*eight(without=(3,)), a_device(3, uuid="GPU-new")]
    pool = gpus_of((swapped, {}), last=EIGHT)
    assert (len(pool.gpus), pool.gpus[3].uuid, pool.lost) == (8, "GPU-new", frozenset())


def test_renumbered_gpus_are_the_same_gpus():
    renumbered = [a_device(i, name=f"gpu-{7 - i}") for i in range(8)]
    pool = gpus_of((renumbered, {}), last=EIGHT)
    assert [gpu.uuid for gpu in pool.gpus] == [gpu.uuid for gpu in EIGHT.gpus]
    assert pool.gpus[0].name == "gpu-7"


def test_another_machine_under_the_same_name_has_none_of_the_last_gpus():
    other = [a_device(i, uuid=f"GPU-other-{i}", bus=i) for i in range(2)]
    assert len(gpus_of((other, {}), last=EIGHT).gpus) == 2


def test_devices_that_are_no_whole_gpus_are_counted():
    devices = [
        a_device(0),
        a_device(1, name="gpu-1-mig-9-0-4", type="mig", uuid="MIG-1", parentUUID="GPU-1"),
        a_device(2, name="gpu-vfio-0", type="vfio"),
    ]
    pool = gpus_of((devices, {}))
    assert ([gpu.name for gpu in pool.gpus], pool.others) == (["gpu-0"], 2)
    assert pool == replace(GPUPool(NODE), gpus=pool.gpus, others=2)
