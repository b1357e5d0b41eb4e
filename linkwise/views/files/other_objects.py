"""Reads the objects of a cluster that are no nodes and no pods."""

from collections.abc import Mapping
from typing import TypeAlias

from linkwise.cluster.nodes.device_claims import ClaimObject, HeldClaim
from linkwise.cluster.nodes.resource_slice import PoolSlice, SliceObject
from linkwise.cluster.nodes.taint_rules import RuleObject, TaintRule
from linkwise.cluster.requests.neighbors.namespaces import NamespaceObject
from linkwise.cluster.requests.user_claims.device_class import DeviceClass
from linkwise.cluster.scorer_lease import ScorerLease
from linkwise.manifest.lines import without_nulls
from linkwise.manifest.typed import read_as
from linkwise.manifest.value import Value
from linkwise.planning.state.node_info import NodeConfigMap
from linkwise.views.files.stored_volumes import KINDS, StoredVolume

Other: TypeAlias = (
    NodeConfigMap
    | ScorerLease
    | PoolSlice
    | HeldClaim
    | ClaimObject
    | DeviceClass
    | TaintRule
    | StoredVolume
    | NamespaceObject
    | None
)
"""What Linkwise reads of an object that is no node and no pod.

A claim that holds no GPUs, and ties its pods to some nodes, is whole.
"""

_WHOLE: Mapping[
    str, type[NodeConfigMap | ScorerLease | DeviceClass | StoredVolume | NamespaceObject]
] = {
    "ConfigMap": NodeConfigMap,
    "Lease": ScorerLease,
    "DeviceClass": DeviceClass,
    "Namespace": NamespaceObject,
    **KINDS,
}
_ABOUT_DEVICES: Mapping[str, type[SliceObject | RuleObject]] = {
    "ResourceSlice": SliceObject,
    "DeviceTaintRule": RuleObject,
}
"""Objects of which only those about GPUs are kept."""


def read_other(value: Value) -> Other:
    """Return what Linkwise reads of an object that is no node and no pod; None: no field of it.

    Raises:
        InputError: It is wrong; with its line.
    """
    kind, plain = value.need("kind").plain, without_nulls(value.mapping())
    if whole := _WHOLE.get(str(kind)):
        return read_as(whole, plain, value)
    if kind == "ResourceClaim":
        claim = read_as(ClaimObject, plain, value)
        return claim.content or (claim if claim.place else None)
    about_devices = _ABOUT_DEVICES.get(str(kind))
    return read_as(about_devices, plain, value).content if about_devices else None
