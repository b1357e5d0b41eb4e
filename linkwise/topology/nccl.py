"""Read a machine from an NCCL topology file (`NCCL_TOPO_DUMP_FILE`).

A file is a tree: `<cpu>` is a NUMA node, `<pci>` a PCIe switch or a device, `<gpu>` in it says that
the device is one, and `<nvlink>` leads from a GPU to the bus id of its peer or of an NVSwitch.
Source: NCCL v2.30, `src/graph/xml.cc` and `src/graph/topo.cc`.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from linkwise.topology.elements import Element, parse_xml
from linkwise.topology.host import constants_of
from linkwise.topology.machine import GPU, MAX_GPUS, NIC, Level, Machine, TopologyError

_DUMP = "run NCCL on the machine with NCCL_TOPO_DUMP_FILE set, and give the file that it writes"
_SWITCH = "0x068000"
_ACCELERATORS = {"0x03", "0x12"}
"""Beginnings of PCI classes: display devices, and processing accelerators."""
_NVIDIA = "0x10de"
_VENDORS = {
    "0x1002": "AMD",
    "0x1d94": "Hygon",
    "0x8086": "Intel",
    "0x19e5": "Huawei",
    "0x1ed5": "Moore Threads",
    "0x1ed8": "T-Head",
    "0x1e3e": "Iluvatar",
    "0x1e36": "Enflame",
    "0x1ee0": "Biren",
    "0x1d22": "Kunlunxin",
    "0x9999": "MetaX",
    "0xcabc": "Cambricon",
}
"""Other vendors of GPUs by PCI id; their libraries write files like NCCL's."""


@dataclass(frozen=True, slots=True)
class _Device:
    """A GPU or a NIC, and the way to it."""

    element: Element
    cpu: int
    """Place of its `<cpu>` in the file."""
    switches: tuple[int, ...]
    """Identities of the PCIe switches above it, from the CPU down."""

    @property
    def bus_id(self) -> str:
        """Bus id of the device."""
        return _bus_id(self.element.get("busid"))


def read_nccl(text: str, *, model: str | None = None) -> Machine:
    """Read an NCCL topology file.

    GPUs are numbered by `dev` if every GPU has it, else in the order of the file.

    Args:
        text: XML with a `<system>`.
        model: Product name of the GPUs; takes precedence over `sm` for their NVLinks.

    Raises:
        TopologyError: No topology, or one without GPUs: the message says what is missing.
    """
    root = parse_xml(text)
    if root.tag == "graphs":
        raise TopologyError(
            f"this is an NCCL graph file, which has rings and trees but no machine; {_DUMP}"
        )
    if root.tag != "system":
        raise TopologyError(f"expected <system>, found <{root.tag[:40]}>; {_DUMP}")
    cpus = list(root.find("cpu"))
    if len({cpu.get("host_hash") for cpu in cpus}) > 1:
        raise TopologyError("the file describes several hosts; give that of one")
    devices = [device for at, cpu in enumerate(cpus) for device in _devices(cpu, at)]
    found = [device for device in devices if _is_gpu(device.element)]
    for device in found:
        _refuse_other_vendor(device)
    gpus = _numbered(found)
    if not gpus:
        raise TopologyError(_no_gpus(root))
    links, switched, warnings = _nvlinks(gpus)
    return Machine(
        links=links,
        levels=tuple(tuple(Level.UNKNOWN if a is b else _level(a, b) for b in gpus) for a in gpus),
        gpus=tuple(GPU(_numa(cpus, gpu.cpu), bus_id=gpu.bus_id) for gpu in gpus),
        constants=constants_of([gpu.element for gpu in gpus], cpus[0], model),
        switched=switched,
        nics=_nics([device for device in devices if not _is_gpu(device.element)], gpus),
        model=model,
        warnings=tuple(warnings),
    )


def _devices(cpu: Element, place: int) -> Iterator[_Device]:
    """Yield the GPUs and NICs of one NUMA node, in the order of the file."""
    stack: list[tuple[Element, tuple[int, ...]]] = [(child, ()) for child in cpu.children[::-1]]
    while stack:
        element, above = stack.pop()
        if _is_gpu(element) or _is_nic(element):
            yield _Device(element, place, above)
        elif element.tag == "pci":
            below = (*above, id(element))
            stack += [(child, below) for child in element.children[::-1]]


def _is_gpu(element: Element) -> bool:
    """Return whether a device is a GPU, and not another display device such as the BMC's."""
    if element.tag != "pci":
        return False
    nvidia = element.get("vendor").lower() in {"", _NVIDIA}
    return any(element.find("gpu")) or (nvidia and element.get("class").startswith("0x03"))


def _refuse_other_vendor(device: _Device) -> None:
    """Refuse a GPU that is not NVIDIA's: speeds and links of others are not known.

    Raises:
        TopologyError: Another vendor's id, or an element of RCCL, is there.
    """
    element = device.element
    vendor = element.get("vendor").lower()
    parts = list(element.find("gpu"))
    is_rccl = any(part.get("gcn") or any(part.find("xgmi")) for part in parts)
    if vendor in {"", _NVIDIA} and not is_rccl:
        return
    name = _VENDORS.get(vendor) or ("AMD" if is_rccl else f"PCI vendor {vendor[:40]}")
    library = "RCCL" if is_rccl else "a library like NCCL"
    raise TopologyError(
        f"this is a topology file of {library} with GPUs of {name}, which are not read; only"
        " NVIDIA GPUs are"
    )


def _nics(devices: list[_Device], gpus: list[_Device]) -> tuple[NIC, ...]:
    """Return the network cards. One without a PCIe device stands below each CPU, and is one."""
    levels: dict[object, list[Level]] = {}
    names: dict[object, str] = {}
    for device in devices:
        name = _nic_name(device)
        key = (name, device.element.tag) if device.element.tag == "nic" else id(device.element)
        near = [_level(device, gpu) for gpu in gpus]
        levels[key] = [max(pair) for pair in zip(levels.get(key, near), near, strict=True)]
        names[key] = name
    return tuple(NIC(names[key], tuple(row)) for key, row in levels.items())


def _is_nic(element: Element) -> bool:
    """Return whether a device is a network card: `<nic>` under the CPU, if it is no PCIe device."""
    if element.tag == "nic":
        return True
    return element.tag == "pci" and (
        any(element.find("nic")) or element.get("class").startswith("0x02")
    )


def _numbered(gpus: list[_Device]) -> list[_Device]:
    """Put GPUs in the order of their numbers."""
    if len(gpus) > MAX_GPUS:
        raise TopologyError(f"the file has {len(gpus)} GPUs; a machine has at most {MAX_GPUS}")
    for what in ("bus id", "dev"):
        ids = [gpu.bus_id if what == "bus id" else _gpu(gpu, "dev") for gpu in gpus]
        twice = [value for value, count in Counter(filter(None, ids)).items() if count > 1]
        if twice:
            raise TopologyError(f"two GPUs have the {what} {twice[0][:40]}")
    if all(_gpu(gpu, "dev") for gpu in gpus):
        return sorted(gpus, key=lambda gpu: _number(_gpu(gpu, "dev"), "dev"))
    return gpus


def _bus_id(written: str) -> str:
    """Return a bus id in lower case, without the zeros that lengthen a domain to eight digits."""
    return re.sub(r"^0{4}(?=[0-9a-f]{4}:)", "", written.lower())


def _gpu(device: _Device, attribute: str) -> str:
    return next((gpu.get(attribute) for gpu in device.element.find("gpu")), "")


def _number(value: str, attribute: str) -> int:
    if not re.fullmatch("[0-9]{1,4}", value):
        raise TopologyError(f'{attribute}="{value[:40]}" is no number from 0 to 9999')
    return int(value)


def _no_gpus(root: Element) -> str:
    """Say what a system without GPUs has instead."""
    elements, count, classless = [root], 0, 0
    while elements:
        element = elements.pop()
        elements += element.children
        count += element.tag == "pci"
        classless += element.tag == "pci" and not element.get("class")
        vendor = _VENDORS.get(element.get("vendor").lower())
        if vendor and element.get("class")[:4] in _ACCELERATORS and vendor != "Intel":
            return f"the GPUs in the file are of {vendor}, which are not read; only NVIDIA GPUs are"
    return (
        f"no GPU in the file: of its {count} PCI devices none has class 0x030200 or a <gpu>, and"
        f" {classless} have no class at all; a template that NCCL completes at start? Then {_DUMP}"
    )


def _level(a: _Device, b: _Device) -> Level:
    """Return where two devices meet, as `nvidia-smi topo -m` names it."""
    if a.cpu != b.cpu:
        return Level.SYS
    shared = sum(x == y for x, y in zip(a.switches, b.switches, strict=False))
    if not shared:
        return Level.PHB
    passed = len(a.switches) + len(b.switches) - 2 * shared + 1
    return Level.PIX if passed == 1 else Level.PXB


def _numa(cpus: Sequence[Element], place: int) -> int:
    """Return a NUMA node's number; a machine without NUMA says -1, in its only `<cpu>`."""
    numaid = cpus[place].get("numaid")
    return _number(numaid, "numaid") if numaid not in {"", "-1"} else place


def _nic_name(device: _Device) -> str:
    nics = [device.element] if device.element.tag == "nic" else device.element.find("nic")
    names = [net.get("name") for nic in nics for net in nic.find("net")]
    return next(filter(None, names), device.bus_id)


def _nvlinks(gpus: Sequence[_Device]) -> tuple[tuple[tuple[int, ...], ...], bool, list[str]]:
    """Return the NVLink matrix, whether it ends at an NVSwitch, and what was not counted."""
    index = {gpu.bus_id: i for i, gpu in enumerate(gpus)}
    direct: Counter[tuple[int, int]] = Counter()
    to_switch: Counter[int] = Counter()
    ignored: Mapping[str, set[int]] = defaultdict(set)
    for i, gpu in enumerate(gpus):
        for link in (link for g in gpu.element.find("gpu") for link in g.find("nvlink")):
            target = _bus_id(link.get("target"))
            count = _number(link.get("count"), "count")
            if target == gpu.bus_id:
                ignored["themselves"].add(i)
            elif link.get("tclass").startswith(_SWITCH):
                to_switch[i] += count
            elif target in index:
                direct[i, index[target]] += count
            else:
                ignored["what is no GPU of the file"].add(i)
    warnings = [
        f"NVLinks from GPUs {', '.join(map(str, sorted(which)))} to {what} are not counted"
        for what, which in ignored.items()
    ]
    if not any(any(gpu.element.find("gpu")) for gpu in gpus):
        warnings.append(f"the file has no data about NVLinks, like a template; {_DUMP}")
    n = len(gpus)
    if to_switch:
        between = {(i, j): min(to_switch[i], to_switch[j]) for i in range(n) for j in range(n)}
    else:
        between, uneven = _both_ways(direct, n)
        warnings += uneven
    square = tuple(tuple(0 if i == j else between[i, j] for j in range(n)) for i in range(n))
    return square, bool(to_switch), warnings


def _both_ways(
    direct: Mapping[tuple[int, int], int], n: int
) -> tuple[dict[tuple[int, int], int], list[str]]:
    """Keep the links of pairs on which both GPUs agree."""
    pairs = [(i, j) for i in range(n) for j in range(n)]
    between = {(i, j): direct[i, j] if direct[i, j] == direct[j, i] else 0 for i, j in pairs}
    return between, [
        f"GPU{i} and GPU{j} are linked by {direct[i, j]} NVLinks one way and {direct[j, i]} the"
        " other: counted as not linked by NVLink"
        for i, j in pairs
        if i < j and direct[i, j] != direct[j, i]
    ]
