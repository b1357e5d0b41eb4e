"""Read and write the topology ConfigMap of a node: ACK's keys, which arena reads, and ours.

`machine.json` is the complete record. If only ACK's keys are readable, the machine is created from
`linkType`: without NUMA nodes and NICs, and without the PCIe level of pairs with NVLinks.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from linkwise.cluster.allocations.record import Isolation
from linkwise.cluster.keys import (
    TOPOLOGY_BANDWIDTH,
    TOPOLOGY_BANDWIDTH_ARENA,
    TOPOLOGY_BUSY,
    TOPOLOGY_DEVICES,
    TOPOLOGY_ISOLATION,
    TOPOLOGY_LINKS,
    TOPOLOGY_MACHINE,
    TOPOLOGY_MISMATCH,
)
from linkwise.cluster.nodes.kubelet_policy import UNKNOWN_POLICY, KubeletPolicy
from linkwise.cluster.nodes.machine_record import (
    LEVELS,
    NO_LINK,
    MachineRecord,
    Row,
    Word,
    kubelet_policy_of,
    level_word,
    machine_of,
    no_link,
    record_of,
)
from linkwise.topology.constants import UNKNOWN_ARCHITECTURE
from linkwise.topology.machine import GPU, MAX_GPUS, Level, Machine, TopologyError

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"

MISMATCH_MAX = 1024
"""Longest text of a mismatch [characters]; the rest is cut off."""
BUSY_MAX = 200
"""Longest text about one GPU [characters]; the rest is cut off."""
_Busy: TypeAlias = Annotated[
    dict[Annotated[str, Meta(max_length=64)], str], Meta(max_length=MAX_GPUS)
]

_T = TypeVar("_T")
_NVLINK = re.compile(r"NV([1-9][0-9]{0,2})")


class PublishedError(ValueError):
    """A key of a topology is unreadable, or a topology to publish is inconsistent."""


@dataclass(frozen=True, slots=True)
class PublishedTopology:
    """Topology and health that the agent of a node publishes."""

    machine: Machine | None
    """None if the links are unreadable."""
    healthy: tuple[bool, ...]
    """By GPU index."""
    driver: str | None = None
    """Version of the driver, or None."""
    warnings: tuple[str, ...] = ()
    """Unreadable keys, with reasons."""
    mismatch: str | None = None
    """How the processes on the GPUs contradict the records of pods; None if they agree."""
    isolation: Isolation | None = None
    """What keeps shares within their limits; None: the agent does not know, or there is none."""
    kubelet: KubeletPolicy = UNKNOWN_POLICY
    busy: Mapping[str, str] = field(default_factory=dict)
    """Of a claims node: what runs on a GPU that its pod does not have, by the UUID of the GPU."""

    def __post_init__(self) -> None:
        if self.machine and len(self.healthy) != self.machine.n:
            raise PublishedError(
                f"health of {len(self.healthy)} GPUs, but the machine has {self.machine.n}"
            )

    @property
    def unhealthy(self) -> frozenset[int]:
        """GPU indices."""
        return frozenset(i for i, ok in enumerate(self.healthy) if not ok)


def read_published(data: dict[str, str]) -> PublishedTopology:
    """Read the data of a topology ConfigMap, with warnings about unreadable parts.

    `machine.json` takes precedence over `linkType`. A GPU of unknown health counts as healthy.
    """
    machine, record, unread = _read_machine(data)
    healthy, warnings = _read_health(data, machine.n if machine else None)
    busy, unknown = _read_busy(data)
    mismatch = data.get(TOPOLOGY_MISMATCH, "").strip()[:MISMATCH_MAX] or None
    return PublishedTopology(
        machine,
        healthy,
        record.driver if record else None,
        (*unread, *warnings, *unknown),
        mismatch,
        _isolation(data),
        kubelet_policy_of(record) if record else UNKNOWN_POLICY,
        busy,
    )


def write_published(
    published: PublishedTopology, bandwidth: Sequence[Sequence[float]]
) -> dict[str, str]:
    """Return the data of a topology ConfigMap.

    Args:
        published: The machine and its health.
        bandwidth: Bandwidth of each pair [GB/s], shape (n, n); for people and arena, never read
        back.

    Raises:
        PublishedError: There is no machine.
    """
    machine = published.machine
    if machine is None:
        raise PublishedError("there is no machine to publish")
    health = {str(i): HEALTHY if ok else UNHEALTHY for i, ok in enumerate(published.healthy)}
    speeds = _encode([[round(speed, 2) for speed in row] for row in bandwidth])
    mismatch = (published.mismatch or "").strip()[:MISMATCH_MAX]
    busy = {uuid: text[:BUSY_MAX] for uuid, text in published.busy.items()}
    return {
        **({TOPOLOGY_BUSY: _encode(busy)} if busy else {}),
        **({TOPOLOGY_MISMATCH: mismatch} if mismatch else {}),
        **({TOPOLOGY_ISOLATION: published.isolation.value} if published.isolation else {}),
        TOPOLOGY_DEVICES: _encode(health),
        TOPOLOGY_LINKS: _encode(
            [[_link_word(machine, i, j) for j in range(machine.n)] for i in range(machine.n)]
        ),
        TOPOLOGY_BANDWIDTH: speeds,
        TOPOLOGY_BANDWIDTH_ARENA: speeds,
        TOPOLOGY_MACHINE: _encode(record_of(machine, published.driver, published.kubelet)),
    }


def read_indices(text: str, n: int) -> tuple[frozenset[int], str | None]:
    """Return the GPU indices of a list such as `"0, 3"`, and a warning about invalid items.

    The format of cordoned GPUs on a node, and of unhealthy ones in their ConfigMap.
    """
    good, bad = set(), []
    for item in filter(None, (part.strip() for part in text.split(","))):
        if item.isascii() and item.isdigit() and len(item) <= 4 and int(item) < n:
            good.add(int(item))
        else:
            bad.append(item)
    if not bad:
        return frozenset(good), None
    problem = f"{_shown(bad)}: not an index of one of {n} GPUs (0,3 is an example)"
    return frozenset(good), problem


def _isolation(data: dict[str, str]) -> Isolation | None:
    word = data.get(TOPOLOGY_ISOLATION)
    if word is None:
        return None
    return Isolation(word) if word in set(Isolation) else Isolation.NONE


def _shown(items: Sequence[str]) -> str:
    return ", ".join(repr(item[:20]) for item in items[:3])


def _read_machine(
    data: dict[str, str],
) -> tuple[Machine | None, MachineRecord | None, list[str]]:
    """Return the machine, its record if it has one, and errors of unreadable keys."""
    unread: list[str] = []
    ours = (TOPOLOGY_MACHINE,) if TOPOLOGY_MACHINE in data else ()
    for key in (*ours, TOPOLOGY_LINKS):
        try:
            return *_machine_in(data, key), unread
        except PublishedError as error:
            unread.append(str(error))
    return None, None, unread


def _machine_in(data: dict[str, str], key: str) -> tuple[Machine, MachineRecord | None]:
    try:
        if key == TOPOLOGY_LINKS:
            return _machine_of_links(_decode(data, key, Row[Row[Word]])), None
        record = _decode(data, key, MachineRecord)
        return machine_of(record), record
    except TopologyError as error:
        raise PublishedError(f"{key}: {error}") from error


def _read_health(data: dict[str, str], n: int | None) -> tuple[tuple[bool, ...], list[str]]:
    """Return the health of n GPUs (or of all listed ones), and warnings."""
    try:
        words = _decode(data, TOPOLOGY_DEVICES, dict[str, object])
    except PublishedError as error:
        return (True,) * (n or 0), [str(error)]
    if n is None:
        n = max((i + 1 for i in range(MAX_GPUS) if str(i) in words), default=0)
    names = [str(i) for i in range(n)]
    odd = [name for name, word in words.items() if name not in names or not isinstance(word, str)]
    silent = [name for name in names if name not in words]
    warnings = []
    if odd:
        warnings.append(f"{_shown(odd)}: not the health of one of {n} GPUs")
    if silent:
        warnings.append(f"nothing of GPU {', '.join(silent)}: taken for healthy")
    healthy = tuple(name in odd or words.get(name, HEALTHY) == HEALTHY for name in names)
    return healthy, [f"{TOPOLOGY_DEVICES}: {warning}" for warning in warnings]


def _read_busy(data: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return what runs on GPUs by their UUIDs, and warnings."""
    if TOPOLOGY_BUSY not in data:
        return {}, []
    try:
        busy = _decode(data, TOPOLOGY_BUSY, _Busy)
    except PublishedError as error:
        return {}, [str(error)]
    return {uuid: text[:BUSY_MAX] for uuid, text in busy.items()}, []


def _decode(data: dict[str, str], key: str, kind: type[_T]) -> _T:
    if key not in data:
        raise PublishedError(f"{key}: missing")
    try:
        return msgspec.json.decode(data[key], type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise PublishedError(f"{key}: {error}") from error


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _link_word(machine: Machine, i: int, j: int) -> str:
    if i == j:
        return NO_LINK
    if machine.links[i][j]:
        return f"NV{machine.links[i][j]}"
    return level_word(machine.levels[i][j])


def _machine_of_links(words: list[list[str]]) -> Machine:
    """Create a machine from `linkType`.

    A pair whose directions differ, or with an unknown word, counts as not linked.
    """
    n = len(words)
    if any(len(row) != n for row in words):
        raise TopologyError(f"the matrix has {n} rows, so each must have {n} words")
    links = [[0] * n for _ in range(n)]
    levels = [[Level.UNKNOWN] * n for _ in range(n)]
    warnings = []
    for i in range(n):
        for j in range(i):
            word = words[i][j]
            if word != words[j][i]:
                warnings.append(f"GPU{j} and GPU{i} are linked differently each way: not linked")
            elif nvlink := _NVLINK.fullmatch(word):
                links[i][j] = links[j][i] = int(nvlink[1])
            elif word in LEVELS:
                levels[i][j] = levels[j][i] = LEVELS[word]
            else:
                warnings.append(f"GPU{j} and GPU{i}: {no_link(word)}: not linked")
    return Machine(
        links=tuple(map(tuple, links)),
        levels=tuple(map(tuple, levels)),
        gpus=(GPU(),) * n,
        switched=any(sum(row) > UNKNOWN_ARCHITECTURE.links for row in links),
        warnings=tuple(warnings),
    )
