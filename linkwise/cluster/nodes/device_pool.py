"""The pools of devices on a node, as its ResourceSlices make them, and the GPUs of one of them.

A pool is complete when all slices of its highest generation are there. Slices vanish while a
kubelet or the driver starts, and pods run on: the last complete state stays known meanwhile.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from linkwise.cluster.nodes.lost_gpus import (
    NOTHING_EXPECTED,
    VALID_UUID,
    ExpectedGPUs,
    LostGPU,
    in_order,
    lost_gpus,
)
from linkwise.cluster.nodes.resource_slice import PoolSlice, SliceDevice
from linkwise.topology.machine import MAX_GPUS

NO_SLICES = "the driver's slices are missing"
_NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool of one node."""

    name: str
    devices: Mapping[str, SliceDevice | None] = field(default_factory=dict)
    """By name; None where a name occurs twice. Empty while the pool is incomplete."""
    problem: str | None = None
    """Why it is incomplete; None if it is complete."""

    def gpus_of(self, names: Iterable[str]) -> dict[str, frozenset[str]]:
        """Return the UUIDs of the GPUs to which devices belong, of those that are known."""
        by_part: dict[tuple[str, str], set[str]] = {}
        for device in self.devices.values():
            if device and device.is_gpu and device.uuid:
                for part in device.parts:
                    by_part.setdefault(part, set()).add(device.uuid)
        named = ((name, self.devices.get(name)) for name in names)
        return {name: _gpus_of(device, by_part) for name, device in named if device}


def _gpus_of(device: SliceDevice, by_part: Mapping[tuple[str, str], set[str]]) -> frozenset[str]:
    whole = {device.gpu_uuid} if device.gpu_uuid and device.kind != "vfio" else ()
    return frozenset(whole).union(*(by_part.get(part, ()) for part in device.parts))


@dataclass(frozen=True, slots=True)
class GPUPool:
    """The whole GPUs of the pool of a node."""

    name: str
    gpus: tuple[SliceDevice, ...] = ()
    """In the order of their bus ids."""
    lost: frozenset[str] = frozenset()
    """Names of GPUs that the complete pool does not have now: they were there before, or a claim
    or record names them."""
    others: int = 0
    """Devices that are no whole GPUs: MIG devices and those for VMs."""
    divided: frozenset[str] = frozenset()
    """Names of GPUs of which the pool has MIG devices besides, without counters by which a claim
    for one excludes claims for the other."""
    missing: str | None = None
    """Why nothing new is placed on its GPUs; None if the pool is complete."""


def pools_of(slices: Iterable[PoolSlice]) -> dict[str, Pool]:
    """Return the pools of one node by name. Cost: linear in the devices.

    Args:
        slices: Of this node alone: a slice says nothing about a pool of another node.
    """
    found: dict[str, list[PoolSlice]] = {}
    for one in slices:
        pool = found.setdefault(one.pool, [])
        if pool and one.generation > pool[0].generation:
            pool.clear()
        if not pool or one.generation == pool[0].generation:
            pool.append(one)
    return {name: _pool(name, pool) for name, pool in found.items()}


def _pool(name: str, slices: list[PoolSlice]) -> Pool:
    counts = {one.count for one in slices}
    if counts != {len(slices)}:
        problem = f"the driver's slices are incomplete: {len(slices)} of {max(counts)} are there"
        return Pool(name, problem=problem)
    devices: dict[str, SliceDevice | None] = {}
    for one in slices:
        for device in one.devices:
            devices[device.name] = None if device.name in devices else device
    return Pool(name, devices)


def gpu_pool(
    name: str, pool: Pool | None, last: GPUPool | None, expected: ExpectedGPUs = NOTHING_EXPECTED
) -> GPUPool:
    """Return the GPUs of a pool.

    Without a complete and consistent pool, these are its last GPUs, or none.

    Args:
        name: Of the pool.
        pool: The pool now; None: it has no slice.
        last: Its last GPUs.
        expected: Those that pods have.
    """
    known = last or GPUPool(name)
    if pool is None:
        return replace(known, missing=NO_SLICES)
    gpus = _sorted_gpus(pool)
    if problem := pool.problem or _contradiction(pool, gpus):
        return replace(known, missing=problem)
    lost = lost_gpus(gpus, pool.devices, _remembered(gpus, known), expected)
    with_bus = [one.gpu for one in lost if one.gpu.bus_id]
    without_bus = [one for one in lost if not one.gpu.bus_id]
    return GPUPool(
        name,
        in_order(sorted((*gpus, *with_bus), key=_order), without_bus),
        lost=frozenset(one.gpu.name for one in lost),
        others=len(pool.devices) - len(gpus),
        divided=_divided(pool, gpus),
    )


def _divided(pool: Pool, gpus: Iterable[SliceDevice]) -> frozenset[str]:
    """Return the names of GPUs that have static MIG devices. Cost: linear in the devices."""
    parts = [device for device in pool.devices.values() if device and device.kind == "mig"]
    parents: dict[str, set[str]] = {}
    for part in parts:
        for key in filter(None, (part.parent_uuid, part.bus_id)):
            # Dynamic ones share counters with their GPU: the driver makes them for claims alone.
            parents.setdefault(key, set()).add("" if not part.counters else part.counters[0])
    return frozenset(
        gpu.name
        for gpu in gpus
        for key in (gpu.uuid, gpu.bus_id)
        if key and not parents.get(key, set()) <= {*gpu.counters}
    )


def _sorted_gpus(pool: Pool) -> tuple[SliceDevice, ...]:
    gpus = (device for device in pool.devices.values() if device and device.is_gpu)
    return tuple(sorted(gpus, key=_order))


def _order(gpu: SliceDevice) -> tuple[str, int, str]:
    number = _NUMBER.search(gpu.name)
    return gpu.bus_id or "", int(number[0]) if number else 0, gpu.name


def _contradiction(pool: Pool, gpus: tuple[SliceDevice, ...]) -> str | None:
    """Return why the GPUs of a complete pool cannot be told apart."""
    twice = sorted(name for name, device in pool.devices.items() if device is None)
    if twice:
        return f"its slices contradict each other: device {twice[0]} occurs twice"
    if len(gpus) > MAX_GPUS:
        return f"its slices have {len(gpus)} GPUs; at most {MAX_GPUS} of a node are placed"
    nameless = next((gpu.name for gpu in gpus if not VALID_UUID.fullmatch(gpu.uuid or "")), None)
    if nameless is not None:
        return f"its slices give no valid UUID of device {nameless}"
    for what, keys in (
        ("UUID", [gpu.uuid for gpu in gpus]),
        ("bus id", [gpu.bus_id for gpu in gpus if gpu.bus_id]),
    ):
        key, times = Counter(keys).most_common(1)[0] if keys else (None, 0)
        if times > 1:
            return f"its slices contradict each other: {times} GPUs have {what} {key}"
    return None


def _remembered(gpus: Sequence[SliceDevice], last: GPUPool) -> list[LostGPU]:
    """Return the last GPUs that a pool lacks, so that indices stay.

    Where it has none of its last GPUs, it is another machine. A new GPU in the slot of another one
    replaces it; where slots are not known, any new one may.
    """
    uuids = {gpu.uuid for gpu in gpus}
    buses = {gpu.bus_id for gpu in gpus if gpu.bus_id}
    has_new = not uuids <= {gpu.uuid for gpu in last.gpus}
    lost = [
        LostGPU(gpu, i)
        for i, gpu in enumerate(last.gpus)
        if gpu.uuid not in uuids | {None} and not (gpu.bus_id in buses if gpu.bus_id else has_new)
    ]
    is_another = not any(gpu.uuid in uuids for gpu in last.gpus)
    return [] if is_another or len(lost) + len(gpus) > MAX_GPUS else lost
