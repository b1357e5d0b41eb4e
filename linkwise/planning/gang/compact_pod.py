"""Keep only the fields of a waiting pod that planning reads; the rest may have any length."""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec

from linkwise.cluster import container_variables, keys
from linkwise.cluster.objects.affinity import Affinity
from linkwise.cluster.objects.container import Amounts, Container, EnvFrom, Resources
from linkwise.cluster.objects.kube_object import Labels
from linkwise.cluster.objects.metadata import Metadata, Owner
from linkwise.cluster.objects.node_terms import node_terms_finding
from linkwise.cluster.objects.pod import HostPath, Pod, PodSpec, Volume
from linkwise.cluster.requests.demand import OTHERS_MAX, PORTS_MAX, Demand
from linkwise.cluster.volumes.pod_claims import CLAIMS_MAX, claims_of
from linkwise.workloads.rank import RANK_ANNOTATIONS, RANK_LABELS

MAX_BYTES = 128 << 10
"""Largest pod that is planned, once it is compact [bytes]."""
TOLERATIONS_MAX = 256
"""Each is compared with the taints of every kind of node; one to ten are usual."""
OVERHEAD = 4 << 10
"""Memory of a pod besides its compact form [bytes]."""

_LABELS = (
    keys.GPU_COUNT,
    keys.GPU_TOPOLOGY_REPLICA,
    *keys.KUEUE_LABELS,
    *sorted(RANK_LABELS),
    keys.LWS_GROUP_INDEX,
    keys.LWS_NAME,
    keys.POD_GROUP,
    keys.POD_GROUP_MIN_AVAILABLE,
    keys.POD_GROUP_NAME,
)
_ANNOTATIONS = (
    keys.CLAIMED_GPUS,
    keys.GANG,
    keys.GANG_KIND,
    keys.GANG_SIZE,
    keys.KOORDINATOR_GANG_MIN_AVAILABLE,
    keys.KOORDINATOR_GANG_NAME,
    keys.LINK,
    keys.LWS_SIZE,
    *sorted(RANK_ANNOTATIONS),
)
_VARIABLES = frozenset(
    {
        container_variables.ENV_CGPU_OFF,
        container_variables.ENV_MPS_MEMORY,
        container_variables.ENV_MPS_PIPES,
        container_variables.ENV_MPS_THREADS,
    }
)
_SHARED = 2 << 10
"""Longest spec that is shared by all pods with the same one [bytes]."""

_specs = msgspec.msgpack.Decoder(PodSpec)


def compact(pod: Pod) -> Pod:
    """Return a smaller pod that is planned exactly as the whole one.

    Pods with equal specs, such as a gang's members, share one.
    """
    metadata = pod.metadata
    controllers = [Owner(kind=owner.kind, controller=True) for owner in _controllers(metadata)]
    annotations = _some_of(metadata.annotations, _ANNOTATIONS)
    if annotations is None and metadata.annotations is not None:
        # A patch adds to existing annotations; only without any it creates the map.
        annotations = {}
    kept = Metadata(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        creation_timestamp=metadata.creation_timestamp,
        labels=_some_of(metadata.labels, _LABELS),
        annotations=annotations,
        owner_references=controllers or None,
    )
    spec = _spec(pod.spec)
    encoded = msgspec.msgpack.encode(spec)
    # The name of a claim makes a spec that of one pod.
    is_shared = len(encoded) <= _SHARED and not spec.resource_claims
    return Pod(metadata=kept, spec=_shared(encoded) if is_shared else spec)


def weight(kept: Pod) -> int:
    """Return the approximate memory of a compact pod [bytes]."""
    return OVERHEAD + len(msgspec.msgpack.encode(kept))


def oversize_reason(pod: Pod, demand: Demand, size: int = 0) -> str | None:
    """Return why a pod is too large to plan, and what to do; None where it is not.

    Args:
        pod: The pod, compact or whole.
        demand: What it needs besides GPUs.
        size: The `weight` of the compact pod; 0 where it is not kept.

    Cost: linear in the pod.
    """
    if finding := node_terms_finding(pod.spec):
        return f"{finding.message}; {finding.fix} [{finding.code}]"
    if demand.has_too_many_ports:
        return (
            f"it asks for more than {PORTS_MAX} host ports: remove some, or make them ports of "
            "containers without hostPort and hostNetwork"
        )
    if demand.has_too_many_others:
        return f"it requests more than {OTHERS_MAX} different resources: remove some"
    if len(pod.spec.tolerations or ()) > TOLERATIONS_MAX:
        return (
            f"it has more than {TOLERATIONS_MAX} tolerations: tolerate keys with any value, or all "
            "taints"
        )
    return _oversize_whole(pod, size)


def _oversize_whole(pod: Pod, size: int) -> str | None:
    if len(claims_of(pod.spec, pod.metadata.name)) > CLAIMS_MAX:
        return f"it names more than {CLAIMS_MAX} PersistentVolumeClaims: split it"
    if size > MAX_BYTES:
        return f"planning needs {size} bytes of it, and at most {MAX_BYTES} are kept"
    return None


@lru_cache(maxsize=1024)
def _shared(encoded: bytes) -> PodSpec:
    return _specs.decode(encoded)


def _controllers(metadata: Metadata) -> Iterator[Owner]:
    # Planning only checks for kinds such as DaemonSet; Kubernetes has no longer kind than this.
    return (
        owner
        for owner in metadata.owner_references or ()
        if owner.controller and len(owner.kind) <= 253
    )


def _some_of(texts: Labels | None, names: Sequence[str]) -> Labels | None:
    return {name: texts[name] for name in names if name in texts} or None if texts else None


def _spec(spec: PodSpec) -> PodSpec:
    host_paths = [volume.name for volume in spec.volumes or () if volume.host_path is not None]
    volumes = [Volume(name=name, host_path=HostPath()) for name in host_paths]
    volumes += [
        Volume(
            name=volume.name if volume.ephemeral else "",
            persistent_volume_claim=volume.persistent_volume_claim,
            ephemeral=volume.ephemeral,
        )
        for volume in spec.volumes or ()
        if volume.persistent_volume_claim or volume.ephemeral
    ]
    mounted = set(host_paths)
    ports = bool(spec.host_network)
    return msgspec.structs.replace(
        spec,
        containers=[_container(container, mounted, ports=ports) for container in spec.containers],
        init_containers=[
            _container(container, mounted, ports=ports) for container in spec.init_containers or ()
        ]
        or None,
        # The rules about other pods are read once, as a value (`neighbor_rules`).
        affinity=Affinity(node_affinity=spec.affinity.node_affinity) if spec.affinity else None,
        volumes=volumes or None,
        topology_spread_constraints=None,
        overhead=_amounts(spec.overhead),
        resources=_resources(spec.resources),
    )


def _container(container: Container, mounted: set[str], *, ports: bool) -> Container:
    """Return the fields of a container that are read.

    Args:
        container: The container.
        mounted: Names of the volumes that are folders of the node.
        ports: All its ports are ports of the node; else those with a hostPort.
    """
    return Container(
        name=container.name,
        resources=_resources(container.resources),
        env=[variable for variable in container.env or () if variable.name in _VARIABLES] or None,
        restart_policy=container.restart_policy,
        ports=[port for port in container.ports or () if ports or port.host_port] or None,
        env_from=[EnvFrom()] if container.env_from else None,
        volume_mounts=[mount for mount in container.volume_mounts or () if mount.name in mounted]
        or None,
    )


def _resources(resources: Resources | None) -> Resources | None:
    if resources is None:
        return None
    return Resources(
        limits=_amounts(resources.limits),
        requests=_amounts(resources.requests),
        claims=resources.claims,
    )


def _amounts(amounts: Amounts | None) -> Amounts | None:
    # In their order, which decides between families. A number may be too long to encode.
    return {name: str(amount) for name, amount in (amounts or {}).items()} or None
