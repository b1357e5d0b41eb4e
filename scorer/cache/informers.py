"""What the scorer knows of the cluster: nodes, pods, Gangs, Jobs and the policy, as watched.

Everything is listed afresh by each leader. Changes wake the planner, which reads the state while
nothing is awaited.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import structlog
from msgspec import Raw

from cluster.gang import GangKey
from cluster.keys import POLICY_KEY, POLICY_NAME, POLICY_NAMESPACE, TOPOLOGY_NAMESPACE
from cluster.ledger import Ledger
from cluster.node import NodeError, NodeObject
from cluster.pod import Owner
from policy.document import parse_policy
from policy.problem import PolicyError
from policy.snapshot import PolicySnapshot
from runtime.kube.client import Kube
from runtime.kube.errors import UNDECODABLE
from runtime.kube.reflector import Key, Reflector
from scorer.cache.cluster_state import ClusterState
from scorer.cache.node_info import ConfigMap, build_node
from scorer.cache.pod_informer import PodInformer
from scorer.cache.workloads import Job, StatefulSet, read_job, read_stateful_set
from scorer.gang.crd import GANGS, Gang, read_gang
from scorer.gang.owners import ExpectedPods
from scorer.gang.pod_info import PodInfo
from scorer.gang.unit import Owners
from scorer.placement.snapshot import Snapshot
from topology.machine import TopologyError

_MOST_TOLD, _LONGEST_TOLD = 5, 200
"""So much is told of one node: doubts, and characters of each."""

_log = structlog.get_logger()


_nodes = msgspec.json.Decoder(NodeObject)
_config_maps = msgspec.json.Decoder(ConfigMap)


def _told(raw: Raw) -> ConfigMap | None:
    """Return a ConfigMap that tells of a node; None of all others, which need not be kept."""
    found = _config_maps.decode(raw)
    return found if found.node else None


def _node(raw: Raw) -> NodeObject | None:
    """Return a Node; None of one that cannot be read: by what it was before, nothing is placed."""
    try:
        return _nodes.decode(raw)
    except UNDECODABLE as error:
        _log.warning("Could not read node", err=str(error)[:_LONGEST_TOLD])
        return None


class Informers:
    """The state, and the tasks that keep it."""

    def __init__(self, kube: Kube) -> None:
        """Say whom to ask; `run` begins."""
        self.state = ClusterState()
        self.policy = PolicySnapshot()
        self.changed = asyncio.Event()
        """Set with each change; who waits for it clears it."""
        self._above: dict[str, Owner | None] = {}
        self._job_uids: dict[Key, str] = {}
        self._set_uids: dict[Key, str] = {}
        self._leaders: dict[Key, str] = {}
        """Uids of pods that may own what makes other pods."""
        self._declared: dict[str, int] = {}
        self._makes: dict[str, ExpectedPods] = {}
        self._groups: dict[GangKey, int] = {}
        self.owners = Owners(self._above, self._declared, self._makes, self._groups)
        self.fails_on_eviction: set[str] = set()
        """Uids of the Jobs that count an evicted pod as a failure."""
        self._suspended: set[str] = set()
        """Uids of owners that make no pods for now, as was answered."""
        self._suspended_watched: set[str] = set()
        """The same of batch Jobs and StatefulSets, as they are watched."""
        self._gang_keys: dict[Key, GangKey] = {}
        """By namespace and name of the object."""
        self._named: dict[Key, set[GangKey]] = {}
        """By namespace and name of the gang: the gangs that have a Gang object."""
        self._dirty_gangs: set[GangKey] = set()
        """Gangs whose object changed, or whose owner, since somebody asked."""
        self._dirty_owners: set[str] = set()
        """Uids of owners of which other things are known since somebody asked."""
        self.pods = PodInformer(kube, self._pods_changed)
        self._nodes = Reflector(kube, "/api/v1/nodes", _node, on_change=self._nodes_changed)
        self._told = Reflector(
            kube,
            f"/api/v1/namespaces/{TOPOLOGY_NAMESPACE}/configmaps",
            _told,
            on_change=self._told_changed,
        )
        self._policy = Reflector(
            kube,
            f"/api/v1/namespaces/{POLICY_NAMESPACE}/configmaps",
            _config_maps.decode,
            field_selector=f"metadata.name={POLICY_NAME}",
            on_change=self._policy_changed,
        )
        self._jobs = Reflector(kube, "/apis/batch/v1/jobs", read_job, on_change=self._jobs_changed)
        self._sets = Reflector(
            kube, "/apis/apps/v1/statefulsets", read_stateful_set, on_change=self._sets_changed
        )
        self._gangs = Reflector(kube, GANGS, read_gang, on_change=self._gangs_changed)
        self._by_node: dict[str, dict[str, ConfigMap]] = {}
        self._doubts: dict[str, tuple[str, ...]] = {}
        """What was guessed or left out, by the name of each node where anything was."""
        self._tells = False

    @property
    def gangs(self) -> Mapping[Key, Gang]:
        """The Gang objects, by namespace and name."""
        return self._gangs.items

    @property
    def _all(self) -> dict[str, Reflector[Any]]:
        return {
            "pods": self.pods.reflector,
            "nodes": self._nodes,
            "topologies": self._told,
            "policy": self._policy,
            "jobs": self._jobs,
            "statefulsets": self._sets,
            "gangs": self._gangs,
        }

    async def run(self) -> None:
        """Keep the state up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._all.values():
                group.create_task(reflector.run())
            group.create_task(self.pods.run())
            await self.synced()
            # Before, doubts about a node may be answered by what was not listed yet.
            self._tells = True
            for node, doubts in self._doubts.items():
                _tell(node, doubts)

    async def synced(self) -> None:
        """Wait until everything was listed."""
        for reflector in self._all.values():
            await reflector.synced.wait()

    def missing(self) -> str | None:
        """Say what was not listed yet; None when all was."""
        for name, reflector in self._all.items():
            if not reflector.synced.is_set():
                return f"{name} were not listed yet: {reflector.error or 'the list is under way'}"
        return None

    def ages(self) -> Mapping[str, Callable[[], float | None]]:
        """Return what tells for how long nothing was heard of each resource [s]."""
        return {name: partial(_age, reflector) for name, reflector in self._all.items()}

    def set_expected(self, uid: str, members: int, makes: ExpectedPods) -> None:
        """Note how many pods with GPUs an owner declares, and which."""
        if (self._declared.get(uid), self._makes.get(uid)) == (members, makes):
            return
        self._declared[uid], self._makes[uid] = members, makes
        self._dirty_owners.add(uid)
        self._tell_again(uid)
        self.changed.set()

    def set_suspended(self, uid: str, *, suspended: bool) -> None:
        """Note whether an owner makes no pods for now."""
        if (uid in self._suspended) != suspended:
            (self._suspended.add if suspended else self._suspended.discard)(uid)
            self._tell_again(uid)
            self.changed.set()

    def is_suspended(self, uid: str) -> bool:
        """Tell whether an owner makes no pods for now, as far as is known."""
        return uid in self._suspended or uid in self._suspended_watched

    def gangs_named(self, at: Key) -> Set[GangKey]:
        """Return the gangs of a name that have a Gang object."""
        return frozenset(self._named.get(at, ()))

    def drain_dirty_gangs(self) -> Set[GangKey]:
        """Return the gangs whose object or owner is another than at the last call."""
        taken, self._dirty_gangs = self._dirty_gangs, set()
        return taken

    def _tell_again(self, owner: str) -> None:
        self._dirty_gangs.update(
            key for keys in self._named.values() for key in keys if key.owner == owner
        )

    def set_group_size(self, gang: GangKey, members: int) -> None:
        """Note how many members a gang's PodGroup says that there must be."""
        if self._groups.get(gang) == members:
            return
        self._groups[gang] = members
        self.state.mark_group_dirty((gang.namespace, gang.name))
        self.changed.set()

    def forget(self, gang: GangKey) -> None:
        """Forget what a PodGroup and an owner declare, since no pod of theirs is there."""
        self._groups.pop(gang, None)
        self._declared.pop(gang.owner, None)
        self._makes.pop(gang.owner, None)

    def drain_dirty_owners(self) -> Set[str]:
        """Return the uids of owners of which other things are known since the last call."""
        taken, self._dirty_owners = self._dirty_owners, set()
        return taken

    def _pods_changed(self, items: Mapping[Key, PodInfo], changed: Set[Key]) -> None:
        for key in changed:
            self._note_leader(key, items.get(key))
            self.state.update_pod(key, items.get(key))
        self.changed.set()

    def _note_leader(self, key: Key, pod: PodInfo | None) -> None:
        before, leader = self._leaders.pop(key, None), pod if pod and pod.leads else None
        if before is not None and (leader is None or leader.uid != before):
            self._set_above(before, None)
        if leader is not None:
            self._leaders[key] = leader.uid
            self._set_above(leader.uid, leader.controller)

    def _sets_changed(self, items: Mapping[Key, StatefulSet], changed: Set[Key]) -> None:
        for key in changed:
            before, found = self._set_uids.pop(key, None), items.get(key)
            if before is not None and (found is None or found.uid != before):
                self._set_above(before, None)
                self._suspended_watched.discard(before)
            if found is not None:
                self._set_uids[key] = found.uid
                self._set_above(found.uid, found.above)
                self._note_suspended(found.uid, suspended=found.is_suspended)
        self.changed.set()

    def _set_above(self, uid: str, above: Owner | None) -> None:
        """Note the controller of a StatefulSet or of a leader; of those without one nothing."""
        if self._above.get(uid) == above:
            return
        if above is None:
            del self._above[uid]
        else:
            self._above[uid] = above
        self._dirty_owners.add(uid)

    def _nodes_changed(self, _items: Mapping[Key, NodeObject | None], changed: Set[Key]) -> None:
        for _, name in changed:
            self._read_node(name)
        self.changed.set()

    def _told_changed(self, items: Mapping[Key, ConfigMap | None], _changed: Set[Key]) -> None:
        before, self._by_node = self._by_node, {}
        for (_, name), found in items.items():
            if found is not None and found.node:
                self._by_node.setdefault(found.node, {})[name] = found
        for node in before.keys() | self._by_node.keys():
            if before.get(node) != self._by_node.get(node):
                self._read_node(node)
        self.changed.set()

    def _policy_changed(self, items: Mapping[Key, ConfigMap], _changed: Set[Key]) -> None:
        found = items.get((POLICY_NAMESPACE, POLICY_NAME))
        try:
            policy = parse_policy(((found and found.data) or {}).get(POLICY_KEY, ""))
        except PolicyError as error:
            # The webhook tells its author; the last one that could be read stays.
            _log.error("Refused policy", err=str(error))
            return
        self.policy = PolicySnapshot(policy, generation=self.policy.generation + 1)
        preferences = replace(
            Snapshot(Ledger()),
            placement=policy.placement.strategy,
            domains=policy.gangs.domains,
        )
        self.state.set_preferences(preferences, migrate=policy.migration.gpushare)
        for _, name in self._nodes.items:
            self._read_node(name)
        self.changed.set()

    def _jobs_changed(self, items: Mapping[Key, Job], changed: Set[Key]) -> None:
        for key in changed:
            before, job = self._job_uids.pop(key, None), items.get(key)
            if before is not None and (job is None or job.uid != before):
                self._forget_job(before)
            if job is not None:
                self._job_uids[key] = job.uid
                self._note_job(job)
        self.changed.set()

    def _note_job(self, job: Job) -> None:
        uid = job.uid
        if self._above.get(uid) != job.above:
            self._dirty_owners.add(uid)
        self._above[uid] = job.above
        (self.fails_on_eviction.add if job.fails_when_evicted else self.fails_on_eviction.discard)(
            uid
        )
        self._note_suspended(uid, suspended=job.is_suspended)

    def _note_suspended(self, uid: str, *, suspended: bool) -> None:
        """Note whether a Job or StatefulSet makes no pods for now."""
        watched = self._suspended_watched
        if suspended != (uid in watched):
            (watched.add if suspended else watched.discard)(uid)
            self._tell_again(uid)

    def _forget_job(self, uid: str) -> None:
        if self._above.pop(uid, None) is not None:
            self._dirty_owners.add(uid)
        self.fails_on_eviction.discard(uid)
        self._suspended_watched.discard(uid)

    def _gangs_changed(self, items: Mapping[Key, Gang], changed: Set[Key]) -> None:
        for name in changed:
            before, gang = self._gang_keys.pop(name, None), items.get(name)
            if before is not None:
                self._named[before[:2]].discard(before)
                if gang is None:
                    self._suspended.discard(before.owner)
                if not self._named[before[:2]]:
                    del self._named[before[:2]]
            if gang is not None:
                key = self._gang_keys[name] = gang.key
                self._named.setdefault(key[:2], set()).add(key)
                self._dirty_gangs.add(key)
        self.changed.set()

    def _read_node(self, name: str) -> None:
        raw = self._nodes.items.get(("", name))
        try:
            node = build_node(raw, self._by_node.get(name, {}), self.policy) if raw else None
        except (NodeError, TopologyError) as error:
            _log.warning("Left node out", node=name, err=str(error))
            node = None
        self.state.update_node(name, node)
        self._doubt(name, node.warnings if node else ())

    def _doubt(self, node: str, doubts: tuple[str, ...]) -> None:
        """Note what was guessed or left out of a node, and log it where that is something else."""
        before = self._doubts.pop(node, ())
        if doubts:
            self._doubts[node] = doubts
        if doubts and doubts != before and self._tells:
            _tell(node, doubts)


def _tell(node: str, doubts: tuple[str, ...]) -> None:
    # Whoever publishes a topology may have much to say.
    told = [doubt[:_LONGEST_TOLD] for doubt in doubts[:_MOST_TOLD]]
    _log.warning("Inconsistent node data", node=node, warnings=told, count=len(doubts))


def _age(reflector: Reflector[Any]) -> float | None:
    if not reflector.synced.is_set():
        return None
    return reflector.last_event_age(time.monotonic())
