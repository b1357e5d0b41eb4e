"""All informers of the scorer: pods, nodes, their owners, Gangs and the policy.

Each leader lists everything again. Changes wake the planner, which reads without awaiting, so that
it sees one consistent state.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Set
from itertools import chain
from typing import Any

import msgspec
import structlog

from linkwise.cluster.account.pod_usage import PodUsage
from linkwise.cluster.gang import GangKey
from linkwise.cluster.keys import POLICY_KEY, POLICY_NAME, POLICY_NAMESPACE
from linkwise.cluster.requests.class_resources import ClassResources
from linkwise.planning.gang.crd import Gang, object_key
from linkwise.planning.gang.crd_plan import GangPlan
from linkwise.planning.gang.owners import Owners
from linkwise.planning.gang.pod_info import PodInfo, with_claim_places
from linkwise.planning.gang.pod_volumes import volumes_in, with_volumes
from linkwise.planning.placement.options import preferences_of
from linkwise.planning.state.cluster_state import ClusterState
from linkwise.policy.active_config import POLICY, ActiveConfig
from linkwise.policy.snapshot import PolicySnapshot
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.kube.objects import ConfigMap, Key
from linkwise.runtime.kube.paths import api_path
from linkwise.runtime.kube.reflector import Reflector
from linkwise.topology.machine import Machine
from linkwise.topology.table import Table
from scorer.cache.claims.claim_holders import ClaimHolders, with_devices
from scorer.cache.claims.claim_informer import ClaimInformer
from scorer.cache.claims.preparation_errors import PreparationErrors
from scorer.cache.nodes.node_informer import NodeInformer
from scorer.cache.nodes.table_builder import build_table
from scorer.cache.pods.pod_informer import PodInformer
from scorer.cache.volumes.claim_users import ClaimUsers
from scorer.cache.volumes.stale_pods import StalePods
from scorer.cache.volumes.volume_informer import VolumeInformer
from scorer.cache.workloads.budget_informer import BudgetInformer
from scorer.cache.workloads.gang_informer import GangInformer
from scorer.cache.workloads.kueue_api import KueueAPI
from scorer.cache.workloads.namespace_informer import NamespaceInformer
from scorer.cache.workloads.replacements import Replacements
from scorer.cache.workloads.workload_informer import WorkloadInformer

_config_maps = msgspec.json.Decoder(ConfigMap)
_log = structlog.get_logger()


class Informers:
    """The informers, and the state that they update."""

    def __init__(self, kube: Kube, build_table: Callable[[Machine], Table] = build_table) -> None:
        """Prepare the watches; `run` starts them."""
        self.state = ClusterState()
        self._config = ActiveConfig()
        self._has_synced = False
        self.changed = asyncio.Event()
        """Set by every change; the planner clears it."""
        self.pods = PodInformer(kube, self._pods_changed)
        self.nodes = NodeInformer(kube, self.state, self.changed.set, build_table)
        self.claim_holders = ClaimHolders()
        self.claims = ClaimInformer(
            kube,
            self.nodes.update_devices,
            self.claim_holders.is_own,
            self._claims_changed,
            self._classes_changed,
        )
        self.volumes = VolumeInformer(kube, self._volumes_changed, self.nodes.update_attach_limits)
        self._claim_users = ClaimUsers(lambda pod: pod.volume_claims)
        self._device_claim_users = ClaimUsers(lambda pod: pod.device_claims)
        self._stale_pods = StalePods(self._update_pod)
        self.namespaces = NamespaceInformer(kube, self._stale_pods.add)
        self.preparation_errors = PreparationErrors(kube)
        self.gang_objects = GangInformer(
            kube,
            self.changed.set,
            lambda gang: self.workloads.forget_owner(gang.owner),
            lambda gang: self.state.groups.mark_dirty(gang[:2]),
        )
        self.workloads = WorkloadInformer(kube, self.state, self.gang_objects, self.changed.set)
        # A budget that changes need not wake the planner: preemption is tried again after a time.
        self.budgets = BudgetInformer(kube)
        self.kueue = KueueAPI(kube)
        self.replacements = Replacements(
            self.state,
            self.gang_objects,
            self.workloads,
            lambda: self.policy.policy.gangs.replacement_seconds,
        )
        self._policy = Reflector(
            kube,
            api_path("v1", "namespaces", POLICY_NAMESPACE, "configmaps"),
            _config_maps.decode,
            field_selector=f"metadata.name={POLICY_NAME}",
            on_change=self._policy_changed,
        )
        self._reflectors: dict[str, Reflector[Any]] = {
            "pods": self.pods.reflector,
            "nodes": self.nodes.nodes,
            "topologies": self.nodes.topologies,
            "policy": self._policy,
            "jobs": self.workloads.jobs,
            "statefulsets": self.workloads.stateful_sets,
            "gangs": self.gang_objects.reflector,
            "poddisruptionbudgets": self.budgets.reflector,
        }

    @property
    def gangs(self) -> Mapping[Key, Gang]:
        """The Gang objects, by namespace and name."""
        return self.gang_objects.reflector.items

    def gang(self, key: GangKey) -> Gang | None:
        """Return the object of a gang; None: there is none."""
        return self.gangs.get(object_key(key))

    def recorded_plan(self, key: GangKey) -> GangPlan | None:
        """Return the plan in the object of a gang; None: there is none."""
        gang = self.gang(key)
        return gang.spec.plan if gang else None

    @property
    def policy(self) -> PolicySnapshot:
        """The last valid policy."""
        return self._config.snapshot

    @property
    def owners(self) -> Owners:
        """The owners of pods."""
        return self.workloads.owners

    async def run(self) -> None:
        """Keep the state up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors.values():
                group.create_task(reflector.run())
            group.create_task(self.pods.run())
            group.create_task(self.claims.run())
            group.create_task(self.volumes.run())
            group.create_task(self.namespaces.reflector.run())
            group.create_task(self._stale_pods.run())
            group.create_task(self.kueue.run())
            group.create_task(self.nodes.tables.run())
            await self.synced()
            self.nodes.log_warnings()

    async def synced(self) -> None:
        """Wait until everything was listed, and the tables of small machines were built."""
        for reflector in self._reflectors.values():
            await reflector.synced.wait()
        await self.claims.synced.wait()
        await self.volumes.answered()
        await self.namespaces.reflector.answered.wait()
        await self._stale_pods.idle.wait()
        await self.nodes.tables.small_built()
        self._has_synced = True

    def missing(self) -> str | None:
        """Return what `synced` waits for; None: nothing."""
        for name, reflector in self._reflectors.items():
            if not reflector.synced.is_set():
                return f"{name} were not listed yet: {reflector.error or 'the list is under way'}"
        if not self.claims.synced.is_set():
            return f"resource claims were not listed yet: {self.claims.error}"
        if error := self.volumes.missing():
            return f"volumes were not listed yet: {error}"
        if not (namespaces := self.namespaces.reflector).answered.is_set():
            reason = namespaces.error or "the list is under way"
            return f"namespaces were not listed yet: {reason}"
        if (count := self.nodes.tables.small_missing) and not self._has_synced:
            nodes = "node" if count == 1 else "nodes"
            return f"link tables of {count} {nodes} are being computed"
        return None

    def ages(self) -> Mapping[str, Callable[[], float | None]]:
        """Return, by resource, what returns the time since the last message of its watch [s]."""
        watches = {
            **self._reflectors,
            **self.volumes.reflectors,
            "namespaces": self.namespaces.reflector,
        }
        return {name: reflector.age for name, reflector in watches.items()}

    def _pods_changed(self, items: Mapping[Key, PodInfo], changed: Set[Key]) -> None:
        lost: set[Key] = set()
        claims: set[Key] = set()
        volume_claims: set[Key] = set()
        records: list[PodUsage] = []
        for key in changed:
            self.namespaces.update(key, items.get(key))
            before, pod = self.state.pod(key), self._complete(items.get(key))
            if before and (pod is None or pod.uid != before.uid):
                self._close_unreleased(before)
            claims |= self.claim_holders.update(before, pod)
            volume_claims |= self._claim_users.update(key, before, pod)
            self._device_claim_users.update(key, before, pod)
            self.workloads.update_leader(key, pod)
            self.state.update_pod(key, pod)
            if before and before.gang and _has_lost_gpus(before, pod):
                lost.add((before.namespace, before.gang))
            records += _changed_records(before, pod)
        self.claims.refresh(claims)
        self._volumes_changed(self.volumes.exclusive(volume_claims))
        self.nodes.update_records(records)
        # At once: a scheduler may ask for a node before the next round of the planner.
        self.replacements.pods_lost(lost)
        self.changed.set()

    def _close_unreleased(self, pod: PodInfo) -> None:
        """Close the GPUs that a pod which is gone had by a claim, unless its containers ended."""
        usage = pod.usage
        ledger = self.state.ledger(usage.node) if usage and usage.by_claim else None
        if ledger is None or not ledger.node.is_claims or pod.uid in self.pods.ended:
            return
        held = ledger.holdings.get(pod.uid)
        if held and held.gpus.shares:
            self.nodes.close(ledger.node.name, held)

    def _claims_changed(self, changed: Set[Key]) -> None:
        """Take the devices of the claims of pods."""
        pods = self.pods.reflector.items
        holders = chain.from_iterable(map(self.claim_holders.pods, changed))
        for key in {*holders, *self._device_claim_users.naming(changed)}:
            if pod := self._complete(pods.get(key)):
                self.state.update_pod(key, pod)
                self.changed.set()

    def _classes_changed(self, resources: ClassResources | None) -> None:
        self.state.set_class_resources(resources)
        self.changed.set()

    def _volumes_changed(self, claims: Set[Key] | None) -> None:
        """Take the volumes of the pods that name claims which changed; None: all claims."""
        self._stale_pods.add(self._claim_users.naming(claims))

    def _update_pod(self, key: Key) -> None:
        """Take the volumes and namespaces of a pod."""
        pod = self._complete(self.pods.reflector.items.get(key))
        if pod and _completed(pod) != _completed(self.state.pod(key)):
            self.state.update_pod(key, pod)
            self.changed.set()

    def _complete(self, pod: PodInfo | None) -> PodInfo | None:
        """Return a pod with the devices and places of its claims, its volumes and namespaces."""
        if pod is None:
            return None
        pod = with_devices(pod, self.claims.held)
        pod = self.namespaces.complete(with_claim_places(pod, self.claims.places))
        return with_volumes(pod, self.volumes.objects, self._users_of)

    def _users_of(self, claim: Key) -> Iterator[PodInfo]:
        """Yield the pods that use a PersistentVolumeClaim."""
        return filter(None, map(self.state.pod, self._claim_users.using(claim)))

    def _policy_changed(self, items: Mapping[Key, ConfigMap], _changed: Set[Key]) -> None:
        config_map = items.get((POLICY_NAMESPACE, POLICY_NAME))
        data = config_map.data if config_map else None
        self._config = self._config.update(POLICY, (data or {}).get(POLICY_KEY))
        if error := self._config.error(POLICY):
            # The webhook creates an Event.
            _log.error("Policy rejected", err=error)
            return
        policy = self.policy.policy
        self.state.set_preferences(preferences_of(policy), migrate=policy.migration.gpushare)
        self.nodes.set_policy(self.policy)
        self.changed.set()


def _completed(pod: PodInfo | None) -> tuple[object, ...]:
    """Return what a pod gets from its volumes and namespaces, to compare it."""
    member = (pod.member or pod.ungated) if pod else None
    neighbor = pod.usage.neighbor if pod and pod.usage else None
    return *volumes_in(pod), member.rules if member else None, neighbor


def _changed_records(before: PodInfo | None, pod: PodInfo | None) -> Iterator[PodUsage]:
    """Yield the usages whose records name GPUs, if a pod has other ones now."""
    usages = [one.usage for one in (before, pod) if one and one.usage and one.usage.recorded]
    if len(usages) != 2 or usages[0].recorded != usages[1].recorded:
        yield from usages


def _has_lost_gpus(before: PodInfo, pod: PodInfo | None) -> bool:
    """Return whether a pod had GPUs, and is gone now, or has ended."""
    had_gpus = before.usage is not None and bool(before.usage.target)
    return had_gpus and (pod is None or pod.uid != before.uid or pod.usage is None)
