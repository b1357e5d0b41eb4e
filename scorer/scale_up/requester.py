"""Ask an autoscaler for nodes, as the policy says, while a leader leads."""

import asyncio
from collections.abc import Callable, Iterable

import structlog

from linkwise.cluster.gang import GangKey
from linkwise.planning.cycle.cycle import in_order
from linkwise.planning.gang.unit import Unit
from linkwise.runtime.kube.client import KubeError
from scorer.cache.informers import Informers
from scorer.metrics import Stage
from scorer.queue.fault_isolation import FaultIsolation
from scorer.scale_up.pod_conditions import PodConditions
from scorer.scale_up.provisioning import ProvisioningRequests

_log = structlog.get_logger()


class ScaleUpRequester:
    """Compares the units that wait with what was requested, at intervals."""

    def __init__(
        self,
        informers: Informers,
        provisioning: ProvisioningRequests,
        conditions: PodConditions,
        faults: FaultIsolation,
    ) -> None:
        """Ask for nothing yet."""
        self._informers, self._faults = informers, faults
        self._provisioning, self._conditions = provisioning, conditions
        self._lacked: frozenset[GangKey] = frozenset()
        """The units that lacked capacity in the last pass."""

    async def run(
        self, waiting: Callable[[], Iterable[tuple[Unit, bool]] | None], interval: float
    ) -> None:
        """Ask until cancelled.

        Args:
            waiting: Returns all units that wait, and whether each lacks only capacity; None: not
                known yet.
            interval: Between two passes [s].
        """
        while True:
            await asyncio.sleep(interval)
            units = waiting()
            if units is None or self._faults.is_backing_off(Stage.SCALE_UP, ""):
                continue
            with self._faults.isolate(Stage.SCALE_UP, ""):
                await self._pass(list(units))

    async def _pass(self, units: list[tuple[Unit, bool]]) -> None:
        lacks = frozenset(unit.key for unit, is_lacking in units if is_lacking)
        # Capacity that is freed within one pass needs no node.
        keys, self._lacked = lacks & self._lacked, lacks
        waiting = [unit for unit, _ in units]
        request = self._informers.policy.policy.autoscaling.request
        wanted = keys if request != "off" else frozenset[GangKey]()
        lacking = in_order(unit for unit in waiting if unit.key in wanted)
        try:
            await self._provisioning.reconcile(
                waiting, lacking if request == "provisioningRequest" else None
            )
            await self._conditions.reconcile(waiting, lacking if request == "podCondition" else [])
        except KubeError as error:
            _log.warning("Could not ask for nodes", err=str(error))
