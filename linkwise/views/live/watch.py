"""Watches a live cluster, and makes a `CurrentCluster` after each change."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from linkwise.cluster.gang import gang_mark
from linkwise.cluster.nodes.taint_rules import VERSIONS
from linkwise.cluster.objects.pod import Pod
from linkwise.manifest.value import InputError
from linkwise.planning.gang.crd import GANGS
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.kube.decode import decode
from linkwise.runtime.kube.dra_api import CLAIMS, CLASSES, SLICES, find_api
from linkwise.runtime.kube.objects import Key
from linkwise.runtime.kube.paths import api_path
from linkwise.runtime.kube.reflector import Reflector
from linkwise.runtime.process.clock import monotonic, wait_at_most
from linkwise.runtime.process.lifecycle import run_until
from linkwise.views.files.current_cluster import CurrentCluster
from linkwise.views.files.objects import Plain
from linkwise.views.live.api_reader import ApiReader
from linkwise.views.live.fetch import (
    CONFIG_NAMESPACES,
    controllers_of,
    evictable_pods,
    read_budgets,
    read_lease,
    read_owners,
    read_pod_groups,
    read_volumes,
    unread,
)
from linkwise.views.live.kubeconfig import Access
from linkwise.views.live.live_cluster import LiveCluster, read_node, read_object
from linkwise.views.live.live_pods import LivePods
from linkwise.views.live.user_kube import UserKube

DELAY = 0.1
"""The shortest time between two changes that are shown [s]."""
_LONGEST = 1.0
"""The longest time without work after a change: as long as its work, if that is shorter [s]."""
_OPTIONAL = 5.0
"""How long collections are waited for that the user may not be allowed to list [s]."""
_OWNERS = 15.0
"""The time after which owners of waiting pods, budgets and the Lease are read again [s]."""
_NEW = 250
"""The number of owners of pods that may be evicted that are read before a change is shown: with
those above them, up to four levels, they are within the limit of `read_owners`."""
_FORGOTTEN = 1000
"""Owners that are kept although none of their pods may be evicted any more."""

_plain = msgspec.json.Decoder(dict[str, Any])


class ClusterWatch:
    """The objects of a live cluster, as far as Linkwise reads them."""

    def __init__(self, kube: Kube, namespace: str, warnings: tuple[str, ...]) -> None:
        """Prepare the watches.

        Args:
            kube: Of the user, or of the server in the cluster.
            namespace: Namespace of objects that are named without one.
            warnings: What may not be read.
        """
        self._kube = kube
        self._reader, self._warnings = ApiReader(kube), warnings
        self._dirty = asyncio.Event()
        self._extra: list[Plain] = []
        self._unread: list[str] = []
        """A warning, where not all owners of waiting pods are read."""
        self._known = frozenset[str]()
        self._has_budgets = False
        self._asked = set[str]()
        """Uids of the owners of pods that may be evicted, which were read, or are not there."""
        self._evictable: dict[str, Plain] = {}
        """These owners and those above them, by uid."""
        self._read_at = float("-inf")
        self._cluster = LiveCluster(kube.server, namespace)

        def on_change(*_: object) -> None:
            self._dirty.set()

        self._nodes = Reflector(kube, "/api/v1/nodes", read_node, on_change=on_change)
        self._live_pods = LivePods()
        self._pods = Reflector(
            kube, "/api/v1/pods", self._live_pods.read, on_change=self._pods_changed
        )
        self._gangs = Reflector(kube, GANGS, lambda raw: decode(raw, _plain), on_change=on_change)
        self._others = [
            self._reflector("/api/v1/namespaces", "Namespace"),
            *(
                self._reflector(api_path("v1", "namespaces", name, "configmaps"), "ConfigMap")
                for name in sorted(CONFIG_NAMESPACES)
            ),
        ]
        self._has_devices = asyncio.Event()
        """The devices of claims nodes are listed, or not served."""

    def _reflector(self, path: str, kind: str) -> Reflector[Plain]:
        return Reflector(
            self._kube, path, partial(read_object, kind), on_change=lambda *_: self._dirty.set()
        )

    def _pods_changed(self, items: Mapping[Key, Pod], changed: Set[Key]) -> None:
        self._live_pods.changed(items, changed)
        self._dirty.set()

    @property
    def problem(self) -> str:
        """Why nodes or pods are not watched now; empty while they are."""
        return self._nodes.error or self._pods.error or ""

    async def run(
        self,
        publish: Callable[[CurrentCluster], Awaitable[None]],
        report: Callable[[str], None],
    ) -> None:
        """Publish the cluster after each change, until cancelled.

        Args:
            publish: Takes each state.
            report: Takes why the cluster is not watched, or cannot be shown; empty: it is.
        """
        async with asyncio.TaskGroup() as tasks:
            reflectors: tuple[Reflector[Any], ...] = (self._nodes, self._pods, self._gangs)
            for reflector in (*reflectors, *self._others):
                tasks.create_task(reflector.run())
            tasks.create_task(self._watch_devices())
            tasks.create_task(self._publish_changes(publish, report))

    async def _watch_devices(self) -> None:
        """Watch the devices of claims nodes, and who holds them, where they are served."""
        api = await find_api(self._kube, VERSIONS)
        kinds = {CLAIMS: "ResourceClaim", SLICES: "ResourceSlice"} if api.has_claims else {}
        if api.rules:
            kinds[api.rules] = "DeviceTaintRule"
        devices = [self._reflector(path, kind) for path, kind in kinds.items()]
        classes = [self._reflector(CLASSES, "DeviceClass")] if api.has_claims else []
        self._others += (*devices, *classes)
        async with asyncio.TaskGroup() as tasks:
            for reflector in (*devices, *classes):
                tasks.create_task(reflector.run())
            for reflector in devices:
                await reflector.synced.wait()
            self._has_devices.set()

    async def _publish_changes(
        self,
        publish: Callable[[CurrentCluster], Awaitable[None]],
        report: Callable[[str], None],
    ) -> None:
        for required in (self._nodes, self._pods):
            while not required.synced.is_set():
                report(self.problem)
                await wait_at_most(1, required.synced)
        # Of these, one that may not be listed is never complete.
        async with asyncio.TaskGroup() as tasks:
            listed = [self._has_devices, *(each.synced for each in (self._gangs, *self._others))]
            for optional in listed:
                tasks.create_task(wait_at_most(_OPTIONAL, optional))
        while True:
            self._dirty.clear()
            began = monotonic()
            problem = ""
            try:
                await self._read_extra()
                # It takes seconds for thousands of nodes, and the page must be served meanwhile.
                await publish(await asyncio.to_thread(self._taken()))
            except InputError as error:
                # An object is wrong, such as the policy; the last state stays.
                problem = str(error)
            except Exception as error:  # noqa: BLE001 - one object must not end the page of all.
                problem = f"this state cannot be shown: {type(error).__name__}: {error}"[:300]
            report(problem or self.problem)
            await asyncio.sleep(max(DELAY, min(monotonic() - began, _LONGEST)))
            while not self._dirty.is_set():
                await wait_at_most(1, self._dirty)
                report(problem or self.problem)

    async def _read_extra(self) -> None:
        """Read owners, PodGroups, disruption budgets and the Lease, when they may be new."""
        waiting, evictable = list(self._waiting()), evictable_pods(self._pods.items.values())
        await self._read_evictable(evictable)
        owners = frozenset(owner.uid for pod in waiting for owner in controllers_of(pod.metadata))
        is_known = owners <= self._known and (self._has_budgets or not evictable)
        if is_known and monotonic() - self._read_at < _OWNERS:
            return
        self._extra = [
            *await read_owners(self._reader, waiting),
            *await read_pod_groups(self._reader, waiting),
            *(await read_budgets(self._reader) if evictable else ()),
            *await read_lease(self._reader),
            *(await read_volumes(self._reader, self._pods.items.values()) or ()),
        ]
        self._unread = unread(waiting)
        self._known, self._has_budgets = owners, bool(evictable)
        self._read_at = monotonic()

    async def _read_evictable(self, pods: Sequence[Pod]) -> None:
        """Read the owners of pods that may be evicted, each once: some now, and others later."""
        owners = [{owner.uid for owner in controllers_of(pod.metadata)} for pod in pods]
        if len(self._asked) > len(set().union(*owners)) + _FORGOTTEN:
            self._asked, self._evictable = set(), {}
        new = dict.fromkeys(uid for uids in owners for uid in uids if uid not in self._asked)
        some = set(islice(new, _NEW))
        owned = [pod for pod, uids in zip(pods, owners, strict=True) if uids & some]
        read = await read_owners(self._reader, owned)
        self._asked |= some
        if len(new) > len(some):
            self._dirty.set()
        self._evictable |= {plain["metadata"]["uid"]: plain for plain in read}

    def _waiting(self) -> Iterator[Pod]:
        """Yield the members of gangs that have no node yet."""
        for pod in self._pods.items.values():
            if not pod.spec.node_name and gang_mark(pod)[0]:
                yield pod

    def _taken(self) -> Callable[[], CurrentCluster]:
        """Take the objects as they are now; return a function that makes the cluster of them."""
        known = (*self._warnings, *self._unread)
        watched = (item for each in self._others for item in each.items.values())
        others = [*self._extra, *self._evictable.values(), *watched]
        nodes = {name: item for (_, name), item in self._nodes.items.items()}
        pods, gangs = list(self._pods.items.values()), tuple(self._gangs.items.values())

        def make() -> CurrentCluster:
            current = self._cluster.state(nodes, pods, others)
            return replace(current, gangs=gangs, warnings=(*known, *current.warnings))

        return make


async def watch_until(
    interrupted: asyncio.Event,
    access: Access,
    warnings: tuple[str, ...],
    publish: Callable[[CurrentCluster], Awaitable[None]],
    report: Callable[[str], None],
) -> None:
    """Publish the cluster of a kubeconfig after each change, until an event.

    Raises:
        InputError: The kubeconfig cannot be used.
    """
    async with await UserKube.of(access) as kube:
        watch = ClusterWatch(kube, kube.namespace, warnings)
        await run_until(interrupted, watch.run(publish, report))
