"""Keep only the fields of a waiting pod that planning reads: users decide how long the rest is."""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec

from cluster import keys
from cluster.affinity import Affinity
from cluster.demand import PORTS_MAX, Demand
from cluster.kube_object import Labels
from cluster.node_terms import node_terms_finding
from cluster.pod import (
    Amounts,
    Container,
    EnvFrom,
    HostPath,
    Metadata,
    Owner,
    Pod,
    PodSpec,
    Resources,
    Volume,
    VolumeClaim,
)

MOST = 128 << 10
"""Largest pod that is planned, once it is compact [bytes]."""
TOLERATIONS_MAX = 256
"""Each is compared with the taints of every kind of node; people write one to ten."""
OVERHEAD = 4 << 10
"""What a pod takes besides its compact form [bytes]."""

_LABELS = (
    keys.GPU_COUNT,
    keys.GPU_TOPOLOGY_REPLICA,
    keys.JOB_COMPLETION_INDEX,
    keys.JOB_ROLE,
    keys.JOBSET_GLOBAL_INDEX,
    keys.JOBSET_JOB_INDEX,
    keys.JOBSET_REPLICATED_JOB,
    keys.LWS_GROUP_INDEX,
    keys.LWS_NAME,
    keys.LWS_WORKER_INDEX,
    keys.MPI_ROLE_TYPE,
    keys.POD_GROUP,
    keys.POD_GROUP_MIN_AVAILABLE,
    keys.POD_GROUP_NAME,
    keys.REPLICA_INDEX,
    keys.REPLICA_TYPE,
    keys.STATEFULSET_POD_INDEX,
)
_ANNOTATIONS = (
    keys.GANG,
    keys.GANG_SIZE,
    keys.JOB_COMPLETION_INDEX,
    keys.KOORDINATOR_GANG_MIN_AVAILABLE,
    keys.KOORDINATOR_GANG_NAME,
    keys.LINK,
    keys.LWS_SIZE,
)
_AMOUNTS = frozenset({"cpu", "memory", *keys.RESOURCES})
_VARIABLES = frozenset(
    {keys.ENV_CGPU_OFF, keys.ENV_MPS_MEMORY, keys.ENV_MPS_PIPES, keys.ENV_MPS_THREADS}
)
_SOME: dict[str, object] = {"some": True}
"""Stands for a value of which planning reads only whether it is there."""
_SHARED = 2 << 10
"""Longest spec that is kept once for all pods that have the same [bytes]."""

_specs = msgspec.msgpack.Decoder(PodSpec)


def compact(pod: Pod) -> Pod:
    """Return a smaller pod that is planned exactly as the whole one.

    Pods with equal specs, such as a gang's members, share one.
    """
    metadata = pod.metadata
    controllers = [Owner(kind=one.kind, controller=True) for one in _controllers(metadata)]
    annotations = _of(metadata.annotations, _ANNOTATIONS)
    if annotations is None and metadata.annotations is not None:
        # A patch adds to those that are there, and makes the map where there is none.
        annotations = {}
    kept = Metadata(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        creation_timestamp=metadata.creation_timestamp,
        labels=_of(metadata.labels, _LABELS),
        annotations=annotations,
        owner_references=controllers or None,
    )
    spec = _spec(pod.spec)
    encoded = msgspec.msgpack.encode(spec)
    return Pod(metadata=kept, spec=_shared(encoded) if len(encoded) <= _SHARED else spec)


def weight(kept: Pod) -> int:
    """Return about how much memory a compact pod takes [bytes]."""
    return OVERHEAD + len(msgspec.msgpack.encode(kept))


def oversize(pod: Pod, demand: Demand, weighs: int = 0) -> str | None:
    """Say why a pod is too large to plan, and what to do; None where it is not.

    Args:
        pod: The pod, compact or whole.
        demand: What it needs besides GPUs.
        weighs: The `weight` of the compact pod; 0 where it is not kept.

    Cost: linear in the pod.
    """
    if finding := node_terms_finding(pod.spec):
        return f"{finding.message}; {finding.fix} [{finding.code}]"
    if demand.has_too_many_ports:
        return (
            f"it asks for more than {PORTS_MAX} host ports: remove some, or make them ports of "
            "containers without hostPort and hostNetwork"
        )
    if len(pod.spec.tolerations or ()) > TOLERATIONS_MAX:
        return (
            f"it has more than {TOLERATIONS_MAX} tolerations: tolerate keys with any value, or all "
            "taints"
        )
    if weighs > MOST:
        return f"what planning reads of it takes {weighs} bytes, and at most {MOST} are kept"
    return None


@lru_cache(maxsize=1024)
def _shared(encoded: bytes) -> PodSpec:
    return _specs.decode(encoded)


def _controllers(metadata: Metadata) -> Iterator[Owner]:
    # Planning only checks for kinds such as DaemonSet; Kubernetes has no longer kind than this.
    return (
        one for one in metadata.owner_references or () if one.controller and len(one.kind) <= 253
    )


def _of(texts: Labels | None, names: Sequence[str]) -> Labels | None:
    return {name: texts[name] for name in names if name in texts} or None if texts else None


def _spec(spec: PodSpec) -> PodSpec:
    host_paths = [one for one in spec.volumes or () if one.host_path is not None]
    claims = [one for one in spec.volumes or () if one.persistent_volume_claim is not None]
    volumes = [Volume(name=one.name, host_path=HostPath()) for one in host_paths]
    if claims:
        volumes.append(Volume(persistent_volume_claim=VolumeClaim()))
    mounted = {one.name for one in host_paths}
    ports = bool(spec.host_network)
    return msgspec.structs.replace(
        spec,
        containers=[_container(one, mounted, ports=ports) for one in spec.containers],
        init_containers=[
            _container(one, mounted, ports=ports) for one in spec.init_containers or ()
        ]
        or None,
        affinity=_affinity(spec.affinity),
        volumes=volumes or None,
        topology_spread_constraints=[_SOME] if spec.topology_spread_constraints else None,
        overhead=_amounts(spec.overhead),
    )


def _affinity(affinity: Affinity | None) -> Affinity | None:
    """Return the terms that nodes must satisfy, and whether there is anything about other pods."""
    if affinity is None:
        return None
    return Affinity(
        node_affinity=affinity.node_affinity,
        pod_affinity=_SOME if affinity.pod_affinity else None,
        pod_anti_affinity=_SOME if affinity.pod_anti_affinity else None,
    )


def _container(one: Container, mounted: set[str], *, ports: bool) -> Container:
    """Return what is read of a container.

    Args:
        one: The container.
        mounted: Names of the volumes that are folders of the node.
        ports: All its ports are the node's; else those that say so.
    """
    resources = one.resources
    return Container(
        name=one.name,
        resources=Resources(
            limits=_amounts(resources.limits), requests=_amounts(resources.requests)
        )
        if resources
        else None,
        env=[each for each in one.env or () if each.name in _VARIABLES] or None,
        restart_policy=one.restart_policy,
        ports=[each for each in one.ports or () if ports or each.host_port] or None,
        env_from=[EnvFrom()] if one.env_from else None,
        volume_mounts=[each for each in one.volume_mounts or () if each.name in mounted] or None,
    )


def _amounts(amounts: Amounts | None) -> Amounts | None:
    # In their order, which decides between families; a bare number may be too long to encode.
    kept = ((name, amount) for name, amount in (amounts or {}).items() if name in _AMOUNTS)
    return {name: str(amount) for name, amount in kept} or None
