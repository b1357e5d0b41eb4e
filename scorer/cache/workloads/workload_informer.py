"""Watch the owners of pods: batch Jobs, StatefulSets, and pods that own other pods.

Owners of other kinds are not watched; `GangSizeResolver` reads them, and sets here what it read.
"""

from collections.abc import Callable, Iterable, Mapping, Set

from linkwise.cluster.gang import GangKey
from linkwise.cluster.objects.metadata import Owner
from linkwise.planning.gang.joint import joint_gangs
from linkwise.planning.gang.owners import Joint, Owners
from linkwise.planning.gang.placed_units import eviction_blocker
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.state.cluster_state import ClusterState
from linkwise.planning.state.workloads import Job, StatefulSet, read_job, read_stateful_set
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.kube.objects import Key
from linkwise.runtime.kube.reflector import Reflector
from linkwise.workloads.members import ExpectedPods
from linkwise.workloads.state import OwnerState
from scorer.cache.workloads.gang_informer import GangInformer


class WorkloadInformer:
    """The owners of pods, and how many pods they declare."""

    def __init__(
        self,
        kube: Kube,
        state: ClusterState,
        gangs: GangInformer,
        on_change: Callable[[], None],
    ) -> None:
        """Prepare the watches.

        Args:
            kube: The API server.
            state: Its groups are assembled again when the size of a PodGroup changes.
            gangs: Those of an owner that changes are reported again.
            on_change: Called after every change.
        """
        self._state, self._gangs, self._on_change = state, gangs, on_change
        self._controllers: dict[str, Owner] = {}
        self._declared: dict[str, int] = {}
        self._expected: dict[str, ExpectedPods] = {}
        self._namespaces: dict[str, str] = {}
        """By uid of an owner that declares pods: its namespace."""
        self._group_sizes: dict[GangKey, int] = {}
        self._totals: dict[str, int] = {}
        self._joint: dict[GangKey, Joint] = {}
        self._seen: dict[Key, tuple[GangKey, ...]] = {}
        """By namespace and gang name: keys of the pods of each owner, the first one first."""
        self._joint_keys: dict[Key, tuple[GangKey, ...]] = {}
        """By namespace and gang name: the keys of these."""
        self.owners = Owners(
            self._controllers,
            self._declared,
            self._expected,
            self._group_sizes,
            self._totals,
            self._joint,
            gangs.placed,
            is_read_on_demand=True,
        )
        self.fails_on_eviction: set[str] = set()
        """Uids of the Jobs that count an evicted pod as a failure."""
        self._states: dict[str, OwnerState] = {}
        """By uid; without the active ones."""
        self._jobs: dict[str, Owner] = {}
        """By uid of a StatefulSet: the MPIJob that controls it."""
        self._watched: set[str] = set()
        """Uids of the Jobs and StatefulSets that exist."""
        self._job_uids: dict[Key, str] = {}
        self._stateful_set_uids: dict[Key, str] = {}
        self._leader_uids: dict[Key, str] = {}
        self._dirty_owners: set[str] = set()
        self.jobs = Reflector(kube, "/apis/batch/v1/jobs", read_job, on_change=self._jobs_changed)
        self.stateful_sets = Reflector(
            kube,
            "/apis/apps/v1/statefulsets",
            read_stateful_set,
            on_change=self._stateful_sets_changed,
        )

    def update_leader(self, key: Key, pod: PodInfo | None) -> None:
        """Take a pod, which may own the StatefulSet of other pods; None: it was deleted."""
        leader = pod if pod and pod.is_group_leader else None
        if deleted := _replace(self._leader_uids, key, leader.uid if leader else None):
            self._set_controller(deleted, None)
        if leader is not None:
            self._set_controller(leader.uid, leader.controller)

    def set_expected(self, namespace: str, uid: str, members: int, expected: ExpectedPods) -> None:
        """Take how many pods with GPUs an owner in a namespace declares, and which."""
        self._namespaces[uid] = namespace
        if (self._declared.get(uid), self._expected.get(uid)) == (members, expected):
            return
        self._declared[uid], self._expected[uid] = members, expected
        self._dirty_owners.add(uid)
        self._gangs.mark_dirty(uid)
        self._on_change()

    def set_total(self, namespace: str, uid: str, total: int) -> None:
        """Take how many pods an owner in a namespace makes; 0: it was read in vain.

        The most counts: a mark keeps the size that its owner had when its pods were made.
        """
        known = self._totals.get(uid)
        if known is None or known < total:
            self._namespaces.setdefault(uid, namespace)
            self._totals[uid] = total
            self._dirty_owners.add(uid)
            self._on_change()

    def regroup(self, group: Key) -> None:
        """Decide again which owners of the pods of a gang name have one gang."""
        pods = tuple(self._state.groups.of(group))
        present = dict.fromkeys(self.owners.own_key(pod) for pod in pods if pod.gang)
        # One that is known to users keeps its name when another owner joins it.
        first = (*sorted(self._gangs.named(group)), *self._seen.pop(group, ()))
        found = joint_gangs(pods, self.owners, self._gangs.joints(group), first)
        if kept := tuple(dict.fromkeys((*(key for key in first if key in present), *present))):
            self._seen[group] = kept
        for key in self._joint_keys.pop(group, ()):
            del self._joint[key]
        if found:
            self._joint.update(found)
            self._joint_keys[group] = tuple(found)

    def set_group_size(self, gang: GangKey, members: int) -> None:
        """Take how many members the PodGroup of a gang requires; 0: there is none."""
        if self._group_sizes.get(gang) != members:
            self._group_sizes[gang] = members
            self._state.groups.mark_dirty((gang.namespace, gang.name))
            self._on_change()

    def set_state(self, uid: str, state: OwnerState) -> None:
        """Take whether an owner makes pods; of one that is watched only that it has ended."""
        is_known = uid in self._watched and not state.is_final
        if not is_known and self._note_state(uid, state):
            self._on_change()

    def eviction_blocker(self, pods: Iterable[PodInfo]) -> str | None:
        """Return why pods must not be evicted; None: they may be."""
        return eviction_blocker(pods, self.fails_on_eviction)

    def state(self, uid: str) -> OwnerState:
        """Return whether an owner makes pods, as far as is known."""
        return self._states.get(uid, OwnerState.ACTIVE)

    def job_of(self, uid: str) -> Owner | None:
        """Return the MPIJob that controls a StatefulSet; None: there is none."""
        return self._jobs.get(uid)

    def forget_gang(self, gang: GangKey) -> None:
        """Drop the sizes of a gang without pods."""
        self._group_sizes.pop(gang, None)
        # Users can write owners of other namespaces.
        if self._namespaces.get(gang.owner) == gang.namespace:
            self._declared.pop(gang.owner, None)
            self._expected.pop(gang.owner, None)
            self._totals.pop(gang.owner, None)
            del self._namespaces[gang.owner]

    def forget_owner(self, uid: str) -> None:
        """Drop whether an owner without a Gang makes pods, unless it is watched."""
        if uid not in self._watched:
            self._states.pop(uid, None)

    def drain_dirty_owners(self) -> Set[str]:
        """Return the uids of owners that changed since the last call; the planner calls it."""
        drained, self._dirty_owners = self._dirty_owners, set()
        return drained

    def _jobs_changed(self, items: Mapping[Key, Job], changed: Set[Key]) -> None:
        for key in changed:
            job = items.get(key)
            self._take(self._job_uids, key, job)
            if job is not None:
                failing = self.fails_on_eviction
                (failing.add if job.fails_when_evicted else failing.discard)(job.uid)
        self._on_change()

    def _stateful_sets_changed(self, items: Mapping[Key, StatefulSet], changed: Set[Key]) -> None:
        for key in changed:
            stateful_set = items.get(key)
            self._take(self._stateful_set_uids, key, stateful_set)
            if stateful_set is not None and stateful_set.job:
                self._jobs[stateful_set.uid] = stateful_set.job
        self._on_change()

    def _take(self, uids: dict[Key, str], key: Key, workload: Job | StatefulSet | None) -> None:
        if deleted := _replace(uids, key, workload.uid if workload else None):
            self._set_controller(deleted, None)
            self.fails_on_eviction.discard(deleted)
            self._states.pop(deleted, None)
            self._jobs.pop(deleted, None)
            self._watched.discard(deleted)
        if workload is not None:
            self._watched.add(workload.uid)
            self._set_controller(workload.uid, workload.controller)
            # It is scaled to 0 because its job, which was read, has ended.
            if not (workload.state is OwnerState.SUSPENDED and self.state(workload.uid).is_final):
                self._note_state(workload.uid, workload.state)

    def _set_controller(self, uid: str, controller: Owner | None) -> None:
        """Note the controller of an owner; None: it has none, or the owner was deleted."""
        if self._controllers.get(uid) == controller:
            return
        if controller is None:
            del self._controllers[uid]
        else:
            self._controllers[uid] = controller
        self._dirty_owners.add(uid)

    def _note_state(self, uid: str, state: OwnerState) -> bool:
        """Return whether it changed."""
        if state is self.state(uid):
            return False
        self._states.pop(uid, None)
        if state is not OwnerState.ACTIVE:
            self._states[uid] = state
        self._gangs.mark_dirty(uid)
        return True


def _replace(uids: dict[Key, str], key: Key, uid: str | None) -> str | None:
    """Note the uid of the object of a name; return that of an object that it replaces, if any."""
    before = uids.pop(key, None)
    if uid is not None:
        uids[key] = uid
    return before if before != uid else None
