"""Read a claims node: NVIDIA's DRA driver offers its GPUs, and Linkwise chooses those of pods."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from linkwise.cluster.keys import CORDON
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.nodes.device_pool import GPUPool
from linkwise.cluster.nodes.node import Card, DevicePool, MachineSource, Node
from linkwise.cluster.nodes.node_reader import read_host, uniform_machine
from linkwise.cluster.nodes.node_resources import NodeObject, read_node_resources
from linkwise.cluster.nodes.pool_machine import catalogue_machine, fitted, pcie_machine, with_gpus
from linkwise.cluster.nodes.resource_slice import SliceDevice
from linkwise.cluster.nodes.topology_configmap import PublishedTopology, read_indices
from linkwise.topology.machine import Machine


def read_claims_node(
    raw: NodeObject, pool: GPUPool, *, published: PublishedTopology | None, machine: Machine | None
) -> Node | None:
    """Return a node with the GPUs of its pool; None if it is no claims node.

    It is one if its mode is `topology` and no device plugin offers GPUs there.

    Args:
        raw: The Node.
        pool: The GPUs that the driver offers.
        published: Topology in a ConfigMap: a captured one, or that of an agent, which also says on
            which GPUs processes run whose pods do not have them.
        machine: Machine by the rules of the policy.

    Raises:
        NodeError: An amount is not a Kubernetes quantity.
    """
    offer = read_node_resources(raw, 0)
    if offer.mode is not NodeMode.TOPOLOGY or offer.plugin_offers_gpus:
        return None
    linked, source, doubt = _read_machine(pool, published.machine if published else None, machine)
    busy = published.busy if published else {}
    cordoned, undrained = read_indices(offer.annotations.get(CORDON, ""), len(pool.gpus))
    cards = tuple(
        Card(
            memory=gpu.memory >> 30 if gpu.memory is not None else None,
            uuid=gpu.uuid,
            healthy=not _is_faulty(gpu, pool),
            cordoned=_is_unmanaged(gpu, pool) or i in cordoned or gpu.uuid in busy,
            faulty=_is_faulty(gpu, pool),
        )
        for i, gpu in enumerate(pool.gpus)
    )
    problems = (pool.missing, doubt, f"{CORDON}: {undrained}" if undrained else None)
    return replace(
        read_host(raw, offer),
        machine=linked,
        machine_source=source,
        cards=cards,
        pool=DevicePool(
            pool.name,
            tuple(gpu.name for gpu in pool.gpus),
            pool.others,
            pool.missing,
            frozenset(gpu.name for gpu in pool.gpus if _is_unmanaged(gpu, pool)),
            tuple(gpu.facts for gpu in pool.gpus if gpu.facts is not None),
            pool.lost,
            frozenset(gpu.name for gpu in pool.gpus if gpu.uuid in busy) - pool.lost,
        ),
        warnings=(*offer.warnings, *filter(None, problems), *_notes(pool, busy)),
    )


def _is_unmanaged(gpu: SliceDevice, pool: GPUPool) -> bool:
    """Return whether Linkwise leaves a GPU alone."""
    return gpu.is_shared or gpu.is_partitioned or gpu.name in pool.divided


def _is_faulty(gpu: SliceDevice, pool: GPUPool) -> bool:
    """Return whether the driver taints a GPU, or does not list it."""
    return bool(gpu.taint) or gpu.name in pool.lost


def _read_machine(
    pool: GPUPool, published: Machine | None, mapped: Machine | None
) -> tuple[Machine | None, MachineSource, str | None]:
    """Return the machine of the GPUs in a pool, its source, and a warning."""
    n = len(pool.gpus)
    if not n:
        return None, MachineSource.UNKNOWN, None
    sources = (
        (MachineSource.CAPTURED, published),
        (MachineSource.POLICY, mapped),
        (MachineSource.CATALOGUE, None if mapped else catalogue_machine(pool)),
        (MachineSource.RESOURCE_SLICES, pcie_machine(pool)),
    )
    fits = (
        (source, machine)
        for source, found in sources
        if found and (machine := fitted(found, pool)) is not None
    )
    source, machine = next(fits, (MachineSource.UNKNOWN, uniform_machine(n)))
    doubt = None
    if mapped and fitted(mapped, pool) is None:
        doubt = f"the policy says a machine of {mapped.n} GPUs, the driver {n}"
    return with_gpus(machine, pool), source, doubt


def _notes(pool: GPUPool, busy: Mapping[str, str]) -> Iterator[str]:
    """Yield why GPUs and other devices of a pool are not used."""
    for i, gpu in enumerate(pool.gpus):
        if gpu.uuid and gpu.uuid in busy:
            yield f"GPU{i}: closed until the process has ended, by the agent: {busy[gpu.uuid]}"
        if gpu.name in pool.lost:
            yield f"GPU{i}: the driver's slices do not have {gpu.name} now"
        elif gpu.taint:
            yield f"GPU{i}: device {gpu.name} has the taint {gpu.taint}"
        elif gpu.is_shared:
            yield f"GPU{i}: several claims may hold device {gpu.name} at once: it is left alone"
        elif gpu.name in pool.divided:
            yield (
                f"GPU{i}: device {gpu.name} is divided into MIG devices, which the same slices "
                "offer: it is left alone"
            )
    if any(gpu.is_partitioned for gpu in pool.gpus):
        yield (
            "Fabric Manager partitions the GPUs, and the driver prepares only claims for a whole "
            "partition, which Linkwise does not plan: they are left alone"
        )
    if pool.others:
        devices = "device is" if pool.others == 1 else "devices are"
        yield f"{pool.others} {devices} no whole GPU (MIG, or for VMs): left to claims for them"
