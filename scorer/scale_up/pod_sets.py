"""The pods that a unit asks for, by the PodTemplates of its ProvisioningRequest. Pure."""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from hashlib import sha256

import msgspec

from linkwise.cluster.gang import Link
from linkwise.planning.gang.crd import name_of
from linkwise.planning.gang.unit import Unit
from linkwise.planning.placement.pods.member import Member

_STEM_MAX = 63
_DIGEST = 10


@dataclass(frozen=True, slots=True)
class UnitPods:
    """Pods of a unit that one PodTemplate stands for."""

    pods: tuple[tuple[str, int], ...]
    """Names of pods that are added up to one, and how many there are of each."""
    count: int
    """How many pods the template stands for."""


def pod_sets(unit: Unit) -> tuple[UnitPods, ...]:
    """Return the pods of a unit that wait, grouped by what they need.

    Members that must run on one node are added up to one pod: an autoscaler would spread them.
    """
    names: dict[Hashable, str] = {}
    counts: Counter[Hashable] = Counter()
    for member in unit.members:
        names.setdefault(member.signature, member.pod.metadata.name)
        counts[member.signature] += 1
    if unit.link is Link.ONE_NODE:
        return (UnitPods(tuple((name, counts[key]) for key, name in names.items()), 1),)
    return tuple(UnitPods(((name, 1),), counts[key]) for key, name in names.items())


def stem_of(unit: Unit) -> str:
    """Return the first part of the name of a unit's request, different for each unit."""
    return name_of(unit.key)[:_STEM_MAX]


def request_name(unit: Unit, class_name: str) -> str:
    """Return the name of the request for the pods of a unit; it changes with these pods."""
    members = sorted(map(_encoded, unit.members))
    # Requests are immutable: what is asked differs only between requests of different names.
    whole = msgspec.msgpack.encode((class_name, unit.link, members))
    return f"{stem_of(unit)}-{sha256(whole).hexdigest()[:_DIGEST]}"


def stem_in(name: str) -> str:
    """Return the part of a request's name that `stem_of` gave."""
    return name.rpartition("-")[0]


def _encoded(member: Member) -> bytes:
    request, demand = member.request, member.demand
    amounts = request.family, request.resource, request.gpus, request.memory, request.core
    others = demand.cpu, demand.memory, sorted(demand.ports), demand.others, member.node_constraints
    return msgspec.msgpack.encode((amounts, others))
