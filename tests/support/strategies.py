"""Hypothesis strategies that several folders of tests share."""

from itertools import combinations
from typing import Any

from hypothesis import strategies as st

from linkwise.cluster import container_variables, keys
from linkwise.cluster.mode import PackingStrategy
from linkwise.cluster.nodes.node import MachineSource, Node, Taint
from linkwise.cluster.nodes.node_reader import uniform_machine
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.topology.choice import ChoiceMode
from linkwise.topology.constants import Constants
from linkwise.topology.machine import GPU, NIC, Level, Machine
from linkwise.workloads import operator_keys
from support.builders import (
    a_member,
    a_node,
    a_pcie_machine,
    a_snapshot,
    an_nvswitch_machine,
    bridged_pairs,
    dgx1_p100,
    dgx1_v100,
)

# ---- Pods, as JSON: everything optional may be absent, null or empty, and unknown fields appear.

_LABEL_KEYS = (
    keys.COMPUTE_CLASS,
    keys.COMPUTE_QOS,
    keys.MODEL_SERIES,
    keys.DRIVER_VERSION,
    keys.GPU_COUNT,
    keys.POD_GROUP,
    keys.POD_GROUP_NAME,
    keys.POD_GROUP_MIN_AVAILABLE,
    "gpu-topology",
    keys.GPU_TOPOLOGY_REPLICA,
    operator_keys.REPLICA_TYPE,
    "app",
    "example.org/a~b~1c",
)
_LABEL_VALUES = ("gpu", "gpu-hpn", "default", "best-effort", "T4", "535.161.08", "1", "2", "4", "x")
_ANNOTATION_KEYS = (
    keys.ALLOCATION,
    keys.VISIBLE_DEVICES,
    keys.VISIBLE_DEVICES_OF + "c0",
    keys.MEM_IDX,
    keys.ARENA_GPU_VISIBLE,
    keys.GANG,
    keys.GANG_SIZE,
    "example.org/notes",
    "example.org/a~b~1c",
)
_ENV_NAMES = (
    container_variables.ENV_VISIBLE_DEVICES,
    container_variables.ENV_IMEX_CHANNELS,
    container_variables.ENV_MIG_CONFIG,
    container_variables.ENV_MIG_MONITOR,
    container_variables.ENV_CGPU_OFF,
    container_variables.ENV_MPS_THREADS,
    container_variables.ENV_MPS_MEMORY,
    container_variables.ENV_REPLICAS,
    keys.MEM_IDX,
    keys.MEM_CONTAINER,
    "PATH",
)
_NODE_KEYS = (keys.NODE_MODE, keys.NODE_TYPE, keys.MODEL_SERIES, keys.DRIVER_VERSION, "zone")
_AMOUNTS = (1, 2, 5, 10, 25, 30, "1", "2", "4", "20", "22", "5e1", "50000m", "1.5", "8Gi", "x", -1)

_GOOD_LIMITS: tuple[dict[str, Any], ...] = (
    {keys.GPU_WHOLE: 1},
    {keys.GPU_WHOLE: "4"},
    {keys.GPU_MEM: 6},
    {keys.GPU_MEM: "4", keys.GPU_CORE: "20"},
    {keys.NVIDIA_GPU: 1},
    {keys.NVIDIA_GPU_SHARED: 1},
    {"cpu": "1"},
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=3,
)
# Not `JSON`, since drawing that for every object of a pod takes most of a test's time.
_future = st.sampled_from((None, {}, [], {"a": [1, None]}, "x"))
_unknown = {"futureField": _future, "x/y~z": _future}


def _nullable(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | inner


def _object(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={**optional, **_unknown})


def _map(names: tuple[str, ...], values: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return _nullable(st.dictionaries(st.sampled_from(names), values, max_size=4))


_requirement = st.fixed_dictionaries(
    {"key": st.sampled_from(_NODE_KEYS), "operator": st.sampled_from(("In", "NotIn", "Exists"))},
    optional={"values": st.just(["a"]), **_unknown},
)
_field = st.just({"key": "metadata.name", "operator": "In", "values": ["n1"]})
_term = _object(
    matchExpressions=_nullable(st.lists(_requirement, max_size=2)),
    matchFields=_nullable(st.lists(_field, max_size=1)),
)
_affinity = _object(
    nodeAffinity=_nullable(
        _object(
            requiredDuringSchedulingIgnoredDuringExecution=_nullable(
                _object(nodeSelectorTerms=_nullable(st.lists(_term, max_size=3)))
            ),
            preferredDuringSchedulingIgnoredDuringExecution=st.just([]),
        )
    ),
    podAntiAffinity=st.just({}),
)
_env = st.fixed_dictionaries(
    {"name": st.sampled_from(_ENV_NAMES)},
    optional={
        "value": st.sampled_from(("", "all", "void", "0", "10", "0=1G")),
        "valueFrom": st.just({"fieldRef": {"fieldPath": "metadata.name"}}),
    },
)
_amount_maps = st.dictionaries(
    st.sampled_from((*keys.RESOURCES, "cpu")), st.sampled_from(_AMOUNTS), max_size=2
)
# A copy for each container: a patch applied to a shared one would change both.
_resources = st.sampled_from(_GOOD_LIMITS).map(lambda limits: {"limits": dict(limits)}) | _object(
    limits=_nullable(_amount_maps), requests=_nullable(_amount_maps)
)


def _containers(prefix: str, least: int) -> st.SearchStrategy[list[dict[str, Any]]]:
    container = _object(
        resources=_nullable(_resources),
        env=_nullable(st.lists(_env, max_size=3)),
        image=st.just("registry.example.org/a:1"),
        restartPolicy=st.just("Always"),
    )
    return st.lists(container, min_size=least, max_size=2).map(
        lambda many: [{**one, "name": f"{prefix}{index}"} for index, one in enumerate(many)]
    )


def pods() -> st.SearchStrategy[dict[str, Any]]:
    """Pods as an API server would send them: decoded and defaulted, but not validated."""
    metadata = _object(
        name=st.just("p"),
        labels=_map(_LABEL_KEYS, st.sampled_from(_LABEL_VALUES)),
        annotations=_map(_ANNOTATION_KEYS, st.sampled_from(("2", "0", "x"))),
        ownerReferences=_nullable(
            st.lists(
                st.sampled_from(("DaemonSet", "Job", "StatefulSet")).map(
                    lambda kind: {"kind": kind, "name": "o", "controller": True}
                ),
                max_size=1,
            )
        ),
    )
    optional = {
        "initContainers": _nullable(_containers("i", 0)),
        "nodeSelector": _map(_NODE_KEYS, st.just("a")),
        "affinity": _nullable(_affinity),
        "schedulerName": st.sampled_from(("", keys.DEFAULT_SCHEDULER, "theirs")),
        "schedulingGates": _nullable(
            st.lists(
                st.sampled_from((keys.GANG, "other")).map(lambda name: {"name": name}), max_size=2
            )
        ),
        "nodeName": st.sampled_from(("", "n1")),
        "priorityClassName": st.sampled_from(("", "high", "low")),
        "priority": st.one_of(st.none(), st.integers(0, 9)),
        "preemptionPolicy": st.sampled_from(("PreemptLowerPriority", "Never")),
        **_unknown,
    }
    spec = st.fixed_dictionaries({"containers": _containers("c", 1)}, optional=optional)
    return st.fixed_dictionaries(
        {"metadata": metadata, "spec": spec},
        optional={"apiVersion": st.just("v1"), "kind": st.just("Pod"), **_unknown},
    )


# ---- Machines: small, so that a test may try every set, every numbering or every partition.

_PCIE_LEVELS = (Level.UNKNOWN, Level.SYS, Level.NODE, Level.PHB, Level.PXB, Level.PIX)


@st.composite
def machines(draw: st.DrawFn, least: int = 2, most: int = 6) -> Machine:
    """Machines of any direct links, PCIe levels, NUMA nodes and NICs; some GPUs off the fabric."""
    n = draw(st.integers(least, most))
    pairs = n * (n - 1) // 2
    # Few different values, so that symmetric machines and ties are common.
    links = draw(st.lists(st.sampled_from((0, 0, 1, 1, 2, 4)), min_size=pairs, max_size=pairs))
    levels = draw(st.lists(st.sampled_from(_PCIE_LEVELS), min_size=pairs, max_size=pairs))
    numa = draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    nics = draw(
        st.lists(st.lists(st.sampled_from(_PCIE_LEVELS[1:]), min_size=n, max_size=n), max_size=2)
    )
    return Machine(
        links=_symmetric(n, links, 0),
        levels=_symmetric(n, levels, Level.UNKNOWN),
        gpus=tuple(map(GPU, numa)),
        constants=draw(st.sampled_from((Constants(), Constants(nvlink=20.6, pcie=48.0)))),
        nics=tuple(NIC(f"NIC{i}", tuple(nic)) for i, nic in enumerate(nics)),
    )


def _symmetric(n: int, pairs: list[Any], diagonal: Any) -> tuple[tuple[Any, ...], ...]:
    value = dict(zip(combinations(range(n), 2), pairs, strict=True))
    return tuple(
        tuple(diagonal if i == j else value[min(i, j), max(i, j)] for j in range(n))
        for i in range(n)
    )


# ---- Profiles: few keys and values, so that selectors meet pods and each other's effects.

_PROFILE_KEYS = (keys.COMPUTE_CLASS, keys.DRIVER_VERSION, "app", "team")
_PROFILE_VALUES = ("gpu", "gpu-hpn", "a", "")


def profile_labels() -> st.SearchStrategy[dict[str, str]]:
    """Labels of a pod or a namespace, such as the selectors of `profiles` look for."""
    return st.dictionaries(
        st.sampled_from(_PROFILE_KEYS), st.sampled_from(_PROFILE_VALUES), max_size=4
    )


def profiles() -> st.SearchStrategy[list[dict[str, Any]]]:
    """The selectors of valid profiles, as JSON."""
    values = st.lists(st.sampled_from(_PROFILE_VALUES), min_size=1, max_size=2)
    key = {"key": st.sampled_from(_PROFILE_KEYS)}
    some = st.fixed_dictionaries(
        {**key, "operator": st.sampled_from(("In", "NotIn")), "values": values}
    )
    any_or_none = st.fixed_dictionaries(
        {**key, "operator": st.sampled_from(("Exists", "DoesNotExist"))}
    )
    selector = st.fixed_dictionaries(
        {},
        optional={
            "matchLabels": profile_labels(),
            "matchExpressions": st.lists(some | any_or_none, max_size=2),
        },
    )
    effect = st.fixed_dictionaries(
        {}, optional={"labels": profile_labels(), "annotations": profile_labels()}
    )
    one = st.fixed_dictionaries(
        {"name": st.sampled_from(("one", "two", "three"))},
        optional={"namespaceSelector": selector, "objectSelector": selector, "effect": effect},
    )
    return st.lists(one, max_size=4)


# ---- Clusters: few nodes of the machines that differ most, partly taken, and gangs to put there.

RACK = "example.org/rack"
ZONE = "example.org/zone"
TAINT = Taint("example.org/dedicated", "", "NoSchedule")

_MACHINES = (
    dgx1_v100(),
    dgx1_p100(),
    bridged_pairs(),
    an_nvswitch_machine(8, 12),
    a_pcie_machine(4, socket=2),
    uniform_machine(4),
)


@st.composite
def topology_nodes(draw: st.DrawFn, name: str) -> Node:
    """Nodes with whole GPUs to give; now and then something keeps pods away."""
    machine = draw(st.sampled_from(_MACHINES))
    out_of_use = st.lists(st.integers(0, machine.n - 1), max_size=2, unique=True).map(tuple)
    racks = st.fixed_dictionaries(
        {}, optional={RACK: st.sampled_from("ab"), ZONE: st.sampled_from("yz")}
    )
    return a_node(
        name,
        machine,
        machine_source=MachineSource.UNKNOWN
        if machine == uniform_machine(4)
        else MachineSource.AGENT,
        unhealthy=draw(st.just(()) | out_of_use),
        cordoned=draw(st.just(()) | out_of_use),
        labels=draw(racks),
        cpu=draw(st.sampled_from((96_000, 96_000, 6_000))),
        memory=draw(st.sampled_from((768, 768, 24))) << 30,
        pods=draw(st.sampled_from((110, 110, 3))),
        taints=draw(st.sampled_from(((), (), (), (TAINT,)))),
        unschedulable=draw(st.sampled_from((False,) * 9 + (True,))),
        ready=draw(st.sampled_from((True,) * 9 + (False,))),
    )


@st.composite
def clusters(draw: st.DrawFn, most: int = 5) -> Snapshot:
    """Clusters of nodes with whole GPUs, of which other pods have some."""
    nodes = [draw(topology_nodes(f"n{i}")) for i in range(draw(st.integers(1, most)))]
    taken = {
        node.name: draw(st.lists(st.integers(0, len(node.cards) - 1), max_size=6, unique=True))
        for node in nodes
    }
    return a_snapshot(
        *nodes,
        taken=taken,
        mode=draw(st.sampled_from(ChoiceMode)),
        placement=draw(st.sampled_from(PackingStrategy)),
        domains=draw(st.sampled_from(((), (RACK,), (RACK, ZONE)))),
        nic_bandwidth=draw(st.sampled_from((None, 12.5, 200.0))),
    )


@st.composite
def gangs(draw: st.DrawFn) -> list[Member]:
    """One to six members with whole GPUs, mostly equal ones."""
    each = st.sampled_from((1, 1, 2, 2, 3, 4))
    gpus = draw(
        st.tuples(st.integers(1, 6), each).map(lambda shape: [shape[1]] * shape[0])
        | st.lists(each, min_size=2, max_size=4)
    )
    spec: dict[str, Any] = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "nodeSelector": st.just({RACK: "a"}),
                "tolerations": st.just([{"key": TAINT.key, "operator": "Exists"}]),
            },
        )
    )
    cpus = draw(st.sampled_from((("1",), ("1",), ("4", "1"))))
    with_port = draw(st.sampled_from((False, False, False, True)))
    return [
        a_member(
            number,
            f"worker-{i}",
            containers=[
                {
                    "name": "c",
                    "resources": {
                        "limits": {
                            keys.GPU_WHOLE: number,
                            "cpu": cpus[0] if i == 0 else cpus[-1],
                            "memory": "8Gi",
                        }
                    },
                    "ports": [{"containerPort": 22, "hostPort": 2222}] if with_port else [],
                }
            ],
            **spec,
        )
        for i, number in enumerate(gpus)
    ]
