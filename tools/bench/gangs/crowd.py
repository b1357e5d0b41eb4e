"""Create gangs on a control plane with nodes, and follow them."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType

import msgspec
from controlplane.credentials import ADMIN
from controlplane.gangs import gang_labels
from controlplane.native_gangs import groups_of, pod_group
from controlplane.plane import ControlPlane
from controlplane.pods import container
from msgspec import Raw, Struct

from linkwise.cluster import keys
from linkwise.cluster.allocations.device_claim import ClaimOwner, DeviceClaim, DeviceRequest
from linkwise.cluster.requests.claimed import claim_request
from linkwise.planning.gang.crd import gangs_of
from linkwise.runtime.kube.client import ApiError, Kube
from linkwise.runtime.kube.reflector import Reflector

WORKERS = 8
"""Of each gang, with a GPU each: a whole node."""
AT_ONCE = 4
"""Gangs of which all members are being created at one moment: 32 connections."""
_BARE_GATE = "bench.example/gate"
_PATIENCE = 300
_CLAIMED = {keys.CLAIMED_GPUS: json.dumps({claim_request(0): 1})}
"""Annotation of a pod with one GPU by a claim."""


class By(Enum):
    """The component that removes the gates of a gang."""

    SCORER = auto()
    BARE_CLIENT = auto()
    """Write the same patch for each pod as soon as it exists, and decide nothing."""
    SCHEDULER = auto()
    """Kubernetes' own gangs, all of one on one node."""


class _Metadata(Struct, frozen=True):
    name: str = ""
    uid: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class _Spec(Struct, frozen=True, rename="camel"):
    node_name: str = ""


class Seen(Struct, frozen=True):
    """The fields that are read of a pod."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()

    @property
    def gang(self) -> str:
        """Its gang's name."""
        return self.metadata.labels[keys.POD_GROUP_NAME]


@dataclass(slots=True)
class Crowd:
    """The pods of one namespace: created, watched, and deleted."""

    kube: Kube
    namespace: str
    resource: str = keys.GPU_WHOLE
    """The resource of which each pod requests one."""
    owner: Mapping[str, object] = field(default_factory=dict)
    """The owner reference of each pod: gangs that can be evicted need no dry run."""
    uuids: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The GPUs of each claims node; empty: pods do not get their GPUs by claims."""
    pods: Mapping[tuple[str, str], Seen] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def path(self) -> str:
        """Where the pods are."""
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def note(self, pods: Mapping[tuple[str, str], Seen]) -> None:
        """Process a watch event."""
        self.pods = pods
        self._changed.set()

    async def until(self, met: Callable[[Sequence[Seen]], bool]) -> None:
        """Wait until the pods satisfy a condition."""
        async with asyncio.timeout(_PATIENCE):
            while not met(list(self.pods.values())):
                self._changed.clear()
                await self._changed.wait()

    async def offer(self, gangs: int, by: By = By.SCORER) -> None:
        """Create gangs; each has room on a node of its own."""
        turn = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> None:
            async with turn:
                made = await self.create(f"gang-{number}", by)
                if by is By.BARE_CLIENT:
                    if self.uuids:
                        gpus = zip(made, self.uuids[f"gpu-{number}"], strict=True)
                        await asyncio.gather(*(self._claim(pod, gpu) for pod, gpu in gpus))
                    await asyncio.gather(*(self._place(pod, f"gpu-{number}") for pod in made))

        await asyncio.gather(*(one(number) for number in range(gangs)))

    async def create(self, gang: str, by: By = By.SCORER) -> list[Seen]:
        """Create the pods of one gang, all at once."""
        if by is By.SCHEDULER:
            group = pod_group(gang, WORKERS, node=True)
            await self.kube.create(groups_of(self.namespace), group, Raw)
        bodies = [self._pod(gang, index, by) for index in range(WORKERS)]
        return await asyncio.gather(*(self.kube.create(self.path, one, Seen) for one in bodies))

    async def _claim(self, pod: Seen, gpu: str) -> None:
        """Create the claim of a pod for one GPU, as a scorer would."""
        name, uid = pod.metadata.name, pod.metadata.uid
        requests = (DeviceRequest(claim_request(0), 1, (gpu,)),)
        claim = DeviceClaim(ClaimOwner(self.namespace, name, uid), _claim_name(name), requests)
        await self.kube.create(claim.collection, claim.body(1), Raw)

    async def _place(self, pod: Seen, node: str) -> None:
        """Write what a scorer would, without planning."""
        record = {f"bench.example/{name}": "x" * size for name, size in _RECORD.items()}
        claimed = _CLAIMED if self.uuids else {}
        here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]}}
        steps = [
            {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
            {"op": "test", "path": "/spec/schedulingGates", "value": [{"name": _BARE_GATE}]},
            {"op": "add", "path": "/metadata/annotations", "value": {**record, **claimed}},
            {"op": "add", "path": "/spec/affinity", "value": {"nodeAffinity": required}},
            {"op": "remove", "path": "/spec/schedulingGates/0"},
        ]
        await self.kube.patch(f"{self.path}/{pod.metadata.name}", steps, Seen, kind="json")

    def _pod(self, gang: str, index: int, by: By) -> dict[str, object]:
        metadata = {
            "name": f"{gang}-{index}",
            "labels": gang_labels(gang, WORKERS),
            "ownerReferences": [self.owner],
        }
        asked = {"cpu": 4, "memory": "32Gi"}
        if self.uuids:
            metadata["annotations"] = _CLAIMED
            spec = _claiming(_claim_name(f"{gang}-{index}"), asked)
        else:
            spec = {"containers": [container({self.resource: 1, **asked})]}
        held: dict[By, dict[str, object]] = {
            By.SCORER: {"schedulingGates": [{"name": keys.GANG}]},
            By.BARE_CLIENT: {"schedulingGates": [{"name": _BARE_GATE}]},
            By.SCHEDULER: {"schedulingGroup": {"podGroupName": gang}},
        }
        return {"metadata": metadata, "spec": {**spec, **held[by]}}

    async def clear(self) -> None:
        """Delete all pods, and wait until they are gone."""
        now = {"gracePeriodSeconds": "0"}
        await self.kube.delete(self.path, params=now)
        for path in (gangs_of(self.namespace), groups_of(self.namespace)):
            with suppress(ApiError):
                # Kinds that this API server does not have.
                await self.kube.delete(path, params=now)
        await self.until(lambda pods: not pods)


def _claim_name(pod: str) -> str:
    """Return the name of a pod's claim; admission draws it by lot."""
    return f"{keys.CLAIM_PREFIX}{uuid.uuid5(uuid.NAMESPACE_OID, pod).hex}"


def _claiming(claim: str, asked: Mapping[str, object]) -> dict[str, object]:
    """Return the spec of a pod whose container gets its GPU by a claim, as admission writes it."""
    main = container(asked)
    main["resources"]["claims"] = [{"name": keys.POD_CLAIM, "request": claim_request(0)}]
    return {
        "resourceClaims": [{"name": keys.POD_CLAIM, "resourceClaimName": claim}],
        "containers": [main],
    }


_RECORD = {"allocation": 200, "term": 2, "visible-devices": 1, "isolation": 4, "index": 20}
"""Annotations of a record, and how long they are."""


def bound(pods: Sequence[Seen]) -> int:
    """Return the number of pods that have a node."""
    return sum(bool(pod.spec.node_name) for pod in pods)


def nodes_of(pods: Sequence[Seen]) -> dict[str, list[str]]:
    """Return the nodes of each gang's members; empty text where there is none."""
    found: dict[str, list[str]] = {}
    for pod in pods:
        found.setdefault(pod.gang, []).append(pod.spec.node_name)
    return found


async def _owner(kube: Kube, namespace: str) -> dict[str, object]:
    """Create an object that no controller acts on; return the reference to it as a controller."""
    body = {
        "metadata": {"name": "owner"},
        "template": {"spec": {"containers": [container({})]}},
    }
    made = await kube.create(f"/api/v1/namespaces/{namespace}/podtemplates", body, Seen)
    owner = {"apiVersion": "v1", "kind": "PodTemplate", "controller": True}
    return {**owner, "name": made.metadata.name, "uid": made.metadata.uid}


@asynccontextmanager
async def crowd(
    plane: ControlPlane,
    namespace: str,
    resource: str = keys.GPU_WHOLE,
    uuids: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> AsyncIterator[Crowd]:
    """Watch the pods of a namespace; delete them at the end."""
    token = plane.tokens[ADMIN]
    async with Kube(plane.server, token=token, ca_file=plane.ca_file, timeout=60) as kube:
        found = Crowd(kube, namespace, resource, await _owner(kube, namespace), uuids)
        watch = Reflector(
            kube,
            found.path,
            msgspec.json.Decoder(Seen).decode,
            on_change=lambda items, _changed: found.note(items),
        )
        watching = asyncio.create_task(watch.run())
        try:
            await watch.synced.wait()
            yield found
            await found.clear()
        finally:
            watching.cancel()
            await asyncio.wait((watching,))
