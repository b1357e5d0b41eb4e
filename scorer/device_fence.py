"""Keep the GPUs of claims nodes for claims of Linkwise: one DeviceTaintRule a node.

Without these rules claims of others may take GPUs that are planned for a gang, which is then
planned again. Another one keeps each busy GPU from all claims. A rule is written by whichever
version of the API is served.
"""

import asyncio
from collections.abc import Callable, Mapping

import msgspec
import structlog

from linkwise.cluster.nodes.device_fence import (
    OURS,
    FenceRule,
    rule_of,
    settling_reason,
    unfenced_reason,
    wanted_rules,
)
from linkwise.cluster.nodes.taint_rules import VERSIONS, RuleObject
from linkwise.planning.state.cluster_state import ClusterState
from linkwise.runtime.kube.client import ApiError, Ignored, Kube, KubeError
from linkwise.runtime.kube.dra_api import api_version, find_api
from linkwise.runtime.kube.errors import is_outdated
from linkwise.runtime.kube.objects import Key
from linkwise.runtime.kube.paths import path_below
from linkwise.runtime.kube.reflector import Reflector
from linkwise.runtime.process.clock import loop_time
from linkwise.runtime.process.fair_schedule import Limits
from linkwise.runtime.process.work_queue import Retry, WorkQueue
from scorer.metrics import Stage
from scorer.queue.fault_isolation import FaultIsolation

_ABSENT = (
    "the API server serves no DeviceTaintRules: Kubernetes 1.37 does, and 1.36 with the feature "
    "gate DRADeviceTaintRules and --runtime-config=resource.k8s.io/v1beta2=true"
)
_LIMITS = Limits(8)
"""Rules that are written at the same time."""
_RETRY = Retry(1.0, 60.0)
_DISCOVERY = 60.0
"""Between two checks which version of the API is served [s]."""
_MAX_ERROR = 200
"""The API server may quote the whole rule in an error [characters]."""

_log = structlog.get_logger()
_rules = msgspec.json.Decoder(RuleObject)


class DeviceFence:
    """The rules of all nodes, for one term of the Lease."""

    def __init__(
        self,
        reading: Kube,
        writing: Kube,
        state: ClusterState,
        faults: FaultIsolation,
        bypasses: Callable[[], Mapping[str, Mapping[str, float]]],
    ) -> None:
        """Write nothing yet.

        Args:
            reading: The API server, for lists and watches.
            writing: The same with a short timeout, for writes.
            state: The nodes.
            faults: Isolates unforeseen exceptions.
            bypasses: Returns, by pool and device, when it was last allocated to a claim that does
                not tolerate the taint [s since 1970].
        """
        self._reading, self._writing, self._state = reading, writing, state
        self._faults, self._bypasses = faults, bypasses
        self._problem: str | None = "it is not known yet whether DeviceTaintRules are served"
        """Why no rule can be written; None: they can."""
        self._collection = ""
        self._reflector: Reflector[RuleObject] | None = None
        self._wanted: dict[str, FenceRule] = {}
        self._surplus: set[str] = set()
        """Rules that existed at the last comparison, and are to be deleted. One that the watch has
        shown since then may be of a node whose driver is away, and stays."""
        self._errors: dict[str, str] = {}
        self._queue = self._new_queue()

    @property
    def _stored(self) -> dict[str, RuleObject]:
        """The rules that exist, by name."""
        items: Mapping[Key, RuleObject] = self._reflector.items if self._reflector else {}
        return {name: rule for (_, name), rule in items.items()}

    @property
    def rules(self) -> int:
        """The number of rules of Linkwise that exist."""
        return len(self._stored)

    def _find(self, name: str) -> RuleObject | None:
        return self._reflector.items.get(("", name)) if self._reflector else None

    def unfenced(self) -> dict[str, str]:
        """Return, by claims node, why claims of others may get its GPUs."""
        nodes = [ledger.node for ledger in self._state.snapshot().nodes if ledger.node.is_claims]
        if self._problem:
            return {node.name: self._problem for node in nodes}
        stored, bypasses = self._stored, self._bypasses()
        reasons = (
            (
                node.name,
                unfenced_reason(
                    node,
                    stored,
                    self._errors,
                    bypasses.get(node.pool.name, {}) if node.pool else {},
                ),
            )
            for node in nodes
        )
        return {name: reason for name, reason in reasons if reason}

    def unsettled(self, now: float) -> dict[str, str]:
        """Return, by claims node, why kube-scheduler may be about to give its GPUs to others.

        Args:
            now: The time [s since 1970].
        """
        nodes = [ledger.node for ledger in self._state.snapshot().nodes if ledger.node.is_claims]
        settling = ((node.name, settling_reason(node, self._stored, now)) for node in nodes)
        return {name: reason for name, reason in settling if reason} | self.unfenced()

    async def run(self, interval: float) -> None:
        """Keep the rules until cancelled.

        Args:
            interval: Between two comparisons with the nodes [s].
        """
        while True:
            collection = (await find_api(self._reading, VERSIONS)).rules
            if collection:
                await self._keep(collection, interval)
            else:
                self._problem = _ABSENT
                await asyncio.sleep(_DISCOVERY)

    async def _keep(self, collection: str, interval: float) -> None:
        """Keep the rules by one version of the API, while it is served."""
        self._collection, self._queue = collection, self._new_queue()
        reflector = Reflector(
            self._reading,
            collection,
            _rules.decode,
            label_selector=",".join(map("=".join, OURS.items())),
        )
        self._reflector = reflector
        checked = loop_time()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(reflector.run()), group.create_task(self._queue.run())]
            while True:
                if reflector.synced.is_set():
                    self._problem = None
                    with self._faults.isolate(Stage.FENCE, ""):
                        self._compare()
                elif reflector.error:
                    self._problem = f"DeviceTaintRules cannot be listed: {reflector.error}"
                await asyncio.sleep(interval)
                if loop_time() - checked >= _DISCOVERY:
                    checked = loop_time()
                    if (await find_api(self._reading, VERSIONS)).rules != collection:
                        break
            for task in tasks:
                task.cancel()

    def _new_queue(self) -> WorkQueue[str]:
        return WorkQueue(self._write, retry=_RETRY, on_error=self._failed, limits=_LIMITS)

    def _compare(self) -> None:
        """Queue the rules that differ from those that should exist."""
        stored = self._stored
        nodes = (ledger.node for ledger in self._state.snapshot().nodes)
        self._wanted = wanted_rules(nodes, stored.values())
        unfenced: set[str | None] = set()
        for name, rule in self._wanted.items():
            if rule_of(stored.get(name)) != rule:
                unfenced.add(rule.selector.pool)
                self._queue.add(name)
        # The new rules of a pool exist before an old one is deleted.
        self._surplus = {
            name
            for name in stored.keys() - self._wanted.keys()
            if (ours := rule_of(stored[name])) is None or ours.selector.pool not in unfenced
        }
        for name in self._surplus:
            self._queue.add(name)
        known = stored.keys() | self._wanted.keys()
        self._errors = {name: error for name, error in self._errors.items() if name in known}

    async def _write(self, name: str) -> None:
        """Create, correct or delete one rule.

        Raises:
            KubeError: It was not written.
        """
        wanted, stored = self._wanted.get(name), self._find(name)
        collection, version = self._collection, api_version(self._collection)
        if wanted is None:
            if stored is not None and name in self._surplus:
                await self._delete(path_below(collection, name), stored.metadata.uid)
        elif stored is None:
            await self._writing.create(collection, wanted.body(version), Ignored)
        elif rule_of(stored) != wanted:
            body = wanted.body(version, stored.metadata.resource_version)
            await self._writing.update(path_below(collection, name), body, Ignored)
        self._errors.pop(name, None)

    async def _delete(self, path: str, uid: str) -> None:
        try:
            await self._writing.delete(path, body={"preconditions": {"uid": uid}})
        except ApiError as error:
            if not is_outdated(error):
                raise

    def _failed(self, name: str, error: Exception, delay: float | None) -> None:
        if not isinstance(error, KubeError):
            self._faults.count(Stage.FENCE, name, error, delay)
            return
        self._errors[name] = str(error)[:_MAX_ERROR]
        _log.warning("Could not write DeviceTaintRule", rule=name, err=str(error))
