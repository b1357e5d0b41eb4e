"""Plans of gangs that are not written yet: the newest of each gang, which has the earlier ones."""

import asyncio
from typing import NamedTuple

from msgspec import structs

from linkwise.cluster.gang import GangKey
from linkwise.planning.gang.crd_plan import GangPlan
from linkwise.planning.gang.unit import Unit
from linkwise.runtime.process.clock import Clock, rfc3339
from scorer.report.gang_writer import GangWriter


class _Plan(NamedTuple):
    unit: Unit
    plan: GangPlan
    written: asyncio.Future[None]
    """Of this plan, and of those that it replaced: it has their members, too."""


class UnwrittenPlans:
    """The plans that wait to be written, for one term of the Lease."""

    def __init__(self, gangs: GangWriter, clock: Clock) -> None:
        """Start without plans.

        Args:
            gangs: Writes them.
            clock: The wall clock [s since 1970].
        """
        self._gangs, self._clock = gangs, clock
        self._plans: dict[GangKey, _Plan] = {}

    def add(self, unit: Unit, plan: GangPlan) -> asyncio.Future[None]:
        """Let a plan be written with the time; return the outcome of that."""
        before = self._plans.get(unit.key)
        written = before.written if before else asyncio.get_running_loop().create_future()
        dated = structs.replace(plan, planned_at=plan.planned_at or rfc3339(self._clock()))
        self._plans[unit.key] = _Plan(unit, dated, written)
        return written

    async def write(self, key: GangKey) -> bool:
        """Write the plan of a gang; return whether there was one.

        An error is the outcome of `add` alone.
        """
        plan = self._plans.pop(key, None)
        if plan is None:
            return False
        try:
            await self._gangs.write_plan(plan.unit, plan.plan)
        except Exception as error:  # noqa: BLE001 - the caller of `add` handles it.
            plan.written.set_exception(error)
        else:
            plan.written.set_result(None)
        return True
