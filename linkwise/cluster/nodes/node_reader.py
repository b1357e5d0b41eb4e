"""Read a node from its Node object, the topology of its agent, and the policy."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from linkwise.cluster.keys import CORDON, GPU_MEM, UNHEALTHY_NAME_PREFIX
from linkwise.cluster.mode import PackingStrategy, read_placement
from linkwise.cluster.nodes.node import DEFAULT_PODS, Card, MachineSource, Node, Taint
from linkwise.cluster.nodes.node_resources import NodeObject, NodeResources, read_node_resources
from linkwise.cluster.nodes.topology_configmap import PublishedTopology, read_indices
from linkwise.cluster.requests.amounts import MEMORY_MAX
from linkwise.topology.machine import GPU, MAX_GPUS, Level, Machine

_OWN = {"cpu", "memory", "pods"}
"""Resources that a node has in fields of their own."""


def read_node(
    raw: NodeObject,
    *,
    published: PublishedTopology | None = None,
    machine: Machine | None = None,
    discovered: Machine | None = None,
    unhealthy: str = "",
    placement: PackingStrategy = PackingStrategy.BINPACK,
) -> Node:
    """Return a node from its Node object and other sources about its GPUs.

    A node has GPUs if the resource of its mode counts some, healthy or not. A machine that the
    agent publishes is used regardless of that count. A machine of the policy, or else of the
    labels, is used if the count matches; otherwise all GPUs count as equal. Unreadable entries of
    GPU lists are ignored with a warning.

    Args:
        raw: The Node.
        published: Topology that the agent publishes.
        machine: Machine by the rules of the policy.
        discovered: Machine by the labels of GPU feature discovery.
        unhealthy: List in the ConfigMap of unhealthy GPUs.
        placement: Default by the policy; the label of the node takes precedence.

    Raises:
        NodeError: An amount is not a Kubernetes quantity.
    """
    published = published or PublishedTopology(None, ())
    offer = read_node_resources(raw, published.machine.n if published.machine else 0)
    linked, source, miscount = _read_machine(offer, published.machine, machine, discovered)
    layout, misspelt = read_placement(offer.labels, placement)
    n = linked.n if linked else 0
    listed, unlisted = read_indices(unhealthy, n)
    faulty = listed | published.unhealthy
    cordoned, undrained = read_indices(offer.annotations.get(CORDON, ""), n)
    is_published = linked is published.machine
    cards = tuple(
        replace(
            card,
            healthy=card.healthy and i not in faulty,
            cordoned=i in cordoned,
            faulty=i in faulty,
        )
        for i, card in enumerate(_read_cards(offer, linked, is_published=is_published))
    )
    problems = (
        misspelt,
        *(f"published topology: {problem}" for problem in _published_warnings(published)),
        miscount,
        f"ConfigMap {UNHEALTHY_NAME_PREFIX}{raw.metadata.name}: {unlisted}" if unlisted else None,
        f"{CORDON}: {undrained}" if undrained else None,
        _missing(offer, cards),
        _unit(cards),
    )
    return replace(
        read_host(raw, offer),
        placement=layout,
        machine=linked,
        machine_source=source,
        cards=cards,
        replicas=offer.replicas if linked else 0,
        isolation=published.isolation,
        mismatch=published.mismatch,
        kubelet=published.kubelet,
        warnings=(*offer.warnings, *(problem for problem in problems if problem)),
    )


def read_host(raw: NodeObject, offer: NodeResources) -> Node:
    """Return a node without GPUs."""
    return Node(
        name=raw.metadata.name,
        labels=offer.labels,
        mode=offer.mode,
        parts=offer.parts,
        cpu=offer.allocatable.get("cpu", 0),
        memory=offer.allocatable.get("memory", 0),
        pods=offer.allocatable.get("pods", DEFAULT_PODS),
        resources={name: amount for name, amount in offer.allocatable.items() if name not in _OWN},
        taints=tuple(Taint(t.key, t.value, t.effect) for t in raw.spec.taints or ()),
        unschedulable=bool(raw.spec.unschedulable),
        ready=all(c.status == "True" for c in raw.status.conditions or () if c.type == "Ready"),
    )


@cache
def uniform_machine(n: int) -> Machine:
    """Return a machine of n equal GPUs, for unknown links."""
    return Machine(links=((0,) * n,) * n, levels=((Level.UNKNOWN,) * n,) * n, gpus=(GPU(),) * n)


def _published_warnings(published: PublishedTopology) -> tuple[str, ...]:
    """Return warnings about a published topology and its machine."""
    guessed = published.machine.warnings if published.machine else ()
    return (*published.warnings, *guessed)


def _read_machine(
    offer: NodeResources,
    published: Machine | None,
    mapped: Machine | None,
    discovered: Machine | None,
) -> tuple[Machine | None, MachineSource, str | None]:
    """Return the machine, its source, and a warning."""
    n = offer.count
    if not n:
        return None, MachineSource.UNKNOWN, None
    if published:
        differ = f"the agent publishes {published.n} GPUs, but the kubelet counts {n}"
        return published, MachineSource.AGENT, None if published.n == n else differ
    if n > MAX_GPUS:
        problem = f"{n} GPUs: at most {MAX_GPUS} on a node are placed, so none is"
        return None, MachineSource.UNKNOWN, problem
    if mapped and mapped.n == n:
        return mapped, MachineSource.POLICY, None
    if discovered and discovered.n == n and not mapped:
        return discovered, MachineSource.FEATURE_DISCOVERY, None
    other = f"the policy says a machine of {mapped.n} GPUs, the kubelet {n}" if mapped else None
    return uniform_machine(n), MachineSource.UNKNOWN, other


def _read_cards(
    offer: NodeResources, machine: Machine | None, *, is_published: bool
) -> Iterator[Card]:
    if machine is None:
        return
    # The kubelet reports how many GPUs are allocatable, not which; 0 means none of them.
    some_usable = offer.usable > 0 or not offer.mode.is_ours
    for gpu in machine.gpus:
        yield Card(
            memory=_read_memory(offer, gpu, is_published=is_published),
            uuid=gpu.uuid if is_published else None,
            healthy=some_usable,
        )


def _read_memory(offer: NodeResources, gpu: GPU, *, is_published: bool) -> int | None:
    """Return the memory of one card [GiB]: as published, else its part of the registered total."""
    if gpu.memory is not None and (is_published or not offer.mode.shares_memory):
        return gpu.memory
    return offer.shared_memory // offer.count or None if offer.mode.shares_memory else None


def _missing(offer: NodeResources, cards: tuple[Card, ...]) -> str | None:
    """Return a warning about GPUs that are not allocatable and cannot be identified."""
    missing = offer.count - offer.usable
    if not offer.mode.is_ours or missing <= sum(not card.healthy for card in cards):
        return None
    return f"{missing} of {offer.count} GPUs are not allocatable, and it is unknown which"


def _unit(cards: tuple[Card, ...]) -> str | None:
    """Return a warning if memory was registered in another unit than GiB."""
    most = max((card.memory or 0 for card in cards), default=0)
    if most <= MEMORY_MAX:
        return None
    return (
        f"{most} GiB on one card cannot be: {GPU_MEM} counts GiB, so let the device plugin count "
        "GiB (gpushare's: --memory-unit=GiB)"
    )
