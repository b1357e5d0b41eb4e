"""The JSON of a machine in `machine.json`, our key of a topology ConfigMap."""

from typing import Annotated, Literal, TypeAlias, TypeVar

from msgspec import Meta, Struct

from linkwise.cluster.nodes.kubelet_policy import CPUManager, KubeletPolicy, TopologyManager
from linkwise.topology.constants import Constants
from linkwise.topology.machine import MAX_GPUS, NIC, Level, Machine, TopologyError, gpu_records

NO_LINK = "N-A"
"""The word for a GPU with itself, and for an unknown pair."""

Text: TypeAlias = Annotated[str, Meta(max_length=4096)]
Word: TypeAlias = Annotated[str, Meta(max_length=16)]
Speed: TypeAlias = Annotated[float, Meta(gt=0, le=1e6)]
Links: TypeAlias = Annotated[int, Meta(ge=0, le=1000)]
_T = TypeVar("_T")
Row: TypeAlias = Annotated[list[_T], Meta(max_length=MAX_GPUS)]

LEVELS = {
    NO_LINK: Level.UNKNOWN,
    "SOC": Level.SYS,
    **{level.name: level for level in Level if level is not Level.UNKNOWN},
}
"""Level by word; ACK writes SOC for SYS."""


class _Constants(Struct, frozen=True):
    nvlink: Speed
    pcie: Speed
    bridge: Speed
    socket: Speed


class _NIC(Struct, frozen=True):
    name: Text
    levels: Row[Word]


class MachineRecord(Struct, frozen=True, rename="camel"):
    """`machine.json`."""

    v: Literal[1]
    links: Row[Row[Links]]
    levels: Row[Row[Word]]
    numa: Row[int]
    constants: _Constants
    switched: bool = False
    nics: Annotated[list[_NIC], Meta(max_length=256)] = []
    model: Text | None = None
    driver: Text | None = None
    cpu_manager: Text | None = None
    topology_manager: Text | None = None
    uuids: Row[Text] = []
    bus_ids: Row[Text] = []
    memory: Row[Annotated[int, Meta(ge=0, le=65_536)]] = []
    warnings: Annotated[list[Text], Meta(max_length=256)] = []


def record_of(machine: Machine, driver: str | None, kubelet: KubeletPolicy) -> MachineRecord:
    """Return the record of a machine, its driver, and the policies of its kubelet."""
    constants = machine.constants
    return MachineRecord(
        v=1,
        links=[list(row) for row in machine.links],
        levels=[[level_word(level) for level in row] for row in machine.levels],
        numa=[gpu.numa for gpu in machine.gpus],
        constants=_Constants(constants.nvlink, constants.pcie, constants.bridge, constants.socket),
        switched=machine.switched,
        nics=[_NIC(nic.name, [level_word(level) for level in nic.levels]) for nic in machine.nics],
        model=machine.model,
        driver=driver,
        cpu_manager=kubelet.cpu_manager,
        topology_manager=kubelet.topology_manager,
        uuids=[gpu.uuid for gpu in machine.gpus if gpu.uuid is not None],
        bus_ids=[gpu.bus_id for gpu in machine.gpus if gpu.bus_id is not None],
        memory=list(machine.memory),
        warnings=list(machine.warnings),
    )


def machine_of(record: MachineRecord) -> Machine:
    """Return the machine of a record.

    Raises:
        TopologyError: It is inconsistent, or has an unknown word.
    """
    constants = record.constants
    return Machine(
        links=tuple(map(tuple, record.links)),
        levels=tuple(tuple(map(_level, row)) for row in record.levels),
        gpus=gpu_records(record.numa, record.uuids, record.bus_ids, record.memory),
        constants=Constants(constants.nvlink, constants.pcie, constants.bridge, constants.socket),
        switched=record.switched,
        nics=tuple(NIC(nic.name, tuple(map(_level, nic.levels))) for nic in record.nics),
        model=record.model,
        warnings=tuple(record.warnings),
    )


def kubelet_policy_of(record: MachineRecord) -> KubeletPolicy:
    """Return the policies of the kubelet in a record; a word that is not known is unknown."""
    cpus, topology = record.cpu_manager, record.topology_manager
    return KubeletPolicy(
        CPUManager(cpus) if cpus in set(CPUManager) else None,
        TopologyManager(topology) if topology in set(TopologyManager) else None,
    )


def _level(word: str) -> Level:
    if word not in LEVELS:
        raise TopologyError(no_link(word))
    return LEVELS[word]


def no_link(word: str) -> str:
    """Return the message for a word that is not a link."""
    return f"{word!r} is no link: NV1, NV2, … or one of {', '.join(LEVELS)}"


def level_word(level: Level) -> str:
    """Return the word for a level."""
    return NO_LINK if level is Level.UNKNOWN else level.name
