"""Fetches the objects of a live cluster that Linkwise reads, reduced as in a snapshot."""

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import msgspec

from linkwise.cluster import keys
from linkwise.cluster.gang import gang_mark
from linkwise.cluster.nodes.taint_rules import VERSIONS
from linkwise.cluster.objects.metadata import Metadata, Owner
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.scorer_lease import LEASE
from linkwise.cluster.volumes.pod_claims import names_of_claims
from linkwise.planning.gang.crd import GANGS
from linkwise.runtime.kube.paths import path_below
from linkwise.views.analysis.running import highest_priority
from linkwise.views.files.objects import AnyObject, Plain
from linkwise.views.live.api_reader import ApiReader, Forbidden, NotFound
from linkwise.views.live.kubeconfig import Access
from linkwise.views.live.missing_role import ROLE, missing_role
from linkwise.views.live.snapshot import ordered, reduced
from linkwise.views.live.user_kube import UserKube
from linkwise.workloads.paths import path_of
from linkwise.workloads.pod_group import group_paths

_CORE = "/api/v1"
_DRA = "/apis/resource.k8s.io"
"""The API group for dynamic resource allocation."""
BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
_VOLUME_PATHS = {
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
}
CONFIG_NAMESPACES = {keys.PROFILE_NAMESPACE, keys.POLICY_NAMESPACE}
"""Namespaces of the ConfigMaps that are read."""
READS = 1000
"""The number of owners, and of PodGroups, that are read at once: each is a request, some ms."""


@dataclass(slots=True)
class FetchedCluster:
    """The objects of a live cluster."""

    server: str
    """Its address, for messages."""
    namespace: str
    """The namespace of the context."""
    objects: list[Plain] = field(default_factory=list)
    """In the order of a snapshot."""
    gangs: list[Plain] = field(default_factory=list)
    """The Gang objects, complete."""
    knows_volumes: bool = False
    """The objects about volumes were read, as far as there are any."""
    warnings: list[str] = field(default_factory=list)
    """Objects that could not be read, for people."""


def fetch_cluster(access: Access) -> FetchedCluster:
    """Read nodes and their devices, pods, namespaces, Linkwise's ConfigMaps and Lease, and gangs.

    Raises:
        InputError: There is no answer, or nodes and pods may not be read; one line for people.
    """
    return asyncio.run(_fetch(access))


async def _fetch(access: Access) -> FetchedCluster:
    async with await UserKube.of(access) as kube:
        fetched, reader = FetchedCluster(kube.server, kube.namespace), ApiReader(kube)
        nodes, pods, *others = await asyncio.gather(
            _required(reader, "Node", path_below(_CORE, "nodes")),
            _required(reader, "Pod", path_below(_CORE, "pods")),
            _optional(
                reader, fetched, "Namespace", path_below(_CORE, "namespaces"), f"ClusterRole {ROLE}"
            ),
            read_lease(reader),
            *(_config_maps(reader, fetched, name) for name in sorted(CONFIG_NAMESPACES)),
            _devices(reader, fetched, "ResourceSlice", "v1/resourceslices"),
            _devices(reader, fetched, "ResourceClaim", "v1/resourceclaims"),
            _devices(reader, fetched, "DeviceClass", "v1/deviceclasses"),
            _taint_rules(reader, fetched),
        )
        fetched.gangs = await _gangs(reader)
        waiting = list(waiting_members(pods))
        read_pods = [msgspec.convert(plain, Pod) for plain in pods]
        evictable = evictable_pods(read_pods)
        owned = [*waiting, *evictable]
        fetched.warnings += unread(owned)
        owners = await read_owners(reader, owned)
        groups = await read_pod_groups(reader, waiting)
        budgets = await _budgets(reader, fetched) if evictable else []
        volumes = await read_volumes(reader, read_pods)
        fetched.knows_volumes = volumes is not None
    collections = (nodes, pods, owners, groups, budgets, volumes or (), *others)
    fetched.objects = ordered(plain for collection in collections for plain in collection)
    return fetched


async def _required(reader: ApiReader, kind: str, path: str) -> list[Plain]:
    try:
        return await reader.collection(path, partial(reduced, kind))
    except Forbidden as error:
        raise missing_role(reader.server, str(error)) from None


async def _config_maps(reader: ApiReader, fetched: FetchedCluster, namespace: str) -> list[Plain]:
    path = path_below(_CORE, "namespaces", namespace, "configmaps")
    return await _optional(reader, fetched, "ConfigMap", path, f"Role {ROLE} in {namespace}")


async def _optional(
    reader: ApiReader, fetched: FetchedCluster, kind: str, path: str, role: str
) -> list[Plain]:
    """Return a collection; without the role for it, add a warning and return an empty list."""
    try:
        return await reader.collection(path, partial(reduced, kind))
    except NotFound:
        return []
    except Forbidden as error:
        fetched.warnings.append(f"{error}: less is known. Ask for the {role}.")
        return []


async def _devices(
    reader: ApiReader, fetched: FetchedCluster, kind: str, resource: str
) -> list[Plain]:
    return await _optional(reader, fetched, kind, f"{_DRA}/{resource}", f"ClusterRole {ROLE}")


async def _taint_rules(reader: ApiReader, fetched: FetchedCluster) -> list[Plain]:
    """Return the DeviceTaintRules, by the version that serves some."""
    for version in VERSIONS:
        resource = f"{version}/devicetaintrules"
        if rules := await _devices(reader, fetched, "DeviceTaintRule", resource):
            return rules
    return []


async def _budgets(reader: ApiReader, fetched: FetchedCluster) -> list[Plain]:
    return await _optional(reader, fetched, "PodDisruptionBudget", BUDGETS, f"ClusterRole {ROLE}")


async def read_budgets(reader: ApiReader) -> list[Plain]:
    """Return the PodDisruptionBudgets; none where they may not be listed."""
    try:
        return await reader.collection(BUDGETS, partial(reduced, "PodDisruptionBudget"))
    except (NotFound, Forbidden):
        return []


async def read_volumes(reader: ApiReader, pods: Iterable[Pod]) -> list[Plain] | None:
    """Return the objects about volumes, if a pod that waits names a claim.

    None: no pod does, or one of the kinds may not be listed: volumes are left to kube-scheduler.
    """
    if not any(_waits_with_claims(pod) for pod in pods):
        return None
    try:
        collections = await asyncio.gather(
            *(
                reader.collection(path, partial(reduced, kind))
                for kind, path in _VOLUME_PATHS.items()
            )
        )
    except (NotFound, Forbidden):
        return None
    return [plain for collection in collections for plain in collection]


def _waits_with_claims(pod: Pod) -> bool:
    return not pod.spec.node_name and bool(names_of_claims(pod.spec, pod.metadata.name))


async def read_lease(reader: ApiReader) -> list[Plain]:
    """Return the Lease of the scorer, which says whose machines it does not use."""
    try:
        kept = reduced("Lease", await reader.get(LEASE))
    except (NotFound, Forbidden):
        return []
    return [kept] if kept else []


async def _gangs(reader: ApiReader) -> list[Plain]:
    try:
        return await reader.collection(GANGS, lambda gang: gang)
    except (NotFound, Forbidden):
        return []


async def read_owners(reader: ApiReader, pods: Iterable[Pod]) -> list[Plain]:
    """Return the controllers of pods, then those above them; each once, and `READS` at most."""
    owners: dict[str, Plain] = {}
    visited = set[str]()
    todo = deque(
        (pod.metadata.namespace, owner) for pod in pods for owner in controllers_of(pod.metadata)
    )
    while todo and len(visited) < READS:
        namespace, owner = todo.popleft()
        path = path_of(owner, namespace)
        if owner.uid in visited or path is None:
            continue
        visited.add(owner.uid)
        try:
            plain = await reader.get(path)
        except (NotFound, Forbidden):
            continue
        kept = reduced(owner.kind, plain)
        metadata = msgspec.convert(plain, AnyObject).metadata
        if kept is not None and metadata.uid == owner.uid:
            owners[owner.uid] = kept
            todo += [(namespace, above) for above in controllers_of(metadata)]
    return list(owners.values())


async def read_pod_groups(reader: ApiReader, pods: Iterable[Pod]) -> list[Plain]:
    """Return the PodGroups that pods name; each once, and `READS` at most."""
    groups: list[Plain] = []
    for paths in islice(_groups_of(pods), READS):
        for path in paths:
            with suppress(NotFound, Forbidden):
                kept = reduced("PodGroup", await reader.get(path))
                groups += [kept] if kept else []
                break
    return groups


def unread(pods: Collection[Pod]) -> list[str]:
    """Return a warning if pods have more owners or PodGroups than are read."""
    owners = {owner.uid for pod in pods for owner in controllers_of(pod.metadata)}
    number = max(len(owners), len(_groups_of(pods)))
    if number <= READS:
        return []
    return [
        f"Pods that wait or may be preempted have {number:,} owners or PodGroups: {READS:,} are "
        "read, and less is known of the gangs of the others."
    ]


def _groups_of(pods: Iterable[Pod]) -> dict[tuple[str, ...], None]:
    """Return the possible paths of each PodGroup that pods name."""
    paths = dict.fromkeys(group_paths(pod, pod.metadata.namespace) for pod in pods)
    paths.pop((), None)
    return paths


def waiting_members(pods: Iterable[Plain]) -> Iterator[Pod]:
    """Yield the members of gangs that have no node yet."""
    for plain in pods:
        pod = msgspec.convert(plain, Pod)
        if not pod.spec.node_name and gang_mark(pod)[0]:
            yield pod


def evictable_pods(pods: Collection[Pod]) -> list[Pod]:
    """Return the pods with GPUs of a lower priority than one that waits."""
    highest = highest_priority(pod for pod in pods if not pod.spec.node_name)
    return [
        pod
        for pod in pods
        if pod.spec.node_name
        and (pod.spec.priority or 0) < highest
        and keys.ALLOCATION in pod.annotations
    ]


def controllers_of(metadata: Metadata) -> Iterator[Owner]:
    """Yield the owners of an object that control it."""
    yield from (owner for owner in metadata.owner_references or () if owner.controller)
