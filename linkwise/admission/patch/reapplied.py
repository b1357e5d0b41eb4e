"""Leave a pod as it is when its unchanged manifest is applied again.

Admission and the scorer have changed fields of the pod that its manifest states: a patch of the
manifest writes the stated values beside theirs, or in their place, and Kubernetes refuses that for
fields of a pod that never change. Where an update writes nothing else in such a field, the field
stays as it was. So an update can give a pod nothing that it did not have. A change of anything else
is left to Kubernetes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec
from msgspec import Struct

from linkwise.admission.operations import Operation
from linkwise.cluster.container_variables import (
    ENV_CGPU_OFF,
    ENV_IMEX_CHANNELS,
    ENV_MEMORY_FRACTION,
    ENV_MIG_CONFIG,
    ENV_MIG_MONITOR,
    ENV_MPS_MEMORY,
    ENV_MPS_THREADS,
    ENV_REPLICAS,
    ENV_VISIBLE_DEVICES,
)
from linkwise.cluster.keys import (
    CLAIMED_GPUS,
    MEM_CONTAINER,
    MEM_DEV,
    MEM_IDX,
    MEM_POD,
    NVIDIA_GPU,
    NVIDIA_GPU_SHARED,
)
from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.cluster.requests.claimed import claim_request

_VARIABLES = frozenset(
    {
        ENV_CGPU_OFF,
        ENV_IMEX_CHANNELS,
        ENV_MEMORY_FRACTION,
        ENV_MIG_CONFIG,
        ENV_MIG_MONITOR,
        ENV_MPS_MEMORY,
        ENV_MPS_THREADS,
        ENV_REPLICAS,
        ENV_VISIBLE_DEVICES,
        MEM_CONTAINER,
        MEM_DEV,
        MEM_IDX,
        MEM_POD,
    }
)
"""Variables that admission sets, replaces or removes."""
_RESOURCES = frozenset({NVIDIA_GPU, NVIDIA_GPU_SHARED})
"""Resources that admission replaces by a claim, or by each other."""
_RULE = "applied again"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_TERMS = f"/spec/affinity/nodeAffinity/{_REQUIRED}/nodeSelectorTerms"

_json = msgspec.json.Encoder(order="sorted")
_amounts = msgspec.json.Decoder(dict[str, int])

_Json: TypeAlias = Mapping[str, object]
_Amounts: TypeAlias = Mapping[str, object]
_Term: TypeAlias = Mapping[str, Sequence[object]]


class _Resources(Struct, frozen=True):
    limits: dict[str, object] | None = None
    requests: dict[str, object] | None = None
    claims: list[object] | None = None


class _Container(KubeObject, frozen=True):
    name: str = ""
    env: list[dict[str, object]] | None = None
    resources: _Resources = _Resources()


class _Required(KubeObject, frozen=True):
    node_selector_terms: list[dict[str, list[object]]] | None = None


class _NodeAffinity(KubeObject, frozen=True):
    required_during_scheduling_ignored_during_execution: _Required = _Required()


class _Affinity(KubeObject, frozen=True):
    node_affinity: _NodeAffinity = _NodeAffinity()


class _Spec(KubeObject, frozen=True):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] | None = None
    affinity: _Affinity = _Affinity()

    @property
    def terms(self) -> Sequence[_Term]:
        """The terms of its required node affinity."""
        required = self.affinity.node_affinity.required_during_scheduling_ignored_during_execution
        return required.node_selector_terms or ()


class _Metadata(KubeObject, frozen=True):
    annotations: dict[str, str] | None = None


class UpdatedPod(KubeObject, frozen=True):
    """The fields of a pod that admission or the scorer changes, and its manifest may state."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()

    def claimed(self, request: str) -> int | None:
        """Return how many GPUs a request of its claim has; None: it has no such request."""
        text = (self.metadata.annotations or {}).get(CLAIMED_GPUS, "{}")
        try:
            return _amounts.decode(text).get(request)
        except msgspec.DecodeError:
            return None


def left_as_it_is(old: UpdatedPod, new: UpdatedPod) -> Iterator[Operation]:
    """Yield the operations on an updated pod that keep fields which only seem to change.

    Args:
        old: The pod before the update.
        new: The pod as the update writes it.
    """
    parts = (
        ("containers", old.spec.containers, new.spec.containers),
        ("initContainers", old.spec.init_containers or (), new.spec.init_containers or ()),
    )
    for part, before, after in parts:
        for index, (one, other) in enumerate(zip(before, after, strict=False)):
            if one.name == other.name:
                # An init container uses the GPUs of one of the others.
                gpus = old.claimed(claim_request(index)) if part == "containers" else None
                yield from _container(f"/spec/{part}/{index}", one, other, gpus)
    kept, terms = old.spec.terms, new.spec.terms
    is_stated = bool(terms) and terms != kept and len(terms) == len(kept)
    if is_stated and all(map(_is_within, terms, kept)):
        yield Operation("replace", _TERMS, kept, _RULE)


def _container(
    path: str, old: _Container, new: _Container, gpus: int | None
) -> Iterator[Operation]:
    if old.env != new.env and _others(old.env) == _others(new.env):
        yield _kept(f"{path}/env", old.env)
    if old.resources != new.resources and _is_same_request(old.resources, new.resources, gpus):
        for part, amounts, written in (
            ("limits", old.resources.limits, new.resources.limits),
            ("requests", old.resources.requests, new.resources.requests),
        ):
            if amounts != written:
                yield _kept(f"{path}/resources/{part}", amounts)


def _kept(path: str, value: object) -> Operation:
    if value is None:
        return Operation("remove", path, rule=_RULE)
    return Operation("add", path, value, _RULE)


def _others(env: Sequence[_Json] | None) -> list[_Json]:
    """Return the variables that admission never writes; their order counts."""
    return [each for each in env or () if each.get("name") not in _VARIABLES]


def _is_same_request(old: _Resources, new: _Resources, gpus: int | None) -> bool:
    """Return whether an update adds only the amounts that admission has replaced.

    Args:
        old: The resources before.
        new: The resources after.
        gpus: How many GPUs the container has by a claim; None: it has none, or shares them.
    """
    is_replaced = bool(old.claims) or not _RESOURCES.isdisjoint(old.limits or ())
    pairs = ((old.limits or {}, new.limits or {}), (old.requests or {}, new.requests or {}))
    is_ours = is_replaced and old.claims == new.claims
    return is_ours and all(_adds_ours(*pair, gpus) for pair in pairs)


def _adds_ours(old: _Amounts, new: _Amounts, gpus: int | None) -> bool:
    added = new.keys() - old.keys()
    renamed = {old[name] for name in _RESOURCES & old.keys()}
    expected = renamed or ({str(gpus)} if gpus else None)
    is_equal = expected is None or all(new[name] in expected for name in added)
    return added <= _RESOURCES and is_equal and all(new.get(name) == old[name] for name in old)


def _is_within(new: _Term, old: _Term) -> bool:
    """Return whether a term states nothing that it did not state before."""
    for part, items in new.items():
        stated = {_json.encode(each) for each in old.get(part, ())}
        if not all(_json.encode(each) in stated for each in items):
            return False
    return True
