"""The GPUs of a node as dynamic resource allocation (DRA) knows them, beside device plugins.

ResourceSlices of the node say which GPU a device is now: after a reboot, a name may belong to
another GPU. Claims say which devices are held.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from msgspec import structs

from linkwise.cluster.keys import NVIDIA_GPU
from linkwise.cluster.memo import Memo
from linkwise.cluster.nodes.device_claims import Device, HeldClaim, held_twice
from linkwise.cluster.nodes.device_pool import GPUPool, Pool, gpu_pool, pools_of
from linkwise.cluster.nodes.lost_gpus import NOTHING_EXPECTED, ExpectedGPUs, RecordedGPU
from linkwise.cluster.nodes.node import Node
from linkwise.cluster.nodes.resource_slice import PoolSlice, SliceDevice
from linkwise.cluster.nodes.taint_rules import TaintRule


@dataclass(frozen=True, slots=True)
class ClaimedGPUs:
    """The GPUs of one node that claims hold."""

    uuids: frozenset[str] = frozenset()
    unknown: frozenset[Device] = frozenset()
    """Devices whose GPU is not known."""

    @property
    def count(self) -> int:
        """How many GPUs they are, at most."""
        return len(self.uuids) + len(self.unknown)


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """The pools of one node, and the claims and rules about their devices."""

    node: str
    pools: Mapping[str, Pool] = field(default_factory=dict)
    """By name."""
    claims: tuple[HeldClaim, ...] = ()
    """Those that hold some of its devices."""
    rules: tuple[TaintRule, ...] = ()
    """Those by which devices of its pool are not to be used."""
    twice: frozenset[Device] = frozenset()
    """Devices that several claims hold."""
    expected: ExpectedGPUs = NOTHING_EXPECTED
    """The GPUs that pods of the node have."""
    last_pools: Mapping[str, Pool] = field(default_factory=dict)
    """The last complete pools, by name."""
    last: GPUPool | None = None
    """The last GPUs of its own pool."""

    def after(self, before: "NodeDevices") -> "NodeDevices":
        """Return the same with what was known of the node before."""
        gpus = before.own_pool
        last = gpus if gpus.gpus else None
        # Equal ones are not kept twice.
        pools = before.pools if self.pools == before.pools else self.pools
        return replace(self, pools=pools, last_pools=before.known_pools, last=last)

    @property
    def current(self) -> "NodeDevices":
        """The same without the past."""
        return replace(self, last_pools={}, last=None)

    def with_recorded(self, recorded: tuple[RecordedGPU, ...]) -> "NodeDevices":
        """Return the same with the GPUs that records of the pods on the node name."""
        if recorded == self.expected.recorded:
            return self
        return replace(self, expected=self.expected._replace(recorded=recorded)).after(self)

    @property
    def is_known(self) -> bool:
        """There are devices of the node, now or before, or claims for some."""
        return bool(self.pools or self.claims or self.last)

    @property
    def pool(self) -> GPUPool | None:
        """The GPUs of its own pool; None: it never had a slice of it."""
        pool = self.own_pool
        if not (pool.gpus or self.node in self.pools):
            return None
        return replace(pool, gpus=tuple(map(self._with_rules, pool.gpus)))

    @property
    def claimed(self) -> ClaimedGPUs:
        """The GPUs that claims hold, by anyone."""
        held: dict[str, set[Device]] = {}
        for device in frozenset[Device]().union(*(claim.devices for claim in self.claims)):
            if device.node == self.node:
                held.setdefault(device.pool, set()).add(device)
        pools = self.known_pools
        uuids: set[str] = set()
        unknown: set[Device] = set()
        for name, devices in held.items():
            known = pools[name].gpus_of({one.name for one in devices}) if name in pools else {}
            uuids.update(*known.values())
            unknown |= {device for device in devices if not known.get(device.name)}
        return ClaimedGPUs(frozenset(uuids), frozenset(unknown))

    @property
    def own_pool(self) -> GPUPool:
        """The GPUs of the pool that has its name, without what rules say."""
        return gpu_pool(self.node, self.pools.get(self.node), self.last, self.expected)

    @property
    def known_pools(self) -> dict[str, Pool]:
        """The complete pools, and the last complete ones of those that are not."""
        complete = {name: pool for name, pool in self.pools.items() if not pool.problem}
        return {**self.last_pools, **complete}

    def _with_rules(self, gpu: SliceDevice) -> SliceDevice:
        taints = (rule.taint for rule in self.rules if rule.selects(self.node, gpu.name))
        taint = gpu.taint or next(taints, None)
        return structs.replace(gpu, taint=taint)


def devices_by_node(
    slices: Iterable[PoolSlice],
    claims: Iterable[HeldClaim],
    rules: Iterable[TaintRule] = (),
    memo: Memo[NodeDevices] | None = None,
) -> dict[str, NodeDevices]:
    """Return the devices of each node that slices or claims name. Cost: linear.

    Args:
        slices: All slices.
        claims: All claims.
        rules: All rules.
        memo: Of `devices_of_node`; devices of which nothing changed are the same objects as before.
    """
    slices_of: dict[str, list[PoolSlice]] = {}
    claims_of: dict[str, list[HeldClaim]] = {}
    for one in slices:
        slices_of.setdefault(one.node, []).append(one)
    for claim in claims:
        for node in {device.node for device in claim.devices}:
            claims_of.setdefault(node, []).append(claim)
    nodes = tuple(slices_of.keys() | claims_of.keys())
    hindering = [rule for rule in rules if rule.hinders]
    calls = (
        (
            node,
            tuple(slices_of.get(node, ())),
            tuple(claims_of.get(node, ())),
            tuple(rule for rule in hindering if rule.pool in {None, node}),
        )
        for node in nodes
    )
    devices = (memo or Memo(devices_of_node)).map(calls)
    return dict(zip(nodes, devices, strict=True))


def devices_of_node(
    node: str,
    slices: tuple[PoolSlice, ...],
    claims: tuple[HeldClaim, ...],
    rules: tuple[TaintRule, ...],
) -> NodeDevices:
    """Return the devices of a node, as `node_devices`, with those that several claims hold."""
    return with_all_claims(node_devices(node, slices, claims, rules), claims)


def with_all_claims(devices: NodeDevices, claims: Sequence[HeldClaim]) -> NodeDevices:
    """Return the devices of a node with what follows from all claims, also those of our pods."""
    named = {device for claim in claims for device in claim.devices}
    held = frozenset(one.name for one in named if one.node == one.pool == devices.node)
    return replace(
        devices, twice=held_twice(claims), expected=devices.expected._replace(devices=held)
    )


def node_devices(
    node: str,
    slices: Iterable[PoolSlice],
    claims: Iterable[HeldClaim],
    rules: Iterable[TaintRule],
) -> NodeDevices:
    """Return the devices of a node.

    Args:
        node: Its name.
        slices: Its own slices: those of another node say nothing about it.
        claims: Those that hold some of its devices.
        rules: All rules.
    """
    about = tuple(rule for rule in rules if rule.hinders and rule.pool in {None, node})
    return NodeDevices(node, pools_of(slices), tuple(claims), about)


def without_claimed(node: Node, claimed: ClaimedGPUs, twice: Set[Device] = frozenset()) -> Node:
    """Return a node on which the GPUs of claims are not free.

    If Linkwise chooses the GPUs, these cards are closed. Where one is not known, nothing is placed
    on the node, except on a claims node: a device that its pool does not have is a lost GPU, or
    none of its GPUs.
    If NVIDIA's plugin chooses them, there are as many fewer. Nothing is placed on a claims node of
    which one GPU has several claims.

    Args:
        node: The node.
        claimed: The GPUs that claims hold, without those of pods that Linkwise placed.
        twice: Devices that several claims hold.
    """
    if node.pool and (both := {device.name for device in twice} & {*node.pool.devices}):
        reason = f"several resource claims hold device {min(both)}"
        node = replace(node, mismatch=node.mismatch or reason)
    if not claimed.count:
        return node
    if not node.mode.is_ours:
        left = max(node.resources.get(NVIDIA_GPU, 0) - claimed.count, 0)
        has_some = NVIDIA_GPU in node.resources
        return replace(node, resources={**node.resources, NVIDIA_GPU: left}) if has_some else node
    if not node.cards:
        return node
    lost = node.pool.devices if node.pool else ("",) * len(node.cards)
    unknown = {device.name for device in claimed.unknown}
    cards = tuple(
        replace(card, claimed=card.claimed or card.uuid in claimed.uuids or name in unknown)
        for card, name in zip(node.cards, lost, strict=True)
    )
    names = sorted(unknown.difference(lost))
    which = f"device {names[0]}" if names else "a device"
    if node.is_claims:
        warning = f"a resource claim holds {which}, which the driver's slices do not have"
        return replace(node, cards=cards, warnings=(*node.warnings, *([warning] if names else ())))
    if not names and claimed.uuids <= {card.uuid for card in cards}:
        return replace(node, cards=cards)
    reason = f"a resource claim holds {which} of it, and it is not known which GPU that is"
    return replace(node, cards=cards, mismatch=node.mismatch or reason)
