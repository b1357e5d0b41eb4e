"""The DeviceTaintRules that keep the GPUs of claims nodes for claims of Linkwise.

kube-scheduler allocates a tainted device only to claims that tolerate its taint. Running pods are
not affected. A GPU on which a process runs whose pod does not have it is kept from all claims.

Source: kubernetes v1.37, `staging/src/k8s.io/api/resource/v1/types.go`; v1.36 serves the same
object as v1beta2, behind the feature gate DRADeviceTaintRules.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeAlias

from linkwise.cluster.keys import BUSY, DRA_GPU_DRIVER, MANAGED_BY, PLACED, SCORER
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.nodes.node import Node
from linkwise.cluster.nodes.taint_rules import NO_SCHEDULE, RuleObject, Selector

OURS = {MANAGED_BY: SCORER}
"""The label of the rules that the scorer creates and deletes."""
_STEM_MAX = 200
"""With the digest, the name of a rule is shorter than the 253 characters of a valid one."""

_EFFECT_AFTER = 10.0
"""Time from the creation of a rule until kube-scheduler surely observes it; its clock and that of
the API server may differ [s]."""
_NO_EFFECT = (
    "kube-scheduler gave GPUs to a claim that does not tolerate the taint: it ignores "
    "DeviceTaintRules, so enable its feature gate DRADeviceTaintRules"
)

Body: TypeAlias = dict[str, object]


@dataclass(frozen=True, slots=True)
class FenceRule:
    """A rule that should exist."""

    selector: Selector
    key: str = PLACED
    """Of its taint: `PLACED` or `BUSY`."""

    @property
    def name(self) -> str:
        """A valid object name, which begins with the pool; NVIDIA's driver names it by the node."""
        pool, device = self.selector.pool or "", self.selector.device or ""
        path = f"{pool}/{device}" if self.key == PLACED else f"{pool}/{device}/{self.key}"
        digest = sha256(path.encode()).hexdigest()[:16]
        stem = f"linkwise-{pool[:_STEM_MAX]}".rstrip(".-")
        return f"{stem}-{digest}"

    def body(self, api_version: str, resource_version: str | None = None) -> Body:
        """Return the object.

        Args:
            api_version: That of the collection, such as `resource.k8s.io/v1`.
            resource_version: Of the rule that it replaces; None: there is none.
        """
        metadata: Body = {"name": self.name, "labels": OURS}
        if resource_version is not None:
            metadata["resourceVersion"] = resource_version
        return {
            "apiVersion": api_version,
            "kind": "DeviceTaintRule",
            "metadata": metadata,
            "spec": {
                "deviceSelector": self.selector,
                "taint": {"key": self.key, "effect": NO_SCHEDULE},
            },
        }


def rule_of(stored: RuleObject | None) -> FenceRule | None:
    """Return the rule that an object is; None: it is none of Linkwise, and keeps no claims away."""
    if stored is None or stored.spec.device_selector is None:
        return None
    taint = stored.spec.taint
    is_ours = taint.key in {PLACED, BUSY} and taint.effect == NO_SCHEDULE
    return FenceRule(stored.spec.device_selector, taint.key) if is_ours else None


def fence_of(node: Node) -> Iterator[FenceRule]:
    """Yield the rules of a node: none unless it is a claims node.

    One rule has all devices of its pool. If some of them are not placed by Linkwise, such as MIG
    devices, each GPU that is has a rule of its own.
    """
    pool = node.pool
    if pool is None:
        return
    devices: Iterable[str | None] = (None,)
    if pool.others or pool.unmanaged:
        devices = (name for name in pool.devices if name not in pool.unmanaged | pool.lost)
    for device in devices:
        yield FenceRule(Selector(DRA_GPU_DRIVER, pool.name, device))


def closures_of(node: Node) -> Iterator[FenceRule]:
    """Yield the rules that keep the busy GPUs of a claims node from all claims: one for each."""
    if node.pool is not None:
        for device in sorted(node.pool.busy):
            yield FenceRule(Selector(DRA_GPU_DRIVER, node.pool.name, device), BUSY)


def keeps_fence(node: Node) -> bool:
    """Return whether the rules of a node stay although it is no claims node now.

    While its driver is away, the devices of a node are not known. It is one of another kind once
    its mode is another one, or a device plugin offers its GPUs.
    """
    offered = node.resources.get(node.gpu_resource, 0)
    return node.pool is None and node.mode is NodeMode.TOPOLOGY and not offered


def wanted_rules(nodes: Iterable[Node], stored: Iterable[RuleObject]) -> dict[str, FenceRule]:
    """Return all rules that should exist, by name.

    Args:
        nodes: All nodes.
        stored: The rules that exist, so that those are kept which `keeps_fence` names.
    """
    wanted: dict[str, FenceRule] = {}
    kept: set[str] = set()
    for node in nodes:
        wanted |= {rule.name: rule for rule in (*fence_of(node), *closures_of(node))}
        if keeps_fence(node):
            kept.add(node.name)
    for found in stored:
        rule = rule_of(found)
        if rule and rule.selector.pool in kept and rule.name == found.metadata.name:
            wanted[rule.name] = rule
    return wanted


def unfenced_reason(
    node: Node,
    stored: Mapping[str, RuleObject],
    errors: Mapping[str, str],
    bypassed: Mapping[str, float],
) -> str | None:
    """Return why claims of others may get the GPUs of a claims node; None: they may not.

    Args:
        node: The node.
        stored: The rules that exist, by name.
        errors: The last error of each rule that could not be written, by name.
        bypassed: When devices of its pool were last allocated to a claim that does not tolerate
            the taint, by name [s since 1970].
    """
    for rule in fence_of(node):
        found = stored.get(rule.name)
        if found is None or rule_of(found) != rule:
            error = errors.get(rule.name)
            return f"its DeviceTaintRule is not written{f': {error}' if error else ' yet'}"
        device = rule.selector.device
        times = bypassed.values() if device is None else [bypassed.get(device, 0.0)]
        if max(times, default=0.0) > found.created + _EFFECT_AFTER:
            return _NO_EFFECT
    return None


def settling_reason(node: Node, stored: Mapping[str, RuleObject], now: float) -> str | None:
    """Return why kube-scheduler may not observe the rules of a node yet; None: it does.

    Args:
        node: The node.
        stored: The rules that exist, by name.
        now: The time [s since 1970].
    """
    found = (stored.get(rule.name) for rule in fence_of(node))
    if any(rule is not None and now - rule.created < _EFFECT_AFTER for rule in found):
        return f"its DeviceTaintRule is younger than {_EFFECT_AFTER:g} s"
    return None
