"""The GPUs that a node should have, by claims and records of pods, and that its driver lacks.

A GPU that fell off its bus is in no list of the driver after a reboot. What still names it is the
claim or the record of a pod, so that each reader of the cluster finds the same lost GPUs.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from msgspec import structs

from linkwise.cluster.nodes.node import Card, MachineSource, Node
from linkwise.cluster.nodes.resource_slice import SliceDevice
from linkwise.topology.machine import MAX_GPUS, with_unlinked

VALID_UUID = re.compile(r"[A-Za-z0-9-]{1,64}")
_WHOLE_GPU = re.compile(r"gpu-([0-9]{1,9})")
"""Names of whole GPUs by NVIDIA's driver; those of MIG devices have more parts."""


class RecordedGPU(NamedTuple):
    """A GPU in the record of a pod."""

    i: int
    """Its index when it was recorded."""
    uuid: str


class ExpectedGPUs(NamedTuple):
    """The GPUs that pods of a node have, whether the node still has them or not."""

    recorded: tuple[RecordedGPU, ...] = ()
    """By records, as `unlisted` takes them."""
    devices: frozenset[str] = frozenset()
    """Names of the devices of its own pool that claims hold."""


NOTHING_EXPECTED = ExpectedGPUs()


class LostGPU(NamedTuple):
    """A GPU that the driver lacks."""

    gpu: SliceDevice
    i: int
    """Its index, where its bus id is not known."""


def unlisted(recorded: Iterable[RecordedGPU], listed: Collection[str | None]) -> list[RecordedGPU]:
    """Return the recorded GPUs that a node does not list, each once, in the order of indices.

    Args:
        recorded: In the records of its pods. Two of them may give one GPU different indices, if
            the node had other GPUs in between; the lower one counts.
        listed: UUIDs of the GPUs that it has.
    """
    by_uuid: dict[str, RecordedGPU] = {}
    for gpu in sorted(recorded):
        if gpu.uuid not in listed and VALID_UUID.fullmatch(gpu.uuid):
            by_uuid.setdefault(gpu.uuid, gpu)
    return list(by_uuid.values())


def lost_gpus(
    present: Sequence[SliceDevice],
    names: Collection[str],
    remembered: Sequence[LostGPU],
    expected: ExpectedGPUs,
) -> list[LostGPU]:
    """Return the GPUs that a pool lacks, at most as many as a machine has beside those present.

    A claim names a device and a record a UUID. After a reboot that renumbers the devices, the
    device that is missing is not the one that had the missing UUID: each missing device is taken
    for one of the missing UUIDs, in their order. So a pod whose claim holds it has a lost GPU.

    Args:
        present: The GPUs of the complete pool.
        names: Of all its devices.
        remembered: GPUs that it had before.
        expected: GPUs that pods have.
    """
    listed = {gpu.uuid for gpu in (*present, *(lost.gpu for lost in remembered))}
    pattern = present[0] if present else SliceDevice("", "gpu")
    lost = [
        *remembered,
        *(LostGPU(_like(pattern, uuid=uuid), i) for i, uuid in unlisted(expected.recorded, listed)),
    ]
    lost.sort(key=lambda one: (one.i, one.gpu.uuid or ""))
    missing = sorted(
        (int(match[1]), name)
        for name in expected.devices
        if name not in names and (match := _WHOLE_GPU.fullmatch(name))
    )
    devices = {name: number for number, name in missing}
    named: list[LostGPU] = []
    # Those first of which the name is known, or the one that a GPU of this index usually has.
    for one in sorted(lost, key=lambda one: _usual_name(one) not in devices):
        usual = _usual_name(one)
        name = usual if usual in devices else next(iter(devices), None)
        named.append(_named(one, name, names))
        devices.pop(name or "", None)
    named += (LostGPU(_like(pattern, name=name), i) for name, i in devices.items())
    return named[: MAX_GPUS - len(present)]


def in_order(present: Iterable[SliceDevice], lost: Iterable[LostGPU]) -> tuple[SliceDevice, ...]:
    """Return all GPUs: lost ones whose bus id is not known are at their index."""
    gpus = list(present)
    for gpu, i in sorted(lost, key=lambda one: (one.i, one.gpu.name)):
        gpus.insert(i, gpu)
    return tuple(gpus)


def with_lost_cards(node: Node, recorded: Iterable[RecordedGPU]) -> Node:
    """Return a node of our agent with the GPUs that pods have and its agent does not publish.

    They come last, since the agent numbers the others without them.
    """
    published = {card.uuid for card in node.cards}
    if node.machine is None or node.machine_source is not MachineSource.AGENT or None in published:
        return node
    lost = unlisted(recorded, published)[: MAX_GPUS - len(node.cards)]
    if not lost:
        return node
    n = len(node.cards)
    cards = (Card(node.cards[0].memory, gpu.uuid, healthy=False, faulty=True) for gpu in lost)
    warnings = (
        f"GPU{i}: pods have {gpu.uuid}, which its agent does not publish"
        for i, gpu in enumerate(lost, n)
    )
    machine = with_unlinked(node.machine, range(n, n + len(lost)))
    gpus = (
        *machine.gpus[:n],
        *(replace(gpu, uuid=one.uuid) for gpu, one in zip(machine.gpus[n:], lost, strict=True)),
    )
    return replace(
        node,
        machine=replace(machine, gpus=gpus),
        cards=(*node.cards, *cards),
        warnings=(*node.warnings, *warnings),
    )


def _like(pattern: SliceDevice, *, name: str = "", uuid: str | None = None) -> SliceDevice:
    """Return a GPU of the same product whose place is not known."""
    return structs.replace(
        pattern, name=name, uuid=uuid, bus_id=None, pcie_root=None, numa=None, taint=None
    )


def _usual_name(lost: LostGPU) -> str:
    return lost.gpu.name or f"gpu-{lost.i}"


def _named(lost: LostGPU, name: str | None, names: Collection[str]) -> LostGPU:
    """Return a lost GPU with a name that no device of the pool has.

    Args:
        lost: The GPU.
        name: Of the missing device that it is; None: its last name, or its UUID.
        names: Of the devices that the pool has.
    """
    last = lost.gpu.name if lost.gpu.name not in names else None
    return lost._replace(gpu=structs.replace(lost.gpu, name=name or last or lost.gpu.uuid or ""))
