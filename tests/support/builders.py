"""Objects that several folders of tests build: only what a test says differs from the plainest."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from linkwise.cluster import keys
from linkwise.cluster.account.ledger import Ledger
from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.allocations.gpus import Exact, GPUShare
from linkwise.cluster.allocations.record import Allocation, Isolation, format_record
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.nodes.node import Card, MachineSource, Node
from linkwise.cluster.nodes.topology_configmap import PublishedTopology, write_published
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.request_reader import read_request
from linkwise.planning.gang.pod_info import PodInfo, pod_info
from linkwise.planning.placement.options import Preferences
from linkwise.planning.placement.pods.member import Member, new_member
from linkwise.planning.placement.state.snapshot import Snapshot, snapshot_of
from linkwise.topology.constants import Constants
from linkwise.topology.machine import NIC, Level, Machine, gpu_records

EXACT_LABELS = {keys.NODE_MODE: "topology", keys.RESOURCE_NAME: "nvidia.com-gpu"}
"""Of a node on which Linkwise chooses `nvidia.com/gpu`."""
TIED = {"nodeSelector": {keys.NODE_MODE: "topology"}}
"""Of the spec of a pod whose `nvidia.com/gpu` Linkwise chooses."""
TIMESLICED = {"nodeSelector": {keys.NODE_MODE: "timeslice"}}
"""Of the spec of a pod whose replicas Linkwise chooses."""


def exact(*indices):
    """Return whole GPUs, without their UUIDs."""
    return Exact(tuple(map(GPUShare, indices)))


def a_container(
    limits: Mapping[str, Any] | None = None, *, name: str = "c", **fields: Any
) -> dict[str, Any]:
    resources = {"resources": {"limits": dict(limits)}} if limits is not None else {}
    return {"name": name, **resources, **fields}


def a_pod(
    *limits: Mapping[str, Any],
    name: str = "pod",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owner: str | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return a pod as JSON: one container for each limits, named c0, c1 and so on.

    Args:
        limits: Limits of each app container; none makes one container without any.
        name: The pod's name.
        labels: Its labels.
        annotations: Its annotations.
        owner: Kind of its controller.
        **spec: More fields of the spec, or `containers` to replace the ones made.
    """
    metadata: dict[str, Any] = {"name": name, "namespace": "default"}
    if labels is not None:
        metadata["labels"] = dict(labels)
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    if owner is not None:
        metadata["ownerReferences"] = [{"kind": owner, "name": "owner", "controller": True}]
    containers = [a_container(each, name=f"c{i}") for i, each in enumerate(limits or ({},))]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": containers, **spec},
    }


def a_claimed_pod(
    *gpus: int, annotations: Mapping[str, str] | None = None, **fields: Any
) -> dict[str, Any]:
    """Return a pod that gets its GPUs by a claim of Linkwise, as admission leaves it.

    Args:
        gpus: GPUs of each app container; 0: it has none.
        annotations: Beside that of the amounts.
        **fields: As for `a_pod`.
    """
    amounts = {f"container-{i}": number for i, number in enumerate(gpus) if number}
    name = f"{keys.CLAIM_PREFIX}{'0' * 32}"
    pod = a_pod(
        *({} for _ in gpus),
        annotations={
            keys.CLAIMED_GPUS: msgspec.json.encode(amounts).decode(),
            **(annotations or {}),
        },
        resourceClaims=[{"name": keys.POD_CLAIM, "resourceClaimName": name}],
        **fields,
    )
    for i, container in enumerate(pod["spec"]["containers"]):
        if gpus[i]:
            claims = [{"name": keys.POD_CLAIM, "request": f"container-{i}"}]
            container["resources"] = {"claims": claims}
    return pod


def a_held_pod(
    gpus: int = 1,
    name: str = "worker-0",
    *,
    namespace: str = "team",
    uid: str | None = None,
    created: str = "2026-01-01T00:00:00Z",
    gates: Sequence[str] = (keys.GANG,),
    owner: Mapping[str, Any] | None = None,
    phase: str = "Pending",
    **pod: Any,
) -> dict[str, Any]:
    """Return a pod as JSON that waits behind our gate, or what became of it.

    Args:
        gpus: Whole GPUs that it asks for; 0: none.
        name: The pod's name.
        namespace: Where it is.
        uid: Of the pod; as its name where it is not given.
        created: RFC 3339.
        gates: Its scheduling gates.
        owner: Its controller, an ownerReference.
        phase: Of its status.
        **pod: More of `a_pod`.
    """
    raw = a_pod({keys.GPU_WHOLE: gpus} if gpus else {}, name=name, **pod)
    raw["metadata"] |= {
        "namespace": namespace,
        "uid": name if uid is None else uid,
        "creationTimestamp": created,
    }
    if owner is not None:
        raw["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    if gates:
        raw["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
    raw["status"] = {"phase": phase}
    return raw


def a_seen(gpus: int = 1, name: str = "worker-0", **pod: Any) -> PodInfo:
    """Return the planner's view of a pod, made by `a_held_pod`."""
    return pod_info(msgspec.convert(a_held_pod(gpus, name, **pod), Pod))


def a_machine(
    n: int,
    links: Mapping[tuple[int, int], int] | None = None,
    *,
    level: Callable[[int, int], Level] = lambda _i, _j: Level.SYS,
    numa: Sequence[int] = (),
    uuids: Sequence[str] = (),
    memory: Sequence[int] = (),
    **fields: Any,
) -> Machine:
    """Return a machine of n GPUs: the NVLinks of its linked pairs, and the level of any two."""
    count = {frozenset(pair): links[pair] for pair in links or {}}
    gpus = range(n)
    return Machine(
        links=tuple(tuple(count.get(frozenset((i, j)), 0) for j in gpus) for i in gpus),
        levels=tuple(
            tuple(level(min(i, j), max(i, j)) if i != j else Level.UNKNOWN for j in gpus)
            for i in gpus
        ),
        gpus=gpu_records(numa or (0,) * n, uuids, memory=memory),
        **fields,
    )


def pcie_level(socket: int, switch: int = 2) -> Callable[[int, int], Level]:
    """Return the levels of sockets of so many GPUs, each of PCIe switches of so many."""
    return lambda i, j: (
        Level.PIX
        if i // switch == j // switch
        else Level.PHB
        if i // socket == j // socket
        else Level.SYS
    )


def a_pcie_machine(n: int, *, socket: int, switch: int = 2) -> Machine:
    numa = tuple(i // socket for i in range(n))
    return a_machine(n, level=pcie_level(socket, switch), numa=numa)


def dgx1_v100() -> Machine:
    double = ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7))
    single = ((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7))
    links = dict.fromkeys(double, 2) | dict.fromkeys(single, 1)
    return a_machine(8, links, level=pcie_level(4), numa=(0, 0, 0, 0, 1, 1, 1, 1))


def dgx1_p100() -> Machine:
    half = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))
    links = dict.fromkeys([*half, *((i + 4, j + 4) for i, j in half)], 1)
    links |= {(i, i + 4): 1 for i in range(4)}

    def level(i: int, j: int) -> Level:
        if i // 4 != j // 4:
            return Level.SYS
        return Level.PIX if j - i == 2 else Level.PHB

    constants = Constants(nvlink=18.0)
    return a_machine(8, links, level=level, numa=(0, 0, 0, 0, 1, 1, 1, 1), constants=constants)


def bridged_pairs() -> Machine:
    """Return eight GPUs of two sockets, in pairs with an NVLink bridge of four links."""
    links = {(i, i + 1): 4 for i in range(0, 8, 2)}

    def level(i: int, j: int) -> Level:
        return Level.NODE if i // 4 == j // 4 else Level.SYS

    return a_machine(8, links, level=level, numa=(0, 0, 0, 0, 1, 1, 1, 1))


def an_nvswitch_machine(n: int, links: int, *, off: int = 0) -> Machine:
    """Return n GPUs behind an NVSwitch with so many links each; the last `off` are not on it."""
    on = n - off
    pairs = {(i, j): links for j in range(on) for i in range(j)}
    return a_machine(n, pairs, level=pcie_level(n // 2), switched=True)


def renumbered(machine: Machine, order: Sequence[int]) -> Machine:
    """Return the same machine with GPU order[i] called i."""
    return replace(
        machine,
        links=tuple(tuple(machine.links[i][j] for j in order) for i in order),
        levels=tuple(tuple(machine.levels[i][j] for j in order) for i in order),
        gpus=tuple(machine.gpus[i] for i in order),
        nics=tuple(NIC(nic.name, tuple(nic.levels[i] for i in order)) for nic in machine.nics),
    )


def with_gpus(machine: Machine, **columns: Sequence[Any]) -> Machine:
    """Return the same machine with other values of a field of its GPUs, such as `uuid`."""
    gpus = [
        replace(gpu, **{field: column[i] for field, column in columns.items()})
        for i, gpu in enumerate(machine.gpus)
    ]
    return replace(machine, gpus=tuple(gpus))


def numa_of(machine: Machine) -> tuple[int, ...]:
    """Return the NUMA node of each GPU."""
    return tuple(gpu.numa for gpu in machine.gpus)


MACHINES = {"dgx1-v100": dgx1_v100, "dgx1-p100": dgx1_p100}


def a_node(
    name: str = "node-0",
    machine: str | Machine | None = "dgx1-v100",
    mode: str = "topology",
    *,
    card_memory: int | tuple[int, ...] | None = None,
    unhealthy: tuple[int, ...] = (),
    cordoned: tuple[int, ...] = (),
    uuids: bool = False,
    **fields: Any,
) -> Node:
    """Return a node with ample CPU and memory.

    Args:
        name: The node's name.
        machine: What links its GPUs, or the name of one in `MACHINES`; None: it has no GPUs.
        mode: How it gives them out; a time-sliced one gives 4 replicas of each.
        card_memory: Memory of each card [GiB], of all equal ones or one by one; None: unknown.
        unhealthy: GPU indices.
        cordoned: GPU indices.
        uuids: Whether the cards' UUIDs are known: `GPU-<node>-<i>`.
        **fields: More fields of the node.
    """
    linked = MACHINES[machine]() if isinstance(machine, str) else machine
    n = linked.n if linked else 0
    sizes = card_memory if isinstance(card_memory, tuple) else (card_memory,) * n
    cards = tuple(
        Card(
            memory=sizes[i],
            uuid=f"GPU-{name}-{i}" if uuids else None,
            healthy=i not in unhealthy,
            cordoned=i in cordoned,
        )
        for i in range(n)
    )
    replicas = 4 if mode == "timeslice" else 0
    resources = {"default": {keys.NVIDIA_GPU: n}, "topology": {keys.GPU_WHOLE: n}}.get(mode, {})
    defaults: dict[str, Any] = {
        "labels": {keys.NODE_MODE: mode, keys.HOSTNAME: name},
        "machine_source": MachineSource.AGENT if linked else MachineSource.UNKNOWN,
        "cpu": 96_000,
        "memory": 768 << 30,
        "resources": resources,
        "replicas": replicas,
    }
    mode_word = NodeMode(mode)
    return Node(name, mode=mode_word, machine=linked, cards=cards, **{**defaults, **fields})


def an_exact_node(name: str = "exact-0", **fields: Any) -> Node:
    """Return a node on which Linkwise chooses `nvidia.com/gpu`."""
    labels = {keys.HOSTNAME: name, **EXACT_LABELS, **fields.pop("labels", {})}
    return a_node(name, labels=labels, resources={keys.NVIDIA_GPU: 8}, **fields)


def a_counted_node(name: str = "counted-0", **fields: Any) -> Node:
    """Return a node on which NVIDIA's plugin chooses the GPUs."""
    return a_node(name, mode="default", **fields)


def a_gated_member(gpus: int = 1, name: str = "worker-0", **pod: Any) -> Member:
    """Return a pod for `nvidia.com/gpu` behind our gate, which any node may get."""
    gates = [{"name": keys.GANG}]
    return a_member(0, name, limits={keys.NVIDIA_GPU: gpus}, schedulingGates=gates, **pod)


def gated_workers(count: int, gpus: int = 1, **pod: Any) -> list[Member]:
    """Return so many equal pods of `a_gated_member`, `worker-0` first."""
    return [a_gated_member(gpus, f"worker-{i}", **pod) for i in range(count)]


def a_member(
    gpus: int = 1, name: str = "worker-0", *, limits: Mapping[str, Any] | None = None, **pod: Any
) -> Member:
    """Return a pod to place: whole GPUs and other limits, or limits alone for no GPUs."""
    asked = {keys.GPU_WHOLE: gpus} if gpus else {}
    if keys.NVIDIA_GPU_SHARED in (limits or {}):
        pod = TIMESLICED | pod
    raw = a_pod({**asked, **(limits or {})}, name=name, **pod)
    return new_member(msgspec.convert(raw, Pod), "default")


def workers(count: int, gpus: int = 1, **member: Any) -> list[Member]:
    """Return so many equal members, `worker-0` first."""
    return [a_member(gpus, f"worker-{i}", **member) for i in range(count)]


def a_snapshot(
    *nodes: Node,
    taken: Mapping[str, Sequence[int]] | None = None,
    shares: Mapping[str, Sequence[GPUShare]] | None = None,
    **preferences: Any,
) -> Snapshot:
    """Return a cluster on which one pod a node has some GPUs whole, and others some shares.

    Args:
        nodes: The nodes.
        taken: GPU indices by node name.
        shares: What other pods have, one share each, by node name.
        **preferences: Fields of `Preferences`.
    """
    ledgers = {node.name: NodeLedger.empty(node) for node in nodes}
    for name, gpus in (taken or {}).items():
        whole = tuple(GPUShare(i) for i in gpus)
        ledgers[name] = ledgers[name].hold(Holding("other/whole", f"{name}-whole", Exact(whole)))
    for name, parts in (shares or {}).items():
        for i, share in enumerate(parts):
            held = Holding(f"other/share-{i}", f"{name}-share-{i}", Exact((share,)))
            ledgers[name] = ledgers[name].hold(held)
    return snapshot_of(Ledger(ledgers), preferences=Preferences(**preferences))


def node_object(
    name: str, labels: Mapping[str, str], address: str | None = None, **allocatable: str
) -> dict[str, Any]:
    """Return a Node as JSON."""
    addresses = [{"type": "InternalIP", "address": address}] if address else []
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(labels)},
        "status": {"allocatable": allocatable, "addresses": addresses},
    }


def placed_pod(
    name: str,
    limits: Mapping[str, Any],
    node: str,
    *shares: GPUShare,
    bound: bool = True,
    isolation: Isolation = Isolation.NONE,
    plan: str | None = None,
    **pod: Any,
) -> dict[str, Any]:
    """Return a pod as JSON that has these shares of a node's GPUs, by its record."""
    made = a_pod(limits, name=name, **pod, **({"nodeName": node} if bound else {}))
    made["metadata"]["annotations"] = format_record(
        Allocation(node, Exact(shares), plan=plan),
        request=read_request(msgspec.convert(made, Pod))[0],
        term=1,
        isolation=isolation,
        now_ns=0,
        node_card_memory=15,
    )
    return made


def topology_map(node: str, published: PublishedTopology) -> dict[str, Any]:
    """Return the ConfigMap in which a node's agent publishes its machine."""
    labels = {keys.NODE_MODE: "topology", keys.TOPOLOGY_NODE: node}
    metadata = {"name": f"{node}-topology", "namespace": "kube-system", "labels": labels}
    data = write_published(published, [])
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
