"""The record of an allocation in annotations of the pod: our own, and formats of other systems.

Ours is authoritative; the others are written for gpushare's plugin and for arena.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, islice
from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct

from linkwise.cluster.allocations.gpus import Counted, Exact, GPUs, GPUShare, number_counted
from linkwise.cluster.keys import (
    ALLOCATION,
    ARENA_GPU_GROUP,
    ARENA_GPU_VISIBLE,
    GPUSHARE_ALLOCATION,
    GPUSHARE_CORE,
    ISOLATION,
    MEM_ASSIGNED,
    MEM_ASSUME_TIME,
    MEM_DEV,
    MEM_IDX,
    MEM_POD,
    NVIDIA_CDI_CONTAINER,
    NVIDIA_CDI_KIND,
    NVIDIA_GPU,
    TERM,
    VISIBLE_DEVICES,
    VISIBLE_DEVICES_OF,
)
from linkwise.cluster.requests.amounts import CORE_MAX, MEMORY_MAX
from linkwise.cluster.requests.request import ContainerRequest, Family, Request
from linkwise.topology.machine import MAX_GPUS

Index: TypeAlias = Annotated[int, Meta(ge=0, lt=MAX_GPUS)]
_Memory: TypeAlias = Annotated[int, Meta(ge=1, le=MEMORY_MAX)]
_Core: TypeAlias = Annotated[int, Meta(ge=1, le=CORE_MAX)]
_Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=512)]
_T = TypeVar("_T")


class RecordError(ValueError):
    """A record is unreadable; the message names the annotation and the problem."""


class Isolation(StrEnum):
    """Enforcement of the limits of a share."""

    NONE = "none"
    MPS = "mps"
    CGPU = "cgpu"


@dataclass(frozen=True, slots=True)
class Allocation:
    """Node and GPUs of a pod, and the bandwidth of the set."""

    node: str
    gpus: GPUs
    machine_class: str | None = None
    bandwidth: float | None = None
    """Modelled all-reduce bandwidth of the set [GB/s]; None if undefined."""
    plan: str | None = None
    """Id of the plan."""


class _GPU(Struct, frozen=True, omit_defaults=True):
    i: Index
    uuid: _Text | None = None
    mem: _Memory | None = None
    core: _Core | None = None


class _Allocation(Struct, frozen=True, omit_defaults=True):
    v: Literal[1]
    node: _Text
    gpus: Annotated[list[_GPU], Meta(min_length=1, max_length=4096)] | None
    """Null where NVIDIA's plugin chooses: then `count` is their number."""
    count: Annotated[int, Meta(ge=1)] | None = None
    machine_class: _Text | None = msgspec.field(default=None, name="class")
    bandwidth: Annotated[float, Meta(ge=0)] | None = None
    plan: _Text | None = None


def parse_record(annotations: Mapping[str, str]) -> Allocation | None:
    """Return our record of a pod, or None.

    Raises:
        RecordError: It is malformed.
    """
    text = annotations.get(ALLOCATION)
    if text is None:
        return None
    record = decode(ALLOCATION, text, _Allocation)
    return Allocation(
        record.node, _gpus(record), record.machine_class, record.bandwidth, record.plan
    )


def _gpus(record: _Allocation) -> GPUs:
    if record.gpus is None and record.count is not None:
        return Counted(NVIDIA_GPU, record.count)
    if record.gpus is None or record.count is not None:
        raise RecordError(f"{ALLOCATION}: it has either gpus or, where these are null, a count")
    shares = tuple(GPUShare(gpu.i, gpu.uuid, gpu.mem, gpu.core) for gpu in record.gpus)
    _check_shares(ALLOCATION, shares)
    return Exact(shares)


def format_record(
    allocation: Allocation,
    *,
    request: Request,
    term: int,
    isolation: Isolation,
    now_ns: int,
    node_card_memory: int | None,
) -> dict[str, str]:
    """Return the annotations of an allocation in all formats of its family.

    Args:
        allocation: The allocation.
        request: Request of the pod.
        term: `leaseTransitions` of the Lease at the decision.
        isolation: Isolation of the share.
        now_ns: Time of the decision [ns since 1970].
        node_card_memory: Memory of the card of a share [GiB], or None if unknown; of any card if
            there are several, since gpushare requires equal cards.
    """
    shares = allocation.gpus.shares
    record = _Allocation(
        v=1,
        node=allocation.node,
        gpus=[_GPU(gpu.i, gpu.uuid, gpu.mem, gpu.core) for gpu in shares] or None,
        count=number_counted(allocation.gpus) or None,
        machine_class=allocation.machine_class,
        bandwidth=allocation.bandwidth,
        plan=allocation.plan,
    )
    annotations = {
        ALLOCATION: _encode(record),
        TERM: str(term),
        ISOLATION: isolation.value,
    }
    if not shares or request.by_claim:
        # NVIDIA's plugin or its DRA driver sets the variables of the containers. A claim may hold
        # other GPUs after a reboot, so that annotations for containers would be wrong.
        return annotations
    annotations |= _visible_devices(shares, request)
    if request.family is Family.WHOLE:
        indices = ",".join(str(gpu.i) for gpu in shares)
        annotations |= {ARENA_GPU_GROUP: indices, ARENA_GPU_VISIBLE: indices}
    if request.family is Family.SHARE:
        annotations |= _write_gpushare(shares, request, now_ns)
        if node_card_memory is not None:
            annotations[MEM_DEV] = str(node_card_memory)
    return annotations


def format_cdi_devices(gpus: tuple[GPUShare, ...], request: Request) -> dict[str, str]:
    """Return the annotations by which NVIDIA's NRI plugin gives each container its GPUs."""
    return {
        f"{NVIDIA_CDI_CONTAINER}{container.container}": ",".join(
            f"{NVIDIA_CDI_KIND}={name}" for name in _names(part)
        )
        for container, part in zip(request.containers, divide_gpus(gpus, request), strict=True)
    }


def _visible_devices(gpus: tuple[GPUShare, ...], request: Request) -> dict[str, str]:
    if len(request.containers) <= 1:
        return {VISIBLE_DEVICES: ",".join(_names(gpus))}
    return {
        f"{VISIBLE_DEVICES_OF}{container.container}": ",".join(_names(part))
        for container, part in zip(request.containers, divide_gpus(gpus, request), strict=True)
    }


def _names(gpus: Iterable[GPUShare]) -> list[str]:
    """Return UUIDs, or indices if one is unknown, for the NVIDIA runtime; each GPU once."""
    unique = list({gpu.i: gpu for gpu in gpus}.values())
    if all(gpu.uuid for gpu in unique):
        return [str(gpu.uuid) for gpu in unique]
    return [str(gpu.i) for gpu in unique]


def divide_gpus(gpus: tuple[GPUShare, ...], request: Request) -> list[tuple[GPUShare, ...]]:
    """Return the GPUs of each container, in the order of the containers.

    A share uses all cards of the pod. Whole GPUs and replicas are divided among containers that run
    together; an init container that ends before the others start gets the first ones that no
    sidecar before it has.
    """
    if request.family is Family.SHARE:
        return [gpus] * len(request.containers)
    counts = [0 if _ends_early(container) else container.gpus for container in request.containers]
    ends = list(accumulate(counts))
    parts = [gpus[end - count : end] for end, count in zip(ends, counts, strict=True)]
    for position, container in enumerate(request.containers):
        if _ends_early(container):
            used = {
                gpu
                for other, end in zip(request.containers, ends, strict=True)
                if other.sidecar and other.index < container.index
                for gpu in range(end - other.gpus, end)
            }
            free = (gpu for number, gpu in enumerate(gpus) if number not in used)
            parts[position] = tuple(islice(free, container.gpus))
    return parts


def _ends_early(container: ContainerRequest) -> bool:
    return container.init and not container.sidecar


def _write_gpushare(gpus: tuple[GPUShare, ...], request: Request, now_ns: int) -> dict[str, str]:
    annotations = {
        MEM_POD: str(request.memory),
        MEM_ASSIGNED: "false",
        MEM_ASSUME_TIME: str(now_ns),
        GPUSHARE_ALLOCATION: _by_container(
            gpus, request.containers, [container.memory for container in request.containers]
        ),
    }
    if len(gpus) == 1:
        annotations[MEM_IDX] = str(gpus[0].i)
    if request.core:
        parts = [container.core for container in request.containers]
        annotations[GPUSHARE_CORE] = _by_container(gpus, request.containers, parts)
    return annotations


def _by_container(
    gpus: tuple[GPUShare, ...], containers: tuple[ContainerRequest, ...], amounts: list[int]
) -> str:
    """Return `{"<container>": {"<GPU>": amount}}` for the app containers.

    Units of all containers are distributed round-robin, so that all cards give the same amount,
    although the amount of one container need not be divisible.
    """
    dealt, table = 0, {}
    for container, amount in zip(containers, amounts, strict=True):
        if container.init or not amount:
            continue
        extra, each = amount % len(gpus), amount // len(gpus)
        first = dealt % len(gpus)
        lucky = {(first + step) % len(gpus) for step in range(extra)}
        given = {str(gpu.i): each + (turn in lucky) for turn, gpu in enumerate(gpus)}
        table[str(container.index)] = {i: units for i, units in given.items() if units}
        dealt += amount
    return _encode(table)


def _check_shares(key: str, gpus: tuple[GPUShare, ...]) -> None:
    for gpu in gpus:
        if gpu.core and not gpu.mem:
            raise RecordError(f"{key}: GPU {gpu.i} has compute without memory")
    if any(gpu.mem for gpu in gpus):
        check_distinct(key, gpus)


def check_distinct(key: str, gpus: tuple[GPUShare, ...]) -> None:
    """Raise RecordError if an annotation names a GPU twice."""
    if len({gpu.i for gpu in gpus}) < len(gpus):
        raise RecordError(f"{key}: a GPU occurs twice")


def decode(key: str, text: str, kind: type[_T]) -> _T:
    """Decode the JSON of an annotation; RecordError names the annotation and the problem."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.ValidationError, UnicodeError, RecursionError) as error:
        raise RecordError(f"{key}: {error}") from error
    except msgspec.DecodeError as error:
        raise RecordError(f"{key}: no JSON: {error}") from error


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()
