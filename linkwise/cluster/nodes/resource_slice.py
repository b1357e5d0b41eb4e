"""Decode ResourceSlices of NVIDIA's driver: the devices that it offers on one node.

Kubelets write slices, so every text, and what is kept of a device, is bounded.

Source: kubernetes v1.36, `staging/src/k8s.io/api/resource/v1/types.go`; attributes of the driver
from its `deviceinfo.go` at 03af824, and as seen in the slices of v0.5.0-dev; those of partitions
from its guide "Fabric Manager partitioning".
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from sys import intern
from typing import TypeVar

from msgspec import Struct, field

from linkwise.cluster.cel.values import DeviceFacts, Scalar, read_version
from linkwise.cluster.keys import BUSY, DRA_GPU_DRIVER, PLACED
from linkwise.cluster.objects.container import Amount
from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.cluster.objects.metadata import Metadata
from linkwise.cluster.objects.quantity import QuantityError, parse_quantity

DEVICES_MAX = 128
"""Devices of a slice; the API server accepts no more."""
_TEXT_MAX = 64
"""Of an attribute [characters], as the API server limits it."""
_POOL_MAX = 253
"""Name of a pool [characters]."""
_TAINT_MAX = 200
"""Text of a taint that is kept [characters]."""
_COUNTERS_MAX = 8
"""Counter sets of a device; the API server accepts 2."""
_DOMAINS = frozenset({"", DRA_GPU_DRIVER, "resource.kubernetes.io"})
"""Of attributes that are read: a driver's own may lack theirs."""
_FACTS_MAX = 32
"""Attributes and capacities of a device; the API server accepts no more."""
_NAME_MAX = 96
"""Name of one of them, with its domain [characters]; the API server accepts no longer one."""
_Value = TypeVar("_Value")
_MEMORY = ("memory", f"{DRA_GPU_DRIVER}/memory")
"""Names of the capacity that is read."""
HINDERING = frozenset({"NoSchedule", "NoExecute"})
"""Effects of taints by which kube-scheduler does not allocate a device."""


_NAMES = {
    "kind": ("type",),
    "uuid": ("uuid",),
    "parent_uuid": ("parentUUID",),
    "product": ("productName",),
    "driver": ("driverVersion",),
    "bus_id": ("pciBusID", "pcieBusID"),
    "pcie_root": ("pcieRoot",),
    "numa": ("numaNode", "numa"),
}
"""Attributes without their domain, by field; the preferred one first."""
_PARTITION = re.compile(r"partition[0-9]{1,2}")
"""Attribute with the partition of so many GPUs to which a GPU belongs, by Fabric Manager."""


class SliceDevice(Struct, frozen=True, gc=False):
    """One device of a slice: a GPU, a part of one, or one that is passed through to a VM."""

    name: str
    kind: str | None = None
    """`gpu`, `mig` or `vfio`."""
    uuid: str | None = None
    parent_uuid: str | None = None
    """Of the GPU of a MIG device."""
    product: str | None = None
    """As the driver names it, with blanks."""
    driver: str | None = None
    """Version of the driver, as a semantic version."""
    memory: int | None = None
    """[bytes]"""
    bus_id: str | None = None
    """PCI bus id in lower case."""
    pcie_root: str | None = None
    numa: int | None = None
    taint: str | None = None
    """The first taint by which it is not allocated."""
    counters: tuple[str, ...] = ()
    """Counter sets that it consumes: devices with a common one are parts of the same GPU."""
    is_shared: bool = False
    """Several claims may hold it at once."""
    is_partitioned: bool = False
    """The driver prepares a claim only if its GPUs are exactly those of a partition."""
    facts: DeviceFacts | None = None
    """What selectors of claims read of it; None: it is no whole GPU."""

    @property
    def is_gpu(self) -> bool:
        """It is a whole GPU."""
        return self.kind == "gpu"

    @property
    def gpu_uuid(self) -> str | None:
        """UUID of the GPU that it is, or is a part of."""
        return self.parent_uuid or self.uuid

    @property
    def parts(self) -> frozenset[tuple[str, str]]:
        """What it has of a GPU; devices with a common part exclude each other."""
        named = (("uuid", self.gpu_uuid), ("bus", self.bus_id))
        counters = (("counters", name) for name in self.counters)
        return frozenset((*((kind, text) for kind, text in named if text), *counters))


class PoolSlice(Struct, frozen=True, gc=False):
    """The devices of one ResourceSlice."""

    node: str
    pool: str
    generation: int
    """Of the pool; only slices of its highest one count."""
    count: int
    """Slices that the pool has in this generation."""
    devices: tuple[SliceDevice, ...]


class _Attribute(KubeObject, frozen=True):
    string: str | None = None
    number: int | None = field(default=None, name="int")
    boolean: bool | None = field(default=None, name="bool")
    version: str | None = None

    @property
    def scalar(self) -> Scalar | None:
        """Its value; None: it is of a kind that is not read."""
        if self.version is not None:
            return read_version(self.version)
        if self.string is not None:
            return intern(self.string) if len(self.string) <= _TEXT_MAX else None
        return self.boolean if self.number is None else self.number


class _Capacity(KubeObject, frozen=True):
    value: Amount | None = None


class _Taint(KubeObject, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class _Consumption(KubeObject, frozen=True):
    counter_set: str = ""


class RawDevice(KubeObject, frozen=True):
    """The fields of a device that are read."""

    name: str = ""
    attributes: dict[str, _Attribute] | None = None
    capacity: dict[str, _Capacity] | None = None
    taints: list[_Taint] | None = None
    consumes_counters: list[_Consumption] | None = None
    allow_multiple_allocations: bool | None = None


class _Pool(KubeObject, frozen=True):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class _SliceSpec(KubeObject, frozen=True):
    driver: str = ""
    node_name: str = ""
    pool: _Pool = _Pool()
    devices: list[RawDevice] | None = None


class SliceObject(KubeObject, frozen=True):
    """The fields of a ResourceSlice that Linkwise reads."""

    kind: str = "ResourceSlice"
    metadata: Metadata = Metadata()
    spec: _SliceSpec = _SliceSpec()

    @property
    def content(self) -> PoolSlice | None:
        """Its devices; None if they are no GPUs of one node."""
        spec, pool = self.spec, self.spec.pool
        if spec.driver != DRA_GPU_DRIVER or not spec.node_name:
            return None
        devices = (spec.devices or ())[:DEVICES_MAX]
        return PoolSlice(
            intern(spec.node_name),
            intern(pool.name[:_POOL_MAX]),
            pool.generation,
            pool.resource_slice_count,
            tuple(map(_read_device, devices)),
        )


def taint_text(key: str, value: str, effect: str) -> str:
    """Return a taint as kubectl writes it, cut to a bounded length."""
    return f"{key}={value}:{effect}"[:_TAINT_MAX] if value else f"{key}:{effect}"[:_TAINT_MAX]


def hinders(key: str, effect: str) -> bool:
    """Return whether a taint says that a device is not to be used; our own do not."""
    return effect in HINDERING and key not in {PLACED, BUSY}


def _is_read(name: str) -> bool:
    """Return whether an attribute of a device becomes a field."""
    domain, _, plain = name.rpartition("/")
    return domain in _DOMAINS and (
        any(plain in names for names in _NAMES.values()) or bool(_PARTITION.fullmatch(plain))
    )


def _read_device(raw: RawDevice) -> SliceDevice:
    attributes = {
        name.rpartition("/")[2]: value
        for name, value in (raw.attributes or {}).items()
        if _is_read(name)
    }
    bus_id = (_text(attributes, "bus_id") or "").lower()
    consumed = (raw.consumes_counters or ())[:_COUNTERS_MAX]
    faults = (taint for taint in raw.taints or () if hinders(taint.key, taint.effect))
    return SliceDevice(
        intern(raw.name[:_TEXT_MAX]),
        _text(attributes, "kind"),
        _text(attributes, "uuid"),
        _text(attributes, "parent_uuid"),
        _text(attributes, "product"),
        _text(attributes, "driver"),
        _memory(raw.capacity or {}),
        intern(bus_id) or None,
        _text(attributes, "pcie_root"),
        _number(attributes, "numa"),
        next((taint_text(fault.key, fault.value, fault.effect) for fault in faults), None),
        tuple(one.counter_set[:_TEXT_MAX] for one in consumed),
        bool(raw.allow_multiple_allocations),
        any(_PARTITION.fullmatch(name) for name in attributes),
        facts_of(raw) if _text(attributes, "kind") == "gpu" else None,
    )


def facts_of(raw: RawDevice) -> DeviceFacts:
    """Return what selectors read of a device."""
    attributes = [(name, one.scalar) for name, one in (raw.attributes or {}).items()]
    capacity = [(name, _amount(one)) for name, one in (raw.capacity or {}).items()]
    names = [name for name, _ in (*attributes, *capacity)]
    return DeviceFacts(
        DRA_GPU_DRIVER,
        tuple(_fact(intern(name[:_NAME_MAX]), value) for name, value in attributes[:_FACTS_MAX]),
        tuple(_fact(intern(name[:_NAME_MAX]), value) for name, value in capacity[:_FACTS_MAX]),
        is_partial=len(names) > _FACTS_MAX or any(len(name) > _NAME_MAX for name in names),
    )


@lru_cache(maxsize=4096, typed=True)
def _fact(name: str, value: _Value) -> tuple[str, _Value]:
    """Return a pair; equal ones are one object, since most GPUs differ in few of them."""
    return name, value


def _text(attributes: Mapping[str, _Attribute], field: str) -> str | None:
    found = (attributes[name] for name in _NAMES[field] if name in attributes)
    texts = (one.string or one.version for one in found)
    # Most texts are those of other devices, too, or of their other attributes.
    return next((intern(text[:_TEXT_MAX]) for text in texts if text), None)


def _number(attributes: Mapping[str, _Attribute], field: str) -> int | None:
    found = (attributes[name].number for name in _NAMES[field] if name in attributes)
    # The kernel gives -1 for a device without a NUMA node.
    return next((number for number in found if number is not None and number >= 0), None)


def _memory(capacity: Mapping[str, _Capacity]) -> int | None:
    amounts = (_amount(capacity[key]) for key in _MEMORY if key in capacity)
    return next((max(0, int(amount)) for amount in amounts if amount is not None), None)


def _amount(capacity: _Capacity) -> Fraction | None:
    with suppress(QuantityError):
        return None if capacity.value is None else parse_quantity(capacity.value)
    return None
