"""Watch what dynamic resource allocation (DRA) says about GPUs, where the API is served.

ResourceSlices have the devices of a node, ResourceClaims hold some of them, and DeviceTaintRules
say that some are not to be used. DeviceClasses offer devices as resources that pods request.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any

import msgspec
import structlog
from msgspec import Raw

from linkwise.cluster.nodes.device_claims import ClaimObject, HeldClaim
from linkwise.cluster.nodes.node_devices import NodeDevices, node_devices, with_all_claims
from linkwise.cluster.nodes.resource_slice import PoolSlice, SliceObject
from linkwise.cluster.nodes.taint_rules import VERSIONS, RuleObject, TaintRule
from linkwise.cluster.requests.class_resources import ClassResources, offered_by, resources_of
from linkwise.cluster.requests.user_claims.device_class import DeviceClass
from linkwise.cluster.volumes.node_choice import NodeChoice
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.kube.decode import decode
from linkwise.runtime.kube.dra_api import CLAIMS, CLASSES, SLICES, find_api
from linkwise.runtime.kube.objects import Key
from linkwise.runtime.kube.reflector import Reflector
from scorer.cache.claims.node_index import NodeIndex
from scorer.cache.claims.slice_budget import SliceBudget

_EVERY = ""
"""Stands for all pools."""

_claims = msgspec.json.Decoder(ClaimObject)
_slices = msgspec.json.Decoder(SliceObject)
_classes = msgspec.json.Decoder(DeviceClass)
_rules = msgspec.json.Decoder(RuleObject)
_log = structlog.get_logger()


class ClaimInformer:
    """The GPUs in ResourceSlices and claims, by node."""

    def __init__(
        self,
        kube: Kube,
        on_change: Callable[[Mapping[str, NodeDevices]], None],
        is_own: Callable[[HeldClaim], bool] = lambda _: False,
        on_claims: Callable[[Set[Key]], None] = lambda _: None,
        on_classes: Callable[[ClassResources | None], None] = lambda _: None,
    ) -> None:
        """Prepare the watches.

        Args:
            kube: The API server.
            on_change: Takes the devices of the nodes on which they changed.
            is_own: Returns whether a claim is that of a pod which has its GPUs by Linkwise.
            on_claims: Called with the keys of claims that changed.
            on_classes: Takes what DeviceClasses offer; None: they may not be read.
        """
        self._kube, self._on_change = kube, on_change
        self._is_own, self._on_claims, self._on_classes = is_own, on_claims, on_classes
        self._budget = SliceBudget()
        self._slices_of = NodeIndex[PoolSlice](lambda found: (found.node,))
        self._claims_of = NodeIndex[HeldClaim](
            lambda claim: {device.node for device in claim.devices}
        )
        # Not those of our own fence, of which each node has one.
        self._rules_of = NodeIndex[TaintRule](
            lambda rule: (rule.pool or _EVERY,) if rule.hinders else ()
        )
        self._bypassing: dict[Key, HeldClaim] = {}
        """Claims that do not tolerate the taint of claims nodes."""
        self.claims: Reflector[HeldClaim | NodeChoice] = Reflector(
            kube, CLAIMS, read_claim, on_change=self._claims_changed
        )
        self.held: dict[Key, HeldClaim] = {}
        """Claims with GPUs."""
        self.places: dict[Key, NodeChoice] = {}
        """Claims whose devices of other drivers tie their pods to some nodes."""
        self.slices: Reflector[PoolSlice] = Reflector(
            kube, SLICES, self.read_slice, on_change=self._slices_changed
        )
        self.classes: Reflector[frozenset[str]] = Reflector(
            kube,
            CLASSES,
            read_class,
            on_change=lambda items, _: self._on_classes(offered_by(items.values())),
            on_forbidden=self._classes_forbidden,
        )
        self.rules: Reflector[TaintRule] | None = None
        """DeviceTaintRules about GPUs; None: not served, or `run` does not know yet."""
        self.synced = asyncio.Event()
        """All is listed, or the API is not served."""

    @property
    def error(self) -> str:
        """What `synced` waits for."""
        errors = (reflector.error for reflector in (*self._reflectors, self.classes))
        return next(filter(None, errors), "the list is under way")

    def bypasses(self) -> dict[str, dict[str, float]]:
        """Return, by pool and device, when it was last allocated to a claim without our toleration.

        In seconds since 1970. Cost: linear in these claims.
        """
        times: dict[str, dict[str, float]] = {}
        for claim in self._bypassing.values():
            for device in claim.devices:
                of_pool = times.setdefault(device.pool, {})
                of_pool[device.name] = max(of_pool.get(device.name, 0), claim.bypassed or 0)
        return times

    async def run(self) -> None:
        """Keep the GPUs up to date until cancelled; return where the API is not served."""
        api = await find_api(self._kube, VERSIONS)
        if not api.has_claims:
            self.synced.set()
            return
        if api.rules:
            self.rules = Reflector(self._kube, api.rules, _read_rule, on_change=self._rules_changed)
        async with asyncio.TaskGroup() as group:
            for reflector in (*self._reflectors, self.classes):
                group.create_task(reflector.run())
            for reflector in self._reflectors:
                await reflector.synced.wait()
            await self.classes.answered.wait()
            self.synced.set()

    @property
    def _reflectors(self) -> tuple[Reflector[Any], ...]:
        return (self.claims, self.slices, *((self.rules,) if self.rules else ()))

    def read_slice(self, raw: Raw) -> PoolSlice | None:
        """Return the GPUs of a slice; None for those of other devices, and beyond the limit."""
        found = decode(raw, _slices)
        content = found.content
        if content is None:
            return None
        size = memoryview(raw).nbytes
        if not self._budget.take(content.node, found.metadata.name, size):
            return None
        return content

    def _claims_changed(
        self, items: Mapping[Key, HeldClaim | NodeChoice], changed: Set[Key]
    ) -> None:
        for key in changed:
            for kept in (self._bypassing, self.held, self.places):
                kept.pop(key, None)
            match items.get(key):
                case HeldClaim() as claim:
                    self.held[key] = claim
                    if claim.bypassed:
                        self._bypassing[key] = claim
                case NodeChoice() as place:
                    self.places[key] = place
                case None:
                    pass
        nodes = self._claims_of.update(self.held, changed)
        self._on_claims(changed)
        self._report(nodes)

    def refresh(self, claims: Iterable[Key]) -> None:
        """Report the devices of claims again, whose pods changed; those of a node once."""
        held = (self.held.get(claim) for claim in claims)
        self._report({device.node for claim in held if claim for device in claim.devices})

    def _slices_changed(self, items: Mapping[Key, PoolSlice], changed: Set[Key]) -> None:
        self._budget.confirm((key[1], items[key].node if key in items else None) for key in changed)
        self._report(self._slices_of.update(items, changed))

    def _rules_changed(self, items: Mapping[Key, TaintRule], changed: Set[Key]) -> None:
        pools = self._rules_of.update(items, changed)
        self._report(self._slices_of.nodes if _EVERY in pools else pools & self._slices_of.nodes)

    def _classes_forbidden(self) -> None:
        _log.warning("Left extended resources to kube-scheduler", err=self.classes.error)
        self._on_classes(None)

    def _report(self, nodes: Set[str]) -> None:
        """Report the devices of nodes on which something changed."""
        if nodes:
            self._on_change({node: self._devices_of(node) for node in nodes})

    def _devices_of(self, node: str) -> NodeDevices:
        rules = (*self._rules_of.of(_EVERY), *self._rules_of.of(node))
        claims = tuple(self._claims_of.of(node))
        others = [claim for claim in claims if not self._is_own(claim)]
        devices = node_devices(node, self._slices_of.of(node), others, rules)
        return with_all_claims(devices, claims)


def read_claim(raw: Raw) -> HeldClaim | NodeChoice | None:
    """Return a claim with GPUs, or the place of one with devices of other drivers.

    None for all others: tenants can create any number of claims that hold nothing.
    """
    claim = decode(raw, _claims)
    return claim.content or claim.place


def read_class(raw: Raw) -> frozenset[str]:
    """Return the resources that a DeviceClass offers."""
    return resources_of(decode(raw, _classes))


def _read_rule(raw: Raw) -> TaintRule | None:
    return decode(raw, _rules).content
